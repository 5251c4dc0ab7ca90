//! A test environment with an embedded cluster of two nodes. The controllers run in this process as long as their
//! Deployment has replicas.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::labels::Provider;
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::operator::election::{Election, Settings as ElectionSettings};
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_install::doctor::{DoctorOptions, Finding, Level, findings, gather};
use karpenter_install::install::{Choices, install};
use karpenter_install::settings::Settings;
use karpenter_install::uninstall::{self, Nodes, uninstall};
use karpenter_install::{Error, leases};
use karpenter_kwok::Kwok;
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) lines: Mutex<Vec<String>>,
    stops: Arc<Notify>,
    _cluster: Cluster,
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
        let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        let cluster =
            Cluster::start(client.clone(), ClusterOptions { clock, ..ClusterOptions::default() }).await;
        let world = Self { client, clock, lines: Mutex::default(), stops: Arc::default(), _cluster: cluster };
        for name in ["node-1", "node-2"] {
            let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
            let labels = json!({"type": "kwok", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name});
            world
                .apply(
                    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels,
                    "annotations": {"kwok.x-k8s.io/node": "fake"}},
                    "spec": {"taints": [{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]},
                    "status": {"capacity": resources, "allocatable": resources}}),
                )
                .await;
        }
        world
    }

    pub(crate) fn settings() -> Settings {
        Settings {
            image: Some("registry.example/karpenter/controller:1".to_owned()),
            namespace: "karpenter".to_owned(),
            ..Settings::new(Provider::Kwok)
        }
    }

    fn progress(&self, line: &str) {
        self.lines.lock().expect("not poisoned").push(line.to_owned());
        // The Deployment's pods are only simulated. So when the Deployment is stopped, the controllers in this process
        // are stopped here.
        if line.starts_with("stopping") {
            self.stops.notify_one();
        }
    }

    pub(crate) fn reported(&self, part: &str) -> bool {
        self.lines.lock().expect("not poisoned").iter().any(|line| line.contains(part))
    }

    pub(crate) fn forget(&self) {
        self.lines.lock().expect("not poisoned").clear();
    }

    pub(crate) async fn install(&self, settings: &Settings, choices: &Choices) -> Result<(), Error> {
        install(&self.client, self.clock, settings, choices, &|line| self.progress(line)).await
    }

    pub(crate) fn uninstalling(nodes: Nodes) -> uninstall::Choices {
        uninstall::Choices {
            name: "karpenter".to_owned(),
            nodes,
            with_definitions: false,
            timeout: Duration::from_secs(600),
            is_forced: false,
            is_dry_run: false,
        }
    }

    pub(crate) async fn uninstall(&self, choices: &uninstall::Choices) -> Result<(), Error> {
        uninstall(&self.client, self.clock, choices, &|line| self.progress(line)).await
    }

    pub(crate) async fn examine(&self) -> Vec<Finding> {
        findings(&gather(&self.client, self.clock, &DoctorOptions::default()).await)
    }

    /// Starts the controllers, with their Lease in the namespace of the Deployment. They run until the Deployment is
    /// stopped.
    pub(crate) async fn run_karpenter(&self) -> JoinHandle<()> {
        let (client, clock, stops) = (self.client.clone(), self.clock, Arc::clone(&self.stops));
        let mut election = Election::new(
            client.clone(),
            clock,
            ElectionSettings::new("karpenter", leases::NAME, "karpenter-pod_1"),
        );
        election.acquire().await;
        let kwok = Kwok::generic(client.clone(), clock);
        let mut operator = Operator::watch(client, Arc::new(kwok), clock, Options::default());
        operator.start().await;
        tokio::spawn(async move {
            tokio::select! {
                () = election.keep() => panic!("the lease was lost"),
                () = stops.notified() => {}
            }
            operator.stop().await;
            election.release().await.expect("given back");
        })
    }

    /// Applies a NodePool with its node class, and a Deployment whose pods need a new node.
    pub(crate) async fn apply_workload(&self) {
        self.apply(json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"}, "spec": {}}))
            .await;
        let reference = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
        let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]);
        self.apply(
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"requirements": requirements, "nodeClassRef": reference}}}}),
        )
        .await;
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        self.apply(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "work", "namespace": "default"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "work"}},
                "template": {"metadata": {"labels": {"app": "work"}}, "spec": {"containers": [container]}}}}))
            .await;
    }

    pub(crate) async fn until(&self, what: &str, mut is_true: impl AsyncFnMut() -> bool) {
        for _ in 0..600 {
            if is_true().await {
                return;
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
        panic!("timed out: {what}");
    }

    /// The nodes of NodePools that are ready.
    pub(crate) async fn ready_nodes(&self) -> Vec<Value> {
        let nodes = self.list("", "v1", "Node").await;
        let is_ready = |node: &Value| {
            let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|each| each["type"] == "Ready" && each["status"] == "True")
        };
        nodes
            .into_iter()
            .filter(|node| {
                node["metadata"]["labels"].get("karpenter.sh/nodepool").is_some() && is_ready(node)
            })
            .collect()
    }

    pub(crate) async fn registered(&self) -> bool {
        let claims = self.list("karpenter.sh", "v1", "NodeClaim").await;
        let is_registered = |claim: &Value| {
            let conditions = claim.pointer("/status/conditions").and_then(Value::as_array);
            conditions
                .into_iter()
                .flatten()
                .any(|each| each["type"] == "Initialized" && each["status"] == "True")
        };
        !claims.is_empty() && claims.iter().all(is_registered)
    }

    fn api(&self, group: &str, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// All objects of a kind; empty if the cluster does not know the kind.
    pub(crate) async fn list(&self, group: &str, version: &str, kind: &str) -> Vec<Value> {
        match self.api(group, version, kind, None).list(&ListParams::default()).await {
            Ok(found) => {
                found.items.into_iter().map(|each| serde_json::to_value(each).expect("JSON")).collect()
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => panic!("{kind}: {error}"),
        }
    }

    pub(crate) async fn get(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.api(group, "v1", kind, Some(namespace)).get_opt(name).await.expect("read");
        found.map(|each| serde_json::to_value(each).expect("JSON"))
    }

    /// Applies an object and its status.
    pub(crate) async fn apply(&self, object: Value) {
        let api_version = object["apiVersion"].as_str().expect("text");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let namespace = object["metadata"]["namespace"].as_str();
        let api = self.api(group, version, object["kind"].as_str().expect("text"), namespace);
        let parameters = PatchParams::apply("test").force();
        let name = object["metadata"]["name"].as_str().expect("text");
        api.patch(name, &parameters, &Patch::Apply(&object)).await.expect("applied");
        if object.get("status").is_some() {
            api.patch_status(name, &parameters, &Patch::Apply(&object)).await.expect("applied");
        }
    }

    pub(crate) async fn delete(&self, group: &str, version: &str, kind: &str, name: &str) {
        self.api(group, version, kind, None).delete(name, &Default::default()).await.expect("deleted");
    }
}

pub(crate) fn bad(found: &[Finding]) -> Vec<String> {
    let bad = found.iter().filter(|finding| finding.level != Level::Ok);
    bad.map(|finding| format!("{}: {}", finding.check, finding.message)).collect()
}

impl World {
    pub(crate) async fn scale_to_zero(&self, namespace: &str, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
        let api = self.api("apps", "v1", "Deployment", Some(namespace));
        api.patch(name, &PatchParams::default(), &patch).await.expect("scaled");
    }

    pub(crate) async fn end_karpenter(&self, handle: JoinHandle<()>) {
        self.stops.notify_one();
        handle.await.expect("ended");
    }

    pub(crate) async fn delete_budget(&self) {
        let api = self.api("policy", "v1", "PodDisruptionBudget", Some("default"));
        api.delete("never", &Default::default()).await.expect("deleted");
    }
}
