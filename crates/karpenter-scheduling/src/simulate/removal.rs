//! Which nodes to remove, for a whole cluster at once: one linear program whose objective is the price of all nodes
//! plus the price of moving the pods of the nodes that are removed.
//!
//! ```text
//! minimise    Σ stay_i · price_i  +  Σ launch · price  +  Σ (1 - stay_i) · disruption price_i
//! subject to  for each class of pods: pods placed on nodes that stay + pods placed on launched nodes
//!                 ≥  pods of nodes that are removed
//!             the pods placed on a node fit its free capacity
//! ```
//!
//! The program is solved by column generation and rounded to whole nodes. Constraints over zones are decided
//! in between ([`zones`]). The caller simulates a removal before it executes it.

mod columns;
mod groups;
mod instance;
mod master;
mod pricing;
mod rounding;
mod search;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

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
    /// Existing nodes that may receive pods, unless they are removed.
    pub onto: &'a [usize],
    pub effort: u64,
}

/// Nodes that are removed together.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    /// Positions in the candidates of the request, ascending.
    pub candidates: Vec<usize>,
    /// Targets of the pods that go to existing nodes.
    pub onto: Vec<(BoundAt, usize)>,
    /// Launched nodes, which receive the other pods.
    pub launches: Vec<Launch>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    pub price_per_hour: f64,
    pub pods: u32,
}

/// Two terms of the objective for one candidate. A candidate should stay if its price is at most the sum of these terms
/// and the price of moving its pods.
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
        let mut all =
            Removals { terms: vec![Terms::default(); request.candidates.len()], ..Removals::default() };
        if request.candidates.is_empty() {
            return all;
        }
        let mut ledger = instance::ledger(self, request);
        let Some(instance) = instance::extract(self, &mut ledger, request, &BTreeMap::new()) else {
            return all;
        };
        let is_zonal = instance.is_zonal;
        let parts = solve(instance, request.effort, !is_zonal);
        for part in &parts {
            all.work += part.solution.work + part.placement.work;
            for (place, free) in part.instance.places.iter().zip(&part.solution.free_values) {
                let Some(terms) = place.candidate.map(|candidate| &mut all.terms[candidate]) else {
                    continue;
                };
                terms.free_capacity_per_hour += free;
                terms.pods_elsewhere_per_hour += place
                    .pods
                    .iter()
                    .map(|(class, pods)| part.solution.duals[*class as usize] * pods.len() as f64)
                    .sum::<f64>();
            }
        }
        if !is_zonal {
            all.removals = parts.iter().flat_map(Part::removals).collect();
            return all;
        }
        // The zones of the pods depend on which nodes are removed. So zones are assigned now, and the program is solved
        // again for the nodes that it removed.
        let mut removed: BTreeSet<usize> = BTreeSet::new();
        for part in &parts {
            let of_part = part.instance.places.iter().zip(&part.placement.is_removed);
            removed
                .extend(of_part.filter(|(_, is_removed)| **is_removed).filter_map(|(one, _)| one.candidate));
        }
        let removed: Vec<usize> = removed.into_iter().collect();
        let candidates: Vec<RemovalCandidate> = removed.iter().map(|one| request.candidates[*one]).collect();
        let zoned = RemovalRequest { candidates: &candidates, ..*request };
        let pods: Vec<BoundAt> = candidates.iter().flat_map(|one| self.pod_index.movable(one.node)).collect();
        let zone_of = zones::assign(&ledger, self, &pods, request.onto);
        let mut ledger = instance::ledger(self, &zoned);
        let Some(instance) = instance::extract(self, &mut ledger, &zoned, &zone_of) else { return all };
        for part in solve(instance, request.effort, true) {
            all.work += part.solution.work + part.placement.work;
            all.removals.extend(part.removals().into_iter().map(|mut removal| {
                removal.candidates.iter_mut().for_each(|one| *one = removed[*one]);
                removal
            }));
        }
        all
    }
}

/// The solution for a part of the cluster whose pods cannot run on nodes of other parts.
struct Part {
    instance: instance::Instance,
    solution: columns::Solution,
    placement: rounding::Placement,
}

impl Part {
    fn removals(&self) -> Vec<Removal> {
        groups::removals(&self.instance, &self.placement, &self.solution.duals)
    }
}

fn solve(instance: instance::Instance, effort: u64, is_final: bool) -> Vec<Part> {
    let work_max = effort.saturating_mul(WORK_PER_EFFORT);
    let solve_part = |instance: instance::Instance| {
        let solution = columns::solve(&instance, work_max);
        let placement = rounding::round(&instance, &solution, is_final);
        Part { instance, solution, placement }
    };
    instance.parts().into_par_iter().map(solve_part).collect()
}
