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
//! The program is solved by column generation and rounded to whole nodes. If pods are constrained by zone, zones are
//! assigned after that ([`zones`]). The caller simulates a removal before it executes it.

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
        let class_of_ledger = instance.class_of_ledger.clone();
        let parts: Vec<Part> = in_parts(instance, |part| {
            let solution = columns::solve(part, request.effort.saturating_mul(WORK_PER_EFFORT));
            let placement = rounding::round(part, &solution, !is_zonal);
            (solution, placement)
        });
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
        // The zones of the pods depend on which nodes are removed. So zones are assigned now, and the pods of these nodes
        // are placed again, with one class for each zone.
        let removed: BTreeSet<usize> = parts.iter().flat_map(Part::removed).collect();
        let removed: Vec<usize> = removed.into_iter().collect();
        let candidates: Vec<RemovalCandidate> = removed.iter().map(|one| request.candidates[*one]).collect();
        let zoned = RemovalRequest { candidates: &candidates, ..*request };
        let pods: Vec<BoundAt> = candidates.iter().flat_map(|one| self.pod_index.movable(one.node)).collect();
        let zone_of = zones::assign(&ledger, self, &pods, request.onto);
        let mut ledger = instance::ledger(self, &zoned);
        let Some(instance) = instance::extract(self, &mut ledger, &zoned, &zone_of) else { return all };
        let without_zones = WithoutZones::new(&parts, &class_of_ledger);
        for part in in_parts(instance, |part| {
            let solution = without_zones.solution(part);
            let placement = rounding::round(part, &solution, true);
            (solution, placement)
        }) {
            all.work += part.placement.work;
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

    /// The candidates that are removed.
    fn removed(&self) -> impl Iterator<Item = usize> {
        let places = self.instance.places.iter().zip(&self.placement.is_removed);
        places.filter(|(_, is_removed)| **is_removed).filter_map(|(place, _)| place.candidate)
    }
}

fn in_parts(
    instance: instance::Instance,
    solve: impl Fn(&instance::Instance) -> (columns::Solution, rounding::Placement) + Sync,
) -> Vec<Part> {
    let solved = |instance: instance::Instance| {
        let (solution, placement) = solve(&instance);
        Part { instance, solution, placement }
    };
    instance.parts().into_par_iter().map(solved).collect()
}

/// The solution without zonal constraints, from which the solution for classes of one zone each is derived.
struct WithoutZones<'a> {
    /// The class by class in the ledger.
    class_of_ledger: &'a BTreeMap<usize, u32>,
    /// By class.
    duals: BTreeMap<u32, f64>,
    /// By node: pods of removed nodes that it receives, by class.
    taken: BTreeMap<usize, BTreeMap<u32, u32>>,
}

impl<'a> WithoutZones<'a> {
    fn new(parts: &[Part], class_of_ledger: &'a BTreeMap<usize, u32>) -> Self {
        let (mut duals, mut taken): (_, BTreeMap<usize, BTreeMap<u32, u32>>) =
            (BTreeMap::new(), BTreeMap::new());
        for part in parts {
            let class = |of_part: usize| class_of_ledger[&part.instance.classes[of_part].of_ledger];
            duals.extend(
                part.solution.duals.iter().enumerate().map(|(of_part, dual)| (class(of_part), *dual)),
            );
            for (place, content) in part.instance.places.iter().zip(&part.placement.taken) {
                let of_node = taken.entry(place.node).or_default();
                of_node.extend(content.iter().map(|(of_part, count)| (class(*of_part as usize), *count)));
            }
        }
        Self { class_of_ledger, duals, taken }
    }

    /// All candidates are removed, and the other nodes receive the same pods, as far as their zones allow.
    fn solution(&self, instance: &instance::Instance) -> columns::Solution {
        let classes: Vec<u32> =
            instance.classes.iter().map(|class| self.class_of_ledger[&class.of_ledger]).collect();
        let filling = |(number, place): (usize, &instance::Place)| {
            let taken = self.taken.get(&place.node).filter(|_| !place.is_candidate())?;
            let count =
                |class: usize| taken.get(&classes[class]).copied().unwrap_or(0).min(place.limits[class]);
            let counts = (0..classes.len()).map(|class| (class as u32, count(class)));
            let content: Vec<(u32, u32)> = counts.filter(|(_, count)| *count > 0).collect();
            (!content.is_empty()).then_some((1.0, number, content))
        };
        columns::Solution {
            duals: classes.iter().map(|class| self.duals.get(class).copied().unwrap_or(0.0)).collect(),
            stays: instance.places.iter().map(|place| f64::from(u8::from(!place.is_candidate()))).collect(),
            fillings: instance.places.iter().enumerate().filter_map(filling).collect(),
            ..columns::Solution::default()
        }
    }
}
