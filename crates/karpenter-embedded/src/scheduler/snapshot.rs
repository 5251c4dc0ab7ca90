//! The state of a cluster for the scheduler, updated object by object.
//!
//! The snapshot holds pods on their nodes, pending pods, nominations, and assumed pods and volumes, which the API
//! server has not confirmed yet. It decides nothing and does no I/O.
//!
//! Upstream: pkg/scheduler/backend/cache/snapshot.go

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1 as storage;
use karpenter_model::selector::{LabelSelector, Labels};
use karpenter_runtime::object::ObjectKey;

use super::node::{Load, NodeFacts};
use super::pod::{Placement, PodInfo};
use super::selectors::{label_selector, labels};
use super::storage::{Claim, StorageClass, Volume, attach_limits};
use super::tables::{
    Column, Columns, NamespaceLabels, NodeIndex, PodQuery, RecentTables, Tally, TermIndex, Verdicts,
    change_tally, refresh_verdicts,
};
use super::volumes::VolumePlan;

pub type PodKey = Arc<ObjectKey>;

#[derive(Debug, Default)]
pub(super) struct NodeEntry {
    /// The fields of the Node; `None` if pods are bound to the node, but the Node object does not exist.
    pub(super) facts: Option<NodeFacts>,
    pub(super) load: Load,
    /// Incremented with every change of the Node's fields; never zero.
    pub(super) version: u64,
}

/// The fields of a PodDisruptionBudget that preemption uses.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    pub(super) selector: Option<LabelSelector>,
    pub(super) disruptions_allowed: i64,
    /// Names of the pods in `status.disruptedPods`, whose disruption is already counted.
    pub(super) disrupted: BTreeSet<String>,
}

/// A volume that is attached to a node.
#[derive(Debug, Clone)]
struct Attachment {
    node: Arc<str>,
    attacher: Arc<str>,
    volume: Arc<str>,
}

/// Selectors of workloads and services.
#[derive(Debug, Clone, Default)]
pub(super) struct Workloads {
    /// The selectors of Services, which are sets of labels without operators.
    pub(super) services: BTreeMap<Arc<str>, BTreeMap<String, Labels>>,
    pub(super) replica_sets: BTreeMap<ObjectKey, LabelSelector>,
    pub(super) stateful_sets: BTreeMap<ObjectKey, LabelSelector>,
}

#[derive(Debug, Default)]
pub struct Snapshot {
    pub(super) nodes: Vec<NodeEntry>,
    node_index: BTreeMap<Arc<str>, NodeIndex>,
    free: Vec<NodeIndex>,
    versions: u64,
    /// Existing nodes, by name.
    order: Vec<NodeIndex>,
    pods: BTreeMap<PodKey, Arc<PodInfo>>,
    assumed: BTreeMap<PodKey, VolumePlan>,
    nominated_nodes: BTreeMap<PodKey, Arc<str>>,
    nominated_pods: BTreeMap<Arc<str>, BTreeSet<PodKey>>,
    pub(super) namespaces: NamespaceLabels,
    pub(super) budgets: BTreeMap<ObjectKey, Budget>,
    pub(super) workloads: Workloads,
    pub(super) claims: BTreeMap<ObjectKey, Arc<Claim>>,
    pub(super) volumes: BTreeMap<Arc<str>, Arc<Volume>>,
    volumes_by_class: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Volume>>>,
    pub(super) classes: BTreeMap<Arc<str>, StorageClass>,
    pub(super) attach_limits: BTreeMap<Arc<str>, BTreeMap<Arc<str>, i64>>,
    attachments: BTreeMap<String, Attachment>,
    attachments_by_node: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// The number of bound pods that use each claim.
    claim_users: BTreeMap<ObjectKey, u32>,
    assumed_volumes: BTreeMap<Arc<str>, ObjectKey>,
    assumed_selections: BTreeMap<ObjectKey, Arc<str>>,
    pub(super) verdicts: Verdicts,
    pub(super) columns: Columns,
    tallies: RecentTables<PodQuery, Tally>,
    pub(super) anti_affinity: TermIndex,
    pub(super) scored_affinity: TermIndex,
}

/// The old and the new state of a pod; `None` if it did not or does not exist.
#[derive(Debug, Clone, Default)]
pub struct PodChange {
    pub old: Option<Arc<PodInfo>>,
    pub new: Option<Arc<PodInfo>>,
}

impl Snapshot {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn node_count(&self) -> usize {
        self.order.len()
    }

    pub fn pod(&self, key: &ObjectKey) -> Option<&Arc<PodInfo>> {
        self.pods.get(key)
    }

    pub fn is_assumed(&self, key: &ObjectKey) -> bool {
        self.assumed.contains_key(key)
    }

    /// Existing nodes, by name.
    pub(super) fn live_nodes(&self) -> impl Iterator<Item = (NodeIndex, &NodeEntry, &NodeFacts)> {
        self.order.iter().filter_map(|index| {
            let entry = &self.nodes[*index];
            Some((*index, entry, entry.facts.as_ref()?))
        })
    }

    pub(super) fn facts(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes[*self.node_index.get(name)?].facts.as_ref()
    }

    pub(super) fn live_node(&self, name: &str) -> Option<NodeIndex> {
        self.node_index.get(name).copied().filter(|index| self.nodes[*index].facts.is_some())
    }

    // ---- nodes

    pub fn apply_node(&mut self, node: &core::Node) {
        self.put_node(NodeFacts::parse(node));
    }

    /// Returns the previous facts of the node.
    pub(super) fn put_node(&mut self, facts: NodeFacts) -> Option<NodeFacts> {
        let index = self.index_or_insert(&facts.name);
        if self.nodes[index].facts.as_ref() == Some(&facts) {
            return Some(facts);
        }
        for (key, column) in &mut self.columns {
            column.set(index, facts.labels.get(key));
        }
        // A column numbers the values of one label, and also keeps values of deleted nodes, such as host names. A
        // column with too many values is dropped and later rebuilt.
        let domains_max = 4 * self.nodes.len() + 1024;
        self.columns.retain(|_, column| column.domains() <= domains_max);
        self.versions += 1;
        if self.nodes[index].facts.is_none() {
            let before = |other: &NodeIndex| self.name_of(*other) < Some(&facts.name);
            let position = self.order.partition_point(before);
            self.order.insert(position, index);
        }
        let entry = &mut self.nodes[index];
        entry.version = self.versions;
        entry.facts.replace(facts)
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.node_index.get(name).copied() else { return };
        for column in self.columns.values_mut() {
            column.set(index, None);
        }
        self.nodes[index].facts = None;
        self.order.retain(|other| *other != index);
        self.release_if_empty(name, index);
    }

    fn name_of(&self, index: NodeIndex) -> Option<&Arc<str>> {
        self.nodes[index].facts.as_ref().map(|facts| &facts.name)
    }

    fn index_or_insert(&mut self, name: &Arc<str>) -> NodeIndex {
        if let Some(index) = self.node_index.get(name) {
            return *index;
        }
        let index = self.free.pop().unwrap_or(self.nodes.len());
        if index == self.nodes.len() {
            self.nodes.push(NodeEntry::default());
        }
        self.node_index.insert(name.clone(), index);
        index
    }

    fn release_if_empty(&mut self, name: &str, index: NodeIndex) {
        let entry = &self.nodes[index];
        if entry.facts.is_none() && entry.load.pods.is_empty() {
            self.node_index.remove(name);
            self.nodes[index] = NodeEntry::default();
            self.free.push(index);
        }
    }

    // ---- pods

    /// Applies a pod of the API server. Finished pods count as deleted.
    pub fn apply_pod(&mut self, pod: &core::Pod) -> PodChange {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.remove_pod(&ObjectKey::of(&pod.metadata));
        }
        self.apply_pod_info(PodInfo::parse(pod))
    }

    pub(super) fn apply_pod_info(&mut self, mut info: PodInfo) -> PodChange {
        let key = info.key.clone();
        let old = self.pods.get(&*key).cloned();
        if let Some(old) = &old {
            if old.uid != info.uid {
                self.forget(&key);
                self.set_nomination(&key, None);
            } else if info.node.is_some() {
                self.remove_assumption(&key);
            } else if self.assumed.contains_key(&*key) {
                info.node = old.node.clone();
            }
            self.take_off_node(&self.pods[&*key].clone());
        }
        let new = Arc::new(info);
        if new.node.is_some() {
            self.put_on_node(&new);
            self.set_nomination(&key, None);
        } else {
            // If the scheduler has nominated the pod to a node, but has not written the nomination to the API server
            // yet, the nomination in the snapshot is kept until the pod object contains one.
            let was_said = old.as_ref().is_some_and(|old| old.nominated_node.is_some());
            if new.nominated_node.is_some() || was_said {
                self.set_nomination(&key, new.nominated_node.clone());
            }
        }
        self.pods.insert(key, new.clone());
        PodChange { old, new: Some(new) }
    }

    pub fn remove_pod(&mut self, key: &ObjectKey) -> PodChange {
        let Some(old) = self.pods.get(key).cloned() else { return PodChange::default() };
        self.remove_assumption(&old.key);
        self.take_off_node(&old);
        self.set_nomination(&old.key, None);
        self.pods.remove(key);
        PodChange { old: Some(old), new: None }
    }

    fn put_on_node(&mut self, pod: &Arc<PodInfo>) {
        let Some(name) = &pod.node else { return };
        let index = self.index_or_insert(name);
        self.nodes[index].load.add(pod);
        self.change_tables(pod, index, true);
    }

    fn take_off_node(&mut self, pod: &Arc<PodInfo>) {
        let Some(name) = &pod.node else { return };
        let Some(index) = self.node_index.get(name).copied() else { return };
        self.nodes[index].load.remove(pod);
        self.change_tables(pod, index, false);
        self.release_if_empty(name, index);
    }

    fn change_tables(&mut self, pod: &PodInfo, index: NodeIndex, added: bool) {
        for (query, tally) in self.tallies.each_mut() {
            if query.matches(pod) {
                change_tally(tally, index, added);
            }
        }
        for term in &pod.required_anti_affinity {
            self.anti_affinity.change(term, index, 1, added);
        }
        // Required affinity of an existing pod also counts in the score, with `hardPodAffinityWeight`, which is 1.
        for term in &pod.required_affinity {
            self.scored_affinity.change(term, index, 1, added);
        }
        for (weight, term) in &pod.preferred_affinity {
            self.scored_affinity.change(term, index, *weight, added);
        }
        for claim in pod.claims.iter().filter(|claim| !claim.ephemeral) {
            let key = ObjectKey::new(&*pod.key.namespace, &*claim.name);
            let users = self.claim_users.entry(key.clone()).or_insert(0);
            *users = if added { *users + 1 } else { users.saturating_sub(1) };
            if *users == 0 {
                self.claim_users.remove(&key);
            }
        }
    }

    // ---- assumptions

    /// Treats the pod as bound to the node before the API server confirms it.
    pub fn assume(&mut self, key: &ObjectKey, node: &Arc<str>, volumes: &VolumePlan) {
        let Some(pod) = self.pods.get(key).cloned() else { return };
        let mut info = PodInfo::clone(&pod);
        info.node = Some(node.clone());
        let info = Arc::new(info);
        self.put_on_node(&info);
        self.set_nomination(&pod.key, None);
        self.pods.insert(info.key.clone(), info);
        for (claim, volume) in &volumes.bindings {
            self.assumed_volumes.insert(volume.clone(), claim.clone());
        }
        for claim in &volumes.provisions {
            self.assumed_selections.insert(claim.clone(), node.clone());
        }
        self.assumed.insert(pod.key.clone(), volumes.clone());
    }

    /// Removes an assumption: the pod is pending again. Returns the pod if it was assumed.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Arc<PodInfo>> {
        let pod = self.pods.get(key).cloned()?;
        if !self.remove_assumption(&pod.key) {
            return None;
        }
        self.take_off_node(&pod);
        let mut info = PodInfo::clone(&pod);
        info.node = None;
        self.pods.insert(pod.key.clone(), Arc::new(info));
        Some(pod)
    }

    /// Removes the assumption of a pod after the API server's response.
    fn remove_assumption(&mut self, key: &PodKey) -> bool {
        let Some(plan) = self.assumed.remove(&**key) else { return false };
        for (_, volume) in &plan.bindings {
            self.assumed_volumes.remove(volume);
        }
        for claim in &plan.provisions {
            self.assumed_selections.remove(claim);
        }
        true
    }

    // ---- nominations

    /// Sets or removes the nomination of a pending pod.
    pub fn set_nomination(&mut self, key: &PodKey, node: Option<Arc<str>>) {
        if let Some(before) = self.nominated_nodes.remove(&**key)
            && let Some(pods) = self.nominated_pods.get_mut(&before)
        {
            pods.remove(&**key);
            if pods.is_empty() {
                self.nominated_pods.remove(&before);
            }
        }
        if let Some(node) = node {
            self.nominated_pods.entry(node.clone()).or_default().insert(key.clone());
            self.nominated_nodes.insert(key.clone(), node);
        }
    }

    pub fn nomination(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.nominated_nodes.get(key)
    }

    /// Pending pods that are nominated to the node, by name.
    pub(super) fn nominated_on(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        let keys = self.nominated_pods.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key)).filter(|pod| pod.node.is_none())
    }

    /// Topology keys of the anti-affinity of nominated pods.
    pub(super) fn nominated_topology_keys(&self) -> Vec<Arc<str>> {
        let pods = self.nominated_nodes.keys().filter_map(|key| self.pods.get(key));
        pods.flat_map(|pod| &pod.required_anti_affinity).map(|term| term.topology_key.clone()).collect()
    }

    // ---- storage

    pub fn apply_claim(&mut self, claim: &core::PersistentVolumeClaim) {
        self.claims.insert(ObjectKey::of(&claim.metadata), Arc::new(Claim::parse(claim)));
    }

    pub fn remove_claim(&mut self, key: &ObjectKey) {
        self.claims.remove(key);
    }

    pub fn apply_volume(&mut self, volume: &core::PersistentVolume) {
        let volume = Arc::new(Volume::parse(volume));
        self.remove_volume(&volume.name);
        let class = self.volumes_by_class.entry(volume.class.clone()).or_default();
        class.insert(volume.name.clone(), volume.clone());
        self.volumes.insert(volume.name.clone(), volume);
    }

    pub fn remove_volume(&mut self, name: &str) {
        let Some(volume) = self.volumes.remove(name) else { return };
        if let Some(class) = self.volumes_by_class.get_mut(&volume.class) {
            class.remove(name);
            if class.is_empty() {
                self.volumes_by_class.remove(&volume.class);
            }
        }
    }

    pub(super) fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<Volume>> {
        self.volumes_by_class.get(class).into_iter().flat_map(BTreeMap::values)
    }

    pub fn apply_storage_class(&mut self, class: &storage::StorageClass) {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        self.classes.insert(name.into(), StorageClass::parse(class));
    }

    pub fn remove_storage_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    pub fn apply_csi_node(&mut self, node: &storage::CSINode) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.attach_limits.insert(name.into(), attach_limits(node));
    }

    pub fn remove_csi_node(&mut self, name: &str) {
        self.attach_limits.remove(name);
    }

    pub fn apply_attachment(&mut self, attachment: &storage::VolumeAttachment) {
        let name = attachment.metadata.name.clone().unwrap_or_default();
        self.remove_attachment(&name);
        let spec = &attachment.spec;
        let Some(volume) = &spec.source.persistent_volume_name else { return };
        let attachment = Attachment {
            node: spec.node_name.as_str().into(),
            attacher: spec.attacher.as_str().into(),
            volume: volume.as_str().into(),
        };
        self.attachments_by_node.entry(attachment.node.clone()).or_default().insert(name.clone());
        self.attachments.insert(name, attachment);
    }

    pub fn remove_attachment(&mut self, name: &str) {
        let Some(attachment) = self.attachments.remove(name) else { return };
        if let Some(names) = self.attachments_by_node.get_mut(&attachment.node) {
            names.remove(name);
            if names.is_empty() {
                self.attachments_by_node.remove(&attachment.node);
            }
        }
    }

    /// The volumes that any pod has attached to a node, each with its driver.
    pub(super) fn attached_to(&self, node: &str) -> impl Iterator<Item = (&Arc<str>, &Arc<Volume>)> {
        let names = self.attachments_by_node.get(node).into_iter().flatten();
        names.filter_map(|name| {
            let attachment = self.attachments.get(name)?;
            Some((&attachment.attacher, self.volumes.get(&attachment.volume)?))
        })
    }

    pub(super) fn claim_is_used(&self, key: &ObjectKey) -> bool {
        self.claim_users.contains_key(key)
    }

    pub(super) fn volume_is_assumed(&self, name: &str) -> bool {
        self.assumed_volumes.contains_key(name)
    }

    pub(super) fn assumed_selection(&self, claim: &ObjectKey) -> Option<&Arc<str>> {
        self.assumed_selections.get(claim)
    }

    // ---- the rest

    pub fn apply_namespace(&mut self, namespace: &core::Namespace) {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        self.namespaces.insert(name.into(), labels(namespace.metadata.labels.as_ref()));
    }

    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    pub fn apply_budget(&mut self, budget: &PodDisruptionBudget) {
        let status = budget.status.as_ref();
        let budget_read = Budget {
            selector: label_selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
            disruptions_allowed: status.map_or(0, |status| status.disruptions_allowed.into()),
            disrupted: status
                .and_then(|status| status.disrupted_pods.as_ref())
                .map(|pods| pods.keys().cloned().collect())
                .unwrap_or_default(),
        };
        self.budgets.insert(ObjectKey::of(&budget.metadata), budget_read);
    }

    pub fn remove_budget(&mut self, key: &ObjectKey) {
        self.budgets.remove(key);
    }

    pub fn apply_service(&mut self, service: &core::Service) {
        let key = ObjectKey::of(&service.metadata);
        match service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
            Some(selector) => {
                let services = self.workloads.services.entry(key.namespace.as_str().into()).or_default();
                services.insert(key.name, labels(Some(selector)));
            }
            None => self.remove_service(&key),
        }
    }

    pub fn remove_service(&mut self, key: &ObjectKey) {
        if let Some(services) = self.workloads.services.get_mut(key.namespace.as_str()) {
            services.remove(&key.name);
        }
    }

    pub fn apply_replica_set(&mut self, set: &ReplicaSet) {
        let key = ObjectKey::of(&set.metadata);
        match label_selector(set.spec.as_ref().map(|spec| &spec.selector)) {
            Some(selector) => self.workloads.replica_sets.insert(key, selector),
            None => self.workloads.replica_sets.remove(&key),
        };
    }

    pub fn remove_replica_set(&mut self, key: &ObjectKey) {
        self.workloads.replica_sets.remove(key);
    }

    pub fn apply_stateful_set(&mut self, set: &StatefulSet) {
        let key = ObjectKey::of(&set.metadata);
        match label_selector(set.spec.as_ref().map(|spec| &spec.selector)) {
            Some(selector) => self.workloads.stateful_sets.insert(key, selector),
            None => self.workloads.stateful_sets.remove(&key),
        };
    }

    pub fn remove_stateful_set(&mut self, key: &ObjectKey) {
        self.workloads.stateful_sets.remove(key);
    }

    // ---- tables

    pub(super) fn ensure_verdicts(&mut self, placement: &Arc<Placement>) {
        let nodes = self.nodes.iter().enumerate();
        let live = nodes.filter_map(|(index, entry)| Some((index, entry.version, entry.facts.as_ref()?)));
        let rows = self.verdicts.ensure(placement, self.nodes.len(), Vec::new);
        refresh_verdicts(rows, placement, live);
    }

    pub(super) fn ensure_column(&mut self, key: &Arc<str>) {
        if self.columns.contains_key(key) {
            return;
        }
        let mut column = Column::default();
        for (index, entry) in self.nodes.iter().enumerate() {
            column.set(index, entry.facts.as_ref().and_then(|facts| facts.labels.get(key)));
        }
        self.columns.insert(key.clone(), column);
    }

    pub(super) fn ensure_tally(&mut self, query: &PodQuery) {
        let nodes = &self.nodes;
        self.tallies.ensure(query, nodes.len(), || {
            let count = |entry: &NodeEntry| entry.load.pods.iter().filter(|pod| query.matches(pod)).count();
            nodes.iter().map(|entry| count(entry) as u32).collect()
        });
    }

    pub(super) fn count(&self, query: &PodQuery, node: NodeIndex) -> i64 {
        self.tallies.get(query).and_then(|tally| tally.get(node)).copied().unwrap_or(0).into()
    }

    pub(super) fn tally(&self, query: &PodQuery) -> &[u32] {
        self.tallies.get(query).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn namespace_labels(&self, namespace: &str) -> Labels {
        self.namespaces.get(namespace).cloned().unwrap_or_default()
    }

    /// The sum of the requests of the pods on a node; for tests.
    pub fn requested_on(&self, node: &str) -> Option<(super::resources::Amounts, usize)> {
        let entry = &self.nodes[*self.node_index.get(node)?];
        Some((entry.load.requested.clone(), entry.load.pods.len()))
    }
}
