//! Detects drift of a NodeClaim from its NodePool: another template hash, requirements that it does not meet, or an
//! instance type that is no longer offered. The provider detects drift from the node class.
//!
//! Upstream: pkg/controllers/nodeclaim/disruption/drift.go.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::labels::{self, ANNOTATION_NODEPOOL_HASH, ANNOTATION_NODEPOOL_HASH_VERSION};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels::{WELL_KNOWN, normalize};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_runtime::object::{annotation, label};

pub(super) const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
pub(super) const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
pub(super) const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

pub(super) fn from_pool(claim: &NodeClaim, pool: &NodePool) -> Option<&'static str> {
    if has_other_template(claim, pool) {
        return Some(NODE_POOL_DRIFTED);
    }
    let wanted = pool.spec.template.spec.requirements.iter().filter_map(|requirement| {
        let operator = Operator::parse(&requirement.operator)?;
        let values: Vec<Arc<str>> =
            requirement.values.iter().map(|value| Arc::from(value.as_str())).collect();
        Some(Requirement::new(normalize(&requirement.key), operator, values))
    });
    let wanted: Requirements = wanted.collect();
    labels_of(claim).compatible(&wanted, &BTreeSet::new()).is_err().then_some(REQUIREMENTS_DRIFTED)
}

/// Whether the hash of the NodePool's template differs from the claim's. False if a hash is missing or the hash
/// versions differ.
fn has_other_template(claim: &NodeClaim, pool: &NodePool) -> bool {
    let version = |of_claim: Option<&str>, of_pool: Option<&str>| of_claim.is_some() && of_claim == of_pool;
    let is_comparable = version(
        annotation(claim, ANNOTATION_NODEPOOL_HASH_VERSION),
        annotation(pool, ANNOTATION_NODEPOOL_HASH_VERSION),
    );
    let hashes = annotation(claim, ANNOTATION_NODEPOOL_HASH).zip(annotation(pool, ANNOTATION_NODEPOOL_HASH));
    is_comparable && hashes.is_some_and(|(of_claim, of_pool)| of_claim != of_pool)
}

fn labels_of(claim: &NodeClaim) -> Requirements {
    let labels = claim.metadata.labels.iter().flatten();
    labels
        .map(|(key, value)| Requirement::in_values(normalize(key), [Arc::<str>::from(value.as_str())]))
        .collect()
}

/// Whether this label of the provider describes the capacity reservation that an instance uses.
fn is_about_reservations(key: &str) -> bool {
    key.rsplit('/').next().is_some_and(|name| name.starts_with("capacity-reservation-"))
}

/// Whether the provider still lists the claim's instance type with an offering that matches the claim's labels. The
/// offering need not be available.
pub(super) fn is_offered(claim: &NodeClaim, types: &[InstanceType], well_known: &BTreeSet<Arc<str>>) -> bool {
    let name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
    let Some(instance_type) = types.iter().find(|listed| &*listed.name == name) else { return false };
    let mut own = labels_of(claim);
    if label(claim, labels::CAPACITY_TYPE) == Some(labels::CAPACITY_TYPE_RESERVED) {
        // When the capacity reservation of an instance ends, the instance becomes on-demand, but the NodeClaim may
        // still have the label `reserved`. So an offering with capacity type `reserved` or `on-demand` matches.
        let either = [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_ON_DEMAND];
        own.replace(Requirement::in_values(labels::CAPACITY_TYPE, either));
        // Labels that describe a reservation are ignored, because on-demand offerings do not have them.
        let of_reservation: Vec<Arc<str>> =
            own.keys().filter(|key| is_about_reservations(key)).cloned().collect();
        for key in of_reservation {
            own.remove(&key);
        }
    }
    let open: BTreeSet<Arc<str>> =
        WELL_KNOWN.map(Arc::from).into_iter().chain(well_known.iter().cloned()).collect();
    instance_type.offerings.iter().any(|offering| own.compatible(&offering.requirements, &open).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(labels: Value, annotations: Value) -> NodeClaim {
        let object =
            json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"nodeClassRef": {}}});
        serde_json::from_value(object).expect("a claim")
    }

    fn pool(requirements: Value, annotations: Value) -> NodePool {
        let spec = json!({"template": {"spec": {"requirements": requirements, "nodeClassRef": {}}}});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec}))
            .expect("a pool")
    }

    fn hash(hash: &str, version: &str) -> Value {
        json!({ANNOTATION_NODEPOOL_HASH: hash, ANNOTATION_NODEPOOL_HASH_VERSION: version})
    }

    #[test]
    fn hashes_of_the_same_version_are_compared() {
        let table = [
            (hash("1", "v3"), hash("1", "v3"), None),
            (hash("1", "v3"), hash("2", "v3"), Some(NODE_POOL_DRIFTED)),
            (hash("1", "v2"), hash("2", "v3"), None),
            (json!({ANNOTATION_NODEPOOL_HASH: "1"}), hash("2", "v3"), None),
            (json!(null), hash("2", "v3"), None),
            (hash("1", "v3"), json!(null), None),
        ];
        for (of_claim, of_pool, expected) in table {
            let reason = from_pool(&claim(json!({}), of_claim.clone()), &pool(json!([]), of_pool.clone()));
            assert_eq!(reason, expected, "{of_claim} {of_pool}");
        }
    }

    #[test]
    fn unmet_requirement_of_the_nodepool_is_drift() {
        let require = |operator: &str, values: &[&str]| json!([{"key": "tier", "operator": operator, "values": values}]);
        let table = [
            (json!({"tier": "a"}), require("In", &["a", "b"]), None),
            (json!({"tier": "c"}), require("In", &["a", "b"]), Some(REQUIREMENTS_DRIFTED)),
            (json!({}), require("In", &["a"]), Some(REQUIREMENTS_DRIFTED)),
            (json!({}), require("Exists", &[]), Some(REQUIREMENTS_DRIFTED)),
            (json!({}), require("DoesNotExist", &[]), None),
            (json!({"tier": "a"}), require("DoesNotExist", &[]), Some(REQUIREMENTS_DRIFTED)),
            (json!({}), require("NotIn", &["a"]), None),
            (json!({"tier": "5"}), require("Gt", &["4"]), None),
            (json!({"tier": "5"}), require("Lt", &["5"]), Some(REQUIREMENTS_DRIFTED)),
        ];
        for (labels, requirements, expected) in table {
            let reason = from_pool(&claim(labels.clone(), json!({})), &pool(requirements.clone(), json!({})));
            assert_eq!(reason, expected, "{labels} {requirements}");
        }
    }

    #[test]
    fn instance_type_without_compatible_offering_is_drift() {
        let types = karpenter_catalog::kwok::generic();
        let well_known = karpenter_catalog::kwok::well_known_labels(&types);
        let labelled = |name: &str, zone: &str, capacity_type: &str| {
            claim(
                json!({labels::INSTANCE_TYPE: name, labels::ZONE: zone, labels::CAPACITY_TYPE: capacity_type}),
                json!({}),
            )
        };
        let is_offered = |claim: NodeClaim| is_offered(&claim, &types, &well_known);
        assert!(is_offered(labelled("c-1x-amd64-linux", "test-zone-a", "spot")));
        assert!(is_offered(labelled("c-1x-amd64-linux", "test-zone-a", "reserved")));
        assert!(!is_offered(labelled("c-1x-amd64-linux", "elsewhere", "spot")));
        assert!(!is_offered(labelled("c-3x-amd64-linux", "test-zone-a", "spot")));
        assert!(!is_offered(claim(json!({}), json!({}))));
    }

    #[test]
    fn instance_of_ended_reservation_is_on_demand_and_not_drifted() {
        let class = karpenter_catalog::aws::AwsNodeClass::default();
        let m5 = karpenter_catalog::aws::catalog().resolve_one("m5.large", &class).expect("listed");
        let types = [m5];
        let of_reservation = json!({
            labels::INSTANCE_TYPE: "m5.large", labels::ZONE: "us-east-1a", labels::CAPACITY_TYPE: "reserved",
            "karpenter.k8s.aws/capacity-reservation-id": "cr-1",
            "karpenter.k8s.aws/capacity-reservation-type": "default",
            "karpenter.k8s.aws/capacity-reservation-interruptible": "false",
        });
        assert!(is_offered(&claim(of_reservation.clone(), json!({})), &types, &BTreeSet::new()));
        let mut elsewhere = of_reservation;
        elsewhere[labels::ZONE] = json!("us-east-1z");
        assert!(!is_offered(&claim(elsewhere, json!({})), &types, &BTreeSet::new()));
    }
}
