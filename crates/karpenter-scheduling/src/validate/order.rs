//! Checks that the binding order of the plan contains each placed pod exactly once, on its planned node.
//!
//! A plan without a binding order passes this check. `topology` checks whether kube-scheduler would accept the pods if
//! they were bound in the order of the plan.

use karpenter_model::plan::{self, Plan, PodRun};
use karpenter_model::problem::Problem;

use super::contents::pod_name;
use super::violation::{Place, Violation};

/// The pods `start .. end` of one group, all on the same node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    group: u32,
    start: u32,
    end: u32,
    place: plan::Place,
}

impl Stretch {
    fn new(run: &PodRun, place: plan::Place) -> Option<Self> {
        let end = run.start.saturating_add(run.count);
        (end > run.start).then_some(Self { group: run.group, start: run.start, end, place })
    }

    /// Whether all pods of the stretch precede `position` of `group`.
    fn ends_by(&self, group: u32, position: u32) -> bool {
        (self.group, self.end) <= (group, position)
    }
}

pub(super) fn check(problem: &Problem, plan: &Plan, violations: &mut Vec<Violation>) {
    if plan.order.is_empty() {
        return;
    }
    let new_nodes = plan.new_nodes.iter().enumerate().flat_map(|(index, node)| {
        node.pods.iter().filter_map(move |run| Stretch::new(run, plan::Place::New(index)))
    });
    let existing = plan.existing.iter().flat_map(|placement| {
        let place = plan::Place::Existing(placement.node);
        placement.pods.iter().filter_map(move |run| Stretch::new(run, place))
    });
    // A pod that is placed twice is reported in `contents`; here, its first node is used.
    let placed = disjoint(new_nodes.chain(existing).collect(), |_, _, _| {});
    let ordered: Vec<Stretch> =
        plan.order.iter().filter_map(|(run, place)| Stretch::new(run, *place)).collect();

    for stretch in &ordered {
        parts(stretch, &placed, |start, end, place| {
            if place != Some(stretch.place) {
                violations.push(Violation::OrderOutOfPlace {
                    place: displayed_place(problem, stretch.place),
                    pod: pod_name(problem, stretch.group, start),
                    count: end - start,
                });
            }
        });
    }
    let ordered = disjoint(ordered, |group, start, end| {
        violations
            .push(Violation::OrderRepeatsPods { pod: pod_name(problem, group, start), count: end - start });
    });
    for stretch in &placed {
        parts(stretch, &ordered, |start, end, place| {
            if place.is_none() {
                violations.push(Violation::OrderLacksPods {
                    place: displayed_place(problem, stretch.place),
                    pod: pod_name(problem, stretch.group, start),
                    count: end - start,
                });
            }
        });
    }
}

/// Sorts stretches and removes overlaps; calls `overlap` for each overlap.
fn disjoint(mut stretches: Vec<Stretch>, mut overlap: impl FnMut(u32, u32, u32)) -> Vec<Stretch> {
    stretches.sort_unstable();
    let mut result: Vec<Stretch> = Vec::with_capacity(stretches.len());
    for mut stretch in stretches {
        if let Some(last) = result.last()
            && last.group == stretch.group
            && stretch.start < last.end
        {
            overlap(stretch.group, stretch.start, last.end.min(stretch.end));
            stretch.start = last.end;
        }
        if stretch.start < stretch.end {
            result.push(stretch);
        }
    }
    result
}

/// Cuts a stretch at the boundaries of `others`, which are sorted and disjoint. Calls `visit` for each part, with the
/// node that `others` have for it.
fn parts(stretch: &Stretch, others: &[Stretch], mut visit: impl FnMut(u32, u32, Option<plan::Place>)) {
    let mut position = stretch.start;
    let first = others.partition_point(|other| other.ends_by(stretch.group, position));
    let overlapping =
        others[first..].iter().take_while(|other| (other.group, other.start) < (stretch.group, stretch.end));
    for other in overlapping {
        if other.start > position {
            visit(position, other.start, None);
        }
        let end = other.end.min(stretch.end);
        visit(position.max(other.start), end, Some(other.place));
        position = end;
    }
    if position < stretch.end {
        visit(position, stretch.end, None);
    }
}

fn displayed_place(problem: &Problem, place: plan::Place) -> Place {
    match place {
        plan::Place::New(index) => Place::Planned(index),
        plan::Place::Existing(index) => match problem.nodes.get(index) {
            Some(node) => Place::Existing(node.name.clone()),
            None => Place::Existing(format!("number {index}").into()),
        },
    }
}
