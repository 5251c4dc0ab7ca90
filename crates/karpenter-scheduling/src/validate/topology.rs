//! Required pod (anti-)affinity and hard spread, checked as kube-scheduler checks pods one after another.
//!
//! Anti-affinity is symmetric and does not depend on the order, so the final state is checked. Spread and
//! affinity depend on the order: [`replay`] searches an order in which every planned pod is accepted. The
//! domain of a node is that of its chosen type and offering; a key that the claim leaves undecided counts as
//! every allowed domain.

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
