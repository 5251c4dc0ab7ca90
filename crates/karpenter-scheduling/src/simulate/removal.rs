//! Which nodes to remove, for a whole cluster at once: one linear program whose objective is the price of all nodes
//! plus the price of moving the pods of the nodes that are removed.
//!
//! ```text
//! minimise    Σ stay_i · price_i  +  Σ launch · price  +  Σ (1 - stay_i) · disruption price_i
//! subject to  for each class of pods: what nodes that stay take on + what launched nodes hold
//!                 ≥  the pods of nodes that are removed
//!             what a node takes on fits its free capacity
//! ```
//!
//! The program is solved by column generation and rounded to whole nodes. Constraints over zones are not part of it:
//! whoever executes a removal simulates it first.

mod columns;
mod groups;
mod instance;
mod master;
mod pricing;
mod rounding;

use rayon::prelude::*;

use super::{BoundAt, Simulator};

/// Work units per unit of effort.
const WORK_PER_EFFORT: u64 = 200_000;

/// A node that may be removed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemovalCandidate {
    pub node: usize,
    pub price_per_hour: f64,
    /// The price of moving its pods.
    pub disruption_price_per_hour: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct RemovalRequest<'a> {
    pub candidates: &'a [RemovalCandidate],
    /// Existing nodes that take pods while they stay.
    pub onto: &'a [usize],
    /// The largest number of nodes that one removal may have.
    pub removed_together_max: usize,
    pub effort: u64,
}

/// Nodes that are removed together.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    /// Positions in the candidates of the request, ascending.
    pub candidates: Vec<usize>,
    /// Targets of the pods that go to existing nodes.
    pub onto: Vec<(BoundAt, usize)>,
    /// Nodes that take the other pods.
    pub launches: Vec<Launch>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    pub price_per_hour: f64,
    pub pods: u32,
}

/// The terms of the objective for one candidate: it should stay if it costs less than the others together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Terms {
    /// What its pods would cost elsewhere.
    pub pods_elsewhere_per_hour: f64,
    /// What its free capacity is worth for pods of other nodes.
    pub free_capacity_per_hour: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Removals {
    pub removals: Vec<Removal>,
    /// By candidate.
    pub terms: Vec<Terms>,
    pub work: u64,
}

impl Simulator<'_> {
    /// Plans the removal of nodes. Every removal can be executed without the others.
    pub fn removals(&self, request: &RemovalRequest<'_>) -> Removals {
        let mut all = Removals { terms: vec![Terms::default(); request.candidates.len()], ..Removals::default() };
        if request.candidates.is_empty() {
            return all;
        }
        let Some(instance) = instance::extract(self, request) else { return all };
        let work_max = request.effort.saturating_mul(WORK_PER_EFFORT);
        let parts: Vec<_> = instance
            .parts()
            .into_par_iter()
            .map(|part| {
                let solution = columns::solve(&part, work_max);
                let placement = rounding::round(&part, &solution);
                let removals = groups::removals(&part, &placement, &solution.duals);
                (part, solution, placement, removals)
            })
            .collect();
        for (part, solution, placement, removals) in parts {
            all.work += solution.work + placement.work;
            all.removals.extend(removals);
            for (place, free) in part.places.iter().zip(&solution.free_values) {
                let Some(terms) = place.candidate.map(|candidate| &mut all.terms[candidate]) else { continue };
                terms.free_capacity_per_hour += free;
                terms.pods_elsewhere_per_hour += place
                    .pods
                    .iter()
                    .map(|(class, pods)| solution.duals[*class as usize] * pods.len() as f64)
                    .sum::<f64>();
            }
        }
        all
    }
}
