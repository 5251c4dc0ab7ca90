//! Whether moves that were found at the same time can be made one after the other without looking again.
//!
//! They share no nodes and no room, so only what counts pods across nodes can come between them: spreads and affinities
//! by zone and the like, limits of pools, reservations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::labels;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;
use karpenter_model::selector::LabelSelector;

use super::draft::{Draft, Move};
use crate::command::Destination;

pub(crate) struct Zones {
    /// Pods that something counts across nodes.
    counted: BTreeSet<Arc<PodSpec>>,
    /// Pools with limits.
    limited: BTreeSet<usize>,
    /// Whether a move of this round changed how counted pods are spread, or took from a limit.
    is_changed: bool,
}

impl Zones {
    pub(crate) fn new(problem: &Problem) -> Self {
        let specs: BTreeSet<&Arc<PodSpec>> =
            problem.nodes.iter().flat_map(|node| &node.pods).map(|pod| &pod.spec).collect();
        let mut terms: BTreeSet<(&LabelSelector, BTreeSet<&Arc<str>>)> = BTreeSet::new();
        for spec in &specs {
            let spreads = spec.spread.iter().filter(|one| &*one.key != labels::HOSTNAME && one.hard);
            terms.extend(spreads.filter_map(|one| Some((one.selector.as_ref()?, [&spec.namespace].into()))));
            let affinities = spec.affinity.iter().chain(&spec.anti_affinity);
            let affinities = affinities.filter(|one| &*one.key != labels::HOSTNAME);
            terms.extend(
                affinities.filter_map(|one| Some((one.selector.as_ref()?, one.namespaces.iter().collect()))),
            );
        }
        let counted = specs
            .into_iter()
            .filter(|spec| {
                terms.iter().any(|(selector, namespaces)| {
                    namespaces.contains(&spec.namespace) && selector.matches(&spec.labels)
                })
            })
            .cloned()
            .collect();
        let pools = problem.pools.iter().enumerate();
        let limited = pools.filter(|(_, pool)| !pool.limits.is_empty()).map(|(index, _)| index).collect();
        Self { counted, limited, is_changed: false }
    }

    /// Whether the move has pods that something counts across nodes.
    pub(crate) fn counts(&self, problem: &Problem, one: &Move) -> bool {
        !self.counted.is_empty()
            && one.moves.iter().any(|(from, _)| {
                let pods = problem.nodes.get(from.node as usize).map(|node| &node.pods);
                pods.and_then(|pods| pods.get(from.pod as usize))
                    .is_some_and(|pod| self.counted.contains(&pod.spec))
            })
    }

    /// A round begins.
    pub(crate) fn begin(&mut self) {
        self.is_changed = false;
    }

    /// Whether the move is as good as it was when the round began.
    pub(crate) fn may_follow(&self, draft: &Draft<'_>, one: &Move) -> bool {
        !self.is_changed || !self.changes(draft, one)
    }

    pub(crate) fn note(&mut self, draft: &Draft<'_>, one: &Move) {
        self.is_changed |= self.changes(draft, one);
    }

    fn changes(&self, draft: &Draft<'_>, one: &Move) -> bool {
        let problem = draft.simulator.problem();
        let takes = |planned: &karpenter_model::plan::PlannedNode| {
            let instance_type = problem
                .pools
                .get(planned.pool)
                .and_then(|pool| problem.catalogs.get(pool.catalog)?.get(planned.instance_type));
            let offering = instance_type.and_then(|one| one.offerings.get(planned.offering));
            self.limited.contains(&planned.pool) || offering.is_none_or(|offering| offering.is_reserved())
        };
        if one.replacements.iter().any(takes) {
            return true;
        }
        if self.counted.is_empty() {
            return false;
        }
        let mut shifted: BTreeMap<(&Arc<PodSpec>, Option<Arc<str>>), i64> = BTreeMap::new();
        for (from, to) in &one.moves {
            let Some(node) = problem.nodes.get(from.node as usize) else { return true };
            let Some(pod) = node.pods.get(from.pod as usize) else { return true };
            if !self.counted.contains(&pod.spec) {
                continue;
            }
            let zone_then = match to {
                Destination::Existing(node) => {
                    problem.nodes.get(*node).and_then(|node| node.labels.get(labels::ZONE).cloned())
                }
                Destination::New(number) => {
                    let requirement = one
                        .replacements
                        .get(*number)
                        .and_then(|planned| planned.requirements.get(labels::ZONE));
                    requirement.and_then(|requirement| requirement.single_value().cloned())
                }
            };
            *shifted.entry((&pod.spec, node.labels.get(labels::ZONE).cloned())).or_insert(0) -= 1;
            *shifted.entry((&pod.spec, zone_then)).or_insert(0) += 1;
        }
        shifted.values().any(|count| *count != 0)
    }
}
