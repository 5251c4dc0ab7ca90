//! What the controllers watch: one mirror per kind, with the indexes by which they look things up.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cloud::NodeClassKind;
use karpenter_cluster::mirror::{Mirror, keep_all};
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

/// Pods by the name of the node they are bound to.
pub const BY_NODE: &str = "node";
/// Nodes and claims by their provider id.
pub const BY_PROVIDER_ID: &str = "provider-id";
/// Nodes and claims by the name of their pool.
pub const BY_POOL: &str = "pool";
/// Attachments by the name of their node.
pub const BY_ATTACHED_NODE: &str = "attached-node";

#[derive(Clone)]
pub struct Mirrors {
    pub pods: Mirror<Pod>,
    pub nodes: Mirror<Node>,
    pub node_claims: Mirror<NodeClaim>,
    pub node_pools: Mirror<NodePool>,
    pub daemon_sets: Mirror<DaemonSet>,
    pub budgets: Mirror<PodDisruptionBudget>,
    pub volume_claims: Mirror<PersistentVolumeClaim>,
    pub volumes: Mirror<PersistentVolume>,
    pub storage_classes: Mirror<StorageClass>,
    pub csi_nodes: Mirror<CSINode>,
    pub attachments: Mirror<VolumeAttachment>,
    pub namespaces: Mirror<Namespace>,
    /// One per kind that the provider understands, in its order.
    pub node_classes: Vec<(NodeClassKind, Mirror<DynamicObject>)>,
}

impl Mirrors {
    /// Starts all watches; the tasks end only when they are aborted.
    pub fn watch(client: &Client, node_classes: Vec<NodeClassKind>) -> (Self, Vec<JoinHandle<()>>) {
        let mut tasks = Vec::new();
        let mirrors = Self {
            pods: keep(Mirror::watch(client, keep_all, &[(BY_NODE, pod_node)]), &mut tasks),
            nodes: keep(
                Mirror::watch(
                    client,
                    trim_node,
                    &[(BY_PROVIDER_ID, node_provider_id), (BY_POOL, pool_of::<Node>)],
                ),
                &mut tasks,
            ),
            node_claims: keep(
                Mirror::watch(
                    client,
                    keep_all,
                    &[(BY_PROVIDER_ID, claim_provider_id), (BY_POOL, pool_of::<NodeClaim>)],
                ),
                &mut tasks,
            ),
            node_pools: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            daemon_sets: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            budgets: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            volume_claims: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            volumes: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            storage_classes: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            csi_nodes: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            attachments: keep(
                Mirror::watch(client, keep_all, &[(BY_ATTACHED_NODE, attached_node)]),
                &mut tasks,
            ),
            namespaces: keep(Mirror::watch(client, keep_all, &[]), &mut tasks),
            node_classes: node_classes
                .into_iter()
                .map(|kind| {
                    let mirror = keep(watch_dynamic(client, &kind), &mut tasks);
                    (kind, mirror)
                })
                .collect(),
        };
        (mirrors, tasks)
    }

    /// Waits until every mirror has taken in its first list.
    pub async fn synced(&self) {
        self.pods.synced().await;
        self.nodes.synced().await;
        self.node_claims.synced().await;
        self.node_pools.synced().await;
        self.daemon_sets.synced().await;
        self.budgets.synced().await;
        self.volume_claims.synced().await;
        self.volumes.synced().await;
        self.storage_classes.synced().await;
        self.csi_nodes.synced().await;
        self.attachments.synced().await;
        self.namespaces.synced().await;
        for (_, mirror) in &self.node_classes {
            mirror.synced().await;
        }
    }

    /// Whether every mirror has taken in its first list.
    pub fn is_synced(&self) -> bool {
        self.pods.is_synced()
            && self.nodes.is_synced()
            && self.node_claims.is_synced()
            && self.node_pools.is_synced()
            && self.daemon_sets.is_synced()
            && self.budgets.is_synced()
            && self.volume_claims.is_synced()
            && self.volumes.is_synced()
            && self.storage_classes.is_synced()
            && self.csi_nodes.is_synced()
            && self.attachments.is_synced()
            && self.namespaces.is_synced()
            && self.node_classes.iter().all(|(_, mirror)| mirror.is_synced())
    }

    /// The node class that a reference names, if its kind is the provider's.
    pub fn node_class(&self, group: &str, kind: &str, name: &str) -> Option<std::sync::Arc<DynamicObject>> {
        let (_, mirror) =
            self.node_classes.iter().find(|(known, _)| known.group == group && known.kind == kind)?;
        mirror.get("", name)
    }
}

/// Kinds that this process has no type for.
fn watch_dynamic(client: &Client, kind: &NodeClassKind) -> (Mirror<DynamicObject>, JoinHandle<()>) {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    let mirror = Mirror::empty(keep_all, &[]);
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let task = tokio::spawn(mirror.clone().feed(events));
    (mirror, task)
}

fn keep<K>((mirror, task): (Mirror<K>, JoinHandle<()>), tasks: &mut Vec<JoinHandle<()>>) -> Mirror<K> {
    tasks.push(task);
    mirror
}

/// The images a node holds are the largest part of it, and nothing here looks at them.
fn trim_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
    }
}

fn pod_node(pod: &Pod) -> Vec<String> {
    pod.spec.iter().filter_map(|spec| spec.node_name.clone()).filter(|node| !node.is_empty()).collect()
}

fn node_provider_id(node: &Node) -> Vec<String> {
    node.spec.iter().filter_map(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty()).collect()
}

fn claim_provider_id(claim: &NodeClaim) -> Vec<String> {
    claim.status.iter().filter_map(|status| status.provider_id.clone()).filter(|id| !id.is_empty()).collect()
}

fn pool_of<K: kube::Resource>(object: &K) -> Vec<String> {
    object.labels().get(labels::NODEPOOL).cloned().into_iter().collect()
}

fn attached_node(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.spec.node_name.clone()]
}
