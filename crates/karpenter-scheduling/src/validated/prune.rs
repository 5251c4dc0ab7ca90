//! Removes from a plan what violations concern: planned nodes, pods on existing nodes, and pods that are listed twice.
//! The validator checks afterwards whether the rest is valid.

use std::collections::BTreeSet;
use std::ops::Range;

use karpenter_model::plan::{Place, Plan, PodRun, Unschedulable};
use karpenter_model::problem::Problem;
use karpenter_model::reason::{Reason, Refusal, Scope};

use crate::validate::{Violation, ViolationScope};

/// Removes at least one part of the plan for every unsafe violation.
pub(super) fn take_out(problem: &Problem, plan: &mut Plan, violations: &[Violation]) {
    let mut planned: BTreeSet<usize> = BTreeSet::new();
    let mut existing: BTreeSet<usize> = BTreeSet::new();
    for violation in violations.iter().filter(|violation| violation.is_unsafe()) {
        match violation.scope() {
            ViolationScope::PlannedNode(index) => {
                planned.insert(index);
            }
            ViolationScope::ExistingNode(name) => {
                existing.extend(problem.nodes.iter().position(|node| node.name == name));
            }
            ViolationScope::Pool(name) => {
                let of_pool = |index: &usize| {
                    let pool = problem.pools.get(plan.new_nodes[*index].pool);
                    pool.is_some_and(|pool| pool.name == name)
                };
                planned.extend(last_half((0..plan.new_nodes.len()).filter(of_pool)));
            }
            ViolationScope::Reservations => {
                let reserved: Vec<usize> =
                    (0..plan.new_nodes.len()).filter(|index| is_reserved(problem, plan, *index)).collect();
                // If no node is planned into the reservation, every node that may launch into it is concerned.
                let concerned =
                    if reserved.is_empty() { (0..plan.new_nodes.len()).collect() } else { reserved };
                planned.extend(last_half(concerned.into_iter()));
            }
            ViolationScope::Coverage => {}
        }
    }
    let mut covered = Covered::new(problem);
    let mut index = 0;
    let mut new_index = Vec::with_capacity(plan.new_nodes.len());
    let mut count = 0;
    plan.new_nodes.retain(|node| {
        let stays = !planned.contains(&index) && !node.pods.is_empty() && covered.take(&node.pods);
        new_index.push(stays.then_some(count));
        count += usize::from(stays);
        index += 1;
        stays
    });
    plan.existing.retain(|placement| {
        placement.node < problem.nodes.len()
            && !existing.contains(&placement.node)
            && covered.take(&placement.pods)
    });
    plan.unschedulable.retain(|one| covered.take(&[one.pods]));
    if violations.iter().any(is_about_order) {
        plan.order = nodes_in_sequence(plan);
    } else {
        keep_order(problem, plan, &new_index);
    }
    plan.price_per_hour =
        plan.new_nodes.iter().map(|node| node.price_per_hour).fold(0.0, |sum, price| sum + price);
    plan.compat_price_per_hour = plan.price_per_hour;
    plan.lower_bound_per_hour = 0.0;
}

fn is_about_order(violation: &Violation) -> bool {
    matches!(
        violation,
        Violation::OrderOutOfPlace { .. }
            | Violation::OrderLacksPods { .. }
            | Violation::OrderRepeatsPods { .. }
    )
}

/// A binding order that covers every placed pod, node by node. The validator checks whether the order satisfies all
/// constraints.
fn nodes_in_sequence(plan: &Plan) -> Vec<(PodRun, Place)> {
    let existing = plan.existing.iter().map(|one| (Place::Existing(one.node), &one.pods));
    let new = plan.new_nodes.iter().enumerate().map(|(index, node)| (Place::New(index), &node.pods));
    existing.chain(new).flat_map(|(place, pods)| pods.iter().map(move |run| (*run, place))).collect()
}

/// Removes the parts that were removed from the plan from the binding order, and renumbers planned nodes.
fn keep_order(problem: &Problem, plan: &mut Plan, new_index: &[Option<usize>]) {
    let on_existing: BTreeSet<usize> = plan.existing.iter().map(|placement| placement.node).collect();
    let mut ordered = Covered::new(problem);
    plan.order.retain_mut(|(run, place)| {
        let stays = match place {
            Place::New(index) => match new_index.get(*index).copied().flatten() {
                Some(new) => {
                    *index = new;
                    true
                }
                None => false,
            },
            Place::Existing(node) => on_existing.contains(node),
        };
        stays && ordered.take(&[*run])
    });
}

fn last_half(indexes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all: Vec<usize> = indexes.collect();
    let kept = all.len() / 2;
    all.split_off(kept)
}

fn is_reserved(problem: &Problem, plan: &Plan, index: usize) -> bool {
    let node = &plan.new_nodes[index];
    let catalog = problem.pools.get(node.pool).and_then(|pool| problem.catalogs.get(pool.catalog));
    let offering = catalog
        .and_then(|catalog| catalog.get(node.instance_type))
        .and_then(|instance_type| instance_type.offerings.get(node.offering));
    offering.is_some_and(|offering| offering.is_reserved())
}

/// Pods of the problem that the plan does not mention.
pub(super) fn uncovered(problem: &Problem, plan: &Plan) -> Vec<PodRun> {
    let mut covered = Covered::new(problem);
    for node in &plan.new_nodes {
        covered.take(&node.pods);
    }
    for placement in &plan.existing {
        covered.take(&placement.pods);
    }
    for one in &plan.unschedulable {
        covered.take(&[one.pods]);
    }
    covered.rest()
}

/// Lists pods that the plan does not mention as unschedulable.
pub(super) fn list_uncovered(problem: &Problem, plan: &mut Plan) {
    let refusal = Refusal { scope: Scope::Pod, reason: Reason::PlannerFault };
    for pods in uncovered(problem, plan) {
        plan.unschedulable.push(Unschedulable { pods, reasons: vec![refusal.clone()] });
    }
}

/// For each group: the positions of pods that the plan mentions.
struct Covered {
    counts: Vec<u32>,
    taken: Vec<Vec<Range<u32>>>,
}

impl Covered {
    fn new(problem: &Problem) -> Self {
        let counts: Vec<u32> = problem.pods.iter().map(|group| group.count()).collect();
        let taken = vec![Vec::new(); counts.len()];
        Self { counts, taken }
    }

    /// Adds all runs; adds none if one of them is unknown or already covered.
    fn take(&mut self, runs: &[PodRun]) -> bool {
        let mut wanted: Vec<(usize, Range<u32>)> = Vec::with_capacity(runs.len());
        for run in runs {
            let group = run.group as usize;
            let range = run.start..run.start.saturating_add(run.count);
            let overlaps = |other: &Range<u32>| other.start < range.end && range.start < other.end;
            let is_free = self.counts.get(group).is_some_and(|count| range.end <= *count)
                && !self.taken[group].iter().any(overlaps)
                && !wanted.iter().any(|(other, taken)| *other == group && overlaps(taken));
            if !is_free {
                return false;
            }
            wanted.push((group, range));
        }
        for (group, range) in wanted {
            self.taken[group].push(range);
        }
        true
    }

    fn rest(mut self) -> Vec<PodRun> {
        let mut rest = Vec::new();
        for (group, taken) in self.taken.iter_mut().enumerate() {
            taken.sort_by_key(|range| range.start);
            let mut next = 0;
            for range in taken.iter().cloned().chain(std::iter::once(self.counts[group]..self.counts[group]))
            {
                if next < range.start {
                    rest.push(PodRun { group: group as u32, start: next, count: range.start - next });
                }
                next = next.max(range.end);
            }
        }
        rest
    }
}
