//! Tests of pod nomination: pods are bound to their planned nodes regardless of the order in which the nodes become
//! ready.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use karpenter_controllers::nominations;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::provisioning::world::World;

/// Creates six small pods, then six large ones. A node of four CPUs is full with one large pod, or with three small
/// ones.
async fn tight_pods(world: &World) {
    for number in 0..12 {
        let cpu = if number < 6 { "1300m" } else { "2600m" };
        let resources = json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
        let containers = json!([{"name": "c", "image": "i", "resources": resources}]);
        world.pod(&format!("p{number:02}"), json!({"spec": {"containers": containers}})).await;
    }
}

async fn pods_by_node(world: &World) -> BTreeMap<String, String> {
    let pods = world.all::<Pod>().list(&ListParams::default()).await.expect("listed");
    let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    pods.items
        .iter()
        .map(|pod| (pod.metadata.name.clone().expect("a name"), node(pod).unwrap_or_default()))
        .collect()
}

/// Plans the pods, and then opens all nodes one after the other. Returns the planned node of each pod, and the node
/// that it was bound to.
async fn plan_and_bind(world: &World) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let small = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    world.pool("general", json!({"template": {"spec": {"requirements": [small]}}})).await;
    tight_pods(world).await;
    world.pass(3).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 6);
    let planned = world.context.state.reservations();
    let planned = planned.into_iter().map(|reservation| (reservation.pod.name, reservation.host)).collect();
    for claim in claims.iter().rev() {
        let name = claim.metadata.name.as_deref().expect("a name");
        world.launch(claim).await;
        world.pass(2).await;
        nominations::write_nominations(&world.context.nominator(), name).await;
        world.open(name).await;
        world.pass(2).await;
    }
    (planned, pods_by_node(world).await)
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_to_their_planned_nodes() {
    let world = World::start().await;
    let (planned, bound) = plan_and_bind(&world).await;
    assert_eq!(bound, planned);
    world.pass(60).await;
    assert_eq!(world.claims().await.len(), 6);
    assert_eq!(world.context.state.reservations(), []);
    let bindings = world.context.state.bindings();
    assert_eq!((bindings.as_planned, bindings.elsewhere), (12, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_left_over_without_nomination_are_planned_again() {
    let world = World::start_with(|context| context.nominates_pods = false).await;
    let (planned, bound) = plan_and_bind(&world).await;
    let left: Vec<&String> = bound.iter().filter(|(_, node)| node.is_empty()).map(|(pod, _)| pod).collect();
    assert!(
        !left.is_empty() && bound != planned,
        "the scheduler fills nodes in the order in which they open"
    );
    assert!(world.context.state.bindings().elsewhere > 0);
    world.pass(60).await;
    let claims = world.claims().await;
    assert!(claims.len() > 6 && claims.len() <= 6 + left.len(), "only for pods that are left over: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_nomination_is_restored_a_limited_number_of_times() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    world.launch(&claim).await;
    world.pass(1).await;
    // The pod does not tolerate this taint, so it stays pending. The node counts as open nevertheless, because the
    // taint is not a startup taint.
    world.taint(name, json!({"key": "example.com/other", "effect": "NoSchedule"})).await;
    nominations::write_nominations(&world.context.nominator(), name).await;
    let clear_nomination = Patch::Merge(json!({"status": {"nominatedNodeName": null}}));
    let clear_nomination =
        async || world.pods_api().patch_status("p0", &PatchParams::default(), &clear_nomination).await;
    let nominated = async || {
        let pod = world.pods_api().get("p0").await.expect("a pod");
        pod.status.and_then(|status| status.nominated_node_name)
    };
    clear_nomination().await.expect("patched");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(nominated().await, None, "the node is closed");
    world.open(name).await;
    let mut written_again = 0;
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if nominated().await.as_deref() == Some(name) {
            written_again += 1;
            clear_nomination().await.expect("patched");
        }
    }
    // The number of repeated nominations is limited.
    assert!((1..=4).contains(&written_again), "{written_again} times");
}

/// Opens a node whose capacity another pod uses, with a pod planned for it whose nomination is never removed. Returns
/// whether that pod gets a second node.
async fn is_planned_again_despite_nomination(is_nominated_by_us: bool) -> bool {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    let node = world.launch(&claim).await;
    world.pass(1).await;
    let keep_nomination = Patch::Merge(json!({"status": {"nominatedNodeName": name}}));
    let keep_nomination =
        async || world.pods_api().patch_status("p0", &PatchParams::default(), &keep_nomination).await;
    if is_nominated_by_us {
        nominations::write_nominations(&world.context.nominator(), name).await;
    } else {
        keep_nomination().await.expect("patched");
    }
    let all = node.status.and_then(|status| status.allocatable).expect("allocatable")["cpu"].0.clone();
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": all}}}]);
    let other_pod =
        json!({"nodeName": name, "containers": containers, "tolerations": [{"operator": "Exists"}]});
    world.pod("intruder", json!({ "spec": other_pod })).await;
    world.open(name).await;
    for _ in 0..4 {
        world.pass(15).await;
        keep_nomination().await.expect("patched");
        if world.claims().await.len() == 2 {
            return true;
        }
    }
    false
}

/// A kube-scheduler may keep the nomination of a pod and not retry the pod.
#[tokio::test(start_paused = true)]
async fn pod_whose_capacity_was_taken_is_planned_again_despite_its_nomination() {
    assert!(is_planned_again_despite_nomination(true).await);
}

/// A new pod must not inherit the reservation of a deleted pod if other pods use the reserved capacity.
#[tokio::test(start_paused = true)]
async fn successor_does_not_inherit_reservation_on_full_node() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let full = world.claims().await.remove(0).metadata.name.expect("a name");
    let node = world.launch(&world.claims().await[0]).await;
    let all = node.status.and_then(|status| status.allocatable).expect("allocatable")["cpu"].0.clone();
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": all}}}]);
    let tolerations = json!([{"operator": "Exists"}]);
    let spec = json!({"nodeName": full, "containers": containers, "tolerations": tolerations});
    world.delete_pod("p0").await;
    world.pod("stays", json!({ "spec": spec })).await;
    world.open(&full).await;
    world.deployment("web", 1).await;
    world.pass(5).await;
    let state = &world.context.state;
    let planned = state.reservations().remove(0);
    assert_ne!(planned.host, full);
    // A command planned to move the pod to this node before other pods filled it.
    let pod = world.context.stores.pods.get_key(&planned.pod).expect("a pod");
    state.start_command([], [(&*pod, full.as_str())], world.context.clock.now());
    world.delete_pod(&planned.pod.name).await;
    let mut hosts = BTreeSet::new();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let of_successor =
            state.reservations().into_iter().filter(|reservation| reservation.uid != planned.uid);
        hosts.extend(of_successor.map(|reservation| reservation.host));
    }
    assert_eq!(hosts, BTreeSet::from([planned.host]));
}

/// The nomination remains in the status of the pod when the process that wrote it has ended.
#[tokio::test(start_paused = true)]
async fn nomination_of_an_earlier_process_does_not_block_planning() {
    assert!(is_planned_again_despite_nomination(false).await);
}

#[tokio::test(start_paused = true)]
async fn nomination_of_a_deleted_node_does_not_block_planning() {
    let world = World::start().await;
    world.pods(1).await;
    world.pass(3).await;
    let theirs = Patch::Merge(json!({"status": {"nominatedNodeName": "gone"}}));
    world.pods_api().patch_status("p0", &PatchParams::default(), &theirs).await.expect("patched");
    world.pool("general", json!({})).await;
    world.pass(3).await;
    assert_eq!(world.claims().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nomination_by_another_process_is_not_changed() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    world.launch(&claim).await;
    world.pass(1).await;
    let theirs = Patch::Merge(json!({"status": {"nominatedNodeName": "their-node"}}));
    world.pods_api().patch_status("p0", &PatchParams::default(), &theirs).await.expect("patched");
    nominations::write_nominations(&world.context.nominator(), name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name).as_deref(), Some("their-node"));
}

#[tokio::test(start_paused = true)]
async fn nomination_is_cleared_with_its_nodeclaim_and_the_pod_is_planned_again() {
    let world = World::start().await;
    let startup = json!([{"key": "example.com/wait", "effect": "NoSchedule"}]);
    world.pool("general", json!({"template": {"spec": {"startupTaints": startup}}})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.clone().expect("a name");
    world.launch(&claim).await;
    world.pass(1).await;
    let nominated = async || {
        let pod = world.pods_api().get("p0").await.expect("a pod");
        pod.status.and_then(|status| status.nominated_node_name)
    };
    nominations::write_nominations(&world.context.nominator(), &name).await;
    assert_eq!(nominated().await.as_deref(), Some(name.as_str()));
    world.delete_claim(&name).await;
    world.pass(5).await;
    assert_eq!(nominated().await, None);
    let claims = world.claims().await;
    assert_eq!(claims.len(), 1);
    assert_ne!(claims[0].metadata.name.as_deref(), Some(name.as_str()));
}

#[tokio::test(start_paused = true)]
async fn pods_are_not_nominated_before_startup_taints_are_removed() {
    let world = World::start().await;
    let startup = json!([{"key": "example.com/wait", "effect": "NoSchedule"}]);
    world.pool("general", json!({"template": {"spec": {"startupTaints": startup}}})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    let node = world.launch(&claim).await;
    let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.extend(claim.spec.startup_taints.clone().expect("taints"));
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    let nodes = world.all::<k8s_openapi::api::core::v1::Node>();
    nodes.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    world.pass(1).await;
    nominations::write_nominations(&world.context.nominator(), name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name), None);

    // The test removes the startup taint like its owner would. The pod is nominated at the next reconcile.
    taints.retain(|taint| taint.key == "karpenter.sh/unregistered");
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    nodes.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    world.pass(1).await;
    nominations::write_nominations(&world.context.nominator(), name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name).as_deref(), Some(name));
    world.open(name).await;
    world.pass(20).await;
    assert_eq!(pods_by_node(&world).await["p0"], name);
}
