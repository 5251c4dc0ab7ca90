//! Sets a metric to the price per hour of the nodes of each NodePool, every ten seconds. The prices are those that the
//! planner uses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::CloudProvider;
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::{ObjectKey, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use crate::inputs::{Reads, Writes};
use crate::stores::BY_POOL;

const PERIOD: Duration = Duration::from_secs(10);

/// The controller that sets the metric `karpenter_nodepools_cost_total`.
pub struct PoolCosts {
    pub reads: Reads,
    pub writes: Writes,
    pub cloud: Arc<dyn CloudProvider>,
}

impl PoolCosts {
    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "costs"));
    }
}

impl Reconcile for PoolCosts {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let (costs, errors) =
            (&self.writes.metrics.nodepools_cost, &self.writes.metrics.nodepools_cost_errors);
        let mut found = Vec::new();
        for pool in self.reads.stores.node_pools.list() {
            if !self.reads.is_managed(&pool.spec.template.spec.node_class_ref) {
                continue;
            }
            let name = name_of(&*pool).to_owned();
            let claims = self.reads.stores.node_claims.by(BY_POOL, &name);
            if claims.is_empty() {
                found.push((name, 0.0));
                continue;
            }
            match self.cloud.instance_types(&pool).await {
                Ok(types) => found.push((name, price_per_hour(&claims, &types))),
                // If the instance types cannot be read, the metric keeps its last value.
                Err(_) => {
                    errors.with_label_values(&[&name]).inc();
                    let last = costs.with_label_values(&[&name]).get();
                    found.push((name, last));
                }
            }
        }
        costs.reset();
        for (pool, cost) in found {
            costs.with_label_values(&[&pool]).set(cost);
        }
        Ok(Requeue::After(PERIOD))
    }
}

/// The sum of the prices per hour of the instances. An instance counts as zero if it is not launched yet or its
/// offering is unknown.
fn price_per_hour(claims: &[Arc<NodeClaim>], types: &[InstanceType]) -> f64 {
    let types: BTreeMap<&str, &InstanceType> = types.iter().map(|one| (&*one.name, one)).collect();
    let price = |claim: &NodeClaim| {
        let instance_type = types.get(label(claim, labels::INSTANCE_TYPE)?)?;
        let zone = label(claim, labels::ZONE)?;
        let capacity_type = label(claim, labels::CAPACITY_TYPE)?;
        let offering = instance_type.offerings.iter().find(|one| {
            one.zone().is_some_and(|of| **of == *zone)
                && one.capacity_type().is_some_and(|of| **of == *capacity_type)
        })?;
        Some(offering.price_per_hour)
    };
    claims.iter().filter_map(|claim| price(claim)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karpenter_model::instance_type::Offering;
    use karpenter_model::requirements::{Requirement, Requirements};
    use serde_json::json;

    fn offering(zone: &str, capacity_type: &str, price_per_hour: f64) -> Offering {
        let mut requirements = Requirements::new();
        requirements.add(Requirement::in_values(labels::ZONE, [zone]));
        requirements.add(Requirement::in_values(labels::CAPACITY_TYPE, [capacity_type]));
        Offering { requirements, price_per_hour, ..Offering::default() }
    }

    fn claim(labels: &[(&str, &str)]) -> Arc<NodeClaim> {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let class = json!({"group": "g", "kind": "K", "name": "n"});
        let claim = json!({"metadata": {"name": "c", "labels": labels},
            "spec": {"requirements": [], "nodeClassRef": class}});
        Arc::new(serde_json::from_value(claim).expect("a claim"))
    }

    #[test]
    fn price_is_that_of_the_offering_even_if_unavailable() {
        let types = [InstanceType {
            name: "big".into(),
            requirements: Requirements::new(),
            offerings: vec![offering("a", "spot", 0.25), offering("a", "on-demand", 1.0)],
            capacity: Default::default(),
            overhead: Default::default(),
            volume_attachment_limits: BTreeMap::new(),
        }];
        let of = |zone, capacity_type| {
            claim(&[
                (labels::INSTANCE_TYPE, "big"),
                (labels::ZONE, zone),
                (labels::CAPACITY_TYPE, capacity_type),
            ])
        };
        let known = [of("a", "spot"), of("a", "spot"), of("a", "on-demand")];
        assert_eq!(price_per_hour(&known, &types), 1.5);
        let unknown = [of("b", "spot"), claim(&[(labels::INSTANCE_TYPE, "small")]), claim(&[])];
        assert_eq!(price_per_hour(&unknown, &types), 0.0);
    }
}
