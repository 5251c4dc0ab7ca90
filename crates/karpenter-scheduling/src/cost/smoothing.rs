//! Dual price smoothing for column generation: the next round uses dual prices between those of the master problem,
//! which oscillate, and those that gave the best bound so far.

use std::ops::Range;

/// After a round, the weight of the prices of the best bound changes by this amount.
const STEP: f64 = 0.1;
/// A weight below this is set to zero.
const LEAST: f64 = 0.3;

pub(crate) struct Smoothing {
    /// The weight of the dual prices that gave the best bound.
    weight: f64,
    range: Range<f64>,
    /// After a round in which no column (set of pods for one node) entered the basis, the weight is multiplied by this.
    shrink: f64,
}

impl Smoothing {
    pub(crate) fn new(range: Range<f64>) -> Self {
        Self { weight: range.end, shrink: range.start, range }
    }

    /// Whether `between` returns the prices of the master problem unchanged. If such a round finds no column (set of
    /// pods for one node) that lowers the cost, column generation ends.
    pub(crate) fn is_off(&self) -> bool {
        self.weight == 0.0
    }

    /// Adjusts the weight after a round. `has_pivots` says whether columns (sets of pods for one node) entered the
    /// basis, `has_improved` whether the prices of the round gave the best bound.
    pub(crate) fn adapt(&mut self, has_pivots: bool, has_improved: bool) {
        self.weight = match (has_pivots, has_improved) {
            (false, _) if self.weight < LEAST => 0.0,
            (false, _) => self.weight * self.shrink,
            (true, true) => (self.weight.max(self.range.start) + STEP).min(self.range.end),
            (true, false) => (self.weight - STEP).max(self.range.start),
        };
    }

    pub(crate) fn between(&self, duals: &[f64], best: &[f64]) -> Vec<f64> {
        let pairs = duals.iter().zip(best);
        pairs.map(|(dual, best)| self.weight * best + (1.0 - self.weight) * dual.max(0.0)).collect()
    }
}
