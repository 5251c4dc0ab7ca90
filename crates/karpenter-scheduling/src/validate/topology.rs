//! Required pod (anti-)affinity and hard spread, judged as the scheduler would judge the pods one after another.
//!
//! Anti-affinity holds both ways and does not depend on order, so the final state is enough. Spread and affinity do
//! depend on order: [`replay`] looks for an order in which every planned pod is accepted. A node's domain is that of
//! its chosen type and offering; a key the claim leaves open counts as every domain it may still become.

mod anti_affinity;
mod groups;
mod replay;
mod sites;

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;

use super::contents::Contents;
use super::frames::Frames;
use super::violation::Violation;

pub(super) fn check(
    problem: &Problem,
    plan: &Plan,
    contents: &Contents<'_>,
    frames: &Frames<'_>,
    violations: &mut Vec<Violation>,
) {
    if !contents.classes.iter().any(|spec| {
        !spec.affinity.is_empty() || !spec.anti_affinity.is_empty() || spec.spread.iter().any(|s| s.hard)
    }) {
        return;
    }
    let sites = sites::Sites::build(problem, plan, contents, frames);
    anti_affinity::check(contents, &sites, violations);
    let groups = groups::Groups::build(contents, &sites, violations);
    replay::check(problem, plan, contents, &sites, &groups, violations);
}
