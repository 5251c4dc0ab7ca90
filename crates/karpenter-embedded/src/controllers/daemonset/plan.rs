//! Decides which nodes need a pod of the DaemonSet, which pods are deleted, and the status.
//!
//! Upstream: pkg/controller/daemon/update.go

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};
use karpenter_runtime::object::{annotation, is_deleting, label, name_of, namespace_of};
use karpenter_runtime::taints::{taints_of, tolerates_all};

use crate::controllers::context::unless_zero;
use crate::controllers::deployment::scaled_value;
use crate::controllers::owners;
use crate::controllers::placement;
use crate::controllers::pods;
use crate::controllers::revisions::REVISION_HASH;

pub(super) type Pods = BTreeMap<String, Vec<Arc<Pod>>>;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Names of the nodes that need a pod.
    pub(super) create: Vec<String>,
    /// Names of the pods to delete.
    pub(super) delete: Vec<String>,
}

/// Whether a node is eligible for the DaemonSet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Eligibility {
    pub(super) should_run: bool,
    /// Whether existing pods may continue to run although no new pod would be created.
    pub(super) should_continue: bool,
}

pub(super) fn eligibility(set: &DaemonSet, node: &Node) -> Eligibility {
    let never = Eligibility { should_run: false, should_continue: false };
    let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else { return never };
    let other_node =
        template.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != name_of(node));
    if other_node || !placement::selects(template, node) {
        return never;
    }
    let tolerations = tolerations(template);
    let tolerated = |effects: &[&str]| tolerates_all(&tolerations, taints_of(node), effects);
    Eligibility {
        should_run: tolerated(&["NoSchedule", "NoExecute"]),
        should_continue: tolerated(&["NoExecute"]),
    }
}

/// The template's tolerations and those that every DaemonSet pod has, for example for nodes that are not ready.
fn tolerations(template: &PodSpec) -> Vec<Toleration> {
    let added = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    ];
    let mut tolerations = template.tolerations.clone().unwrap_or_default();
    let host_network = template.host_network == Some(true);
    for (key, effect) in added {
        if key == "node.kubernetes.io/network-unavailable" && !host_network {
            continue;
        }
        let new = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        if !tolerations.contains(&new) {
            tolerations.push(new);
        }
    }
    tolerations
}

pub(super) fn new_pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), hash.into());
    if let Some(generation) = annotation(set, "deprecated.daemonset.template.generation") {
        labels.insert("pod-template-generation".into(), generation.into());
    }
    let spec = template.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let pin = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_string()]),
    };
    let terms = vec![NodeSelectorTerm { match_fields: Some(vec![pin]), match_expressions: None }];
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let node_affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    node_affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: terms });
    pods::from_template(&template, namespace_of(set), owners::controller_reference(set))
}

/// The node that a pod is bound or pinned to.
pub(super) fn target_node(pod: &Pod) -> Option<String> {
    if let Some(node) = pods::node_name(pod) {
        return Some(node.to_string());
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|rule| rule.key == "metadata.name" && rule.operator == "In")
        .and_then(|rule| rule.values.as_ref()?.first().cloned())
}

/// The sort key of the DaemonSet's pods on one node, of which only the first is kept: bound before unbound, then the
/// oldest.
pub(super) fn keep_order(pod: &Pod) -> (bool, Option<Timestamp>, &str) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (pods::node_name(pod).is_none(), created, name_of(pod))
}

pub(super) fn plan(set: &DaemonSet, nodes: &[Arc<Node>], by_node: &Pods, hash: &str, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let bounds = Bounds::of(set, nodes);
    for node in nodes {
        let eligibility = eligibility(set, node);
        let pods = by_node.get(name_of(&**node));
        match pods {
            None if eligibility.should_run => plan.create.push(name_of(&**node).to_string()),
            None => {}
            Some(pods) if eligibility.should_continue => {
                keep_one(set, pods, hash, &bounds, eligibility, node, now, &mut plan)
            }
            Some(pods) => delete_all(pods, &mut plan),
        }
    }
    // Pods that are pinned to a deleted node can never start. Bound pods of such nodes are deleted by pod garbage
    // collection.
    for (node, pods) in by_node {
        if nodes.iter().all(|known| name_of(&**known) != node) {
            let unscheduled: Vec<_> =
                pods.iter().filter(|pod| pods::node_name(pod).is_none()).cloned().collect();
            delete_all(&unscheduled, &mut plan);
        }
    }
    let rolling = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
    if plan == Plan::default() && rolling != Some("OnDelete") {
        roll(set, nodes, by_node, hash, &bounds, now, &mut plan);
    }
    plan
}

fn delete_all(pods: &[Arc<Pod>], plan: &mut Plan) {
    let names = pods.iter().filter(|pod| !is_deleting(&***pod)).map(|pod| name_of(&**pod).to_string());
    plan.delete.extend(names);
}

#[expect(clippy::too_many_arguments, reason = "one node's part of a plan, used once")]
fn keep_one(
    set: &DaemonSet,
    pods: &[Arc<Pod>],
    hash: &str,
    bounds: &Bounds,
    eligibility: Eligibility,
    node: &Node,
    now: Timestamp,
    plan: &mut Plan,
) {
    let alive: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !is_deleting(&***pod)).collect();
    let (ended, running): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        alive.into_iter().partition(|pod| pods::is_finished(pod));
    plan.delete.extend(ended.iter().map(|pod| name_of(&***pod).to_string()));
    if bounds.surge == 0 {
        plan.delete.extend(running.iter().skip(1).map(|pod| name_of(&***pod).to_string()));
        return;
    }
    if running.is_empty() && eligibility.should_run {
        plan.create.push(name_of(node).to_string());
    }
    if running.len() <= 1 {
        return;
    }
    let is_new = |pod: &&Arc<Pod>| label(&***pod, REVISION_HASH) == Some(hash);
    let newest = running.iter().find(|pod| is_new(pod));
    let oldest = running.iter().find(|pod| !is_new(pod));
    for pod in &running {
        if Some(pod) != newest && Some(pod) != oldest {
            plan.delete.push(name_of(&***pod).to_string());
        }
    }
    if let (Some(newest), Some(oldest)) = (newest, oldest) {
        let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
        if !pods::is_ready(oldest) || pods::is_available(newest, min_ready, now) {
            plan.delete.push(name_of(&***oldest).to_string());
        }
    }
}

/// The maximum numbers of unavailable and of extra pods during a rolling update.
struct Bounds {
    unavailable: i32,
    surge: i32,
}

impl Bounds {
    fn of(set: &DaemonSet, nodes: &[Arc<Node>]) -> Self {
        let wanted = nodes.iter().filter(|node| eligibility(set, node).should_run).count() as i32;
        let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let one = k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1);
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&one);
        let surge = scaled_value(rolling.and_then(|rolling| rolling.max_surge.as_ref()), wanted, true);
        let unavailable = scaled_value(Some(unavailable), wanted, true);
        let unavailable = if unavailable == 0 && surge == 0 { 1 } else { unavailable };
        Self { unavailable, surge }
    }
}

/// Replaces pods of older revisions, as far as the maximum numbers of unavailable and extra pods allow.
fn roll(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    by_node: &Pods,
    hash: &str,
    bounds: &Bounds,
    now: Timestamp,
    plan: &mut Plan,
) {
    let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let available = |pod: &Pod| pods::is_available(pod, min_ready, now);
    let (mut unavailable, mut surging) = (0, 0);
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| eligibility(set, node).should_run) {
        let pods = by_node.get(name_of(&**node)).map(Vec::as_slice).unwrap_or_default();
        let alive: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !is_deleting(&***pod)).collect();
        let newer = alive.iter().find(|pod| label(&****pod, REVISION_HASH) == Some(hash));
        let older = alive.iter().find(|pod| label(&****pod, REVISION_HASH) != Some(hash));
        match (newer, older) {
            (None, None) => unavailable += 1,
            (Some(_), Some(_)) => {
                unavailable += 1;
                surging += 1;
            }
            (Some(newer), None) => unavailable += i32::from(!available(newer)),
            (None, Some(older)) if !available(older) => {
                unavailable += 1;
                broken.push((node, *older));
            }
            (None, Some(older)) => candidates.push((node, *older)),
        }
    }
    if bounds.surge == 0 {
        let room = (bounds.unavailable - unavailable).max(0) as usize;
        let chosen = broken.iter().chain(candidates.iter().take(room));
        plan.delete.extend(chosen.map(|(_, pod)| name_of(&***pod).to_string()));
    } else {
        let room = (bounds.surge - surging).max(0) as usize;
        let chosen = broken.iter().chain(candidates.iter().take(room));
        plan.create.extend(chosen.map(|(node, _)| name_of(&***node).to_string()));
    }
}

pub(super) fn status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    by_node: &Pods,
    hash: &str,
    now: Timestamp,
) -> DaemonSetStatus {
    let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let (mut desired, mut current, mut misplaced, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for node in nodes {
        let oldest = by_node.get(name_of(&**node)).and_then(|pods| pods.first());
        if !eligibility(set, node).should_run {
            misplaced += i32::from(oldest.is_some());
            continue;
        }
        desired += 1;
        let Some(pod) = oldest else { continue };
        current += 1;
        if pods::is_ready(pod) {
            ready += 1;
            available += i32::from(pods::is_available(pod, min_ready, now));
        }
        updated += i32::from(label(&**pod, REVISION_HASH) == Some(hash));
    }
    let old = set.status.clone().unwrap_or_default();
    DaemonSetStatus {
        desired_number_scheduled: desired,
        current_number_scheduled: current,
        number_misscheduled: misplaced,
        number_ready: ready,
        updated_number_scheduled: unless_zero(updated),
        number_available: unless_zero(available),
        number_unavailable: unless_zero(desired - available),
        observed_generation: set.metadata.generation,
        collision_count: old.collision_count,
        conditions: old.conditions,
    }
}
