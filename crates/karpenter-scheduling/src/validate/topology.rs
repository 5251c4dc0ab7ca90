//! Checks required pod affinity and anti-affinity and hard topology spread, as kube-scheduler checks pods one after
//! another.
//!
//! Anti-affinity is symmetric and independent of the order, so only the final state is checked. Spread and affinity
//! depend on the order: [`replay`] searches for an order in which every planned pod is accepted. A planned node is in
//! the domain of its chosen instance type and offering; if the NodeClaim leaves a label undecided, every allowed value
//! counts as the node's domain.

mod anti_affinity;
mod groups;
mod replay;
mod sites;

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;

use super::claim_groups::ClaimGroups;
use super::contents::Contents;
use super::violation::Violation;

pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    contents: &Contents<'_>,
    claim_groups: &ClaimGroups<'_>,
    violations: &mut Vec<Violation>,
) {
    if !contents.classes.iter().any(|spec| {
        !spec.affinity.is_empty() || !spec.anti_affinity.is_empty() || spec.spread.iter().any(|s| s.hard)
    }) {
        return;
    }
    let sites = sites::Sites::build(problem, plan, contents, claim_groups);
    anti_affinity::check(contents, &sites, violations);
    let groups = groups::Groups::build(contents, &sites, violations);
    replay::check(problem, plan, contents, &sites, &groups, violations);
}
