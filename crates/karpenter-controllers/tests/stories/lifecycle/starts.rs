//! Tests of NodeClaims from their creation to the initialized node.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use k8s_openapi::api::core::v1::Node;
use karpenter_api::types::{ConditionStatus, NodeClaim, NodePool};
use karpenter_apiserver::ApiServer;
use karpenter_cloud::CloudProvider;
use karpenter_controllers::claims::hooks::{Hooks, LifecycleOutcome};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, Service, service_fn};

use crate::lifecycle::world::{World, condition, condition_of};

#[tokio::test(start_paused = true)]
async fn claim_becomes_a_node_and_both_are_deleted_together() {
    let world = World::start().await;
    world.node_class(json!({"nodeRegistrationDelay": "30s"})).await;
    let spec = json!({"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]});
    world.claim("one", spec).await;

    let claim = world.until_condition("one", "Launched", ConditionStatus::True).await;
    assert!(world.seconds() < 5, "launched at once");
    assert_eq!(claim.metadata.finalizers.as_deref(), Some(&["karpenter.sh/termination".to_owned()][..]));
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    let label = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!(label("node.kubernetes.io/instance-type"), Some("c-2x-amd64-linux"));
    assert_eq!(label("karpenter.sh/capacity-type"), Some("on-demand"));
    assert_eq!(label("karpenter.kwok.sh/kwoknodeclass"), Some("default"));
    assert!(label("topology.kubernetes.io/zone").is_some());
    let waiting = world
        .until(
            "registration waits for the node",
            async || world.find("one").await.expect("the claim"),
            |claim| condition_of(claim, "Registered").1 == "NodeNotFound",
        )
        .await;
    assert_eq!(condition_of(&waiting, "Registered").2, "Node not registered with cluster");
    assert_eq!(condition_of(&waiting, "Ready").0, "Unknown");

    let claim = world.until_condition("one", "Ready", ConditionStatus::True).await;
    assert!(
        (30..35).contains(&world.seconds()),
        "the node registers after its delay, at {}",
        world.seconds()
    );
    for kind in ["Launched", "Registered", "Initialized"] {
        assert_eq!(condition_of(&claim, kind), ("True".to_owned(), kind.to_owned(), String::new()));
    }
    let node = world.node_of(&claim).await.expect("the node");
    assert_eq!(claim.status.as_ref().and_then(|status| status.node_name.clone()), node.metadata.name);
    let spec = node.spec.clone().unwrap_or_default();
    let taints: Vec<String> = spec.taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    assert_eq!(taints, ["team"]);
    let labels = node.metadata.labels.clone().unwrap_or_default();
    for (key, value) in [
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("karpenter.kwok.sh/kwoknodeclass", "default"),
        ("kubernetes.io/hostname", "one"),
        ("kwok-partition", "a"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    let owners = node.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>(),
        [claim.metadata.uid.clone().unwrap()]
    );
    assert_eq!(node.metadata.finalizers, Some(vec!["karpenter.sh/termination".to_owned()]));

    world.delete::<karpenter_api::types::NodeClaim>("one").await;
    world.until_gone("one").await;
    assert!(world.node_of(&claim).await.is_none());
    assert_eq!(
        world.outcomes("one"),
        [
            LifecycleOutcome::Launched,
            LifecycleOutcome::Registered,
            LifecycleOutcome::Initialized,
            LifecycleOutcome::InstanceTerminated,
            LifecycleOutcome::Terminated
        ]
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn startup_taints_and_extended_resources_delay_initialization() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    world
        .claim(
            "slow",
            json!({
                "startupTaints": [{"key": "agent", "effect": "NoSchedule"}],
                "resources": {"requests": {"cpu": "1"}},
            }),
        )
        .await;
    let claim = world
        .until(
            "initialization waits for the taint",
            async || world.find("slow").await.expect("the claim"),
            |claim| condition_of(claim, "Initialized").1 == "StartupTaintsExist",
        )
        .await;
    assert_eq!(condition_of(&claim, "Initialized").2, "StartupTaint \"agent:NoSchedule\" still exists");
    let node = world.node_of(&claim).await.expect("the node");
    let name = node.metadata.name.clone().unwrap_or_default();
    world.merge::<Node>(&name, json!({"spec": {"taints": null}})).await;
    let claim = world.until_condition("slow", "Initialized", ConditionStatus::True).await;
    // Registration copies labels and taints to the node only once.
    let node = world.node_of(&claim).await.expect("the node");
    assert_eq!(node.spec.and_then(|spec| spec.taints), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_of_other_providers_are_ignored() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let foreign = world.claim("foreign", json!({"nodeClassRef": class, "expireAfter": "1m"})).await;
    world.claim("ours", json!({})).await;
    world.until_condition("ours", "Ready", ConditionStatus::True).await;
    world.sleep_until_second(3600).await;
    let after = world.find("foreign").await.expect("the claim");
    assert_eq!(after.metadata.resource_version, foreign.metadata.resource_version);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn node_without_unregistered_taint_is_reported_and_registered() {
    let world = World::start().await;
    world.node_class(json!({"nodeRegistrationDelay": "1h"})).await;
    world.claim("bare", json!({})).await;
    let claim = world.until_condition("bare", "Launched", ConditionStatus::True).await;
    let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).expect("an id");
    world
        .create::<Node>(
            json!({"metadata": {"name": "bare-node", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"providerID": id},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "32"}}}),
        )
        .await;
    let claim = world.until_condition("bare", "Registered", ConditionStatus::True).await;
    assert_eq!(claim.status.and_then(|status| status.node_name), Some("bare-node".to_owned()));
    let events = world.events("UnregisteredTaintMissing").await;
    assert_eq!(events.len(), 1);
    assert!(events[0].1.starts_with("Missing karpenter.sh/unregistered taint"), "{events:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instance_with_two_nodes_is_not_registered() {
    let world = World::start().await;
    world.node_class(json!({"nodeRegistrationDelay": "1h"})).await;
    world.claim("twice", json!({"startupTaints": []})).await;
    let claim = world.until_condition("twice", "Launched", ConditionStatus::True).await;
    let id = claim.status.as_ref().and_then(|status| status.provider_id.clone()).expect("an id");
    // The stores are updated only on the next poll of the runtime, so both nodes exist before the claim is reconciled
    // again.
    let node = |name: &str| {
        serde_json::from_value::<Node>(json!({"metadata": {"name": name}, "spec": {"providerID": id}}))
    };
    let (first, second) = (node("first").expect("a node"), node("second").expect("a node"));
    let nodes = world.all::<Node>();
    let params = kube::api::PostParams::default();
    let (first, second) = futures::join!(nodes.create(&params, &first), nodes.create(&params, &second));
    first.and(second).expect("created");
    let claim = world
        .until(
            "registration is decided",
            async || world.find("twice").await.expect("the claim"),
            |claim| {
                condition(claim, "Registered").is_some_and(|found| found.status != ConditionStatus::Unknown)
            },
        )
        .await;
    let expected = ("False", "MultipleNodesFound", "Invariant violated, matched multiple nodes");
    let expected = (expected.0.to_owned(), expected.1.to_owned(), expected.2.to_owned());
    assert_eq!(condition_of(&claim, "Registered"), expected);
    assert_eq!(
        condition_of(&claim, "Ready"),
        (
            "False".to_owned(),
            "UnhealthyDependents".to_owned(),
            "Registered=False, Initialized=Unknown".to_owned()
        )
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hook_before_registration_is_called_for_ready_nodes() {
    // For each call of the hook: when it was called, and whether the node was ready and had taints.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (to, started) = (seen.clone(), tokio::time::Instant::now());
    let before_schedulable = move |_: Arc<NodeClaim>, node: Arc<Node>| {
        let status = node.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let is_tainted = node.spec.iter().any(|spec| spec.taints.is_some());
        to.lock().expect("a list").push((started.elapsed().as_secs(), is_ready, is_tainted));
        Box::pin(std::future::ready(())) as futures::future::BoxFuture<'static, ()>
    };
    let hooks = Hooks { before_schedulable: Arc::new(before_schedulable), ..Hooks::default() };
    let world = World::with(hooks, |server| Client::new(server, "default")).await;
    world.node_class(json!({"nodeRegistrationDelay": "5s"})).await;
    let boots = json!({"fake-kubelet/boot-seconds": "20"});
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let claim = json!({"metadata": {"name": "one", "annotations": boots}, "spec": {"nodeClassRef": class, "requirements": []}});
    world.create::<NodeClaim>(claim).await;
    world.until_condition("one", "Registered", ConditionStatus::True).await;
    assert_eq!(
        *seen.lock().expect("the hook is not called for a node that is not ready"),
        [],
        "the hook is not called for a node that is not ready"
    );
    world.until_condition("one", "Ready", ConditionStatus::True).await;
    let seen = seen.lock().expect("a list").clone();
    assert_eq!(seen.first(), Some(&(25, true, true)), "{seen:?}");
    assert_eq!(seen.last(), Some(&(25, true, false)), "{seen:?}");
    world.stop().await;
}

/// A client whose first patches of NodeClaim statuses fail.
fn failing_status_patches(server: ApiServer, refusals: u32) -> Client {
    let refused = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (mut server, refused) = (server.clone(), refused.clone());
        async move {
            let path = request.uri().path();
            let is_status = path.contains("/nodeclaims/") && path.ends_with("/status");
            let is_refused = request.method() == Method::PATCH
                && is_status
                && refused.fetch_add(1, Ordering::Relaxed) < refusals;
            if is_refused {
                return Err(BoxError::from("the connection was lost"));
            }
            server.call(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn launch_is_not_repeated_if_its_status_could_not_be_written() {
    let world = World::with(Hooks::default(), |server| failing_status_patches(server, 5)).await;
    world.node_class(json!({"nodeRegistrationDelay": "1m"})).await;
    world.claim("one", json!({})).await;
    world.until_condition("one", "Ready", ConditionStatus::True).await;
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(1));
    assert_eq!(
        world.outcomes("one"),
        [LifecycleOutcome::Launched, LifecycleOutcome::Registered, LifecycleOutcome::Initialized]
    );
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn instance_is_terminated_with_its_claim_if_its_status_could_not_be_written() {
    let world = World::with(Hooks::default(), |server| failing_status_patches(server, 200)).await;
    world.node_class(json!({"nodeRegistrationDelay": "1h"})).await;
    world.claim("one", json!({})).await;
    world
        .until(
            "the instance exists",
            async || world.cloud.list().await.expect("a list"),
            |listed| listed.len() == 1,
        )
        .await;
    world.delete::<NodeClaim>("one").await;
    world
        .until("the instance is removed", async || world.cloud.list().await.expect("a list"), Vec::is_empty)
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn consolidatable_and_drifted_conditions_are_set_on_claims_of_a_pool() {
    let world = World::start().await;
    world.node_class(json!({})).await;
    let pool = |team: &str| {
        json!({"metadata": {"name": "pool", "annotations": {
                "karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"}},
            "spec": {"disruption": {"consolidateAfter": "30s"}, "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "team", "operator": "In", "values": [team]}]}}}})
    };
    world.create::<NodePool>(pool("a")).await;
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let spec = json!({"nodeClassRef": class, "expireAfter": "Never", "requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux"]}]});
    let labels = json!({"karpenter.sh/nodepool": "pool", "team": "a"});
    let annotations = json!({"karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v3"});
    let claim =
        json!({"metadata": {"name": "one", "labels": labels, "annotations": annotations}, "spec": spec});
    world.create::<NodeClaim>(claim).await;
    world.claim("alone", json!({})).await;
    world.until_condition("one", "Initialized", ConditionStatus::True).await;
    let ready_at = world.seconds();
    let claim = world.until_condition("one", "Consolidatable", ConditionStatus::True).await;
    let waited = world.seconds() - ready_at;
    assert!((29..32).contains(&waited), "after {waited} seconds");
    assert!(condition(&claim, "Drifted").is_none());

    world.merge::<NodePool>("pool", pool("b")).await;
    let claim = world.until_condition("one", "Drifted", ConditionStatus::True).await;
    let reason = "RequirementsDrifted".to_owned();
    assert_eq!(condition_of(&claim, "Drifted"), ("True".to_owned(), reason.clone(), reason));
    world.merge::<NodePool>("pool", pool("a")).await;
    let look = async || world.find("one").await.expect("the claim");
    world.until("the drift condition is removed", look, |claim| condition(claim, "Drifted").is_none()).await;
    let hash = json!({"metadata": {"annotations": {"karpenter.sh/nodepool-hash": "2"}}});
    world.merge::<NodePool>("pool", hash).await;
    let claim = world.until_condition("one", "Drifted", ConditionStatus::True).await;
    assert_eq!(condition_of(&claim, "Drifted").1, "NodePoolDrifted");
    assert_eq!(condition_of(&claim, "Ready").0, "True");
    let without_pool = world.find("alone").await.expect("the claim");
    assert!(
        condition(&without_pool, "Consolidatable").is_none() && condition(&without_pool, "Drifted").is_none()
    );
    world.stop().await;
}
