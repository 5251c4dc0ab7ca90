//! Which nodes open together: those that come to the door within moments of each other.
//!
//! Every node that opens makes the scheduler try all pods that wait, and every pod that finds no room costs it two
//! writes and a pause that doubles. Nodes that open one by one are a row of such failures for all pods but those of the
//! one node; nodes that open at once, with all their pods told before, are none. Pure: times come in, waits go out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::since;

/// Nobody else came for so long: those who are there go.
const IDLE: Duration = Duration::from_millis(300);
/// Nobody is kept longer, whoever is still coming.
const MOST: Duration = Duration::from_secs(3);
/// Telling so many pods takes long enough.
const PODS_MAX: usize = 2_000;
/// How often it is looked who else is coming, and whether others have been told.
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
    /// The one of them that looks out for others to come; the rest wait to be woken. Hundreds that all looked would each
    /// look at all the others.
    lookout: Option<String>,
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
            return Answer::Wait(if self.is_lookout(claim) { ASK_AGAIN } else { MOST });
        }
        let waited = self.began.map_or(MOST, |began| since(now, began));
        let idle = self.last_came.map_or(IDLE, |came| since(now, came));
        let is_full = self.members.values().sum::<usize>() >= PODS_MAX;
        if !is_full && waited < MOST {
            if !self.is_lookout(claim) {
                return Answer::Wait(MOST - waited);
            }
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

    /// Whether it is the claim's part to look out for others; it is if nobody does.
    fn is_lookout(&mut self, claim: &str) -> bool {
        let members = &self.members;
        let lookout = self.lookout.take().filter(|one| members.contains_key(one));
        self.lookout.insert(lookout.unwrap_or_else(|| claim.to_owned())) == claim
    }

    /// Everybody whose pods the leader is to tell, in the order in which they should open; nobody if `claim` is not the
    /// leader. From the first node on the scheduler tries all pods, so nodes with many of them open first.
    pub(super) fn take(&mut self, claim: &str) -> Vec<String> {
        if self.leader.as_ref().is_none_or(|(leader, _)| leader != claim) {
            return Vec::new();
        }
        let mut members: Vec<(String, usize)> = std::mem::take(&mut self.members).into_iter().collect();
        members.sort_by_key(|(_, pods)| Reverse(*pods));
        members.into_iter().map(|(claim, _)| claim).collect()
    }

    /// The leader has told the pods of these.
    pub(super) fn told(&mut self, leader: &str, claims: &[String], now: Timestamp) {
        if self.leader.as_ref().is_some_and(|(claim, _)| claim == leader) {
            self.leader = None;
        }
        // Whoever came meanwhile begins to wait now: the others have not opened yet.
        if !self.members.is_empty() {
            (self.began, self.last_came) = (Some(now), Some(now));
        }
        self.told.retain(|_, at| since(now, *at) < FORGOTTEN);
        self.told.extend(claims.iter().map(|claim| (claim.clone(), now)));
    }

    /// Whether the pods of the claim have been told just now.
    pub(super) fn was_told(&self, claim: &str) -> bool {
        self.told.contains_key(claim)
    }

    /// Whether somebody else will tell the pods of the claim.
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
        assert_eq!(gathering.ask("b", 6, at(200), nobody), wait(2800), "it will be woken");
        assert_eq!(gathering.ask("a", 5, at(300), nobody), wait(200));
        assert_eq!(gathering.ask("a", 5, at(500), nobody), Answer::Lead);
        assert_eq!(gathering.ask("b", 6, at(500), nobody), wait(3000), "its pods are being told");
        assert!(gathering.take("b").is_empty(), "that is not its business");
        let all = gathering.take("a");
        assert_eq!(all, ["b", "a"], "the one with more pods first");
        assert_eq!(gathering.ask("c", 5, at(600), nobody), wait(200), "one after the other");
        gathering.told("a", &all, at(700));
        assert_eq!(gathering.ask("b", 6, at(700), nobody), Answer::Go);
        assert_eq!(gathering.ask("c", 5, at(800), nobody), wait(200));
        assert_eq!(gathering.ask("c", 5, at(1000), nobody), Answer::Lead);
    }

    #[test]
    fn only_one_looks_out_for_others_and_nobody_waits_for_ever_if_it_is_gone() {
        let mut gathering = Gathering::default();
        let look_is_not_taken = |_: &BTreeMap<String, usize>| unreachable!("somebody else looks");
        assert_eq!(gathering.ask("a", 5, at(0), |_| true), wait(300));
        assert_eq!(gathering.ask("b", 5, at(100), look_is_not_taken), wait(2900));
        assert_eq!(gathering.ask("b", 5, at(1500), look_is_not_taken), wait(1500));
        assert_eq!(gathering.ask("b", 5, at(3000), |_| true), Answer::Lead);
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
        assert_eq!(gathering.ask("b", 1, at(400), nobody), wait(3000));
        assert_eq!(gathering.ask("b", 1, at(30_300), nobody), Answer::Lead);
    }
}
