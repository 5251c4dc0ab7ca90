use super::*;

fn class(annotations: Value, kubelet: Value) -> EC2NodeClass {
    serde_json::from_value(json!({
        "metadata": {"name": "default", "annotations": annotations},
        "spec": {"role": "r", "amiSelectorTerms": [{"alias": "al2023@latest"}], "kubelet": kubelet},
    }))
    .expect("a class")
}

fn claim(annotations: Value, drifted: bool) -> NodeClaim {
    let conditions = if drifted { json!([{"type": "Drifted", "status": "True"}]) } else { json!([]) };
    serde_json::from_value(json!({
        "metadata": {"name": "default-x", "annotations": annotations},
        "spec": {"requirements": [], "nodeClassRef": {}},
        "status": {"conditions": conditions},
    }))
    .expect("a claim")
}

#[test]
fn older_hash_version_is_kept_and_others_are_migrated() {
    let settings = json!({"maxPods": 20});
    // Columns: hash version of the node class, its kubelet settings, expected hash version.
    let table = [
        (json!({VERSION: "v5"}), settings.clone(), "v5"),
        (json!({VERSION: "v6"}), settings.clone(), "v6"),
        (json!({}), settings.clone(), "v6"),
        (json!({VERSION: ""}), settings.clone(), "v6"),
        (json!({VERSION: "v4"}), settings.clone(), "v6"),
        (json!({VERSION: "v7"}), settings, "v6"),
        (json!({VERSION: "v5"}), json!({"maxPods": "max_pods - 5"}), "v6"),
        (json!({VERSION: "v5"}), json!({"featureGates": {"X": true}}), "v6"),
        (json!({VERSION: "v5"}), json!({"maxPods": 20, "maxParallelImagePulls": 5}), "v6"),
        (json!({VERSION: "v5"}), json!({"kubeReserved": {"cpu": "vcpus * 10"}}), "v5"),
        (json!({VERSION: "v5"}), json!({}), "v5"),
        (json!({VERSION: "v5"}), json!(null), "v5"),
    ];
    for (annotations, kubelet, expected) in table {
        let class = class(annotations.clone(), kubelet.clone());
        let stamp = stamp(&class, None);
        assert_eq!(stamp.version, expected, "{annotations} {kubelet}");
        let hash = match expected {
            "v5" => ec2_node_class_hash_v5(&class, None).expect("typed settings"),
            _ => ec2_node_class_hash_v6(&class, None),
        };
        assert_eq!(stamp.hash, hash.to_string());
    }
    let plain = class(json!({}), json!(null));
    assert_ne!(stamp(&plain, None).hash, stamp(&plain, Some("Q0E=")).hash, "certificates count");
}

#[test]
fn class_is_patched_only_if_annotations_differ() {
    let bare = class(json!({}), json!(null));
    let new_stamp = stamp(&bare, None);
    let both = json!({VERSION: "v6", HASH: new_stamp.hash});
    let patch = json!({"metadata": {"annotations": both}});
    let table = [
        (json!({}), Some(&patch), true),
        (json!({VERSION: "v6", HASH: "1"}), Some(&patch), false),
        (json!({VERSION: "v6"}), Some(&patch), false),
        (json!({HASH: new_stamp.hash}), Some(&patch), true),
        (both.clone(), None, false),
    ];
    for (annotations, expected, carries_over) in table {
        let class = class(annotations.clone(), json!(null));
        assert_eq!(class_patch(&class, &new_stamp).as_ref(), expected, "{annotations}");
        assert_eq!(changes_version(&class, &new_stamp), carries_over, "{annotations}");
    }
}

#[test]
fn claims_of_other_hash_version_are_migrated_unless_drifted() {
    use ClaimMigration::{SpecChanged, SpecUnchanged};
    let new_stamp = Stamp { version: "v6", hash: "42".to_owned() };
    let patch = |annotations: Value| Some(json!({"metadata": {"annotations": annotations}}));
    let both = || patch(json!({VERSION: "v6", HASH: "42"}));
    let only_version = || patch(json!({VERSION: "v6"}));
    let table = [
        (json!({VERSION: "v6", HASH: "1"}), false, SpecUnchanged, None),
        (json!({VERSION: "v6", HASH: "1"}), true, SpecUnchanged, None),
        (json!({VERSION: "v5", HASH: "1"}), false, SpecUnchanged, both()),
        (json!({VERSION: "v5", HASH: "1"}), true, SpecUnchanged, only_version()),
        (json!({}), false, SpecUnchanged, both()),
        (json!({}), true, SpecUnchanged, only_version()),
        (json!({VERSION: "v6", HASH: "1"}), false, SpecChanged, None),
        (json!({VERSION: "v5", HASH: "1"}), false, SpecChanged, only_version()),
        (json!({VERSION: "v5", HASH: "1"}), true, SpecChanged, only_version()),
        (json!({VERSION: "v4", HASH: "1"}), false, SpecChanged, both()),
        (json!({}), false, SpecChanged, both()),
    ];
    for (annotations, drifted, claim_migration, expected) in table {
        assert_eq!(
            claim_patch(&claim(annotations.clone(), drifted), &new_stamp, claim_migration),
            expected,
            "{annotations} {drifted} {claim_migration:?}"
        );
    }
}

#[test]
fn unobserved_change_is_detected_by_generation() {
    let condition =
        |observed: Value| json!({"type": "Ready", "status": "True", "observedGeneration": observed});
    let table = [
        (3, json!([condition(json!(3))]), false),
        (3, json!([condition(json!(2))]), true),
        (3, json!([condition(json!(2)), condition(json!(3))]), false),
        (3, json!([condition(json!(null))]), false),
        (3, json!([]), false),
    ];
    for (generation, conditions, expected) in table {
        let class: EC2NodeClass = serde_json::from_value(json!({
            "metadata": {"name": "default", "generation": generation},
            "status": {"conditions": conditions},
        }))
        .expect("a class");
        assert_eq!(has_unobserved_generation(&class), expected, "{conditions}");
    }
}
