//! Which nodes open together: those that come to the door within moments of each other.
//!
//! Every node that opens makes the scheduler try all pods that wait, and every pod that finds no room costs it two
//! writes and a pause that doubles. Nodes that open one by one are a row of such failures for all pods but those of the
//! one node; nodes that open at once, with all their pods told before, are none. Pure: times come in, waits go out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

/// Nobody else came for so long: those who are there go.
const IDLE: Duration = Duration::from_millis(300);
/// Nobody is kept longer, whoever is still coming.
const MOST: Duration = Duration::from_secs(3);
/// Telling so many pods takes long enough.
const PODS_MAX: usize = 2_000;
/// How often those ask again who wait for others to be told.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// One who said it would tell the pods and did not.
const LEADER_LOST: Duration = Duration::from_secs(30);
/// Nodes that were told to open and never did.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Those who wait for the others, and the pods of each.
    members: BTreeMap<String, usize>,
    began: Option<Timestamp>,
    last_came: Option<Timestamp>,
    /// Who tells the pods of all of them, and since when.
    leader: Option<(String, Timestamp)>,
    /// Those whose pods have been told.
    told: BTreeMap<String, Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Ask again then.
    Wait(Duration),
    /// Tell the pods of all that [`Gathering::take`] returns, then open.
    Lead,
    /// The pods have been told: open.
    Go,
}

impl Gathering {
    /// A node is at the door, nothing but us keeps it closed. `is_anyone_coming` says whether others will be at the door
    /// soon, given those who are there.
    pub(super) fn ask(
        &mut self,
        claim: &str,
        pods: usize,
        now: Timestamp,
        is_anyone_coming: impl FnOnce(&BTreeMap<String, usize>) -> bool,
    ) -> Answer {
        if self.told.contains_key(claim) {
            return Answer::Go;
        }
        if self.leader.as_ref().is_some_and(|(_, at)| since(now, *at) >= LEADER_LOST) {
            self.leader = None;
        }
        if self.members.is_empty() {
            self.began = Some(now);
        }
        if self.members.insert(claim.to_owned(), pods).is_none() {
            self.last_came = Some(now);
        }
        if self.leader.is_some() {
            return Answer::Wait(ASK_AGAIN);
        }
        let waited = self.began.map_or(MOST, |began| since(now, began));
        let idle = self.last_came.map_or(IDLE, |came| since(now, came));
        let is_full = self.members.values().sum::<usize>() >= PODS_MAX;
        if !is_full && waited < MOST {
            if idle < IDLE {
                return Answer::Wait((IDLE - idle).min(MOST - waited));
            }
            if is_anyone_coming(&self.members) {
                return Answer::Wait(ASK_AGAIN.min(MOST - waited));
            }
        }
        self.leader = Some((claim.to_owned(), now));
        Answer::Lead
    }

    /// Everybody whose pods the leader is to tell; nobody if `claim` is not the leader.
    pub(super) fn take(&mut self, claim: &str) -> BTreeSet<String> {
        if self.leader.as_ref().is_none_or(|(leader, _)| leader != claim) {
            return BTreeSet::new();
        }
        std::mem::take(&mut self.members).into_keys().collect()
    }

    /// The leader has told the pods of these.
    pub(super) fn told(&mut self, leader: &str, claims: BTreeSet<String>, now: Timestamp) {
        if self.leader.as_ref().is_some_and(|(claim, _)| claim == leader) {
            self.leader = None;
        }
        // Whoever came meanwhile begins to wait now: the others have not opened yet.
        if !self.members.is_empty() {
            (self.began, self.last_came) = (Some(now), Some(now));
        }
        self.told.retain(|_, at| since(now, *at) < FORGOTTEN);
        self.told.extend(claims.into_iter().map(|claim| (claim, now)));
    }

    /// Whether the pods of the claim were told just now, or will be.
    pub(super) fn is_seen_to(&self, claim: &str) -> bool {
        self.told.contains_key(claim) || self.members.contains_key(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).expect("a time")
    }

    fn nobody(_: &BTreeMap<String, usize>) -> bool {
        false
    }

    fn wait(millis: u64) -> Answer {
        Answer::Wait(Duration::from_millis(millis))
    }

    #[test]
    fn those_who_come_together_are_told_together_and_open_together() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.ask("a", 5, at(0), nobody), wait(300));
        assert_eq!(gathering.ask("b", 5, at(200), nobody), wait(300));
        assert_eq!(gathering.ask("a", 5, at(300), nobody), wait(200));
        assert_eq!(gathering.ask("b", 5, at(500), nobody), Answer::Lead);
        assert_eq!(gathering.ask("a", 5, at(500), nobody), wait(200), "its pods are being told");
        assert_eq!(gathering.take("a"), BTreeSet::new(), "that is not its business");
        let all = gathering.take("b");
        assert_eq!(all, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(gathering.ask("c", 5, at(600), nobody), wait(200), "one after the other");
        gathering.told("b", all, at(700));
        assert_eq!(gathering.ask("a", 5, at(700), nobody), Answer::Go);
        assert_eq!(gathering.ask("c", 5, at(800), nobody), wait(200));
        assert_eq!(gathering.ask("c", 5, at(1000), nobody), Answer::Lead);
    }

    #[test]
    fn others_are_waited_for_but_not_for_long() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.ask("a", 5, at(0), |_| true), wait(300));
        assert_eq!(gathering.ask("a", 5, at(300), |_| true), wait(200));
        assert_eq!(gathering.ask("a", 5, at(2900), |_| true), wait(100));
        assert_eq!(gathering.ask("a", 5, at(3000), |_| true), Answer::Lead);
    }

    #[test]
    fn many_pods_are_enough() {
        let mut gathering = Gathering::default();
        assert_eq!(gathering.ask("a", PODS_MAX - 1, at(0), nobody), wait(300));
        assert_eq!(gathering.ask("b", 1, at(1), nobody), Answer::Lead);
    }

    #[test]
    fn a_leader_that_is_gone_holds_nobody_up_for_ever() {
        let mut gathering = Gathering::default();
        gathering.ask("a", 1, at(0), nobody);
        assert_eq!(gathering.ask("a", 1, at(300), nobody), Answer::Lead);
        assert_eq!(gathering.ask("b", 1, at(400), nobody), wait(200));
        assert_eq!(gathering.ask("b", 1, at(30_300), nobody), Answer::Lead);
    }
}
