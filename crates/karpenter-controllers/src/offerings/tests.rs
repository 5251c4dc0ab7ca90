use karpenter_catalog::kwok;
use karpenter_model::requirements::{Operator, Requirement};
use karpenter_state::overlays::OfferedPool;
use serde_json::json;

use super::*;

fn pool(name: &str) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}},
    }))
    .expect("a pool")
}

fn claim(pool: &str, types: &[&str]) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}]},
    }))
    .expect("a claim")
}

/// A store with one NodeOverlay: in NodePool `general` the instance type c-1x costs nothing and has a dongle.
fn store(pools: &[&str], types: &Types) -> OverlayStore {
    let overlay = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "o"},
        "spec": {"price": "0", "capacity": {"example.com/dongle": "1"}, "requirements": [
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["general"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-1x-amd64-linux"]}]},
    }))
    .expect("an overlay");
    let offered: Vec<OfferedPool> = pools
        .iter()
        .map(|name| OfferedPool { pool: Arc::new(pool(name)), instance_types: types.clone() })
        .collect();
    let evaluation = overlays::evaluate([&overlay], &offered, &kwok::well_known_labels(types));
    let store = OverlayStore::default();
    store.replace(evaluation.corrections, pools.iter().map(ToString::to_string).collect());
    store
}

#[test]
fn nodepool_has_no_instance_types_before_evaluation() {
    let types: Types = Arc::new(kwok::generic());
    let store = store(&["general"], &types);
    assert!(store.apply(&pool("general"), types.clone()).is_ok());
    let refused = store.apply(&pool("other"), types.clone());
    assert_eq!(refused, Err(CloudError::NotEvaluated { pool: "other".to_owned() }));
    assert!(OverlayStore::default().apply(&pool("general"), types).is_err());
}

#[test]
fn corrected_types_are_cached_per_nodepool() {
    let types: Types = Arc::new(kwok::generic());
    let store = store(&["general", "other"], &types);
    let corrected = store.apply(&pool("general"), types.clone()).expect("evaluated");
    assert!(!Arc::ptr_eq(&corrected, &types));
    assert!(Arc::ptr_eq(&corrected, &store.apply(&pool("general"), types.clone()).expect("evaluated")));
    assert!(Arc::ptr_eq(&types, &store.apply(&pool("other"), types.clone()).expect("evaluated")));
    // The corrections also apply to a new list of instance types from the provider.
    let again = store.apply(&pool("general"), Arc::new(types.to_vec())).expect("evaluated");
    assert!(!Arc::ptr_eq(&corrected, &again) && corrected == again);
}

#[test]
fn nodeclaims_are_annotated_if_an_overlay_applies() {
    let types: Types = Arc::new(kwok::generic());
    let store = store(&["general", "other"], &types);
    for name in ["general", "other"] {
        store.apply(&pool(name), types.clone()).expect("evaluated");
    }
    let cases = [
        ("general", vec!["c-2x-amd64-linux", "c-1x-amd64-linux"], 2),
        ("general", vec!["c-2x-amd64-linux"], 0),
        ("other", vec!["c-1x-amd64-linux"], 0),
    ];
    for (pool, named, expected) in cases {
        let mut claim = claim(pool, &named);
        store.annotate(&mut claim);
        let annotations = claim.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.len(), expected, "{pool} {named:?}");
        assert!(annotations.values().all(|value| value == "true"));
    }
}

#[test]
fn reserved_offerings_are_removed_without_the_gate() {
    let mut types = kwok::generic();
    types.truncate(2);
    assert_eq!(without_reserved(&types), None);
    let reserved = Requirement::new(labels::CAPACITY_TYPE, Operator::In, ["reserved"]);
    types[0].offerings[0].requirements.replace(reserved);
    let left = without_reserved(&types).expect("something was reserved");
    assert_eq!(left[0].offerings[..], types[0].offerings[1..]);
    assert_eq!(left[1], types[1]);
}
