//! What types and offerings tell about themselves, with upstream's names. Series of what is no longer sold are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use karpenter_api::labels;
use karpenter_model::instance_type::InstanceType;
use prometheus::core::Collector;
use prometheus::{GaugeVec, Opts, Registry};

use super::discovered::Discovered;

/// Type, capacity type and zone.
pub(super) type Series = [String; 3];

/// Whether an offering can be had, and for how much: the instance alone, as upstream reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Told {
    pub(super) is_available: bool,
    pub(super) price: f64,
}

/// What the offerings of several pools come to: available for one is available. Where reservations are used, zones
/// without one say so.
pub(super) fn told<'a>(
    pools: impl IntoIterator<Item = &'a [InstanceType]>,
    uses_reservations: bool,
) -> BTreeMap<Series, Told> {
    let mut all: BTreeMap<Series, Told> = BTreeMap::new();
    for types in pools {
        for instance_type in types {
            let mut zones = BTreeSet::new();
            for offering in &instance_type.offerings {
                let (Some(capacity_type), Some(zone)) = (offering.capacity_type(), offering.zone()) else {
                    continue;
                };
                let series = [instance_type.name.to_string(), capacity_type.to_string(), zone.to_string()];
                let entry = all.entry(series).or_insert(Told { is_available: false, price: 0.0 });
                entry.is_available |= offering.available;
                entry.price = offering.instance_price();
                zones.insert(zone);
            }
            if uses_reservations {
                for zone in zones {
                    let reserved = labels::CAPACITY_TYPE_RESERVED.to_owned();
                    let series = [instance_type.name.to_string(), reserved, zone.to_string()];
                    all.entry(series).or_insert(Told { is_available: false, price: 0.0 });
                }
            }
        }
    }
    all
}

/// Clones count into the same series.
#[derive(Debug, Clone)]
pub struct TypeMetrics {
    cpu_cores: GaugeVec,
    memory_bytes: GaugeVec,
    available: GaugeVec,
    price: GaugeVec,
    /// What is on the page.
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
                "Number of cores of a type.",
                &["instance_type"],
            ),
            memory_bytes: gauge(
                registry,
                "instance_type_memory_bytes",
                "Memory of a type, in bytes.",
                &["instance_type"],
            ),
            available: gauge(
                registry,
                "instance_type_offering_available",
                "Whether an offering can be had, by type, capacity type and zone.",
                &of_offering,
            ),
            price: gauge(
                registry,
                "instance_type_offering_price_estimate",
                "What an offering is taken to cost per hour, by type, capacity type and zone.",
                &of_offering,
            ),
            types: Arc::default(),
            offerings: Arc::default(),
        }
    }

    pub(super) fn tell_types(&self, discovered: &Discovered) {
        let mut before = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<String> =
            discovered.types().iter().map(|known| known.info.name.to_string()).collect();
        for gone in before.difference(&now) {
            // A series that is not there need not be removed.
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

    pub(super) fn tell_offerings(&self, told: &BTreeMap<Series, Told>) {
        let mut before = self.offerings.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<Series> = told.keys().cloned().collect();
        for gone in before.difference(&now) {
            let values = gone.each_ref().map(String::as_str);
            let _ = self.available.remove_label_values(&values);
            let _ = self.price.remove_label_values(&values);
        }
        for (series, Told { is_available, price }) in told {
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

/// Where it is declared already, what is counted here is counted for nobody.
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

    fn page(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
    }

    #[test]
    fn types_come_and_go() {
        let registry = Registry::new();
        let metrics = TypeMetrics::new(&registry);
        let info = |name: &str| aws::catalog().find(name).expect("known").clone();
        metrics.tell_types(&Discovered::new(vec![info("m5.large"), info("c5.xlarge")], vec![], 1));
        let told = page(&registry);
        assert!(
            told.contains("karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m5.large\"} 2\n"),
            "{told}"
        );
        assert!(
            told.contains(
                "karpenter_cloudprovider_instance_type_memory_bytes{instance_type=\"c5.xlarge\"} 8589934592\n"
            ),
            "{told}"
        );
        metrics.tell_types(&Discovered::new(vec![info("m5.large")], vec![], 2));
        let told = page(&registry);
        assert!(told.contains("m5.large") && !told.contains("c5.xlarge"), "{told}");
    }

    #[test]
    fn offerings_of_all_pools_are_told_together() {
        let class =
            aws::AwsNodeClass { zones: vec![aws::AwsZone::named("us-east-1a")], ..Default::default() };
        let m5 = aws::catalog().resolve_one("m5.large", &class).expect("known");
        let mut short = m5.clone();
        short.offerings.iter_mut().for_each(|offering| offering.available = false);
        let series =
            |capacity_type: &str| ["m5.large".to_owned(), capacity_type.to_owned(), "us-east-1a".to_owned()];
        let (m5, short) = ([m5], [short]);

        let all = told([&m5[..], &short[..]], true);
        assert_eq!(all.len(), 3);
        assert!(all[&series("on-demand")].is_available && all[&series("spot")].is_available);
        assert_eq!(all[&series("on-demand")].price, 0.096);
        assert_eq!(all[&series("reserved")], Told { is_available: false, price: 0.0 });
        assert!(!told([&short[..]], false)[&series("spot")].is_available);
        assert_eq!(told([&m5[..]], false).len(), 2);

        let registry = Registry::new();
        let metrics = TypeMetrics::new(&registry);
        metrics.tell_offerings(&all);
        let line = "karpenter_cloudprovider_instance_type_offering_available{capacity_type=\"spot\",instance_type=\"m5.large\",zone=\"us-east-1a\"} 1\n";
        assert!(page(&registry).contains(line), "{}", page(&registry));
        metrics.tell_offerings(&told([&short[..]], false));
        let told = page(&registry);
        assert!(!told.contains("reserved") && told.contains("offering_price_estimate"), "{told}");
    }
}
