//! The stores of a cluster: one per kind, shared by the scheduler, the controllers and the kubelets.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Container, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, ServiceAccount,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use tokio::task::JoinHandle;

use karpenter_runtime::store::{IndexValues, Store, keep_all};

/// Index of pods by the node that they are bound to.
pub const BY_NODE: &str = "node";
/// Index of objects by the uid of their controller; objects without one are under [`orphans_in`] their namespace.
pub const BY_CONTROLLER: &str = "controller";
/// Index of attachments by `node/volume`.
pub const BY_NODE_AND_VOLUME: &str = "node-and-volume";
/// Index of pods by `namespace/claim` of the claims that they mount.
pub const BY_CLAIM: &str = "claim";

/// One store per kind.
#[derive(Clone)]
pub struct Stores {
    pub pods: Store<Pod>,
    pub nodes: Store<Node>,
    pub namespaces: Store<Namespace>,
    pub service_accounts: Store<ServiceAccount>,
    pub deployments: Store<Deployment>,
    pub replica_sets: Store<ReplicaSet>,
    pub stateful_sets: Store<StatefulSet>,
    pub daemon_sets: Store<DaemonSet>,
    pub controller_revisions: Store<ControllerRevision>,
    pub jobs: Store<Job>,
    pub cron_jobs: Store<CronJob>,
    pub budgets: Store<PodDisruptionBudget>,
    pub claims: Store<PersistentVolumeClaim>,
    pub volumes: Store<PersistentVolume>,
    pub storage_classes: Store<StorageClass>,
    pub attachments: Store<VolumeAttachment>,
    pub csi_nodes: Store<CSINode>,
    pub leases: Store<Lease>,
}

impl Stores {
    /// Starts all watches; the tasks run until they are aborted.
    pub fn watch(client: &Client) -> (Self, Vec<JoinHandle<()>>) {
        let mut tasks = Vec::new();
        let by_controller_only: [(&'static str, IndexValues<ReplicaSet>); 1] =
            [(BY_CONTROLLER, by_controller::<ReplicaSet>)];
        let stores = Self {
            pods: register(
                Store::watch(
                    client,
                    trim_pod,
                    &[(BY_NODE, by_node), (BY_CONTROLLER, by_controller::<Pod>), (BY_CLAIM, by_claim)],
                ),
                &mut tasks,
            ),
            nodes: register(Store::watch(client, trim_node, &[]), &mut tasks),
            namespaces: register(Store::watch(client, keep_all, &[]), &mut tasks),
            service_accounts: register(Store::watch(client, keep_all, &[]), &mut tasks),
            deployments: register(Store::watch(client, keep_all, &[]), &mut tasks),
            replica_sets: register(Store::watch(client, keep_all, &by_controller_only), &mut tasks),
            stateful_sets: register(Store::watch(client, keep_all, &[]), &mut tasks),
            daemon_sets: register(Store::watch(client, keep_all, &[]), &mut tasks),
            controller_revisions: register(
                Store::watch(client, keep_all, &[(BY_CONTROLLER, by_controller::<ControllerRevision>)]),
                &mut tasks,
            ),
            jobs: register(
                Store::watch(client, keep_all, &[(BY_CONTROLLER, by_controller::<Job>)]),
                &mut tasks,
            ),
            cron_jobs: register(Store::watch(client, keep_all, &[]), &mut tasks),
            budgets: register(Store::watch(client, keep_all, &[]), &mut tasks),
            claims: register(Store::watch(client, keep_all, &[]), &mut tasks),
            volumes: register(Store::watch(client, keep_all, &[]), &mut tasks),
            storage_classes: register(Store::watch(client, keep_all, &[]), &mut tasks),
            attachments: register(
                Store::watch(client, keep_all, &[(BY_NODE_AND_VOLUME, by_node_and_volume)]),
                &mut tasks,
            ),
            csi_nodes: register(Store::watch(client, keep_all, &[]), &mut tasks),
            leases: register(Store::watch(client, keep_all, &[]), &mut tasks),
        };
        (stores, tasks)
    }

    /// Waits until every store has its first list.
    pub async fn synced(&self) {
        self.pods.synced().await;
        self.nodes.synced().await;
        self.namespaces.synced().await;
        self.service_accounts.synced().await;
        self.deployments.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.daemon_sets.synced().await;
        self.controller_revisions.synced().await;
        self.jobs.synced().await;
        self.cron_jobs.synced().await;
        self.budgets.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.storage_classes.synced().await;
        self.attachments.synced().await;
        self.csi_nodes.synced().await;
        self.leases.synced().await;
    }
}

fn register<K>((store, task): (Store<K>, JoinHandle<()>), tasks: &mut Vec<JoinHandle<()>>) -> Store<K> {
    tasks.push(task);
    store
}

fn by_node(pod: &Pod) -> Vec<String> {
    pod.spec.iter().filter_map(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()).collect()
}

fn by_controller<K: Resource>(object: &K) -> Vec<String> {
    let meta = object.meta();
    let controller = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    vec![match controller {
        Some(owner) => owner.uid.clone(),
        None => orphans_in(meta.namespace.as_deref().unwrap_or_default()),
    }]
}

/// The key in [`BY_CONTROLLER`] for the objects of a namespace without a controller.
pub fn orphans_in(namespace: &str) -> String {
    format!("orphans in {namespace}")
}

fn by_node_and_volume(attachment: &VolumeAttachment) -> Vec<String> {
    let volume = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
    vec![format!("{}/{volume}", attachment.spec.node_name)]
}

fn by_claim(pod: &Pod) -> Vec<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    claims_of(pod).into_iter().map(|claim| format!("{namespace}/{claim}")).collect()
}

/// Names of the claims that a pod mounts, in the order of its volumes.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => {
                Some(format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name))
            }
            (None, None) => None,
        })
        .collect()
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn trim_meta(meta: &mut ObjectMeta) {
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

fn trim_node(node: &mut Node) {
    trim_meta(&mut node.metadata);
    if let Some(status) = &mut node.status {
        status.images = None;
    }
}

/// Up to a hundred thousand pods are in memory, so fields that no part of the control plane reads are removed.
fn trim_pod(pod: &mut Pod) {
    trim_meta(&mut pod.metadata);
    let Some(spec) = &mut pod.spec else { return };
    let PodSpec { containers, init_containers, dns_config, host_aliases, security_context, .. } = spec;
    (*dns_config, *host_aliases, *security_context) = (None, None, None);
    for container in containers.iter_mut().chain(init_containers.iter_mut().flatten()) {
        trim_container(container);
    }
    containers.shrink_to_fit();
}

fn trim_container(container: &mut Container) {
    container.args = None;
    container.command = None;
    container.env = None;
    container.env_from = None;
    container.liveness_probe = None;
    container.readiness_probe = None;
    container.startup_probe = None;
    container.security_context = None;
    container.termination_message_path = None;
    container.termination_message_policy = None;
    container.image_pull_policy = None;
    container.volume_devices = None;
    container.volume_mounts = None;
    container.working_dir = None;
}
