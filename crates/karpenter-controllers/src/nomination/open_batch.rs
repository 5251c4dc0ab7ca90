//! Decides which new nodes open together: those that become ready shortly after each other. Pure functions.
//!
//! When a node opens, the kube-scheduler tries all pending pods. Every pod that does not fit costs two writes and a
//! back-off that doubles. If nodes open one by one, the pods that are planned for the other nodes fail each time. If
//! the nodes open together after all their pods were nominated, no pod fails.
//!
//! One claim of the batch, the leader, nominates the nodes of all claims in the batch for their pods. Then all these
//! nodes open.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

/// A batch opens when no node joined it for this long and no other node is expected.
const BATCH_IDLE: Duration = Duration::from_millis(300);
/// A batch opens at the latest this long after its first node joined.
const BATCH_MAX: Duration = Duration::from_secs(3);
/// A batch with this many pods opens at once: if it grew further, nominating its pods would take too long.
const BATCH_PODS_MAX: usize = 2_000;
/// How often the watcher checks whether other nodes are expected, and whether the leader has nominated all nodes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// If the leader has not nominated all nodes after this long, another member becomes the leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it is remembered that a node was nominated with a batch.
const NOMINATED_TTL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct OpenBatch {
    /// Claims in the open batch, with their number of pods.
    members: BTreeMap<String, usize>,
    began: Option<Timestamp>,
    last_joined: Option<Timestamp>,
    /// The member that checks whether other nodes are expected. The other members wait until the leader triggers them:
    /// if each of hundreds of members checked, the cost would be quadratic.
    watcher: Option<String>,
    /// The claim that nominates the nodes of all members, and since when it does.
    leader: Option<(String, Timestamp)>,
    /// Claims whose nodes the leader nominated, and when.
    nominated: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchAnswer {
    /// Call [`OpenBatch::ask`] again after this time.
    Wait(Duration),
    /// This claim is the leader: nominate the nodes of all claims that [`OpenBatch::take`] returns, then open.
    Lead,
    /// The leader has nominated this claim's node for its pods, so the node can open.
    Open,
}

impl OpenBatch {
    /// Adds a claim to the batch. The unregistered taint is the last obstacle on its node. `is_another_node_expected`
    /// returns whether a node that is not in the batch will be ready soon.
    pub(super) fn ask(
        &mut self,
        claim: &str,
        pods: usize,
        now: Timestamp,
        is_another_node_expected: impl FnOnce(&BTreeMap<String, usize>) -> bool,
    ) -> BatchAnswer {
        if self.nominated.contains_key(claim) {
            return BatchAnswer::Open;
        }
        if self.leader.as_ref().is_some_and(|(_, at)| since(now, *at) >= LEADER_TIMEOUT) {
            self.leader = None;
        }
        if self.members.is_empty() {
            self.began = Some(now);
        }
        if self.members.insert(claim.to_owned(), pods).is_none() {
            self.last_joined = Some(now);
        }
        if self.leader.is_some() {
            return BatchAnswer::Wait(if self.is_watcher(claim) { POLL_INTERVAL } else { BATCH_MAX });
        }
        let waited = self.began.map_or(BATCH_MAX, |began| since(now, began));
        let idle = self.last_joined.map_or(BATCH_IDLE, |joined| since(now, joined));
        let is_full = self.members.values().sum::<usize>() >= BATCH_PODS_MAX;
        if !is_full && waited < BATCH_MAX {
            if !self.is_watcher(claim) {
                return BatchAnswer::Wait(BATCH_MAX - waited);
            }
            if idle < BATCH_IDLE {
                return BatchAnswer::Wait((BATCH_IDLE - idle).min(BATCH_MAX - waited));
            }
            if is_another_node_expected(&self.members) {
                return BatchAnswer::Wait(POLL_INTERVAL.min(BATCH_MAX - waited));
            }
        }
        self.leader = Some((claim.to_owned(), now));
        BatchAnswer::Lead
    }

    /// Whether the claim is the watcher of the batch. If the batch has no watcher, the claim becomes it.
    fn is_watcher(&mut self, claim: &str) -> bool {
        let members = &self.members;
        let watcher = self.watcher.take().filter(|one| members.contains_key(one));
        self.watcher.insert(watcher.unwrap_or_else(|| claim.to_owned())) == claim
    }

    /// Closes the batch and returns its claims in the order in which their nodes should open; empty if `claim` is not the
    /// leader. Nodes with many pods open first, because the kube-scheduler tries all pods when the first node opens.
    pub(super) fn take(&mut self, claim: &str) -> Vec<String> {
        if self.leader.as_ref().is_none_or(|(leader, _)| leader != claim) {
            return Vec::new();
        }
        let mut members: Vec<(String, usize)> = std::mem::take(&mut self.members).into_iter().collect();
        members.sort_by_key(|(_, pods)| Reverse(*pods));
        members.into_iter().map(|(claim, _)| claim).collect()
    }

    /// Records that the leader has nominated the nodes of these claims.
    pub(super) fn record_nominated(&mut self, leader: &str, claims: &[String], now: Timestamp) {
        if self.leader.as_ref().is_some_and(|(claim, _)| claim == leader) {
            self.leader = None;
        }
        // Claims that joined meanwhile form the next batch. Their waiting time starts now, because the nodes of this
        // batch are not open yet.
        if !self.members.is_empty() {
            (self.began, self.last_joined) = (Some(now), Some(now));
        }
        self.nominated.retain(|_, at| since(now, *at) < NOMINATED_TTL);
        self.nominated.extend(claims.iter().map(|claim| (claim.clone(), now)));
    }

    /// Whether the claim's node was nominated with a batch.
    pub(super) fn was_nominated(&self, claim: &str) -> bool {
        self.nominated.contains_key(claim)
    }

    /// Whether the claim is in a batch, so that a leader will nominate its node.
    pub(super) fn is_waiting(&self, claim: &str) -> bool {
        self.members.contains_key(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    fn no_other_node(_: &BTreeMap<String, usize>) -> bool {
        false
    }

    fn wait(millis: u64) -> BatchAnswer {
        BatchAnswer::Wait(Duration::from_millis(millis))
    }

    #[test]
    fn nodes_that_are_ready_together_are_nominated_and_opened_together() {
        let mut batch = OpenBatch::default();
        assert_eq!(batch.ask("a", 5, at(0), no_other_node), wait(300));
        assert_eq!(batch.ask("b", 6, at(200), no_other_node), wait(2800), "the leader will trigger it");
        assert_eq!(batch.ask("a", 5, at(300), no_other_node), wait(200));
        assert_eq!(batch.ask("a", 5, at(500), no_other_node), BatchAnswer::Lead);
        assert_eq!(batch.ask("b", 6, at(500), no_other_node), wait(3000), "its pods are being nominated");
        assert!(batch.take("b").is_empty(), "it is not the leader");
        let all = batch.take("a");
        assert_eq!(all, ["b", "a"], "the node with more pods first");
        assert_eq!(batch.ask("c", 5, at(600), no_other_node), wait(200), "the next batch waits for this one");
        batch.record_nominated("a", &all, at(700));
        assert_eq!(batch.ask("b", 6, at(700), no_other_node), BatchAnswer::Open);
        assert_eq!(batch.ask("c", 5, at(800), no_other_node), wait(200));
        assert_eq!(batch.ask("c", 5, at(1000), no_other_node), BatchAnswer::Lead);
    }

    #[test]
    fn only_the_watcher_checks_for_other_nodes_and_others_time_out_without_it() {
        let mut batch = OpenBatch::default();
        let look_is_not_taken = |_: &BTreeMap<String, usize>| unreachable!("only the watcher checks");
        assert_eq!(batch.ask("a", 5, at(0), |_| true), wait(300));
        assert_eq!(batch.ask("b", 5, at(100), look_is_not_taken), wait(2900));
        assert_eq!(batch.ask("b", 5, at(1500), look_is_not_taken), wait(1500));
        assert_eq!(batch.ask("b", 5, at(3000), |_| true), BatchAnswer::Lead);
    }

    #[test]
    fn batch_waits_for_expected_nodes_up_to_its_maximum() {
        let mut batch = OpenBatch::default();
        assert_eq!(batch.ask("a", 5, at(0), |_| true), wait(300));
        assert_eq!(batch.ask("a", 5, at(300), |_| true), wait(200));
        assert_eq!(batch.ask("a", 5, at(2900), |_| true), wait(100));
        assert_eq!(batch.ask("a", 5, at(3000), |_| true), BatchAnswer::Lead);
    }

    #[test]
    fn batch_with_many_pods_opens_at_once() {
        let mut batch = OpenBatch::default();
        assert_eq!(batch.ask("a", BATCH_PODS_MAX - 1, at(0), no_other_node), wait(300));
        assert_eq!(batch.ask("b", 1, at(1), no_other_node), BatchAnswer::Lead);
    }

    #[test]
    fn leader_is_replaced_after_its_timeout() {
        let mut batch = OpenBatch::default();
        batch.ask("a", 1, at(0), no_other_node);
        assert_eq!(batch.ask("a", 1, at(300), no_other_node), BatchAnswer::Lead);
        assert_eq!(batch.ask("b", 1, at(400), no_other_node), wait(3000));
        assert_eq!(batch.ask("b", 1, at(30_300), no_other_node), BatchAnswer::Lead);
    }
}
