//! Which pods a command moved and where to, for as long as anybody may ask: pools may want what just moved to be left
//! alone, and may bound how much is moved within an hour.
//!
//! What of it the next process has to know is written on pools and claims by [`crate::disruption`].

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use karpenter_disruption::fleet::Thorough;

/// Longer only while a pool has a longer cool-down.
const REMEMBERED_LEAST: SignedDuration = SignedDuration::from_hours(24);
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
    /// The longest cool-down of any pool.
    cool_down: SignedDuration,
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

    /// The pods stay after all.
    pub fn stayed(&mut self, pool: &str, pods: u32, at: Timestamp) {
        let found = self.from_pools.iter().position(|one| *one == (at, pool.to_owned(), pods));
        found.and_then(|index| self.from_pools.remove(index));
    }

    /// When how many pods left the pool's nodes within the last hour: a number for each minute, at its last moment.
    pub fn by_minute(&self, pool: &str, now: Timestamp) -> BTreeMap<Timestamp, u32> {
        let mut minutes: BTreeMap<i64, (Timestamp, u32)> = BTreeMap::new();
        let is_recent = |at: Timestamp| now.duration_since(at) < HOUR;
        for (at, _, pods) in self.from_pools.iter().filter(|(at, of, _)| of == pool && is_recent(*at)) {
            let (last, count) = minutes.entry(at.as_second().div_euclid(60)).or_insert((*at, 0));
            *last = (*last).max(*at);
            *count = count.saturating_add(*pods);
        }
        minutes.into_values().collect()
    }

    /// What moved is remembered at least so long.
    pub fn remember_for(&mut self, cool_down_secs: i64) {
        self.cool_down = SignedDuration::from_secs(cool_down_secs);
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

    /// When the count of the last hour falls if nothing more is moved.
    pub fn falls_at(&self, pool: &str, now: Timestamp) -> Option<Timestamp> {
        let ends = self.from_pools.iter().filter(|(_, of, _)| of == pool);
        let ends = ends.filter_map(|(at, _, _)| at.checked_add(HOUR).ok());
        ends.filter(|end| *end > now).min()
    }

    pub fn expire(&mut self, now: Timestamp) {
        let remembered = REMEMBERED_LEAST.max(self.cool_down);
        let is_recent = |at: &Timestamp| now.duration_since(*at) < remembered;
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
        for (pool, now, expected) in [
            ("general", 3599, Some(at(3600))),
            ("general", 3600, Some(at(5400))),
            ("general", 5400, None),
            ("unmoved", 0, None),
        ] {
            assert_eq!(moves.falls_at(pool, at(now)), expected, "{pool} at {now}");
        }
        moves.expire(at(24 * 3600 - 1));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (Some(at(0)), Some(at(0))));
        moves.expire(at(24 * 3600));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (None, None));
        assert!(moves.from_pools.is_empty());
    }

    #[test]
    fn a_cool_down_of_days_is_remembered_for_days() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).expect("a time");
        let mut moves = Moves::default();
        moves.pod_moved("uid", at(0));
        moves.moved_onto("claim", at(0));
        moves.remember_for(72 * 3600);
        moves.expire(at(71));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (Some(at(0)), Some(at(0))));
        moves.remember_for(0);
        moves.expire(at(71));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (None, None));
    }

    #[test]
    fn what_is_written_down_by_the_minute_is_never_less() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut moves = Moves::default();
        for (second, pods) in [(0, 1), (30, 2), (59, 4), (60, 8), (3500, 16)] {
            moves.left_pool("general", pods, at(second));
        }
        moves.left_pool("other", 32, at(60));
        let written = moves.by_minute("general", at(3500));
        assert_eq!(written, [(at(59), 7), (at(60), 8), (at(3500), 16)].into());
        let mut read = Moves::default();
        written.iter().for_each(|(at, pods)| read.left_pool("general", *pods, *at));
        for now in [3500, 3620, 3659, 3660, 7099, 7100] {
            assert!(read.within_the_hour("general", at(now)) >= moves.within_the_hour("general", at(now)));
        }
        moves.stayed("general", 16, at(3500));
        assert_eq!(moves.within_the_hour("general", at(3600)), 2 + 4 + 8);
    }
}
