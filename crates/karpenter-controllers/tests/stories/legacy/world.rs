//! An embedded cluster with EC2's instance types on the kwok provider, and the v1alpha5 API.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_api::crds;
use karpenter_apiserver::{ApiServer, Config};
use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_controllers::operator::legacy_api;
use karpenter_controllers::operator::{Operator, Options};
use karpenter_embedded::control_plane::{Cluster, Options as ClusterOptions};
use karpenter_kwok::{Ec2Classes, Kwok};
use karpenter_model::instance_type::InstanceType;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::embedded::{ClusterView, TokioClock, clock, define, define_kinds};

/// The instance families that the tests use.
const FAMILIES: [&str; 12] =
    ["t3", "m5", "m6i", "c5", "c6i", "r5", "x2idn", "g4dn", "g5", "p3", "inf1", "m6g"];

pub(crate) struct World {
    view: ClusterView,
    operator: Option<Operator>,
    kwok: Kwok,
    _cluster: Cluster,
}

impl Deref for World {
    type Target = ClusterView;

    fn deref(&self) -> &ClusterView {
        &self.view
    }
}

fn types(region: &str) -> Vec<InstanceType> {
    let zones = aws::catalog().zones(region).to_vec();
    let class = AwsNodeClass { region: region.to_owned(), zones, ..AwsNodeClass::default() };
    let mut types = aws::catalog().resolve(&class);
    types.retain(|one| FAMILIES.iter().any(|family| one.name.starts_with(&format!("{family}."))));
    types
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_in("us-east-1").await
    }

    pub(crate) async fn start_in(region: &str) -> Self {
        let clock = clock();
        let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
        let client = Client::new(server, "default");
        define_kinds(&client).await;
        define(&client, crds::legacy()).await;
        let cluster =
            Cluster::start(client.clone(), ClusterOptions { clock, ..ClusterOptions::default() }).await;
        let kwok = Kwok::with_simulated_ec2(client.clone(), clock, types(region));
        let mut world =
            Self { view: ClusterView::new(client, clock), operator: None, kwok, _cluster: cluster };
        world.start_karpenter().await;
        world
    }

    pub(crate) async fn start_karpenter(&mut self) {
        let (client, clock) = (self.client.clone(), self.clock);
        let mut operator =
            Operator::watch(client.clone(), Arc::new(self.kwok.clone()), clock, Options::default());
        operator.start().await;
        let classes = Ec2Classes::start(client, clock).await;
        operator.spawn("kwok.ec2nodeclass", classes, Ec2Classes::watch, 1);
        let options = karpenter_legacy::Options {
            default_instance_profile: Some("nodes".to_owned()),
            ..karpenter_legacy::Options::default()
        };
        legacy_api::serve(&mut operator, options).await;
        self.view.journal = Some(operator.context().journal.clone());
        self.operator = Some(operator);
    }

    pub(crate) async fn stop_karpenter(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.stop().await;
        }
    }

    fn dynamic(&self, object: &Value) -> Api<DynamicObject> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
        match text("kind") {
            "Provisioner" | "AWSNodeTemplate" | "NodePool" | "EC2NodeClass" | "Node" => {
                Api::all_with(self.client.clone(), &resource)
            }
            _ => {
                let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
                Api::namespaced_with(self.client.clone(), namespace.unwrap_or("default"), &resource)
            }
        }
    }

    /// The API of a kind by apiVersion and kind.
    pub(crate) fn of_kind(&self, (version, kind): (&str, &str)) -> Api<DynamicObject> {
        self.dynamic(&json!({"apiVersion": version, "kind": kind}))
    }

    /// Server-side apply as `kubectl apply --server-side` does it.
    pub(crate) async fn apply(&self, object: &Value) -> Result<DynamicObject, String> {
        let mut object = object.clone();
        let api = self.dynamic(&object);
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        if api.namespace().is_none()
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            // kubectl omits the namespace for cluster-scoped kinds.
            metadata.remove("namespace");
        }
        let parameters = PatchParams {
            field_validation: Some(kube::api::ValidationDirective::Strict),
            ..PatchParams::apply("kubectl").force()
        };
        api.patch(&name, &parameters, &Patch::Apply(&object)).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn template(&self, name: &str) {
        let spec = json!({"instanceProfile": "p", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}});
        let template = json!({"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate",
            "metadata": {"name": name}, "spec": spec});
        self.apply(&template).await.expect("a template");
    }

    /// Creates a Provisioner of on-demand m5.xlarge nodes; `more` is merged into its spec.
    pub(crate) async fn provisioner(&self, name: &str, more: Value) {
        let mut spec = json!({
            "providerRef": {"name": "shared"},
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}],
        });
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.template("shared").await;
        let provisioner = json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner",
            "metadata": {"name": name}, "spec": spec});
        self.apply(&provisioner).await.expect("a Provisioner");
    }

    pub(crate) fn provisioners(&self) -> Api<DynamicObject> {
        self.of_kind(("karpenter.sh/v1alpha5", "Provisioner"))
    }

    /// A Deployment whose pods select the Provisioner; `more` is merged into the pod template.
    pub(crate) async fn deploy(&self, name: &str, provisioner: &str, replicas: u32, cpu: &str, more: Value) {
        let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": {
            "nodeSelector": {"karpenter.sh/provisioner-name": provisioner},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        }});
        json_patch(&mut template, more);
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}});
        self.apply(&deployment).await.expect("a Deployment");
    }

    pub(crate) async fn scale(&self, name: &str, replicas: u32) {
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = self.api();
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch(name, &PatchParams::default(), &patch).await.expect("scaled");
    }

    /// Nodes of a Provisioner by name.
    pub(crate) async fn nodes_of(&self, provisioner: &str) -> BTreeMap<String, Node> {
        let selected = ListParams::default().labels(&format!("karpenter.sh/provisioner-name={provisioner}"));
        let nodes = self.all::<Node>().list(&selected).await.expect("listed").items;
        nodes.into_iter().map(|node| (node.name_any(), node)).collect()
    }

    pub(crate) async fn running(&self) -> Vec<Pod> {
        let mut pods = self.pods().await;
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        });
        pods
    }

    pub(crate) async fn until_running(&self, count: usize) {
        self.until("pods run", async || self.running().await.len(), |running| *running == count).await;
    }

    /// Status, reason and message of the condition `Active` of a Provisioner.
    pub(crate) async fn active(&self, name: &str) -> (String, String, String) {
        let object = self.provisioners().get(name).await.expect("there");
        let condition = &object.data["status"]["conditions"][0];
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }
}

/// Applies a merge patch.
fn json_patch(target: &mut Value, patch: Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                json_patch(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch,
    }
}

pub(crate) fn is_open(node: &Node) -> bool {
    let is_ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = is_ready.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let is_initialized = node.labels().get("karpenter.sh/initialized").is_some_and(|value| value == "true");
    is_ready && is_initialized && node.metadata.deletion_timestamp.is_none()
}
