//! Planner faults of provisioning: which pods and nodes a pass left out because of them, how they are reported, and
//! which pods the next passes leave out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mode, Problem};
use karpenter_runtime::clock::since;
use karpenter_scheduling::validated::{Cause, Fault, PlannerPanic, ValidatedPlan};
use karpenter_state::pod::Pod;

use crate::inputs::Writes;
use crate::planner_faults::{mode_name, report};

/// How long pods that made the planner panic are left out. A pod whose spec changes is planned again at once.
const SUSPECT_TTL: Duration = Duration::from_secs(600);
/// After the planner panicked in cost mode, plans are made in compat mode for this long.
const COMPAT_AFTER_PANIC: Duration = Duration::from_secs(3600);
/// The maximum number of pods that a log line names.
const NAMED_MAX: usize = 5;

/// The planner faults of a pass.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) found: Vec<Fault>,
    /// Pods that were left out of the plan.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Existing nodes that were left out of the plan.
    pub(super) nodes: Vec<String>,
    /// Specs of pods that made the planner panic in this pass.
    pub(super) suspects: Vec<Arc<PodSpec>>,
    /// The input of the planner as manifests, to reproduce the fault.
    pub(super) input: Option<Arc<str>>,
}

impl Faults {
    /// A fault because of a panic while the problem was assembled.
    pub(super) fn of_assembly(fault: PlannerPanic, mode: Mode) -> Self {
        let found = vec![Fault { mode, cause: Cause::Panicked(fault) }];
        Self { found, ..Self::default() }
    }

    /// Adds the faults that the planner reports and the nodes that it left out. The caller adds the pods that were left
    /// out.
    pub(super) fn add(&mut self, problem: &Problem, planned: &ValidatedPlan) {
        self.found.extend(planned.faults.iter().cloned());
        self.nodes.extend(planned.left_out.nodes().map(|node| problem.nodes[node].name.to_string()));
        let has_ended =
            |fault: &Fault| fault.mode == Mode::Compat && matches!(fault.cause, Cause::Panicked(_));
        // If all pods were left out, it is not known which of them is the cause.
        let is_any_planned =
            problem.pods.iter().map(|group| group.count()).sum::<u32>() > planned.left_out.pod_count();
        if is_any_planned && planned.faults.iter().any(has_ended) {
            let whole = planned
                .left_out
                .pods()
                .filter(|run| run.start == 0 && run.count == problem.pods[run.group as usize].count());
            self.suspects.extend(whole.map(|run| problem.pods[run.group as usize].spec.clone()));
        }
    }

    /// The lines for the decision journal: one for each fault, and one for what was left out.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .found
            .iter()
            .map(|fault| format!("planner fault ({}): {}", mode_name(fault.mode), fault.cause))
            .collect();
        if !self.pods.is_empty() {
            lines.push(format!("{} pods left out: {}", self.pods.len(), self.pod_names()));
        }
        if !self.nodes.is_empty() {
            lines.push(format!("nodes left out: {}", self.nodes.join(", ")));
        }
        lines
    }

    fn pod_names(&self) -> String {
        let named = self.pods.iter().take(NAMED_MAX).map(|pod| format!("{}/{}", pod.namespace(), pod.name));
        let mut names: Vec<String> = named.collect();
        if self.pods.len() > NAMED_MAX {
            names.push("…".to_owned());
        }
        names.join(", ")
    }

    /// Counts the faults and logs each cause, rate-limited.
    pub(super) fn report(&self, writes: &Writes, now: Timestamp) {
        report(writes, now, "provisioner", &self.found, &self.pod_names(), &self.nodes.join(", "));
    }
}

/// Specs of pods that made the planner panic in recent passes, and when cost mode last panicked.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    specs: Vec<(Arc<PodSpec>, Timestamp)>,
    cost_panicked_at: Option<Timestamp>,
}

impl Suspects {
    pub(super) fn remember(&mut self, faults: &Faults, now: Timestamp) {
        let has_ended = |fault: &Fault| fault.mode == Mode::Cost && matches!(fault.cause, Cause::Panicked(_));
        if faults.found.iter().any(has_ended) {
            self.cost_panicked_at = Some(now);
        }
        for spec in &faults.suspects {
            if !self.specs.iter().any(|(known, _)| known == spec) {
                self.specs.push((spec.clone(), now));
            }
        }
    }

    /// The specs of pods that the next pass leaves out.
    pub(super) fn current(&mut self, now: Timestamp) -> Vec<Arc<PodSpec>> {
        self.specs.retain(|(_, at)| since(now, *at) < SUSPECT_TTL);
        self.specs.iter().map(|(spec, _)| spec.clone()).collect()
    }

    /// The mode for the next plan.
    pub(super) fn mode(&self, configured: Mode, now: Timestamp) -> Mode {
        let uses_compat = self.cost_panicked_at.is_some_and(|at| since(now, at) < COMPAT_AFTER_PANIC);
        if uses_compat { Mode::Compat } else { configured }
    }
}

/// The indexes of those pod groups of the problem whose spec is in `suspects`.
pub(super) fn suspect_groups(problem: &Problem, suspects: &[Arc<PodSpec>]) -> BTreeSet<u32> {
    let is_suspect = |spec: &Arc<PodSpec>| suspects.iter().any(|one| one == spec);
    let groups = problem.pods.iter().enumerate().filter(|(_, group)| is_suspect(&group.spec));
    groups.map(|(index, _)| index as u32).collect()
}
