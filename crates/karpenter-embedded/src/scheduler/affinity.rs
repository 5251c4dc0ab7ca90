//! Filters nodes by required pod affinity and anti-affinity, of the pod and of existing pods.
//!
//! Upstream: pkg/scheduler/framework/plugins/interpodaffinity/filtering.go

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::selector::Labels;

use super::node::NodeFacts;
use super::pod::{AffinityTerm, PodInfo};
use super::snapshot::Snapshot;
use super::tables::{NodeIndex, PodQuery};
use super::verdict::{Plugin, Rejection};

/// The number of matching pods by topology key and domain.
type Counts = BTreeMap<Arc<str>, Vec<i64>>;
/// By topology key, the change in the number of matching pods in the domain of one node that a preemption simulation
/// makes; negative if it removes pods.
pub(super) type CountDelta = BTreeMap<Arc<str>, i64>;

/// Counts of the existing pods that affect where the pod can run, computed before nodes are filtered (PreFilter).
#[derive(Debug)]
pub(super) struct AffinityState {
    /// Existing pods whose anti-affinity matches the pod.
    repelled: Counts,
    /// Existing pods that match all required affinity terms of the pod.
    attracted: Counts,
    attracted_total: i64,
    /// Existing pods that match the pod's anti-affinity.
    avoided: Counts,
    /// Whether the pod matches its own affinity, so that the first pod of a group can be scheduled.
    attracts_itself: bool,
    namespace_labels: Labels,
}

/// Pods that a preemption simulation adds to or removes from one node.
#[derive(Debug, Clone, Default)]
pub(super) struct AffinityDelta {
    repelled: CountDelta,
    attracted: CountDelta,
    attracted_total: i64,
    avoided: CountDelta,
}

fn term_query(snapshot: &Snapshot, term: &AffinityTerm) -> Option<PodQuery> {
    PodQuery::affinity(std::iter::once(term), &snapshot.namespaces)
}

/// The tables that [`AffinityState::prepare`] reads.
pub(super) fn queries(snapshot: &Snapshot, pod: &PodInfo) -> Vec<PodQuery> {
    let all = PodQuery::affinity(pod.required_affinity.iter(), &snapshot.namespaces);
    let anti = pod.required_anti_affinity.iter().filter_map(|term| term_query(snapshot, term));
    all.into_iter().chain(anti).collect()
}

fn matches_all(terms: &[AffinityTerm], snapshot: &Snapshot, other: &PodInfo) -> bool {
    !terms.is_empty()
        && PodQuery::affinity(terms.iter(), &snapshot.namespaces).is_some_and(|query| query.matches(other))
}

impl AffinityState {
    /// The counts for a pod; `None` if neither the pod nor existing pods have relevant terms.
    pub(super) fn prepare(snapshot: &Snapshot, pod: &PodInfo) -> Option<Self> {
        let namespace_labels = snapshot.namespace_labels(&pod.key.namespace);
        let mut repelled = Counts::new();
        for (term, nodes) in snapshot.anti_affinity.iter() {
            if !term.matches(pod, &namespace_labels) {
                continue;
            }
            for (node, (pods, _)) in nodes {
                count(snapshot, &mut repelled, &term.topology_key, *node, i64::from(*pods));
            }
        }
        if repelled.is_empty() && pod.required_affinity.is_empty() && pod.required_anti_affinity.is_empty() {
            return None;
        }
        let (mut attracted, mut attracted_total) = (Counts::new(), 0);
        if let Some(query) = PodQuery::affinity(pod.required_affinity.iter(), &snapshot.namespaces) {
            for (node, pods) in snapshot.tally(&query).iter().enumerate().filter(|(_, pods)| **pods > 0) {
                for term in &pod.required_affinity {
                    let pods = i64::from(*pods);
                    attracted_total += count(snapshot, &mut attracted, &term.topology_key, node, pods);
                }
            }
        }
        let mut avoided = Counts::new();
        for term in &pod.required_anti_affinity {
            let Some(query) = term_query(snapshot, term) else { continue };
            for (node, pods) in snapshot.tally(&query).iter().enumerate().filter(|(_, pods)| **pods > 0) {
                count(snapshot, &mut avoided, &term.topology_key, node, i64::from(*pods));
            }
        }
        Some(Self {
            repelled,
            attracted,
            attracted_total,
            avoided,
            attracts_itself: matches_all(&pod.required_affinity, snapshot, pod),
            namespace_labels,
        })
    }

    /// Records that a simulation adds a pod to the node or, with a negative sign, removes it.
    pub(super) fn change(
        &self,
        delta: &mut AffinityDelta,
        snapshot: &Snapshot,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeFacts,
        sign: i64,
    ) {
        let change = |counts: &mut CountDelta, key: &Arc<str>| {
            if node.labels.contains_key(key) {
                *counts.entry(key.clone()).or_insert(0) += sign;
                return sign;
            }
            0
        };
        for term in &other.required_anti_affinity {
            if term.matches(pod, &self.namespace_labels) {
                change(&mut delta.repelled, &term.topology_key);
            }
        }
        if matches_all(&pod.required_affinity, snapshot, other) {
            for term in &pod.required_affinity {
                delta.attracted_total += change(&mut delta.attracted, &term.topology_key);
            }
        }
        for term in &pod.required_anti_affinity {
            if term_query(snapshot, term).is_some_and(|query| query.matches(other)) {
                change(&mut delta.avoided, &term.topology_key);
            }
        }
    }

    pub(super) fn check(
        &self,
        snapshot: &Snapshot,
        pod: &PodInfo,
        node: NodeIndex,
        delta: &AffinityDelta,
    ) -> Result<(), Rejection> {
        let here = |counts: &Counts, delta: &CountDelta, key: &Arc<str>| {
            let domain = snapshot.columns.get(key)?.domain(node)?;
            let present = counts.get(key).and_then(|counts| counts.get(domain as usize)).copied();
            Some(present.unwrap_or(0) + delta.get(key).copied().unwrap_or(0))
        };
        let mut all_near = true;
        for term in &pod.required_affinity {
            match here(&self.attracted, &delta.attracted, &term.topology_key) {
                Some(near) => all_near &= near > 0,
                None => {
                    return Err(Rejection::unresolvable(
                        Plugin::InterPodAffinity,
                        "node(s) didn't match pod affinity rules",
                    ));
                }
            }
        }
        let is_first = || self.attracted_total + delta.attracted_total <= 0 && self.attracts_itself;
        if !all_near && !is_first() {
            return Err(Rejection::unresolvable(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod affinity rules",
            ));
        }
        let any = |counts: &Counts, delta: &CountDelta, key: &Arc<str>| {
            here(counts, delta, key).is_some_and(|near| near > 0)
        };
        let anti = &pod.required_anti_affinity;
        if anti.iter().any(|term| any(&self.avoided, &delta.avoided, &term.topology_key)) {
            return Err(Rejection::resolvable(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod anti-affinity rules",
            ));
        }
        let mut repelling = self.repelled.keys().chain(delta.repelled.keys());
        if repelling.any(|key| any(&self.repelled, &delta.repelled, key)) {
            return Err(Rejection::resolvable(
                Plugin::InterPodAffinity,
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        Ok(())
    }
}

/// Adds to the count of a node's domain, if the node has the topology label. Returns what was added.
fn count(snapshot: &Snapshot, counts: &mut Counts, key: &Arc<str>, node: NodeIndex, pods: i64) -> i64 {
    let Some(column) = snapshot.columns.get(key) else { return 0 };
    let Some(domain) = column.domain(node) else { return 0 };
    let domains = match counts.get_mut(key) {
        Some(domains) => domains,
        None => counts.entry(key.clone()).or_insert_with(|| vec![0; column.domains()]),
    };
    domains[domain as usize] += pods;
    pods
}
