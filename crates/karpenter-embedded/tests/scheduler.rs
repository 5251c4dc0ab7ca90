//! The scheduler on the embedded API server with a paused clock: what it writes, and when.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_embedded::scheduler::{Settings, Sources, run};
use karpenter_runtime::clock::Clock;
use karpenter_runtime::worker::Shutdown;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

struct OnTokio(Clock);

impl karpenter_apiserver::clock::Clock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

struct World {
    client: Client,
    clock: Clock,
    shutdown: Shutdown,
    tasks: Vec<JoinHandle<()>>,
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

impl World {
    async fn start() -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        let (sources, mut tasks) = Sources::watch(&client);
        let shutdown = Shutdown::default();
        tasks.push(tokio::spawn(run(client.clone(), sources, clock, Settings::default(), shutdown.clone())));
        Self { client, clock, shutdown, tasks }
    }

    async fn stop(mut self) {
        self.shutdown.request();
        let scheduler = self.tasks.pop().expect("the scheduler's task");
        scheduler.await.expect("a clean end");
        self.tasks.iter().for_each(|task| task.abort());
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, api: Api<K>, object: Value) -> K
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    {
        let object = serde_json::from_value(object).expect("a well-formed object");
        api.create(&PostParams::default(), &object).await.expect("created")
    }

    async fn node(&self, name: &str, over: Value) {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        });
        merge(&mut node, over);
        let status = node["status"].clone();
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.create(nodes.clone(), node).await;
        let patch = Patch::Merge(json!({"status": status}));
        nodes.patch_status(name, &PatchParams::default(), &patch).await.expect("status");
        // No controller runs here that would remove the taint not-ready.
        let patch = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(name, &PatchParams::default(), &patch).await.expect("ready");
    }

    async fn pod(&self, name: &str, cpu: &str, over: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": cpu}}}]},
        });
        merge(&mut pod, over);
        self.create(self.pods(), pod).await
    }

    async fn get(&self, name: &str) -> Pod {
        self.pods().get(name).await.expect("the pod")
    }

    /// Polls the pod until it is as expected.
    async fn until(&self, name: &str, what: &str, expected: impl Fn(&Pod) -> bool) -> Pod {
        let deadline = self.clock.now() + jiff::SignedDuration::from_mins(10);
        loop {
            let pod = self.get(name).await;
            if expected(&pod) {
                return pod;
            }
            assert!(self.clock.now() < deadline, "{name} never {what}: {pod:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn bound(&self, name: &str) -> String {
        let pod = self.until(name, "bound", |pod| node_of(pod).is_some()).await;
        node_of(&pod).expect("bound")
    }

    async fn refused(&self, name: &str) -> (String, String) {
        let pod = self.until(name, "refused", |pod| condition(pod, "PodScheduled").is_some()).await;
        condition(&pod, "PodScheduled").expect("refused")
    }

    async fn events(&self, reason: &str) -> Vec<Event> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let all = events.list(&ListParams::default()).await.expect("events").items;
        all.into_iter().filter(|event| event.reason.as_deref() == Some(reason)).collect()
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn nominated_node(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.nominated_node_name.clone().filter(|node| !node.is_empty())
}

fn condition(pod: &Pod, kind: &str) -> Option<(String, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((condition.reason.clone().unwrap_or_default(), condition.message.clone().unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn bound_pod_gets_event() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.pod("p", "1", json!({})).await;
    assert_eq!(world.bound("p").await, "n1");
    world.until("p", "settled", |_| true).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = world.events("Scheduled").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].note.as_deref(), Some("Successfully assigned default/p to n1"));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unschedulable_pod_has_condition_and_is_bound_to_new_node() {
    let world = World::start().await;
    world.node("small", json!({"status": {"allocatable": {"cpu": "1"}}})).await;
    world.pod("p", "2", json!({})).await;
    let (reason, message) = world.refused("p").await;
    assert_eq!(reason, "Unschedulable");
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling."
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = world.events("FailedScheduling").await;
    assert_eq!(
        events.iter().map(|event| event.note.as_deref()).collect::<Vec<_>>(),
        [Some(message.as_str())]
    );
    world.node("large", json!({})).await;
    assert_eq!(world.bound("p").await, "large");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_retried_with_backoff_without_nodes() {
    let world = World::start().await;
    world.pod("p", "1", json!({})).await;
    let (reason, message) = world.refused("p").await;
    assert_eq!((reason.as_str(), message.as_str()), ("Unschedulable", "no nodes available to schedule pods"));
    tokio::time::sleep(Duration::from_secs(120)).await;
    let before = world.clock.now();
    world.node("n1", json!({})).await;
    world.bound("p").await;
    assert!(world.clock.now() <= before + jiff::SignedDuration::from_secs(11));
    // One event is created for the new pod, and one after the scheduler has set its condition, because that changed the
    // pod. All further failures increase the count of the second event.
    let events = world.events("FailedScheduling").await;
    let counts: Vec<Option<i32>> =
        events.iter().map(|event| event.series.as_ref().map(|series| series.count)).collect();
    assert_eq!((counts.len(), counts.contains(&Some(2))), (2, true), "{counts:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pending_pod_is_bound_when_resources_are_freed() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.pod("first", "3", json!({})).await;
    world.bound("first").await;
    world.pod("second", "3", json!({})).await;
    world.refused("second").await;
    world.pods().delete("first", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    assert_eq!(world.bound("second").await, "n1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn gated_pods_and_pods_of_other_schedulers_are_not_scheduled() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.pod("gated", "1", json!({"spec": {"schedulingGates": [{"name": "wait"}]}})).await;
    world.pod("foreign", "1", json!({"spec": {"schedulerName": "other"}})).await;
    world.pod("p", "1", json!({})).await;
    world.bound("p").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let gated = world.get("gated").await;
    assert_eq!(node_of(&gated), None);
    assert_eq!(
        condition(&gated, "PodScheduled"),
        Some(("SchedulingGated".into(), "Scheduling is blocked due to non-empty scheduling gates".into()))
    );
    assert_eq!(condition(&world.get("foreign").await, "PodScheduled"), None);
    let patch = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    world.pods().patch("gated", &PatchParams::default(), &patch).await.expect("ungated");
    assert_eq!(world.bound("gated").await, "n1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pod_of_higher_priority_preempts() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(world.client.clone());
    world.create(classes, json!({"metadata": {"name": "urgent"}, "value": 1000})).await;
    world.pod("victim", "3", json!({})).await;
    world.bound("victim").await;
    let urgent = json!({"spec": {"priorityClassName": "urgent", "priority": 1000}});
    world.pod("urgent", "3", urgent).await;
    let pod = world.until("urgent", "nominated", |pod| nominated_node(pod).is_some()).await;
    assert_eq!(nominated_node(&pod).as_deref(), Some("n1"));
    let victim = world.until("victim", "told", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let (reason, message) = condition(&victim, "DisruptionTarget").expect("a condition");
    assert_eq!(reason, "PreemptionByScheduler");
    assert_eq!(message, "default-scheduler: preempting to accommodate a higher priority pod");
    // No kubelet runs here that would finish the termination.
    let now = DeleteParams::default().grace_period(0);
    world.pods().delete("victim", &now).await.expect("finished");
    assert_eq!(world.bound("urgent").await, "n1");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.events("Preempted").await.len(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nomination_by_another_client_reserves_resources_and_is_used() {
    let world = World::start().await;
    world.node("n1", json!({"status": {"allocatable": {"cpu": "1"}}})).await;
    world.pod("planned", "3", json!({})).await;
    world.refused("planned").await;
    let patch = Patch::Merge(json!({"status": {"nominatedNodeName": "n2"}}));
    world.pods().patch_status("planned", &PatchParams::default(), &patch).await.expect("nominated");
    world.node("n2", json!({})).await;
    world.node("n3", json!({})).await;
    assert_eq!(world.bound("planned").await, "n2");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_are_bound_before_the_pod() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(world.client.clone());
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let classes: Api<StorageClass> = Api::all(world.client.clone());
    world
        .create(
            classes,
            json!({"metadata": {"name": "wait"}, "provisioner": "disk.example.com",
                "volumeBindingMode": "WaitForFirstConsumer"}),
        )
        .await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "wait",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    world.create(claims.clone(), claim).await;
    let uses =
        json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    world.pod("p", "1", uses).await;
    let pod = world.until("p", "nominated", |pod| nominated_node(pod).is_some()).await;
    assert_eq!((nominated_node(&pod).as_deref(), node_of(&pod)), (Some("n1"), None));
    let chosen = async || {
        let claim = claims.get("data").await.expect("the claim");
        claim.metadata.annotations.and_then(|it| it.get("volume.kubernetes.io/selected-node").cloned())
    };
    while chosen().await.is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(chosen().await.as_deref(), Some("n1"));
    // The provisioner and the volume controller bind the claim.
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "wait",
        "csi": {"driver": "disk.example.com", "volumeHandle": "v"},
        "claimRef": {"namespace": "default", "name": "data"}}});
    world.create(volumes, volume).await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"}}));
    claims.patch("data", &PatchParams::default(), &patch).await.expect("bound");
    assert_eq!(world.bound("p").await, "n1");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_pods_are_bound_within_capacity_and_deterministically() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::start().await;
        for index in 0..20 {
            world.node(&format!("n{index:02}"), json!({})).await;
        }
        for index in 0..100 {
            world.pod(&format!("p{index:03}"), "1", json!({})).await;
        }
        let settled = async || {
            let pods = world.pods().list(&ListParams::default()).await.expect("pods").items;
            let done = |pod: &Pod| node_of(pod).is_some() || condition(pod, "PodScheduled").is_some();
            pods.iter().all(done).then_some(pods)
        };
        let pods = loop {
            if let Some(pods) = settled().await {
                break pods;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let placed: Vec<Option<String>> = pods.iter().map(node_of).collect();
        assert_eq!(placed.iter().flatten().count(), 80, "four cpus on each of twenty nodes");
        for index in 0..20 {
            let name = format!("n{index:02}");
            assert_eq!(placed.iter().flatten().filter(|node| **node == name).count(), 4);
        }
        runs.push(placed);
        world.stop().await;
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(start_paused = true)]
async fn affinity_applies_to_selected_namespaces() {
    let world = World::start().await;
    for zone in ["a", "b"] {
        let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}});
        world.node(&format!("n-{zone}"), labels).await;
    }
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    world.create(namespaces, json!({"metadata": {"name": "other", "labels": {"team": "b"}}})).await;
    let others: Api<Pod> = Api::namespaced(world.client.clone(), "other");
    let db = json!({"metadata": {"name": "db", "labels": {"app": "db"}},
        "spec": {"nodeName": "n-b", "containers": [{"name": "main", "image": "none"}]}});
    world.create(others, db).await;
    let near = json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}},
        "namespaceSelector": {"matchLabels": {"team": "b"}}}]}}}});
    world.pod("web", "1", near).await;
    assert_eq!(world.bound("web").await, "n-b");
    world.stop().await;
}
