//! Metrics of instance types and offerings, under upstream's names. If a type is no longer offered, its series are
//! removed.
//!
//! Upstream: `pkg/providers/instancetype/metrics.go`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_api::labels;
use karpenter_model::instance_type::InstanceType;
use prometheus::core::Collector;
use prometheus::{GaugeVec, Opts, Registry};

use super::discovered::Discovered;

/// The label values of a series: instance type, capacity type and zone.
pub(super) type Series = [String; 3];

/// The availability and the price of an offering. As in upstream, the price is that of the instance alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OfferingState {
    pub(super) is_available: bool,
    pub(super) price: f64,
}

/// Merges the offerings of several NodePools: an offering counts as available if it is available for one of them. If
/// reservations are used, a zone without a reservation gets a series with availability 0.
pub(super) fn merged_offerings<'a>(
    pools: impl IntoIterator<Item = &'a [InstanceType]>,
    uses_reservations: bool,
) -> BTreeMap<Series, OfferingState> {
    let mut all: BTreeMap<Series, OfferingState> = BTreeMap::new();
    for types in pools {
        for instance_type in types {
            let mut zones = BTreeSet::new();
            for offering in &instance_type.offerings {
                let (Some(capacity_type), Some(zone)) = (offering.capacity_type(), offering.zone()) else {
                    continue;
                };
                let series = [instance_type.name.to_string(), capacity_type.to_string(), zone.to_string()];
                let entry = all.entry(series).or_insert(OfferingState { is_available: false, price: 0.0 });
                entry.is_available |= offering.available;
                entry.price = offering.instance_price();
                zones.insert(zone);
            }
            if uses_reservations {
                for zone in zones {
                    let reserved = labels::CAPACITY_TYPE_RESERVED.to_owned();
                    let series = [instance_type.name.to_string(), reserved, zone.to_string()];
                    all.entry(series).or_insert(OfferingState { is_available: false, price: 0.0 });
                }
            }
        }
    }
    all
}

/// The metrics of instance types. All clones count into the same series.
#[derive(Debug, Clone)]
pub struct TypeMetrics {
    cpu_cores: GaugeVec,
    memory_bytes: GaugeVec,
    available: GaugeVec,
    price: GaugeVec,
    /// The names of instance types that have exported series.
    types: Arc<Mutex<BTreeSet<String>>>,
    offerings: Arc<Mutex<BTreeSet<Series>>>,
}

impl TypeMetrics {
    pub fn new(registry: &Registry) -> Self {
        let of_offering = ["instance_type", "capacity_type", "zone"];
        Self {
            cpu_cores: gauge(
                registry,
                "instance_type_cpu_cores",
                "Number of vCPUs of an instance type.",
                &["instance_type"],
            ),
            memory_bytes: gauge(
                registry,
                "instance_type_memory_bytes",
                "Memory of an instance type, in bytes.",
                &["instance_type"],
            ),
            available: gauge(
                registry,
                "instance_type_offering_available",
                "Whether an offering is available, by instance type, capacity type and zone.",
                &of_offering,
            ),
            price: gauge(
                registry,
                "instance_type_offering_price_estimate",
                "Estimated price per hour of an offering, by instance type, capacity type and zone.",
                &of_offering,
            ),
            types: Arc::default(),
            offerings: Arc::default(),
        }
    }

    pub(super) fn record_instance_types(&self, discovered: &Discovered) {
        let mut before = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<String> =
            discovered.types().iter().map(|known| known.info.name.to_string()).collect();
        for gone in before.difference(&now) {
            let _ = self.cpu_cores.remove_label_values(&[gone]);
            let _ = self.memory_bytes.remove_label_values(&[gone]);
        }
        for known in discovered.types() {
            let name: &str = &known.info.name;
            self.cpu_cores.with_label_values(&[name]).set(f64::from(known.info.vcpus));
            self.memory_bytes.with_label_values(&[name]).set(known.info.memory_mib as f64 * 1024.0 * 1024.0);
        }
        *before = now;
    }

    pub(super) fn record_offerings(&self, offerings: &BTreeMap<Series, OfferingState>) {
        let mut before = self.offerings.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<Series> = offerings.keys().cloned().collect();
        for gone in before.difference(&now) {
            let values = gone.each_ref().map(String::as_str);
            let _ = self.available.remove_label_values(&values);
            let _ = self.price.remove_label_values(&values);
        }
        for (series, OfferingState { is_available, price }) in offerings {
            let values = series.each_ref().map(String::as_str);
            self.available.with_label_values(&values).set(f64::from(u8::from(*is_available)));
            self.price.with_label_values(&values).set(*price);
        }
        *before = now;
    }
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    let opts = Opts::new(format!("karpenter_cloudprovider_{name}"), help);
    let gauge = GaugeVec::new(opts, labels).expect("names and labels are constants, each declared once");
    declare(registry, gauge)
}

/// Registers a metric. If one with the same name is registered already, this one is not exported.
fn declare<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    let _ = registry.register(Box::new(collector.clone()));
    collector
}

#[cfg(test)]
mod tests {
    use karpenter_catalog::aws;
    use prometheus::TextEncoder;

    use super::*;
    use crate::types::Discovered;

    fn exported(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
    }

    #[test]
    fn series_of_removed_instance_types_are_deleted() {
        let registry = Registry::new();
        let metrics = TypeMetrics::new(&registry);
        let info = |name: &str| aws::catalog().find(name).expect("known").clone();
        metrics.record_instance_types(&Discovered::new(vec![info("m5.large"), info("c5.xlarge")], vec![], 1));
        let page = exported(&registry);
        assert!(
            page.contains("karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m5.large\"} 2\n"),
            "{page}"
        );
        assert!(
            page.contains(
                "karpenter_cloudprovider_instance_type_memory_bytes{instance_type=\"c5.xlarge\"} 8589934592\n"
            ),
            "{page}"
        );
        metrics.record_instance_types(&Discovered::new(vec![info("m5.large")], vec![], 2));
        let page = exported(&registry);
        assert!(page.contains("m5.large") && !page.contains("c5.xlarge"), "{page}");
    }

    #[test]
    fn offerings_of_all_nodepools_are_merged() {
        let class =
            aws::AwsNodeClass { zones: vec![aws::AwsZone::named("us-east-1a")], ..Default::default() };
        let m5 = aws::catalog().resolve_one("m5.large", &class).expect("known");
        let mut short = m5.clone();
        short.offerings.iter_mut().for_each(|offering| offering.available = false);
        let series =
            |capacity_type: &str| ["m5.large".to_owned(), capacity_type.to_owned(), "us-east-1a".to_owned()];
        let (m5, short) = ([m5], [short]);

        let all = merged_offerings([&m5[..], &short[..]], true);
        assert_eq!(all.len(), 3);
        assert!(all[&series("on-demand")].is_available && all[&series("spot")].is_available);
        assert_eq!(all[&series("on-demand")].price, 0.096);
        assert_eq!(all[&series("reserved")], OfferingState { is_available: false, price: 0.0 });
        assert!(!merged_offerings([&short[..]], false)[&series("spot")].is_available);
        assert_eq!(merged_offerings([&m5[..]], false).len(), 2);

        let registry = Registry::new();
        let metrics = TypeMetrics::new(&registry);
        metrics.record_offerings(&all);
        let line = "karpenter_cloudprovider_instance_type_offering_available{capacity_type=\"spot\",instance_type=\"m5.large\",zone=\"us-east-1a\"} 1\n";
        assert!(exported(&registry).contains(line), "{}", exported(&registry));
        metrics.record_offerings(&merged_offerings([&short[..]], false));
        let page = exported(&registry);
        assert!(!page.contains("reserved") && page.contains("offering_price_estimate"), "{page}");
    }
}
