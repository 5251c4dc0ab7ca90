//! Dual price smoothing: prices for the next round between those of the master problem, which oscillate, and
//! those of the best bound so far.

use std::ops::Range;

/// The change of the weight of the best prices after a round.
const STEP: f64 = 0.1;
/// A smaller weight is set to zero.
const LEAST: f64 = 0.3;

pub(crate) struct Smoothing {
    /// The weight of the best prices.
    weight: f64,
    range: Range<f64>,
    /// The weight is multiplied by this after a round without a pivot.
    shrink: f64,
}

impl Smoothing {
    pub(crate) fn new(range: Range<f64>) -> Self {
        Self { weight: range.end, shrink: range.start, range }
    }

    /// Whether the prices are exactly those of the master problem. If such a round finds no column that improves the
    /// objective, column generation ends.
    pub(crate) fn is_off(&self) -> bool {
        self.weight == 0.0
    }

    /// Adapts the weight after a round. The arguments say whether its columns entered the basis, and whether its prices
    /// gave the best bound.
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
