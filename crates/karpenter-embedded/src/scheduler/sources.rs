//! The inputs of the runner: one store per kind, and the updates of the snapshot for each change.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use karpenter_runtime::store::{Change, Store, keep_all};
use kube::Client;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use crate::stores::Stores;

/// The stores that a scheduler reads.
#[derive(Clone)]
pub struct Sources {
    pub pods: Store<Pod>,
    pub nodes: Store<Node>,
    pub namespaces: Store<Namespace>,
    pub budgets: Store<PodDisruptionBudget>,
    pub claims: Store<PersistentVolumeClaim>,
    pub volumes: Store<PersistentVolume>,
    pub storage_classes: Store<StorageClass>,
    pub attachments: Store<VolumeAttachment>,
    pub csi_nodes: Store<CSINode>,
    pub replica_sets: Store<ReplicaSet>,
    pub stateful_sets: Store<StatefulSet>,
    pub services: Store<Service>,
}

impl Sources {
    /// Uses the stores of an embedded cluster. They do not include Services, which the returned task watches.
    pub fn shared(client: &Client, stores: &Stores) -> (Self, JoinHandle<()>) {
        let (services, task) = Store::watch(client, keep_all, &[]);
        let sources = Self {
            pods: stores.pods.clone(),
            nodes: stores.nodes.clone(),
            namespaces: stores.namespaces.clone(),
            budgets: stores.budgets.clone(),
            claims: stores.claims.clone(),
            volumes: stores.volumes.clone(),
            storage_classes: stores.storage_classes.clone(),
            attachments: stores.attachments.clone(),
            csi_nodes: stores.csi_nodes.clone(),
            replica_sets: stores.replica_sets.clone(),
            stateful_sets: stores.stateful_sets.clone(),
            services,
        };
        (sources, task)
    }

    /// Watches all kinds for a stand-alone scheduler; the tasks run until they are aborted.
    pub fn watch(client: &Client) -> (Self, Vec<JoinHandle<()>>) {
        let mut tasks = Vec::new();
        macro_rules! watch {
            () => {{
                let (store, task) = Store::watch(client, keep_all, &[]);
                tasks.push(task);
                store
            }};
        }
        let sources = Self {
            pods: watch!(),
            nodes: watch!(),
            namespaces: watch!(),
            budgets: watch!(),
            claims: watch!(),
            volumes: watch!(),
            storage_classes: watch!(),
            attachments: watch!(),
            csi_nodes: watch!(),
            replica_sets: watch!(),
            stateful_sets: watch!(),
            services: watch!(),
        };
        (sources, tasks)
    }

    /// Waits until all kinds that filters use are listed. Workloads and services affect scores only and are not waited
    /// for.
    pub(super) async fn synced(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        self.namespaces.synced().await;
        self.budgets.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.storage_classes.synced().await;
        self.attachments.synced().await;
        self.csi_nodes.synced().await;
    }

    pub(super) fn subscribe(&self) -> Subscriptions {
        Subscriptions {
            namespaces: self.namespaces.subscribe(),
            services: self.services.subscribe(),
            replica_sets: self.replica_sets.subscribe(),
            stateful_sets: self.stateful_sets.subscribe(),
            budgets: self.budgets.subscribe(),
            storage_classes: self.storage_classes.subscribe(),
            csi_nodes: self.csi_nodes.subscribe(),
            volumes: self.volumes.subscribe(),
            claims: self.claims.subscribe(),
            attachments: self.attachments.subscribe(),
            nodes: self.nodes.subscribe(),
            pods: self.pods.subscribe(),
        }
    }
}

/// One change of one kind.
pub(super) enum Update {
    Namespace(Change<Namespace>),
    Service(Change<Service>),
    ReplicaSet(Change<ReplicaSet>),
    StatefulSet(Change<StatefulSet>),
    Budget(Change<PodDisruptionBudget>),
    StorageClass(Change<StorageClass>),
    CsiNode(Change<CSINode>),
    Volume(Change<PersistentVolume>),
    Claim(Change<PersistentVolumeClaim>),
    Attachment(Change<VolumeAttachment>),
    Node(Change<Node>),
    Pod(Change<Pod>),
}

pub(super) struct Subscriptions {
    namespaces: UnboundedReceiver<Change<Namespace>>,
    services: UnboundedReceiver<Change<Service>>,
    replica_sets: UnboundedReceiver<Change<ReplicaSet>>,
    stateful_sets: UnboundedReceiver<Change<StatefulSet>>,
    budgets: UnboundedReceiver<Change<PodDisruptionBudget>>,
    storage_classes: UnboundedReceiver<Change<StorageClass>>,
    csi_nodes: UnboundedReceiver<Change<CSINode>>,
    volumes: UnboundedReceiver<Change<PersistentVolume>>,
    claims: UnboundedReceiver<Change<PersistentVolumeClaim>>,
    attachments: UnboundedReceiver<Change<VolumeAttachment>>,
    nodes: UnboundedReceiver<Change<Node>>,
    pods: UnboundedReceiver<Change<Pod>>,
}

impl Subscriptions {
    /// The next change that is already available. Changes are returned by kind in a fixed order: kinds that pods refer
    /// to come before pods.
    pub(super) fn arrived(&mut self) -> Option<Update> {
        macro_rules! first {
            ($($feed:ident => $update:ident),*) => {
                $(if let Ok(change) = self.$feed.try_recv() {
                    return Some(Update::$update(change));
                })*
            };
        }
        first!(
            namespaces => Namespace, services => Service, replica_sets => ReplicaSet, stateful_sets => StatefulSet,
            budgets => Budget, storage_classes => StorageClass, csi_nodes => CsiNode, volumes => Volume,
            claims => Claim, attachments => Attachment, nodes => Node, pods => Pod
        );
        None
    }

    /// The next change; `None` after the watches have ended.
    pub(super) async fn next(&mut self) -> Option<Update> {
        tokio::select! {
            biased;
            change = self.namespaces.recv() => change.map(Update::Namespace),
            change = self.services.recv() => change.map(Update::Service),
            change = self.replica_sets.recv() => change.map(Update::ReplicaSet),
            change = self.stateful_sets.recv() => change.map(Update::StatefulSet),
            change = self.budgets.recv() => change.map(Update::Budget),
            change = self.storage_classes.recv() => change.map(Update::StorageClass),
            change = self.csi_nodes.recv() => change.map(Update::CsiNode),
            change = self.volumes.recv() => change.map(Update::Volume),
            change = self.claims.recv() => change.map(Update::Claim),
            change = self.attachments.recv() => change.map(Update::Attachment),
            change = self.nodes.recv() => change.map(Update::Node),
            change = self.pods.recv() => change.map(Update::Pod),
        }
    }
}
