//! Assembles every NodeClaim of this provider with the facts from its conditions, node and labels.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as RawNode;
use karpenter_api::labels::{
    ANNOTATION_DO_NOT_CONSOLIDATE, ANNOTATION_DO_NOT_DISRUPT, ANNOTATION_EMPTINESS_TIMESTAMP,
};
use karpenter_api::types::{Condition, ConditionStatus, NodeClaim};
use karpenter_disruption::cluster::{LegacyNodeMarks, NodePod, StateNode};
use karpenter_model::labels;
use karpenter_model::problem::Node;
use rustc_hash::FxHashSet;

use super::DisruptionInput;
use super::pools::Pools;
use crate::cluster_input::{ClusterInput, Host};
use crate::controls::seconds_up;
use crate::workloads::{created_at_secs, name_of};

pub(super) struct StateNodes<'a> {
    input: &'a DisruptionInput,
    pools: &'a Pools<'a>,
    /// The claims that have nominated pods.
    expecting: FxHashSet<&'a str>,
    state_nodes: Vec<(StateNode, Host)>,
}

impl<'a> StateNodes<'a> {
    pub(super) fn new(cluster: &'a ClusterInput, input: &'a DisruptionInput, pools: &'a Pools<'a>) -> Self {
        let expecting = cluster.expected.iter().map(|(claim, _)| claim.as_str()).collect();
        Self { input, pools, expecting, state_nodes: Vec::with_capacity(cluster.node_claims.len()) }
    }

    /// Adds a host: a Node, a NodeClaim, or both. `at` is `None` for a node that is being deleted, which is not in the
    /// problem. A host without a claim is not managed and is skipped.
    pub(super) fn add(&mut self, at: Option<usize>, node: &mut Node, host: &Host, node_pods: Vec<NodePod>) {
        let Some(claim) = host.claim.as_deref() else { return };
        let (mut state_node, is_settling) = self.state_node(at.is_none(), node, claim, host.node.as_deref());
        node.is_settling = is_settling;
        if host.node.is_some() {
            state_node.at = at.filter(|_| !state_node.is_marked_for_deletion);
            state_node.pods =
                if state_node.is_marked_for_deletion { left_over(node_pods) } else { node_pods };
        }
        self.state_nodes.push((state_node, host.clone()));
    }

    fn state_node(
        &self,
        is_out: bool,
        node: &Node,
        claim: &NodeClaim,
        raw_node: Option<&RawNode>,
    ) -> (StateNode, bool) {
        let input = self.input;
        let name = name_of(&claim.metadata);
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let node_name = raw_node.map(|node| name_of(&node.metadata));
        let label = |key: &str| node.labels.get(key).filter(|value| !value.is_empty()).cloned();
        let pool = label(labels::NODEPOOL);
        let quiet_since = quiet_since(claim);
        // Under the rules of the v1alpha5 API, pods may be moved to a node at any time, so the node never counts as
        // settling.
        let has_legacy_rules = pool.as_deref().is_some_and(|pool| self.pools.has_legacy_rules(pool));
        let settles_for = pool.as_deref().and_then(|pool| self.pools.consolidate_after(pool));
        let is_settling = settles_for.filter(|_| !has_legacy_rules).is_some_and(|after| {
            after > 0 && quiet_since.is_some_and(|since| is_within(since, after, input.now))
        });
        let is_nominated = self.expecting.contains(name)
            || input.nominated.contains(name)
            || node_name.is_some_and(|node| input.nominated.contains(node));
        let instance_type = label(labels::INSTANCE_TYPE);
        let state_node = StateNode {
            claim: name.into(),
            uid: uid.into(),
            node: node_name.map(Into::into),
            is_registered: has_label(raw_node, labels::REGISTERED),
            is_initialized: has_label(raw_node, labels::INITIALIZED),
            is_ready: raw_node.is_some_and(is_ready),
            is_instance_terminating: is_true(claim, "InstanceTerminating"),
            is_marked_for_deletion: is_out
                || raw_node.is_some_and(|node| node.metadata.deletion_timestamp.is_some()),
            is_deleting: claim.metadata.deletion_timestamp.is_some(),
            is_rebooting: is_true(claim, "Rebooting"),
            is_nominated,
            is_do_not_disrupt: raw_node.is_some_and(is_do_not_disrupt),
            drifted_since_secs: true_condition(claim, "Drifted").map(|one| seconds(transition(one))),
            last_pod_event_secs: quiet_since.map(Timestamp::as_second),
            is_instance_type_unknown: match (&pool, &instance_type) {
                (Some(pool), Some(name)) => !self.pools.has_type(pool, name),
                _ => false,
            },
            instance_type,
            zone: label(labels::ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
            reservation_id: pool.as_deref().and_then(|pool| label(self.pools.reservation_id_label(pool)?)),
            price_per_hour: node.price_per_hour.filter(|price| price.is_finite()).unwrap_or(0.0),
            created_at_secs: created_at_secs(&claim.metadata),
            expire_after_secs: claim.spec.expire_after.as_ref().and_then(|one| one.nanos()).map(seconds_up),
            termination_grace_period_secs: claim
                .spec
                .termination_grace_period
                .map(|one| seconds_up(one.nanos)),
            repair: node_name.and_then(|node| input.repairs.get(node)).cloned(),
            moved_onto_at_secs: input.claims_moved_onto_at_secs.get(uid).copied(),
            is_unhealthy: node_name.is_some_and(|node| input.unhealthy.contains(node)),
            legacy_marks: raw_node.filter(|_| has_legacy_rules).map(legacy_marks).unwrap_or_default(),
            pool,
            ..StateNode::default()
        };
        (state_node, is_settling)
    }

    /// The result, sorted by the names of the claims.
    pub(super) fn finish(mut self) -> (Vec<StateNode>, Vec<Host>) {
        self.state_nodes.sort_by(|(one, _), (other, _)| one.claim.cmp(&other.claim));
        self.state_nodes.into_iter().unzip()
    }
}

/// The pods that have to be evicted from a node that is being deleted and that PodDisruptionBudgets protect. They are
/// not part of a plan.
fn left_over(mut node_pods: Vec<NodePod>) -> Vec<NodePod> {
    node_pods.retain(|one| one.is_active && one.is_evictable && !one.budgets.is_empty());
    for one in &mut node_pods {
        one.is_reschedulable = false;
    }
    node_pods
}

fn true_condition<'a>(claim: &'a NodeClaim, name: &str) -> Option<&'a Condition> {
    let mut conditions = claim.status.as_ref()?.conditions.iter();
    conditions.find(|one| one.type_ == name && one.status == ConditionStatus::True)
}

fn is_true(claim: &NodeClaim, name: &str) -> bool {
    true_condition(claim, name).is_some()
}

fn transition(condition: &Condition) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

/// The time since which the node had no pod events: when a pod was last bound or removed, or when the node was
/// initialized.
fn quiet_since(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = true_condition(claim, "Initialized")?;
    let last_event = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref());
    last_event.map(|time| time.0).or_else(|| transition(initialized)).or(Some(Timestamp::UNIX_EPOCH))
}

/// Whether less than `nanos` nanoseconds have passed.
fn is_within(since: Timestamp, nanos: i64, now: Timestamp) -> bool {
    now.duration_since(since).as_nanos() < i128::from(nanos)
}

fn has_label(node: Option<&RawNode>, key: &str) -> bool {
    let labels = node.and_then(|node| node.metadata.labels.as_ref());
    labels.and_then(|labels| labels.get(key)).is_some_and(|value| value == "true")
}

fn is_ready(node: &RawNode) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn legacy_marks(node: &RawNode) -> LegacyNodeMarks {
    let annotation = |key: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let since = |text: &String| text.parse::<Timestamp>().map_or(0, Timestamp::as_second);
    LegacyNodeMarks {
        node_created_at_secs: node.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
        empty_since_secs: annotation(ANNOTATION_EMPTINESS_TIMESTAMP).map(since),
        do_not_consolidate: annotation(ANNOTATION_DO_NOT_CONSOLIDATE).map(|value| value == "true"),
    }
}

fn is_do_not_disrupt(node: &RawNode) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(ANNOTATION_DO_NOT_DISRUPT)).is_some_and(|value| value == "true")
}
