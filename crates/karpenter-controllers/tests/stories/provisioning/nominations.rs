//! The plan becomes real: pods bind where they were planned, whatever order nodes come in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use karpenter_controllers::nomination;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::provisioning::world::World;

/// Six small pods, then six large ones; one of each fills a node of four CPUs to the brim, and so do three small ones.
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

/// Where the pods were planned, and where they were bound once every node has come and opened, one after the other.
async fn plan_and_bind(world: &World) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let small = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    world.pool("general", json!({"template": {"spec": {"requirements": [small]}}})).await;
    tight_pods(world).await;
    world.pass(3).await;
    let claims = world.claims().await;
    assert_eq!(claims.len(), 6);
    let planned = world.context.state.reservations();
    let planned = planned.into_iter().map(|place| (place.pod.name, place.host)).collect();
    for claim in claims.iter().rev() {
        let name = claim.metadata.name.as_deref().expect("a name");
        world.launch(claim).await;
        world.pass(2).await;
        nomination::write_nominations(&world.context, name).await;
        world.open(name).await;
        world.pass(2).await;
    }
    (planned, pods_by_node(world).await)
}

#[tokio::test(start_paused = true)]
async fn pods_bind_where_they_were_planned() {
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
async fn pods_that_took_other_places_leave_some_over_which_are_planned_anew() {
    let world = World::start_with(|context| context.nominates_pods = false).await;
    let (planned, bound) = plan_and_bind(&world).await;
    let left: Vec<&String> = bound.iter().filter(|(_, node)| node.is_empty()).map(|(pod, _)| pod).collect();
    assert!(!left.is_empty() && bound != planned, "the scheduler fills nodes as they come");
    assert!(world.context.state.bindings().elsewhere > 0);
    world.pass(60).await;
    let claims = world.claims().await;
    assert!(claims.len() > 6 && claims.len() <= 6 + left.len(), "only what is left over: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_gone_is_written_again_when_the_node_is_open_but_not_for_ever() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    world.launch(&claim).await;
    world.pass(1).await;
    // A taint that the scheduler minds and that says nothing about how far the node is: nobody binds the pod here.
    world.taint(name, json!({"key": "example.com/other", "effect": "NoSchedule"})).await;
    nomination::write_nominations(&world.context, name).await;
    let forget = Patch::Merge(json!({"status": {"nominatedNodeName": null}}));
    let forget = async || world.pods_api().patch_status("p0", &PatchParams::default(), &forget).await;
    let nominated = async || {
        let pod = world.pods_api().get("p0").await.expect("a pod");
        pod.status.and_then(|status| status.nominated_node_name)
    };
    forget().await.expect("patched");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(nominated().await, None, "the node is closed");
    world.open(name).await;
    let mut written_again = 0;
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if nominated().await.as_deref() == Some(name) {
            written_again += 1;
            forget().await.expect("patched");
        }
    }
    // Whoever takes it back, the scheduler or this test, has the last word in the end.
    assert!((1..=4).contains(&written_again), "{written_again} times");
}

/// A pod whose node opens full of another that stays. Whether it gets a second node although it bears the name of the first,
/// which the scheduler never takes away.
async fn is_planned_anew_although_named(is_named_by_us: bool) -> bool {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let claim = world.claims().await.remove(0);
    let name = claim.metadata.name.as_deref().expect("a name");
    let node = world.launch(&claim).await;
    world.pass(1).await;
    let stays = Patch::Merge(json!({"status": {"nominatedNodeName": name}}));
    let stays = async || world.pods_api().patch_status("p0", &PatchParams::default(), &stays).await;
    if is_named_by_us {
        nomination::write_nominations(&world.context, name).await;
    } else {
        stays().await.expect("patched");
    }
    let all = node.status.and_then(|status| status.allocatable).expect("what it has")["cpu"].0.clone();
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": all}}}]);
    let intruder =
        json!({"nodeName": name, "containers": containers, "tolerations": [{"operator": "Exists"}]});
    world.pod("intruder", json!({ "spec": intruder })).await;
    world.open(name).await;
    for _ in 0..4 {
        world.pass(15).await;
        stays().await.expect("patched");
        if world.claims().await.len() == 2 {
            return true;
        }
    }
    false
}

/// A scheduler may leave the name on a pod that it does not try again: nothing that it waits for will happen.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_place_others_took_for_good_is_planned_anew_although_it_bears_the_name() {
    assert!(is_planned_anew_although_named(true).await);
}

/// What was kept for a pod that is gone is no place for its successor if others came first.
#[tokio::test(start_paused = true)]
async fn a_successor_is_not_sent_where_others_have_taken_the_room() {
    let world = World::start().await;
    world.pool("general", json!({})).await;
    world.pods(1).await;
    world.pass(3).await;
    let full = world.claims().await.remove(0).metadata.name.expect("a name");
    let node = world.launch(&world.claims().await[0]).await;
    let all = node.status.and_then(|status| status.allocatable).expect("what it has")["cpu"].0.clone();
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": all}}}]);
    let tolerations = json!([{"operator": "Exists"}]);
    let stays = json!({"nodeName": full, "containers": containers, "tolerations": tolerations});
    world.delete_pod("p0").await;
    world.pod("stays", json!({ "spec": stays })).await;
    world.open(&full).await;
    world.deployment("web", 1).await;
    world.pass(5).await;
    let state = &world.context.state;
    let planned = state.reservations().remove(0);
    assert_ne!(planned.host, full);
    // A command meant to move it to the node before that was full.
    let pod = world.context.stores.pods.get_key(&planned.pod).expect("a pod");
    state.start_command([], [(&*pod, full.as_str())], world.context.clock.now());
    world.delete_pod(&planned.pod.name).await;
    let mut places = BTreeSet::new();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let of_successor = state.reservations().into_iter().filter(|place| place.uid != planned.uid);
        places.extend(of_successor.map(|place| place.host));
    }
    assert_eq!(places, BTreeSet::from([planned.host]));
}

/// Names outlive the process that wrote them.
#[tokio::test(start_paused = true)]
async fn a_name_that_a_process_before_this_one_left_keeps_no_pod_waiting() {
    assert!(is_planned_anew_although_named(false).await);
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_node_that_is_gone_keeps_no_pod_waiting() {
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
async fn somebody_elses_nomination_is_left_alone() {
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
    nomination::write_nominations(&world.context, name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name).as_deref(), Some("their-node"));
}

#[tokio::test(start_paused = true)]
async fn a_nomination_goes_with_its_claim_and_the_pod_is_planned_anew() {
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
    nomination::write_nominations(&world.context, &name).await;
    assert_eq!(nominated().await.as_deref(), Some(name.as_str()));
    world.delete_claim(&name).await;
    world.pass(5).await;
    assert_eq!(nominated().await, None);
    let claims = world.claims().await;
    assert_eq!(claims.len(), 1);
    assert_ne!(claims[0].metadata.name.as_deref(), Some(name.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_something_else_has_to_open_is_not_named_yet() {
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
    nomination::write_nominations(&world.context, name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name), None);

    // Whoever put the taint there takes it off; the pod is told as soon as somebody sees that.
    taints.retain(|taint| taint.key == "karpenter.sh/unregistered");
    let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
    nodes.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    world.pass(1).await;
    nomination::write_nominations(&world.context, name).await;
    let pod = world.pods_api().get("p0").await.expect("a pod");
    assert_eq!(pod.status.and_then(|status| status.nominated_node_name).as_deref(), Some(name));
    world.open(name).await;
    world.pass(20).await;
    assert_eq!(pods_by_node(&world).await["p0"], name);
}
