//! Which pods a command moved and where to, for as long as anybody may ask: pools may want what just moved to be left
//! alone, and may bound how much is moved within an hour.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use karpenter_disruption::fleet::Thorough;

/// Nobody's cool-down is longer.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// What goes on after a longer pause has begun anew. Shorter than the rest that follows it.
const THOROUGH_PAUSE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Clone, Default)]
pub struct Moves {
    /// By uid of the pod, or of the pod that came in its stead.
    pods: BTreeMap<String, Timestamp>,
    /// By name of the claim, or of the node that has none.
    onto: BTreeMap<String, Timestamp>,
    /// When so many pods were moved away from nodes of a pool.
    from_pools: VecDeque<(Timestamp, String, u32)>,
    /// When moving for a poor yield began and went on last.
    thorough: Option<(Timestamp, Timestamp)>,
}

impl Moves {
    pub fn pod_moved(&mut self, uid: &str, now: Timestamp) {
        self.pods.insert(uid.to_owned(), now);
    }

    pub fn moved_onto(&mut self, host: &str, now: Timestamp) {
        self.onto.insert(host.to_owned(), now);
    }

    pub fn left_pool(&mut self, pool: &str, pods: u32, now: Timestamp) {
        self.from_pools.push_back((now, pool.to_owned(), pods));
    }

    /// Pods are moved for a poor yield: again, or still if it went on not long ago.
    pub fn note_thorough(&mut self, now: Timestamp) {
        let began = match self.thorough {
            Some((began, last)) if now.duration_since(last) < THOROUGH_PAUSE => began,
            _ => now,
        };
        self.thorough = Some((began, now));
    }

    pub fn thorough(&self) -> Option<Thorough> {
        let (began, last) = self.thorough?;
        Some(Thorough { began_secs: began.as_second(), last_secs: last.as_second() })
    }

    /// Everything known of pods, by uid.
    pub fn pods_moved_at_secs(&self) -> BTreeMap<String, i64> {
        self.pods.iter().map(|(uid, at)| (uid.clone(), at.as_second())).collect()
    }

    pub fn pod_moved_at(&self, uid: &str) -> Option<Timestamp> {
        self.pods.get(uid).copied()
    }

    pub fn moved_onto_at(&self, host: &str) -> Option<Timestamp> {
        self.onto.get(host).copied()
    }

    /// Pods moved away from the pool's nodes within the last hour.
    pub fn within_the_hour(&self, pool: &str, now: Timestamp) -> u32 {
        let recent =
            self.from_pools.iter().filter(|(at, of, _)| of == pool && now.duration_since(*at) < HOUR);
        recent.map(|(_, _, pods)| pods).sum()
    }

    pub fn expire(&mut self, now: Timestamp) {
        let is_recent = |at: &Timestamp| now.duration_since(*at) < REMEMBERED;
        self.pods.retain(|_, at| is_recent(at));
        self.onto.retain(|_, at| is_recent(at));
        self.from_pools.retain(|(at, _, _)| now.duration_since(*at) < HOUR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_poor_yields_goes_on_until_a_pause() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut moves = Moves::default();
        assert_eq!(moves.thorough(), None);
        for (now, began_secs) in [(0, 0), (100, 0), (399, 0), (699, 699), (998, 699)] {
            moves.note_thorough(at(now));
            assert_eq!(moves.thorough(), Some(Thorough { began_secs, last_secs: now }));
        }
    }

    #[test]
    fn moves_are_counted_for_an_hour_and_remembered_for_a_day() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut moves = Moves::default();
        moves.left_pool("general", 3, at(0));
        moves.left_pool("general", 4, at(1800));
        moves.left_pool("other", 9, at(1800));
        moves.pod_moved("uid", at(0));
        moves.moved_onto("claim", at(0));
        assert_eq!(moves.within_the_hour("general", at(3599)), 7);
        assert_eq!(moves.within_the_hour("general", at(3600)), 4);
        moves.expire(at(24 * 3600 - 1));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (Some(at(0)), Some(at(0))));
        moves.expire(at(24 * 3600));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (None, None));
        assert!(moves.from_pools.is_empty());
    }
}
