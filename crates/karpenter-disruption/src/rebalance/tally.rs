//! Checks that a topology spread holds for any subset of a plan's moves.
//!
//! A spread requires that the domain in which a pod is placed has at most `maxSkew` more pods than the domain with the
//! fewest. So only the differences between two domains matter. Each executed move increases or decreases a difference.
//! The difference is largest if only the moves that increase it are executed. If the spread holds in that case for
//! every placed pod, the moves do not depend on each other.

use std::sync::Arc;

/// The maximum number of domains: every pair is compared.
const DOMAINS_MAX: usize = 16;

/// The effect of one move on a spread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shift {
    /// By domain, the change of the number of pods; `None` if it is unknown.
    by_domain: Option<Vec<i64>>,
    /// By domain, whether pods with this spread constraint are placed there.
    asks_in: Vec<bool>,
}

impl Shift {
    #[cfg(test)]
    pub(crate) fn is_none(&self) -> bool {
        self.by_domain.as_ref().is_some_and(|by_domain| by_domain.iter().all(|count| *count == 0))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Tally {
    max_skew: i64,
    domains: Vec<Arc<str>>,
    /// By domain, the number of pods before any move.
    counts: Vec<i64>,
    /// By pair of domains, the sum of all increases of the difference between the first and the second.
    gains: Vec<Vec<i64>>,
    /// By pair of domains, the smallest decrease of the difference (0 or negative) among moves that place pods with the
    /// constraint in the first domain; `None` if there is no such move.
    given: Vec<Vec<Option<i64>>>,
    /// Whether the effect of an added move is unknown, so that the spread may be violated.
    is_unknown: bool,
}

impl Tally {
    /// A tally without moves; `None` if there are too many domains.
    pub(crate) fn new(max_skew: u32, mut domains: Vec<Arc<str>>) -> Option<Self> {
        domains.sort_unstable();
        domains.dedup();
        let count = domains.len();
        (count <= DOMAINS_MAX).then(|| Self {
            max_skew: i64::from(max_skew),
            counts: vec![0; count],
            gains: vec![vec![0; count]; count],
            given: vec![vec![None; count]; count],
            domains,
            is_unknown: false,
        })
    }

    fn at(&self, domain: Option<&Arc<str>>) -> Option<usize> {
        domain.and_then(|domain| self.domains.binary_search(domain).ok())
    }

    /// Counts a pod before any move. Nodes without a domain are ignored.
    pub(crate) fn count(&mut self, domain: Option<&Arc<str>>) {
        if let Some(at) = self.at(domain) {
            self.counts[at] += 1;
        }
    }

    pub(crate) fn no_shift(&self) -> Shift {
        let count = self.domains.len();
        Shift { by_domain: Some(vec![0; count]), asks_in: vec![false; count] }
    }

    /// Records that a move removes a pod from the domain.
    pub(crate) fn take(&self, shift: &mut Shift, domain: Option<&Arc<str>>) {
        if let (Some(at), Some(by_domain)) = (self.at(domain), &mut shift.by_domain) {
            by_domain[at] -= 1;
        }
    }

    /// Records that a move places a pod in the domain.
    pub(crate) fn put(&self, shift: &mut Shift, domain: Option<&Arc<str>>, is_asking: bool) {
        match (self.at(domain), &mut shift.by_domain) {
            (Some(at), Some(by_domain)) => {
                by_domain[at] += 1;
                shift.asks_in[at] |= is_asking;
            }
            _ => shift.by_domain = None,
        }
    }

    /// Adds a move that may or may not be executed.
    pub(crate) fn note(&mut self, shift: &Shift) {
        let Some(by_domain) = &shift.by_domain else {
            self.is_unknown = true;
            return;
        };
        for (one, gain_of_one) in by_domain.iter().enumerate() {
            for (other, gain_of_other) in by_domain.iter().enumerate().filter(|(other, _)| *other != one) {
                let gain = gain_of_one - gain_of_other;
                self.gains[one][other] += gain.max(0);
                if shift.asks_in[one] {
                    let given = &mut self.given[one][other];
                    *given = (*given).max(Some(gain.min(0)));
                }
            }
        }
    }

    /// Whether the spread holds for every placed pod, for any subset of the added moves.
    pub(crate) fn holds(&self) -> bool {
        let holds = |one: usize, other: usize| {
            let is_ahead = |given: i64| {
                // The move that places the pod is executed, so its own decrease of the difference counts.
                self.counts[one] - self.counts[other] + self.gains[one][other] + given > self.max_skew
            };
            one == other || !self.given[one][other].is_some_and(is_ahead)
        };
        let domains = 0..self.domains.len();
        !self.is_unknown && domains.clone().all(|one| domains.clone().all(|other| holds(one, other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAINS: [&str; 3] = ["a", "b", "c"];

    fn tally(counts: [i64; 3], max_skew: u32) -> Tally {
        let mut tally = Tally::new(max_skew, DOMAINS.map(Arc::from).to_vec()).unwrap();
        for (domain, count) in DOMAINS.iter().zip(counts) {
            (0..count).for_each(|_| tally.count(Some(&Arc::from(*domain))));
        }
        tally
    }

    fn shift(tally: &Tally, pods: &[(&str, &str)]) -> Shift {
        let mut shift = tally.no_shift();
        for (from, to) in pods {
            tally.take(&mut shift, Some(&Arc::from(*from)));
            tally.put(&mut shift, Some(&Arc::from(*to)), true);
        }
        shift
    }

    fn hold_together(counts: [i64; 3], moves: &[&[(&str, &str)]]) -> bool {
        let mut tally = tally(counts, 1);
        moves.iter().for_each(|one| tally.note(&shift(&tally, one)));
        tally.holds()
    }

    #[test]
    fn moves_hold_together_if_they_hold_with_any_of_the_others() {
        // Both moves reduce the skew, and the skew is large enough for both.
        assert!(hold_together([4, 2, 2], &[&[("a", "b")], &[("a", "c")]]));
        assert!(!hold_together([4, 4, 2], &[&[("a", "c")], &[("b", "c")], &[("b", "c")]]));
        // A move within a domain does not affect other moves.
        assert!(hold_together([3, 3, 3], &[&[("a", "a")], &[("b", "b")], &[("c", "c"), ("a", "a")]]));
        // The second move may place a pod in `a` only after the first removed one.
        assert!(hold_together([3, 2, 2], &[&[("a", "b")]]));
        assert!(!hold_together([3, 2, 2], &[&[("a", "b")], &[("c", "a")]]));
        // The pod is placed in a domain that already exceeds `maxSkew`.
        assert!(!hold_together([4, 2, 2], &[&[("a", "a")]]));
    }

    #[test]
    fn pods_without_constraint_may_exceed_the_skew() {
        let mut tally = tally([2, 2, 2], 1);
        let mut heap = tally.no_shift();
        for _ in 0..3 {
            tally.take(&mut heap, Some(&"a".into()));
            tally.put(&mut heap, Some(&"b".into()), false);
        }
        tally.note(&heap);
        assert!(tally.holds());
        // A move that places a pod with the constraint must be valid whether or not the other move is executed.
        let mut asking = tally.clone();
        asking.note(&shift(&asking, &[("c", "c")]));
        assert!(!asking.holds());
    }

    #[test]
    fn unknown_domain_no_longer_holds() {
        let mut tally = tally([2, 2, 2], 1);
        let mut open = tally.no_shift();
        tally.take(&mut open, Some(&"a".into()));
        tally.put(&mut open, None, false);
        assert!(!open.is_none());
        tally.note(&open);
        assert!(!tally.holds());
    }

    /// The reference implementation: tries every subset of moves, and places the pods of a subset in the best order.
    fn holds_by_trial(counts: [i64; 3], moves: &[Vec<(usize, usize)>]) -> bool {
        (0..1_usize << moves.len()).all(|made| {
            let pods = moves.iter().enumerate().filter(|(number, _)| made >> number & 1 == 1);
            let mut left: Vec<(usize, usize)> = pods.flat_map(|(_, pods)| pods.iter().copied()).collect();
            let mut counts = counts;
            left.iter().for_each(|(from, _)| counts[*from] -= 1);
            // Placing pods greedily is optimal, because it never lowers the minimum over the domains.
            while let Some(at) = left
                .iter()
                .position(|(_, to)| counts[*to] + 1 - counts.iter().min().copied().unwrap_or(0) <= 1)
            {
                counts[left.remove(at).1] += 1;
            }
            left.is_empty()
        })
    }

    #[test]
    fn it_is_as_trying_every_subset_says() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut held, mut fell) = (0, 0);
        for _ in 0..20_000 {
            let counts: [i64; 3] = std::array::from_fn(|_| 3 + next(4) as i64);
            let moves: Vec<Vec<(usize, usize)>> = (0..1 + next(3))
                .map(|_| (0..1 + next(2)).map(|_| (next(3) as usize, next(3) as usize)).collect())
                .collect();
            let mut tally = tally(counts, 1);
            for one in &moves {
                let pods: Vec<_> = one.iter().map(|(from, to)| (DOMAINS[*from], DOMAINS[*to])).collect();
                tally.note(&shift(&tally, &pods));
            }
            let holds = holds_by_trial(counts, &moves);
            assert_eq!(tally.holds(), holds, "{counts:?} {moves:?}");
            if holds { held += 1 } else { fell += 1 }
        }
        assert!(held > 500 && fell > 500, "{held} {fell}");
    }
}
