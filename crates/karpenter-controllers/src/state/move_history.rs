//! Remembers which pods commands moved, and to which hosts. Two settings of NodePools need this history: the cool-down
//! of moved pods and of nodes that received them, and the maximum number of moved pods per hour.
//!
//! For the time after a restart, [`crate::disruption`] writes the history to annotations of NodePools and NodeClaims.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

/// How long moves are kept, unless a NodePool has a longer cool-down.
const MOVE_HISTORY_MIN: SignedDuration = SignedDuration::from_hours(24);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Clone, Default)]
pub struct MoveHistory {
    /// When a pod was moved, by uid of the pod or of the pod that replaced it.
    pods: BTreeMap<String, Timestamp>,
    /// When a command last moved pods onto each host.
    onto: BTreeMap<String, Timestamp>,
    /// Moves away from nodes of NodePools: time, NodePool and number of pods.
    from_pools: VecDeque<(Timestamp, String, u32)>,
    /// The longest cool-down of any NodePool.
    cool_down: SignedDuration,
}

impl MoveHistory {
    pub fn pod_moved(&mut self, uid: &str, now: Timestamp) {
        self.pods.insert(uid.to_owned(), now);
    }

    pub fn moved_onto(&mut self, host: &str, now: Timestamp) {
        self.onto.insert(host.to_owned(), now);
    }

    pub fn count_moves_from_pool(&mut self, pool: &str, pods: u32, now: Timestamp) {
        self.from_pools.push_back((now, pool.to_owned(), pods));
    }

    /// Removes moves that [`Self::count_moves_from_pool`] added.
    pub fn uncount_moves_from_pool(&mut self, pool: &str, pods: u32, at: Timestamp) {
        let found = self.from_pools.iter().position(|one| *one == (at, pool.to_owned(), pods));
        found.and_then(|index| self.from_pools.remove(index));
    }

    /// Pods that were moved away from the NodePool's nodes within the last hour: one count per minute, with the time of the
    /// minute's last move.
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

    /// Sets the longest cool-down of any NodePool: moves are kept for at least this long.
    pub fn keep_for(&mut self, cool_down_secs: i64) {
        self.cool_down = SignedDuration::from_secs(cool_down_secs);
    }

    /// When pods were moved, by uid.
    pub fn pods_moved_at_secs(&self) -> BTreeMap<String, i64> {
        self.pods.iter().map(|(uid, at)| (uid.clone(), at.as_second())).collect()
    }

    pub fn pod_moved_at(&self, uid: &str) -> Option<Timestamp> {
        self.pods.get(uid).copied()
    }

    pub fn moved_onto_at(&self, host: &str) -> Option<Timestamp> {
        self.onto.get(host).copied()
    }

    /// Pods that were moved away from the NodePool's nodes within the last hour.
    pub fn pods_moved_in_last_hour(&self, pool: &str, now: Timestamp) -> u32 {
        let recent =
            self.from_pools.iter().filter(|(at, of, _)| of == pool && now.duration_since(*at) < HOUR);
        recent.map(|(_, _, pods)| pods).sum()
    }

    /// When [`Self::pods_moved_in_last_hour`] falls next if no more pods are moved.
    pub fn hourly_count_falls_at(&self, pool: &str, now: Timestamp) -> Option<Timestamp> {
        let ends = self.from_pools.iter().filter(|(_, of, _)| of == pool);
        let ends = ends.filter_map(|(at, _, _)| at.checked_add(HOUR).ok());
        ends.filter(|end| *end > now).min()
    }

    pub fn expire(&mut self, now: Timestamp) {
        let kept_for = MOVE_HISTORY_MIN.max(self.cool_down);
        let is_recent = |at: &Timestamp| now.duration_since(*at) < kept_for;
        self.pods.retain(|_, at| is_recent(at));
        self.onto.retain(|_, at| is_recent(at));
        self.from_pools.retain(|(at, _, _)| now.duration_since(*at) < HOUR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_count_for_one_hour_and_are_kept_for_one_day() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut moves = MoveHistory::default();
        moves.count_moves_from_pool("general", 3, at(0));
        moves.count_moves_from_pool("general", 4, at(1800));
        moves.count_moves_from_pool("other", 9, at(1800));
        moves.pod_moved("uid", at(0));
        moves.moved_onto("claim", at(0));
        assert_eq!(moves.pods_moved_in_last_hour("general", at(3599)), 7);
        assert_eq!(moves.pods_moved_in_last_hour("general", at(3600)), 4);
        for (pool, now, expected) in [
            ("general", 3599, Some(at(3600))),
            ("general", 3600, Some(at(5400))),
            ("general", 5400, None),
            ("unmoved", 0, None),
        ] {
            assert_eq!(moves.hourly_count_falls_at(pool, at(now)), expected, "{pool} at {now}");
        }
        moves.expire(at(24 * 3600 - 1));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (Some(at(0)), Some(at(0))));
        moves.expire(at(24 * 3600));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (None, None));
        assert!(moves.from_pools.is_empty());
    }

    #[test]
    fn moves_are_kept_for_the_longest_cool_down() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).expect("a time");
        let mut moves = MoveHistory::default();
        moves.pod_moved("uid", at(0));
        moves.moved_onto("claim", at(0));
        moves.keep_for(72 * 3600);
        moves.expire(at(71));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (Some(at(0)), Some(at(0))));
        moves.keep_for(0);
        moves.expire(at(71));
        assert_eq!((moves.pod_moved_at("uid"), moves.moved_onto_at("claim")), (None, None));
    }

    #[test]
    fn moves_rounded_to_minutes_never_count_less() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut moves = MoveHistory::default();
        for (second, pods) in [(0, 1), (30, 2), (59, 4), (60, 8), (3500, 16)] {
            moves.count_moves_from_pool("general", pods, at(second));
        }
        moves.count_moves_from_pool("other", 32, at(60));
        let written = moves.by_minute("general", at(3500));
        assert_eq!(written, [(at(59), 7), (at(60), 8), (at(3500), 16)].into());
        let mut read = MoveHistory::default();
        written.iter().for_each(|(at, pods)| read.count_moves_from_pool("general", *pods, *at));
        for now in [3500, 3620, 3659, 3660, 7099, 7100] {
            assert!(
                read.pods_moved_in_last_hour("general", at(now))
                    >= moves.pods_moved_in_last_hour("general", at(now))
            );
        }
        moves.uncount_moves_from_pool("general", 16, at(3500));
        assert_eq!(moves.pods_moved_in_last_hour("general", at(3600)), 2 + 4 + 8);
    }
}
