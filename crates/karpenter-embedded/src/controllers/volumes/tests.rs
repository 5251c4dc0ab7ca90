use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::Value;

use super::decide::{claim_step, ephemeral_claim, volume_step};
use super::*;
use crate::controllers::fixtures::{from, merge, pod};

fn claim(patch: Value) -> PersistentVolumeClaim {
    let mut object = json!({
        "metadata": {"name": "data", "namespace": "default", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}}},
    });
    merge(&mut object, &patch);
    from(object)
}

fn class(mode: &str, provisioner: &str) -> StorageClass {
    from(json!({"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": mode,
        "reclaimPolicy": "Delete"}))
}

fn volume(name: &str, size: &str, patch: Value) -> Arc<PersistentVolume> {
    let mut object = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "fast"}});
    merge(&mut object, &patch);
    Arc::new(from(object))
}

fn bound_to(step: &ClaimStep) -> Option<String> {
    match step {
        ClaimStep::Bind(volume) => volume.metadata.name.clone(),
        _ => None,
    }
}

#[test]
fn smallest_matching_volume_is_bound() {
    let class = class("Immediate", "kubernetes.io/no-provisioner");
    let taken = json!({"spec": {"claimRef": {"namespace": "default", "name": "other", "uid": "x"}}});
    let volumes = [
        volume("huge", "1Ti", json!({})),
        volume("small", "9Gi", json!({})),
        volume("taken", "10Gi", taken),
        volume("right", "11Gi", json!({})),
        volume("slow", "10Gi", json!({"spec": {"storageClassName": "slow"}})),
        volume("block", "10Gi", json!({"spec": {"volumeMode": "Block"}})),
    ];
    let step = claim_step(&claim(json!({})), Some(&class), None, &volumes);
    assert_eq!(bound_to(&step).as_deref(), Some("right"));
    assert_eq!(claim_step(&claim(json!({})), Some(&class), None, &volumes[1..3]), ClaimStep::Nothing);
}

#[test]
fn wait_for_first_consumer_waits_for_selected_node() {
    let class = class("WaitForFirstConsumer", "disk.example.com");
    let free = [volume("free", "10Gi", json!({}))];
    assert_eq!(claim_step(&claim(json!({})), Some(&class), None, &free), ClaimStep::Nothing);
    let node: Node =
        from(json!({"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z2"}}}));
    match claim_step(&claim(json!({})), Some(&class), Some(&node), &[]) {
        ClaimStep::Provision(volume) => {
            let spec = volume.spec.as_ref().expect("spec");
            assert_eq!(volume.metadata.name.as_deref(), Some("pvc-u"));
            assert_eq!(spec.csi.as_ref().map(|csi| csi.driver.as_str()), Some("disk.example.com"));
            assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
            let affinity =
                spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref()).expect("zone");
            assert!(super::super::placement::matches(affinity, &node));
        }
        other => panic!("{other:?}"),
    }
    // The scheduler may also select an existing volume.
    let chosen = [volume(
        "mine",
        "10Gi",
        json!({"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "u"}}}),
    )];
    let step = claim_step(&claim(json!({})), Some(&class), None, &chosen);
    assert_eq!(bound_to(&step).as_deref(), Some("mine"));
}

#[test]
fn bound_claims_stay_bound_or_are_lost() {
    let bound = claim(json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}));
    let theirs = [volume(
        "v",
        "10Gi",
        json!({"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "u"}}}),
    )];
    assert_eq!(claim_step(&bound, None, None, &theirs), ClaimStep::Nothing);
    assert_eq!(claim_step(&bound, None, None, &[]), ClaimStep::Lost);
}

#[test]
fn volume_without_claim_is_released_and_reclaimed() {
    let used = json!({"spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "u"},
        "persistentVolumeReclaimPolicy": "Delete"}, "metadata": {"annotations": {PROVISIONED_BY: "x"}}});
    let with = |phase: &str| {
        let mut patch = used.clone();
        merge(&mut patch, &json!({"status": {"phase": phase}}));
        volume("v", "10Gi", patch)
    };
    assert_eq!(volume_step(&with("Available"), Some(&claim(json!({})))), VolumeStep::Phase("Bound"));
    assert_eq!(volume_step(&with("Bound"), Some(&claim(json!({})))), VolumeStep::Nothing);
    assert_eq!(volume_step(&with("Bound"), None), VolumeStep::Phase("Released"));
    assert_eq!(volume_step(&with("Released"), None), VolumeStep::Delete);
    let mut kept = PersistentVolume::clone(&with("Released"));
    kept.spec.as_mut().expect("spec").persistent_volume_reclaim_policy = Some("Retain".into());
    assert_eq!(volume_step(&kept, None), VolumeStep::Nothing);
    assert_eq!(volume_step(&volume("free", "1Gi", json!({})), None), VolumeStep::Phase("Available"));
}

#[test]
fn ephemeral_volume_gets_a_claim_owned_by_the_pod() {
    let pod = pod(
        "p",
        json!({"spec": {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate":
        {"spec": {"storageClassName": "fast"}}}}]}}),
    );
    let claim = ephemeral_claim(&pod, "p-scratch").expect("a claim");
    assert_eq!(claim.metadata.owner_references.as_ref().map(Vec::len), Some(1));
    assert!(ephemeral_claim(&pod, "p-other").is_none());
}
