//! Compares hashes with upstream's, which are recorded in `tests/data/hashes.json`.

use std::collections::BTreeMap;

use karpenter_api::hash::{HashError, ec2_node_class_hash_v5, ec2_node_class_hash_v6, node_pool_hash};
use karpenter_api::types::{EC2NodeClass, NodePool};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    node_pools: Vec<RecordedNodePool>,
    ec2_node_classes: Vec<RecordedNodeClass>,
}

#[derive(Deserialize)]
struct RecordedNodePool {
    name: String,
    manifest: String,
    hash: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedNodeClass {
    name: String,
    manifest: String,
    ca_bundle: Option<String>,
    /// The hash in version v5; `None` if version v5 cannot represent the kubelet settings.
    hash_v5: Option<String>,
    hash_v6: String,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../data/hashes.json")).expect("data file")
}

fn read<T: DeserializeOwned>(name: &str, manifest: &str) -> T {
    serde_saphyr::from_str(manifest).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn node_pool_hashes_match() {
    let pools = recorded().node_pools;
    assert_eq!(pools.len(), 27);
    for pool in pools {
        let hash = node_pool_hash(&read::<NodePool>(&pool.name, &pool.manifest));
        assert_eq!(hash.to_string(), pool.hash, "{}", pool.name);
    }
}

#[test]
fn ec2_node_class_hashes_match() {
    let classes = recorded().ec2_node_classes;
    assert_eq!(classes.len(), 38);
    let mut recorded_v5 = 0;
    for class in classes {
        let typed: EC2NodeClass = read(&class.name, &class.manifest);
        let ca_bundle = class.ca_bundle.as_deref();
        assert_eq!(ec2_node_class_hash_v6(&typed, ca_bundle).to_string(), class.hash_v6, "v6 {}", class.name);
        match (ec2_node_class_hash_v5(&typed, ca_bundle), class.hash_v5) {
            (Ok(hash), Some(expected)) => {
                recorded_v5 += 1;
                assert_eq!(hash.to_string(), expected, "v5 {}", class.name);
            }
            (Err(HashError::TypedKubelet(_)), None) => {}
            (result, expected) => panic!("v5 {}: {result:?}, expected {expected:?}", class.name),
        }
    }
    assert_eq!(recorded_v5, 37);
}

/// Serializing and deserializing an object must not change its hash; for example, an empty map must not become an
/// absent one.
#[test]
fn hashes_survive_a_round_trip_through_json() {
    let recorded = recorded();
    for pool in &recorded.node_pools {
        let typed: NodePool = read(&pool.name, &pool.manifest);
        let again: NodePool =
            serde_json::from_value(serde_json::to_value(&typed).expect("serialises")).expect("reads back");
        assert_eq!(node_pool_hash(&again).to_string(), pool.hash, "{}", pool.name);
    }
    for class in &recorded.ec2_node_classes {
        let typed: EC2NodeClass = read(&class.name, &class.manifest);
        let again: EC2NodeClass =
            serde_json::from_value(serde_json::to_value(&typed).expect("serialises")).expect("reads back");
        let hash = ec2_node_class_hash_v6(&again, class.ca_bundle.as_deref());
        assert_eq!(hash.to_string(), class.hash_v6, "{}", class.name);
    }
}

#[test]
fn different_templates_have_different_hashes() {
    let mut names_by_hash: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for pool in recorded().node_pools {
        let hash = node_pool_hash(&read::<NodePool>(&pool.name, &pool.manifest));
        names_by_hash.entry(hash).or_default().push(pool.name);
    }
    assert_eq!(names_by_hash.len(), 20, "{names_by_hash:#?}");
}
