//! The stores that all controllers share: one per watched kind, with its indexes.

mod trim;
mod watch_failure_log;

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use karpenter_api::labels;
use karpenter_api::types::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use karpenter_cloud::NodeClassKind;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::protobuf::protobuf_client;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, KindSpec, Store, keep_all};
use karpenter_runtime::watch::failure::WatchFailure;
use karpenter_state::claim::provider_id;
use karpenter_state::fields::PODS_AND_NODES;
use karpenter_state::pod::{Pod, PodFields, PodInterner};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

use crate::pods::{is_reschedulable, key_of_pod};

/// Index of pods by the node that they are bound to.
pub const BY_NODE: &str = "node";
/// Index of unbound pods by the uid of their controller.
pub const UNBOUND_BY_OWNER: &str = "unbound-by-owner";
/// Index of nodes and NodeClaims by provider ID.
pub const BY_PROVIDER_ID: &str = "provider-id";
/// Index of nodes and NodeClaims by instance ID: the last part of the provider ID.
pub const BY_INSTANCE_ID: &str = "instance-id";
/// Index of nodes and NodeClaims by NodePool.
pub const BY_POOL: &str = "pool";
/// Index of VolumeAttachments by node.
pub const BY_ATTACHED_NODE: &str = "attached-node";

/// Kinds that are watched only if a feature needs them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionalKinds {
    pub node_overlays: bool,
    pub capacity_buffers: bool,
    /// The kinds that default spread constraints refer to: workloads and Services.
    pub default_spreads: bool,
}

/// A kind whose store belongs to another part of the process, such as the v1alpha5 API.
type RequiredStore = (&'static str, Store<DynamicObject>);

#[derive(Clone)]
pub struct Stores {
    pub pods: Store<Pod>,
    pub nodes: Store<Node>,
    pub node_claims: Store<NodeClaim>,
    pub node_pools: Store<NodePool>,
    pub daemon_sets: Store<DaemonSet>,
    pub budgets: Store<PodDisruptionBudget>,
    pub volume_claims: Store<PersistentVolumeClaim>,
    pub volumes: Store<PersistentVolume>,
    pub storage_classes: Store<StorageClass>,
    pub csi_nodes: Store<CSINode>,
    pub attachments: Store<VolumeAttachment>,
    pub namespaces: Store<Namespace>,
    // These stores exist only if `OptionalKinds` requests them.
    pub node_overlays: Option<Store<NodeOverlay>>,
    pub capacity_buffers: Option<Store<CapacityBuffer>>,
    pub pod_templates: Option<Store<PodTemplate>>,
    pub deployments: Option<Store<Deployment>>,
    pub replica_sets: Option<Store<ReplicaSet>>,
    pub stateful_sets: Option<Store<StatefulSet>>,
    pub replication_controllers: Option<Store<ReplicationController>>,
    pub services: Option<Store<Service>>,
    /// The stores of the provider's node classes: one per kind, in the provider's order.
    pub node_classes: Vec<(NodeClassKind, Store<DynamicObject>)>,
    /// Stores of other parts of the process that must be synced before this process is ready.
    required: Arc<Mutex<Vec<RequiredStore>>>,
}

impl Stores {
    /// Starts the watches that are always needed. The tasks run until they are aborted.
    pub fn watch(client: &Client, node_classes: Vec<NodeClassKind>) -> (Self, Vec<JoinHandle<()>>) {
        Self::watch_with(client, node_classes, OptionalKinds::default())
    }

    /// Like [`Self::watch`], and watches the optional kinds that enabled features need.
    pub fn watch_with(
        client: &Client,
        node_classes: Vec<NodeClassKind>,
        optional: OptionalKinds,
    ) -> (Self, Vec<JoinHandle<()>>) {
        let mut tasks = Vec::new();
        let protobuf = protobuf_client(client, PODS_AND_NODES, |error| {
            tracing::warn!(error, "cannot read protobuf, reading pods and nodes as JSON");
        });
        let has_workloads = optional.capacity_buffers || optional.default_spreads;
        // Default spread constraints read only the selectors of ReplicaSets, so other fields are kept only for
        // CapacityBuffers.
        let replica_set_trim = if optional.capacity_buffers { keep_all } else { trim_replica_set };
        let stateful_set_trim = if optional.capacity_buffers { keep_all } else { trim_stateful_set };
        let stores = Self {
            pods: keep(watch_pods(&protobuf), &mut tasks),
            nodes: keep(
                Store::of(
                    KindSpec { is_equivalent: trim::is_equivalent_node, ..KindSpec::of_objects() },
                    trim::node,
                    &[
                        (BY_PROVIDER_ID, node_provider_id),
                        (BY_INSTANCE_ID, node_instance_id),
                        (BY_POOL, pool_of::<Node>),
                    ],
                )
                .watch_into(&protobuf, |node: Node| node),
                &mut tasks,
            ),
            node_claims: keep(
                Store::watch(
                    client,
                    keep_all,
                    &[
                        (BY_PROVIDER_ID, claim_provider_id),
                        (BY_INSTANCE_ID, claim_instance_id),
                        (BY_POOL, pool_of::<NodeClaim>),
                    ],
                ),
                &mut tasks,
            ),
            node_pools: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            daemon_sets: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            budgets: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            volume_claims: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            volumes: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            storage_classes: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            csi_nodes: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            attachments: keep(
                Store::watch(client, keep_all, &[(BY_ATTACHED_NODE, attached_node)]),
                &mut tasks,
            ),
            namespaces: keep(Store::watch(client, keep_all, &[]), &mut tasks),
            node_overlays: watch_if(optional.node_overlays, client, keep_all, &mut tasks),
            capacity_buffers: watch_if(optional.capacity_buffers, client, keep_all, &mut tasks),
            pod_templates: watch_if(optional.capacity_buffers, client, keep_all, &mut tasks),
            deployments: watch_if(optional.capacity_buffers, client, keep_all, &mut tasks),
            replica_sets: watch_if(has_workloads, client, replica_set_trim, &mut tasks),
            stateful_sets: watch_if(has_workloads, client, stateful_set_trim, &mut tasks),
            replication_controllers: watch_if(
                optional.default_spreads,
                client,
                trim_replication_controller,
                &mut tasks,
            ),
            services: watch_if(optional.default_spreads, client, keep_all, &mut tasks),
            node_classes: node_classes
                .into_iter()
                .map(|kind| {
                    let store = keep(watch_dynamic(client, &kind), &mut tasks);
                    (kind, store)
                })
                .collect(),
            required: Arc::default(),
        };
        stores.each(&mut |kind, store| {
            store.on_watch_failure(Box::new(watch_failure_log::log_watch_failure(kind)))
        });
        (stores, tasks)
    }

    /// Adds a store of another part of the process to those that [`Self::is_synced`] and [`Self::unsynced`] report,
    /// once per kind.
    pub fn require_synced(&self, kind: &'static str, store: &Store<DynamicObject>) {
        if self.node_classes.iter().any(|(known, _)| known.kind == kind) {
            return;
        }
        store.on_watch_failure(watch_failure_log::log_watch_failure(kind));
        let mut required = self.required.lock().unwrap_or_else(PoisonError::into_inner);
        required.retain(|(known, _)| *known != kind);
        required.push((kind, store.clone()));
    }

    /// Waits until the stores of this value are synced. Stores that [`Self::require_synced`] added are not waited for.
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
        synced_if(self.node_overlays.as_ref()).await;
        synced_if(self.capacity_buffers.as_ref()).await;
        synced_if(self.pod_templates.as_ref()).await;
        synced_if(self.deployments.as_ref()).await;
        synced_if(self.replica_sets.as_ref()).await;
        synced_if(self.stateful_sets.as_ref()).await;
        synced_if(self.replication_controllers.as_ref()).await;
        synced_if(self.services.as_ref()).await;
        for (_, store) in &self.node_classes {
            store.synced().await;
        }
    }

    /// Whether all stores are synced, including those of other parts of the process.
    pub fn is_synced(&self) -> bool {
        let mut is_synced = true;
        self.each(&mut |_, store| is_synced &= store.is_synced());
        is_synced
    }

    /// The kinds whose stores are not synced, each with the last error of its watch if there was one.
    pub fn unsynced(&self) -> Vec<(&'static str, Option<String>)> {
        let mut unsynced = Vec::new();
        self.each(&mut |kind, store| {
            if !store.is_synced() {
                unsynced.push((kind, store.watch_failure().map(|failure| failure.message)));
            }
        });
        unsynced
    }

    /// Calls `visit` with the name and the store of each watched kind.
    fn each(&self, visit: &mut dyn FnMut(&'static str, &dyn Watched)) {
        visit("Pod", &self.pods);
        visit("Node", &self.nodes);
        visit("NodeClaim", &self.node_claims);
        visit("NodePool", &self.node_pools);
        visit("DaemonSet", &self.daemon_sets);
        visit("PodDisruptionBudget", &self.budgets);
        visit("PersistentVolumeClaim", &self.volume_claims);
        visit("PersistentVolume", &self.volumes);
        visit("StorageClass", &self.storage_classes);
        visit("CSINode", &self.csi_nodes);
        visit("VolumeAttachment", &self.attachments);
        visit("Namespace", &self.namespaces);
        let mut visit_if = |kind, store: Option<&dyn Watched>| {
            if let Some(store) = store {
                visit(kind, store);
            }
        };
        visit_if("NodeOverlay", watched(&self.node_overlays));
        visit_if("CapacityBuffer", watched(&self.capacity_buffers));
        visit_if("PodTemplate", watched(&self.pod_templates));
        visit_if("Deployment", watched(&self.deployments));
        visit_if("ReplicaSet", watched(&self.replica_sets));
        visit_if("StatefulSet", watched(&self.stateful_sets));
        visit_if("ReplicationController", watched(&self.replication_controllers));
        visit_if("Service", watched(&self.services));
        for (kind, store) in &self.node_classes {
            visit(kind.kind, store);
        }
        for (kind, store) in self.required.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            visit(kind, store);
        }
    }

    /// The newest resource version of Pods, Nodes, NodeClaims and NodePools: the revision that a pass is based on.
    pub fn revision(&self) -> u64 {
        let pods = self.pods.revision().max(self.nodes.revision());
        pods.max(self.node_claims.revision()).max(self.node_pools.revision())
    }

    /// The Nodes with the provider id of a claim: at most one, unless several Nodes have the same provider id.
    pub fn nodes_of(&self, claim: &NodeClaim) -> Vec<Arc<Node>> {
        provider_id(claim).map(|id| self.nodes.by(BY_PROVIDER_ID, id)).unwrap_or_default()
    }

    /// The claim with the provider id of a node; `None` if there is none or more than one.
    pub fn claim_of_node(&self, node: &Node) -> Option<Arc<NodeClaim>> {
        let id = node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())?;
        let mut claims = self.node_claims.by(BY_PROVIDER_ID, id);
        claims.pop().filter(|_| claims.is_empty())
    }

    /// The number of pods that must be rescheduled if the node is deleted.
    pub fn reschedulable_pods_on(&self, node: &str) -> usize {
        self.pods.by(BY_NODE, node).iter().filter(|pod| is_reschedulable(pod)).count()
    }

    /// Adds a claim to the queue after each of its changes.
    pub fn enqueue_claims(&self, queue: &Queue) {
        let to = queue.clone();
        self.node_claims.observe(move |change: &Change<NodeClaim>| {
            to.add(ObjectKey::of(&change.object().metadata));
        });
    }

    /// The node class with this name; `None` if its kind is not one of the provider's, or if it does not exist.
    pub fn node_class(&self, group: &str, kind: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let (_, store) =
            self.node_classes.iter().find(|(known, _)| known.group == group && known.kind == kind)?;
        store.get("", name)
    }
}

/// Watches pods. They are converted to [`Pod`], and pods of the same workload share the parts that they have in common.
fn watch_pods(client: &Client) -> (Store<Pod>, JoinHandle<()>) {
    let kind = KindSpec {
        key: key_of_pod,
        version: |pod| pod.version,
        uid: |pod| Some(&pod.uid),
        is_deleting: |pod| pod.deleted_at.is_some(),
        strip: keep_all,
        is_equivalent: Pod::is_equivalent,
        reuse_shared_parts: Pod::reuse_shared_parts,
    };
    let mut interner = PodInterner::default();
    let store = Store::of(kind, keep_all, &[(BY_NODE, pod_node), (UNBOUND_BY_OWNER, owner_of_unbound)]);
    store.watch_into(client, move |PodFields(raw)| interner.keep(raw))
}

/// Watches a kind without a Rust type.
fn watch_dynamic(client: &Client, kind: &NodeClassKind) -> (Store<DynamicObject>, JoinHandle<()>) {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    Store::empty(keep_all, &[]).watch_resource_into(client, &resource, |object: DynamicObject| object)
}

/// All objects of a kind; empty if the kind is not watched.
pub fn listed<K>(store: Option<&Store<K>>) -> Vec<Arc<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    store.map(Store::list).unwrap_or_default()
}

fn watch_if<K>(
    is_enabled: bool,
    client: &Client,
    trim: fn(&mut K),
    tasks: &mut Vec<JoinHandle<()>>,
) -> Option<Store<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default,
{
    is_enabled.then(|| keep(Store::watch(client, trim, &[]), tasks))
}

/// A store of any kind, as an object.
trait Watched {
    fn is_synced(&self) -> bool;
    fn watch_failure(&self) -> Option<WatchFailure>;
    fn on_watch_failure(&self, listener: Box<dyn Fn(&WatchFailure) + Send + Sync>);
}

impl<K: Send + Sync + 'static> Watched for Store<K> {
    fn is_synced(&self) -> bool {
        Store::is_synced(self)
    }

    fn watch_failure(&self) -> Option<WatchFailure> {
        Store::watch_failure(self)
    }

    fn on_watch_failure(&self, listener: Box<dyn Fn(&WatchFailure) + Send + Sync>) {
        Store::on_watch_failure(self, listener);
    }
}

fn watched<K: Send + Sync + 'static>(store: &Option<Store<K>>) -> Option<&dyn Watched> {
    store.as_ref().map(|store| store as &dyn Watched)
}

async fn synced_if<K>(store: Option<&Store<K>>)
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    if let Some(store) = store {
        store.synced().await;
    }
}

fn trim_replica_set(set: &mut ReplicaSet) {
    if let Some(spec) = &mut set.spec {
        spec.template = None;
    }
}

fn trim_stateful_set(set: &mut StatefulSet) {
    if let Some(spec) = &mut set.spec {
        spec.template = Default::default();
        spec.volume_claim_templates = None;
    }
}

fn trim_replication_controller(controller: &mut ReplicationController) {
    if let Some(spec) = &mut controller.spec {
        spec.template = None;
    }
}

fn keep<K>((store, task): (Store<K>, JoinHandle<()>), tasks: &mut Vec<JoinHandle<()>>) -> Store<K> {
    tasks.push(task);
    store
}

fn pod_node(pod: &Pod) -> Vec<String> {
    pod.node_name.iter().map(|name| name.to_string()).collect()
}

fn owner_of_unbound(pod: &Pod) -> Vec<String> {
    let owner = pod.controller().filter(|_| pod.node_name.is_none());
    owner.map(|owner| owner.uid.clone()).into_iter().collect()
}

fn node_provider_id(node: &Node) -> Vec<String> {
    node.spec.iter().filter_map(|spec| spec.provider_id.clone()).filter(|id| !id.is_empty()).collect()
}

fn claim_provider_id(claim: &NodeClaim) -> Vec<String> {
    claim.status.iter().filter_map(|status| status.provider_id.clone()).filter(|id| !id.is_empty()).collect()
}

fn node_instance_id(node: &Node) -> Vec<String> {
    node_provider_id(node).iter().map(|id| last_part(id)).collect()
}

fn claim_instance_id(claim: &NodeClaim) -> Vec<String> {
    claim_provider_id(claim).iter().map(|id| last_part(id)).collect()
}

fn last_part(provider_id: &str) -> String {
    provider_id.rsplit('/').next().unwrap_or_default().to_owned()
}

fn pool_of<K: kube::Resource>(object: &K) -> Vec<String> {
    object.labels().get(labels::NODEPOOL).cloned().into_iter().collect()
}

fn attached_node(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.spec.node_name.clone()]
}
