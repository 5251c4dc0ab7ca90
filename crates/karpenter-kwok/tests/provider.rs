//! Tests of the kwok provider on the embedded API server, with a paused clock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::crds;
use karpenter_api::labels;
use karpenter_api::types::{KWOKNodeClass, NodeClaim, NodePool, Requirement};
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_cloud::conformance::{self, AsyncNewClaim};
use karpenter_cloud::{CloudError, CloudProvider, RepairAction, RepairPolicies};
use karpenter_kwok::{Kwok, OfferingPattern, Registration, UNAVAILABLE_FOR, UNHEALTHY};
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

struct World {
    client: Client,
    clock: Clock,
    cloud: Kwok,
    claims: u32,
}

impl World {
    async fn start(class: Value) -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        for crd in crds::all() {
            let definition: DynamicObject = serde_saphyr::from_str(crd.yaml).expect("a definition");
            definitions.create(&PostParams::default(), &definition).await.expect("created");
        }
        let classes: Api<KWOKNodeClass> = Api::all(client.clone());
        let class = json!({"metadata": {"name": "default"}, "spec": class});
        let class: KWOKNodeClass = serde_json::from_value(class).expect("a node class");
        classes.create(&PostParams::default(), &class).await.expect("created");
        let cloud = Kwok::generic(client.clone(), clock);
        Self { client, clock, cloud, claims: 0 }
    }

    async fn claim(&mut self, requirements: Vec<Requirement>) -> NodeClaim {
        self.claims += 1;
        let object = json!({"metadata": {"name": format!("claim-{}", self.claims)}, "spec": {
            "requirements": requirements,
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "resources": {"requests": {"cpu": "500m", "example.com/device": "2"}}}});
        let claim: NodeClaim = serde_json::from_value(object).expect("a claim");
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        claims.create(&PostParams::default(), &claim).await.expect("created")
    }

    async fn nodes(&self) -> Vec<Node> {
        Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await.expect("nodes").items
    }

    async fn after(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

fn require(key: &str, values: &[&str]) -> Requirement {
    let values = values.iter().map(ToString::to_string).collect();
    Requirement { key: key.to_owned(), operator: "In".to_owned(), values, min_values: None }
}

struct Claims<'a>(&'a mut World);

impl AsyncNewClaim for Claims<'_> {
    fn new_claim<'a>(&'a mut self, requirements: Vec<Requirement>) -> BoxFuture<'a, NodeClaim> {
        Box::pin(self.0.claim(requirements))
    }
}

#[tokio::test(start_paused = true)]
async fn provider_conforms_with_and_without_registration_delay() {
    for class in [json!({}), json!({"nodeRegistrationDelay": "1m"})] {
        let mut world = World::start(class).await;
        let cloud = world.cloud.clone();
        let mut claims = Claims(&mut world);
        let mut suite =
            conformance::World { cloud: &cloud, pool: NodePool::default(), new_claim: &mut claims };
        assert_eq!(conformance::check_all(&mut suite).await, Ok(()));
        world.after(600).await;
        assert_eq!(world.nodes().await, [], "no node appears for a terminated instance");
    }
}

#[tokio::test(start_paused = true)]
async fn node_appears_after_registration_delay_with_labels_taints_and_resources() {
    let mut world = World::start(json!({"nodeRegistrationDelay": "20s"})).await;
    let claim = world
        .claim(vec![require(labels::INSTANCE_TYPE, &["s-4x-amd64-linux"]), require("team", &["a"])])
        .await;
    let instance = world.cloud.create(&claim).await.expect("launched");
    world.after(19).await;
    assert_eq!(world.nodes().await, []);
    world.after(2).await;
    let nodes = world.nodes().await;
    let [node] = &nodes[..] else { panic!("one node, not {}", nodes.len()) };
    let name = node.metadata.name.clone().unwrap_or_default();
    assert!(name.starts_with("kwok-claim-1-"), "{name}");
    let spec = node.spec.clone().unwrap_or_default();
    assert_eq!(spec.provider_id, Some(format!("kwok://{name}")));
    assert_eq!(spec.provider_id, Some(instance.provider_id));
    let has_taint = |taint: &k8s_openapi::api::core::v1::Taint| {
        taint.key == "karpenter.sh/unregistered" && taint.effect == "NoExecute"
    };
    assert!(spec.taints.unwrap_or_default().iter().any(has_taint));
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("kwok.x-k8s.io/node").map(String::as_str), Some("fake"));
    let found = node.metadata.labels.clone().unwrap_or_default();
    // The instance type has 4 cores and 16 GiB; its spot price is 70 % of its on-demand price.
    let price = format!("{:.6}", (4.0 * 0.025 + 0.001 * (16u64 << 30) as f64 / 1e9) * 0.7);
    for (key, value) in [
        ("kwok.x-k8s.io/node", "fake"),
        ("kwok-partition", "a"),
        ("kubernetes.io/hostname", "claim-1"),
        ("team", "a"),
        (labels::INSTANCE_TYPE, "s-4x-amd64-linux"),
        (labels::CAPACITY_TYPE, "spot"),
        (labels::ARCH, "amd64"),
        ("karpenter.kwok.sh/instance-family", "s"),
        ("karpenter.kwok.sh/instance-cpu", "4"),
        ("eks-node-viewer/instance-price", &price),
    ] {
        assert_eq!(found.get(key).map(String::as_str), Some(value), "{key}");
    }
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    let amount = |name: &str| allocatable.get(name).map(|amount| amount.0.clone());
    assert_eq!(amount("cpu").as_deref(), Some("3900m"));
    assert_eq!(amount("pods").as_deref(), Some("64"));
    assert_eq!(amount("example.com/device").as_deref(), Some("2"));
    assert_eq!(
        status.capacity.unwrap_or_default().get("cpu").map(|amount| amount.0.clone()).as_deref(),
        Some("4")
    );
}

#[tokio::test(start_paused = true)]
async fn offerings_without_capacity_are_skipped_and_unavailable_for_three_minutes() {
    let mut world = World::start(json!({})).await;
    let cheap = "c-1x-amd64-linux";
    world.cloud.change_faults(|faults| {
        faults.without_capacity.push(OfferingPattern {
            instance_type: Some(cheap.to_owned()),
            capacity_type: Some("spot".to_owned()),
            ..OfferingPattern::any()
        });
    });
    let claim = world.claim(vec![require(labels::INSTANCE_TYPE, &[cheap])]).await;
    let instance = world.cloud.create(&claim).await.expect("launched");
    assert_eq!(instance.labels.get(labels::CAPACITY_TYPE).map(String::as_str), Some("on-demand"));
    let closed = async |cloud: &Kwok| {
        let types = cloud.instance_types(&NodePool::default()).await.expect("types");
        let offerings = types.iter().flat_map(|listed| &listed.offerings);
        offerings.filter(|offering| !offering.available).count()
    };
    assert_eq!(closed(&world.cloud).await, 4, "spot in each of four zones");

    world.cloud.change_faults(|faults| faults.without_capacity = vec![OfferingPattern::any()]);
    let claim = world.claim(vec![require(labels::INSTANCE_TYPE, &[cheap])]).await;
    let refused = world.cloud.create(&claim).await;
    assert!(matches!(refused, Err(CloudError::InsufficientCapacity { .. })), "{refused:?}");
    assert_eq!(closed(&world.cloud).await, 8);
    world.after(UNAVAILABLE_FOR.as_secs()).await;
    assert_eq!(closed(&world.cloud).await, 0);
}

#[tokio::test(start_paused = true)]
async fn nodes_register_late_or_never_and_instances_disappear_as_injected() {
    let mut world = World::start(json!({"nodeRegistrationDelay": "5s"})).await;
    world.cloud.change_faults(|faults| faults.registration = Registration::Never);
    let never = world.claim(vec![]).await;
    let never = world.cloud.create(&never).await.expect("launched");
    world.cloud.change_faults(|faults| faults.registration = Registration::Slower(Duration::from_secs(60)));
    let late = world.claim(vec![]).await;
    let late = world.cloud.create(&late).await.expect("launched");
    world.after(64).await;
    assert_eq!(world.nodes().await.len(), 0);
    world.after(2).await;
    assert_eq!(world.nodes().await.len(), 1);
    world.after(3600).await;
    assert_eq!(world.nodes().await.len(), 1);
    let ids = async |cloud: &Kwok| -> Vec<String> {
        let listed = cloud.list().await.expect("listed");
        listed.into_iter().map(|instance| instance.provider_id).collect()
    };
    assert_eq!(ids(&world.cloud).await, [never.provider_id.clone(), late.provider_id.clone()]);
    world.cloud.terminate_externally(&late.provider_id).await.expect("gone");
    assert_eq!(ids(&world.cloud).await, [never.provider_id]);
    assert!(matches!(world.cloud.get(&late.provider_id).await, Err(CloudError::NotFound { .. })));
    assert_eq!(world.nodes().await.len(), 1, "the node of the terminated instance stays");
}

#[tokio::test(start_paused = true)]
async fn launch_fails_without_ready_node_class_or_known_instance_type() {
    let mut world = World::start(json!({})).await;
    let mut claim = world.claim(vec![]).await;
    claim.spec.node_class_ref.name = "absent".to_owned();
    let refused = world.cloud.create(&claim).await;
    assert!(matches!(refused, Err(CloudError::InsufficientCapacity { .. })), "{refused:?}");

    let claim = world.claim(vec![require(labels::INSTANCE_TYPE, &["c-3x"])]).await;
    let refused = world.cloud.create(&claim).await;
    assert!(
        matches!(&refused, Err(CloudError::Transient { message }) if message.contains("c-3x")),
        "{refused:?}"
    );

    let classes: Api<KWOKNodeClass> = Api::all(world.client.clone());
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test",
        "message": "not ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    classes.patch_status("default", &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    let claim = world.claim(vec![]).await;
    let refused = world.cloud.create(&claim).await;
    assert_eq!(refused, Err(CloudError::NodeClassNotReady { message: "not ready".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn repeated_launch_in_another_process_finds_the_first_instance() {
    let mut world = World::start(json!({"nodeRegistrationDelay": "10s"})).await;
    let claim = world.claim(vec![]).await;
    let before = world.cloud.create(&claim).await.expect("launched");
    world.after(15).await;
    // Another process, which does not have the launch in memory, finds the instance.
    let other = Kwok::generic(world.client.clone(), world.clock);
    let after = other.create(&claim).await.expect("launched");
    assert_eq!(before.provider_id, after.provider_id);
    assert_eq!(before.labels, after.labels);
    world.after(15).await;
    assert_eq!(world.nodes().await.len(), 1);

    // If a process exits before it creates the Node, the next process creates the Node.
    let claim = world.claim(vec![]).await;
    let id = kwok_id(&claim);
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let status = Patch::Merge(json!({"status": {"providerID": id}}));
    claims.patch_status("claim-2", &PatchParams::default(), &status).await.expect("patched");
    other.resume().await;
    world.after(15).await;
    assert_eq!(world.nodes().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_resume_is_retried_and_does_not_delay_other_launches() {
    let mut world = World::start(json!({})).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    for name in ["claim-1", "claim-2", "claim-3"] {
        let claim = world.claim(vec![]).await;
        let status = Patch::Merge(json!({"status": {"providerID": kwok_id(&claim)}}));
        claims.patch_status(name, &PatchParams::default(), &status).await.expect("patched");
    }
    let other = Kwok::generic(world.client.clone(), world.clock);
    let error = || CloudError::Throttled { message: "slow down".to_owned() };
    other.change_faults(|faults| faults.create_errors.extend([error(), error()]));
    other.resume().await;
    world.clock.sleep(Duration::from_millis(500)).await;
    assert_eq!(world.nodes().await.len(), 1, "the third launch is resumed, the first two failed");
    world.after(2).await;
    assert_eq!(world.nodes().await.len(), 3);
}

/// Upstream's provider adds a random suffix to the names of nodes, and creates the Node after the launch.
#[tokio::test(start_paused = true)]
async fn resume_keeps_provider_id_that_another_controller_chose() {
    let mut world = World::start(json!({})).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    for name in ["claim-1", "claim-2"] {
        world.claim(vec![]).await;
        let labels = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "m-4x-amd64-linux",
            "topology.kubernetes.io/zone": "test-zone-c", "karpenter.sh/capacity-type": "on-demand"}}});
        claims.patch(name, &PatchParams::default(), &Patch::Merge(labels)).await.expect("patched");
        let status = json!({"status": {"providerID": format!("kwok://kwok-{name}-brave-heron-17")}});
        claims.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    }
    // The Node of the first NodeClaim exists, but is not registered yet.
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "kwok-claim-1-brave-heron-17", "labels": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": "kwok://kwok-claim-1-brave-heron-17"}}))
    .expect("a node");
    Api::all(world.client.clone()).create(&PostParams::default(), &node).await.expect("created");

    Kwok::generic(world.client.clone(), world.clock).resume().await;
    world.after(15).await;
    let nodes = world.nodes().await;
    let ids: Vec<_> = nodes.iter().map(|node| node.spec.clone().unwrap().provider_id.unwrap()).collect();
    assert_eq!(ids, ["kwok://kwok-claim-1-brave-heron-17", "kwok://kwok-claim-2-brave-heron-17"]);
    let labels = nodes[1].metadata.labels.clone().unwrap();
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m-4x-amd64-linux");
    assert_eq!(labels["topology.kubernetes.io/zone"], "test-zone-c");
    assert_eq!(labels["karpenter.sh/capacity-type"], "on-demand");
}

fn kwok_id(claim: &NodeClaim) -> String {
    let metadata = claim.metadata.clone();
    let name =
        karpenter_kwok::node_name(&metadata.name.unwrap_or_default(), &metadata.uid.unwrap_or_default());
    format!("kwok://{name}")
}

#[tokio::test(start_paused = true)]
async fn injected_error_is_returned_once() {
    let mut world = World::start(json!({})).await;
    let error = CloudError::Throttled { message: "slow down".to_owned() };
    world.cloud.change_faults(|faults| {
        faults.create_errors.push_back(error.clone());
        faults.list_errors.push_back(error.clone());
        faults.get_errors.push_back(error.clone());
        faults.delete_errors.push_back(error.clone());
    });
    let claim = world.claim(vec![]).await;
    assert_eq!(world.cloud.create(&claim).await, Err(error.clone()));
    assert_eq!(world.cloud.list().await, Err(error.clone()));
    let instance = world.cloud.create(&claim).await.expect("launched");
    assert_eq!(world.cloud.get(&instance.provider_id).await, Err(error.clone()));
    assert_eq!(world.cloud.delete(&claim).await, Err(error));
    assert_eq!(world.cloud.list().await.map(|listed| listed.len()), Ok(1));
    assert!(matches!(world.cloud.delete(&claim).await, Err(CloudError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn reboot_sets_a_new_boot_id() {
    let mut world = World::start(json!({})).await;
    let mut claim = world.claim(vec![require(labels::INSTANCE_TYPE, &["s-4x-amd64-linux"])]).await;
    let instance = world.cloud.create(&claim).await.expect("launched");
    world.after(1).await;
    let unregistered = world.cloud.reboot(&claim, "one").await;
    assert!(matches!(unregistered, Err(CloudError::Transient { .. })), "{unregistered:?}");
    let name = world.nodes().await[0].metadata.name.clone();
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(instance.provider_id.clone());
    status.node_name = name;
    for operation in ["one", "one", "two"] {
        world.cloud.reboot(&claim, operation).await.expect("accepted");
        let node = world.nodes().await.remove(0);
        let info = node.status.and_then(|status| status.node_info).expect("node info");
        assert_eq!(info.boot_id, format!("kwok-{operation}"));
    }
    world.cloud.change_faults(|faults| {
        faults.reboot_errors.push_back(CloudError::RebootFailed { message: "no".to_owned() });
        faults.stuck_reboots.insert(instance.provider_id.clone());
    });
    let refused = world.cloud.reboot(&claim, "three").await;
    assert_eq!(refused, Err(CloudError::RebootFailed { message: "no".to_owned() }));
    world.cloud.reboot(&claim, "three").await.expect("accepted");
    let node = world.nodes().await.remove(0);
    let info = node.status.and_then(|status| status.node_info).expect("node info");
    assert_eq!(info.boot_id, "kwok-two", "the stuck reboot does not happen");
    world.cloud.terminate_externally(&instance.provider_id).await.expect("gone");
    assert!(world.cloud.reboot(&claim, "four").await.is_err_and(|error| error.is_not_found()));
}

#[tokio::test(start_paused = true)]
async fn node_condition_is_set_and_removed() {
    let mut world = World::start(json!({})).await;
    let claim = world.claim(vec![require(labels::INSTANCE_TYPE, &["s-4x-amd64-linux"])]).await;
    world.cloud.create(&claim).await.expect("launched");
    world.after(1).await;
    let name = world.nodes().await[0].metadata.name.clone().unwrap_or_default();
    let unhealthy = async |world: &World| {
        let node = world.nodes().await.remove(0);
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().map(|condition| (condition.type_, condition.status)).collect::<Vec<_>>()
    };
    world.cloud.inject_condition(&name, UNHEALTHY, "True", "Injected").await.expect("written");
    assert_eq!(unhealthy(&world).await, [(UNHEALTHY.to_owned(), "True".to_owned())]);
    world.cloud.remove_condition(&name, UNHEALTHY).await.expect("written");
    assert_eq!(unhealthy(&world).await, []);
    assert!(
        world.cloud.remove_condition("missing", UNHEALTHY).await.is_err_and(|error| error.is_not_found())
    );
}

#[tokio::test(start_paused = true)]
async fn repair_policies_equal_upstream() {
    let world = World::start(json!({})).await;
    let set = RepairPolicies::new(world.cloud.repair_policies()).expect("valid policies");
    let found: Vec<_> = set
        .iter()
        .map(|one| {
            let policy = &one.policy;
            let pair = format!("{}={}", policy.condition_type, policy.condition_status);
            let times = (policy.toleration_secs, policy.termination_grace_period_secs);
            (pair, policy.reason_regex.clone(), times, policy.action)
        })
        .collect();
    let is = |pair: &str, reason: &str, times: (u64, u64), action| {
        (pair.to_owned(), reason.to_owned(), (times.0, Some(times.1)), action)
    };
    assert_eq!(
        found,
        [
            is("Ready=False", "", (600, 0), RepairAction::Replace),
            is("Ready=Unknown", ".*", (600, 0), RepairAction::Replace),
            is("KWOKUnhealthy=True", ".*", (30, 45), RepairAction::Replace),
            is("KWOKRebootRequired=True", ".*", (30, 60), RepairAction::Reboot),
        ]
    );
}
