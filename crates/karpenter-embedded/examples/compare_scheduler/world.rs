//! Builds a cluster on the API server of the comparison, creates a pod there, and reads kube-scheduler's decision.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use karpenter_embedded::scheduler::Snapshot;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::generate::{Generator, NAMESPACES};

/// The decision of kube-scheduler for a pod.
#[derive(Debug)]
pub(crate) enum Outcome {
    Bound { node: String },
    Refused { message: String },
    Preempted { node: String, victims: Vec<String>, message: String },
}

pub(crate) struct World {
    client: Client,
}

/// The wait after a change, so that kube-scheduler has observed the change before the next one.
const OBSERVE_DELAY: Duration = Duration::from_millis(60);
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(20);

trait Object: Resource + Clone + Debug + Serialize + DeserializeOwned {}
impl<K: Resource + Clone + Debug + Serialize + DeserializeOwned> Object for K {}

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("generated objects are well-formed")
}

impl World {
    pub(crate) async fn connect() -> Result<Self, Box<dyn std::error::Error>> {
        let world = Self { client: Client::try_default().await? };
        for (name, labels) in NAMESPACES {
            let namespaces: Api<Namespace> = Api::all(world.client.clone());
            let namespace = json!({"metadata": {"name": name, "labels": labels()}});
            if namespaces.get_opt(name).await?.is_none() {
                namespaces.create(&PostParams::default(), &read(namespace)).await?;
            }
            let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), name);
            if accounts.get_opt("default").await?.is_none() {
                let account = read(json!({"metadata": {"name": "default"}}));
                accounts.create(&PostParams::default(), &account).await?;
            }
        }
        let classes: Api<PriorityClass> = Api::all(world.client.clone());
        for (name, value, policy) in [
            ("low", 10, "PreemptLowerPriority"),
            ("high", 1000, "PreemptLowerPriority"),
            ("meek", 500, "Never"),
        ] {
            if classes.get_opt(name).await?.is_none() {
                let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": policy});
                classes.create(&PostParams::default(), &read(class)).await?;
            }
        }
        Ok(world)
    }

    fn all<K: Object<Scope = ClusterResourceScope>>(&self) -> Api<K>
    where
        K::DynamicType: Default,
    {
        Api::all(self.client.clone())
    }

    fn of<K: Object<Scope = NamespaceResourceScope>>(&self, namespace: &str) -> Api<K>
    where
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn wipe_kind<K: Object>(&self, api: Api<K>) -> kube::Result<()> {
        for object in api.list(&ListParams::default()).await? {
            if !object.finalizers().is_empty() {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                api.patch(&object.name_any(), &PatchParams::default(), &patch).await?;
            }
            match api.delete(&object.name_any(), &DeleteParams::default().grace_period(0)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
        Ok(())
    }

    /// Deletes all objects of a cluster.
    pub(crate) async fn wipe(&self) -> kube::Result<()> {
        for (namespace, _) in NAMESPACES {
            self.wipe_kind(self.of::<Pod>(namespace)).await?;
            self.wipe_kind(self.of::<PersistentVolumeClaim>(namespace)).await?;
            self.wipe_kind(self.of::<PodDisruptionBudget>(namespace)).await?;
            self.wipe_kind(self.of::<Service>(namespace)).await?;
            self.wipe_kind(self.of::<ReplicaSet>(namespace)).await?;
        }
        self.wipe_kind(self.all::<PersistentVolume>()).await?;
        self.wipe_kind(self.all::<StorageClass>()).await?;
        self.wipe_kind(self.all::<CSINode>()).await?;
        self.wipe_kind(self.all::<Node>()).await?;
        tokio::time::sleep(OBSERVE_DELAY).await;
        Ok(())
    }

    pub(crate) async fn build(&self, generator: &mut Generator) -> kube::Result<()> {
        let created = &PostParams::default();
        for node in generator.nodes() {
            let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let nodes: Api<Node> = self.all();
            nodes.create(created, &read(node.clone())).await?;
            let status = Patch::Merge(json!({"status": node["status"]}));
            nodes.patch_status(&name, &PatchParams::default(), &status).await?;
            // The API server adds a taint to new nodes, and no node lifecycle controller runs here that would remove
            // the taint when the node is ready.
            let taints = Patch::Merge(json!({"spec": {"taints": node["spec"]["taints"]}}));
            nodes.patch(&name, &PatchParams::default(), &taints).await?;
        }
        for class in generator.storage_classes() {
            self.all::<StorageClass>().create(created, &read(class)).await?;
        }
        for node in generator.csi_nodes() {
            self.all::<CSINode>().create(created, &read(node)).await?;
        }
        for (claim, volume) in generator.storage() {
            let namespace = claim["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            self.of::<PersistentVolumeClaim>(&namespace).create(created, &read(claim)).await?;
            if let Some(volume) = volume {
                self.all::<PersistentVolume>().create(created, &read(volume)).await?;
            }
        }
        for (namespace, _) in NAMESPACES {
            for service in generator.services() {
                self.of::<Service>(namespace).create(created, &read(service)).await?;
            }
            for set in generator.replica_sets() {
                self.of::<ReplicaSet>(namespace).create(created, &read(set)).await?;
            }
            for budget in generator.budgets() {
                let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let budgets = self.of::<PodDisruptionBudget>(namespace);
                budgets.create(created, &read(budget.clone())).await?;
                let status = Patch::Merge(json!({"status": budget["status"]}));
                budgets.patch_status(&name, &PatchParams::default(), &status).await?;
            }
        }
        tokio::time::sleep(OBSERVE_DELAY * 3).await;
        Ok(())
    }

    /// The current state of the cluster.
    pub(crate) async fn snapshot(&self) -> kube::Result<Snapshot> {
        let everything = &ListParams::default();
        let mut snapshot = Snapshot::new();
        let client = || self.client.clone();
        for node in Api::<Node>::all(client()).list(everything).await? {
            snapshot.apply_node(&node);
        }
        for namespace in Api::<Namespace>::all(client()).list(everything).await? {
            snapshot.apply_namespace(&namespace);
        }
        for budget in Api::<PodDisruptionBudget>::all(client()).list(everything).await? {
            snapshot.apply_budget(&budget);
        }
        for class in Api::<StorageClass>::all(client()).list(everything).await? {
            snapshot.apply_storage_class(&class);
        }
        for node in Api::<CSINode>::all(client()).list(everything).await? {
            snapshot.apply_csi_node(&node);
        }
        for volume in Api::<PersistentVolume>::all(client()).list(everything).await? {
            snapshot.apply_volume(&volume);
        }
        for claim in Api::<PersistentVolumeClaim>::all(client()).list(everything).await? {
            snapshot.apply_claim(&claim);
        }
        for service in Api::<Service>::all(client()).list(everything).await? {
            snapshot.apply_service(&service);
        }
        for set in Api::<ReplicaSet>::all(client()).list(everything).await? {
            snapshot.apply_replica_set(&set);
        }
        for pod in Api::<Pod>::all(client()).list(everything).await? {
            snapshot.apply_pod(&pod);
        }
        Ok(snapshot)
    }

    pub(crate) async fn create_pod(&self, pod: Value) -> kube::Result<Pod> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        self.of::<Pod>(&namespace).create(&PostParams::default(), &read(pod)).await
    }

    fn pods_beside(&self, pod: &Pod) -> Api<Pod> {
        self.of(&pod.namespace().unwrap_or_default())
    }

    pub(crate) async fn outcome(&self, pod: &Pod) -> kube::Result<Outcome> {
        let pods = self.pods_beside(pod);
        let started = tokio::time::Instant::now();
        loop {
            let now = pods.get(&pod.name_any()).await?;
            let status = now.status.clone().unwrap_or_default();
            if let Some(node) = now.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                return Ok(Outcome::Bound { node });
            }
            let mut conditions = status.conditions.iter().flatten();
            let refusal = conditions.find(|it| it.type_ == "PodScheduled" && it.status == "False");
            let nominated = status.nominated_node_name.clone().filter(|node| !node.is_empty());
            match (refusal, nominated) {
                (Some(refusal), None) => {
                    return Ok(Outcome::Refused { message: refusal.message.clone().unwrap_or_default() });
                }
                (Some(refusal), Some(node)) => {
                    let message = refusal.message.clone().unwrap_or_default();
                    let victims = self.victims().await?;
                    return Ok(Outcome::Preempted { node, victims, message });
                }
                // kube-scheduler has selected the node and waits for the volumes, which stay unprovisioned because no
                // provisioner runs here.
                (None, Some(node)) => return Ok(Outcome::Bound { node }),
                (None, None) => {}
            }
            if started.elapsed() > OUTCOME_TIMEOUT {
                return Ok(Outcome::Refused { message: "kube-scheduler did nothing".to_owned() });
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the number of terminating pods no longer grows, and returns their names.
    async fn victims(&self) -> kube::Result<Vec<String>> {
        tokio::time::sleep(OBSERVE_DELAY * 3).await;
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await?;
        let going = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
        let mut names: Vec<String> =
            going.map(|pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())).collect();
        names.sort();
        Ok(names)
    }

    /// Leaves no pending pods: bound pods are kept and started, other pods and victims are deleted.
    pub(crate) async fn settle(&self, pod: &Pod, outcome: &Outcome) -> kube::Result<()> {
        let now = &DeleteParams::default().grace_period(0);
        let pods = self.pods_beside(pod);
        match outcome {
            Outcome::Bound { .. } => {
                let bound = pods.get(&pod.name_any()).await?;
                if bound.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some() {
                    // Start times differ, so that the youngest of equal victims is unique.
                    let index: i64 = pod.name_any().trim_start_matches('p').parse().unwrap_or(0);
                    let started = jiff::Timestamp::from_second(1_700_000_000 + index * 7919 % 100_000);
                    let patch = Patch::Merge(json!({"status": {"startTime": started.unwrap_or_default()}}));
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
                } else {
                    pods.delete(&pod.name_any(), now).await?;
                    self.unselect_claims(pod).await?;
                }
            }
            Outcome::Refused { .. } => drop(pods.delete(&pod.name_any(), now).await?),
            Outcome::Preempted { victims, .. } => {
                pods.delete(&pod.name_any(), now).await?;
                for victim in victims {
                    let (namespace, name) = victim.split_once('/').unwrap_or_default();
                    self.of::<Pod>(namespace).delete(name, now).await?;
                }
            }
        }
        tokio::time::sleep(OBSERVE_DELAY).await;
        Ok(())
    }

    /// Removes the annotations that kube-scheduler wrote on claims and volumes of a pod that never ran.
    async fn unselect_claims(&self, pod: &Pod) -> kube::Result<()> {
        let claims: Api<PersistentVolumeClaim> = self.of(&pod.namespace().unwrap_or_default());
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}}));
        let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
        for claim in volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
            claims.patch(&claim.claim_name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}
