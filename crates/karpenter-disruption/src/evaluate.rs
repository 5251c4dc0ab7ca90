//! One evaluation: runs the methods in order and returns the commands of the first method that finds any, and a verdict
//! for every node.
//!
//! Nothing is remembered between evaluations: proposed and running commands are part of the input.
//!
//! Upstream: pkg/controllers/disruption/controller.go.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budgets::{Remaining, left, remaining};
use crate::candidate::{Blocked, DisruptionClass};
use crate::cluster::{Cluster, Reason};
use crate::command::{Candidate, Command, Method};
use crate::context::{EvaluationContext, MethodCandidates, MethodResult};
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::settings::{Mode, Settings};
pub use crate::verdict::{NodeVerdict, Verdict};
use crate::{
    consolidation, drift, emptiness, expiration, multi_node, rebalance_commands, repair, single_node,
    static_drift,
};

#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// The commands to be executed: all of one method, and together within all budgets.
    pub commands: Vec<Command>,
    /// Commands that exceed the budgets now, best first. Empty unless
    /// [`plan_beyond_budgets`](Cluster::plan_beyond_budgets) is set.
    pub awaiting_budget: Vec<Command>,
    /// Commands for NodePools with the consolidation dry run: reported, not executed.
    pub dry_run_commands: Vec<Command>,
    /// One verdict per node, in the order of `Cluster::state_nodes`.
    pub verdicts: Vec<NodeVerdict>,
    /// One outcome per method of the mode, in order of evaluation.
    pub outcomes: Vec<MethodOutcome>,
    /// The budgets before this evaluation, for metrics and events.
    pub budgets: BTreeMap<(Arc<str>, Reason), Remaining>,
}

impl Evaluation {
    /// Whether there is no command to execute, neither now nor when budgets allow it.
    pub fn has_no_commands(&self) -> bool {
        self.commands.is_empty() && self.awaiting_budget.is_empty()
    }
}

/// The result of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOutcome {
    pub method: Method,
    /// Nodes that are candidates of the method.
    pub candidates: usize,
    pub commands: usize,
    /// Whether budgets limited the commands; if so, the cluster is evaluated again even if nothing changes.
    pub is_constrained_by_budgets: bool,
    /// A lower bound of the price of any valid fleet for the same pods, if the method computes one.
    pub lower_bound_per_hour: Option<f64>,
}

/// The methods of a mode, in order.
pub fn methods(mode: Mode) -> &'static [Method] {
    match mode {
        Mode::Compat => &[
            Method::Repair,
            Method::Expiration,
            Method::Emptiness,
            Method::StaticDrift,
            Method::Drift,
            Method::MultiNodeConsolidation,
            Method::SingleNodeConsolidation,
        ],
        Mode::Cost => &[
            Method::Repair,
            Method::Expiration,
            Method::Emptiness,
            Method::StaticDrift,
            Method::Drift,
            Method::Rebalance,
        ],
    }
}

/// Finds the commands to start now, and the verdict for every node.
///
/// # Guarantees
/// All commands are of one method, have different candidates, and together stay within the budgets, counting nodes that
/// are being deleted, rebooting, or part of a proposed command. A method with a proposed command is not asked; in mode
/// Compat no method is asked while any command is proposed.
pub fn evaluate(cluster: &Cluster, settings: &Settings) -> Evaluation {
    evaluate_timed(cluster, settings, &mut |_| {})
}

/// Like [`evaluate`], and calls `on_method_done` after each method, so that the caller can measure time.
pub fn evaluate_timed(
    cluster: &Cluster,
    settings: &Settings,
    on_method_done: &mut dyn FnMut(Method),
) -> Evaluation {
    let cluster = &*without_move_targets(cluster);
    let context = EvaluationContext::new(cluster, settings);
    let mut evaluation = Evaluation { budgets: all_budgets(cluster), ..Evaluation::default() };
    let mut verdict_table = VerdictTable::new(cluster);
    let has_legacy_rules = cluster.pools.values().any(|pool| pool.legacy_rules.is_some());
    // The method Expiration does not appear in outcomes if no NodePool has the rules of the v1alpha5 API.
    for method in methods(settings.mode).iter().filter(|one| has_legacy_rules || **one != Method::Expiration)
    {
        let MethodCandidates { candidates, rejected } = eligible(&context, *method);
        verdict_table.refuse(*method, rejected);
        let count = candidates.len();
        // The consolidation dry run does not apply to drift and repair; their commands are executed.
        let is_rehearsed =
            |candidate: &Candidate| method.is_for_savings() && context.pool(candidate).pool_policy.is_dry_run;
        let (rehearsed, real): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_rehearsed);
        // In mode Compat nothing is evaluated while a command awaits its validation, as in upstream.
        let is_waiting = match settings.mode {
            Mode::Compat => !cluster.proposed_commands.is_empty(),
            Mode::Cost => cluster.proposed_commands.iter().any(|one| one.method == *method),
        };
        let settles_at =
            cluster.churn_ends_at_secs.filter(|at| *method == Method::Rebalance && *at > cluster.now_secs);
        let before = verdict_table.constrained;
        let mut bound = None;
        let mut run = |candidates: Vec<Candidate>,
                       into: &mut Vec<Command>,
                       awaiting_budget: Option<&mut Vec<Command>>| {
            let is_taken =
                awaiting_budget.as_ref().is_some_and(|awaiting_budget| !awaiting_budget.is_empty());
            let is_later = is_waiting || settles_at.is_some();
            if is_later || is_taken || !into.is_empty() || candidates.is_empty() {
                let verdict = match settles_at {
                    Some(until) => Verdict::Settling { until_secs: Some(until) },
                    None => Verdict::NotNow,
                };
                let later = candidates.into_iter().map(|candidate| (candidate.state_node, verdict.clone()));
                verdict_table.refuse(*method, later.collect());
                return;
            }
            let asked: Vec<usize> = candidates.iter().map(|candidate| candidate.state_node).collect();
            let found = find(&context, *method, candidates);
            verdict_table
                .refuse(*method, asked.into_iter().map(|state_node| (state_node, Verdict::Fine)).collect());
            verdict_table.refuse(*method, found.rejected);
            for command in &found.commands {
                verdict_table.choose(command, awaiting_budget.is_some());
            }
            if let Some(awaiting_budget) = awaiting_budget {
                awaiting_budget.extend(found.awaiting_budget);
            }
            bound = bound.or(found.lower_bound_per_hour);
            into.extend(found.commands);
        };
        run(real, &mut evaluation.commands, Some(&mut evaluation.awaiting_budget));
        run(rehearsed, &mut evaluation.dry_run_commands, None);
        evaluation.outcomes.push(MethodOutcome {
            method: *method,
            candidates: count,
            commands: evaluation.commands.iter().filter(|command| command.method == *method).count(),
            is_constrained_by_budgets: verdict_table.constrained > before,
            lower_bound_per_hour: bound,
        });
        on_method_done(*method);
    }
    evaluation.verdicts = verdict_table.verdicts(cluster);
    evaluation
}

/// The verdict for one node considered alone: why single-node consolidation would not disrupt it. `Ok` is the command
/// that would be possible.
pub fn explain_node(cluster: &Cluster, settings: &Settings, state_node: usize) -> Result<Command, Verdict> {
    let cluster = &*without_move_targets(cluster);
    let is_strict = settings.mode == Mode::Cost;
    // Single-node consolidation is evaluated in mode Compat, which it belongs to.
    let settings = &Settings { mode: Mode::Compat, ..settings.clone() };
    let context = EvaluationContext::new(cluster, settings);
    let MethodCandidates { candidates, rejected } = consolidation::eligible(&context);
    match candidates.iter().find(|candidate| candidate.state_node == state_node) {
        Some(candidate) => {
            let pool = &candidate.pool;
            if left(cluster, Reason::Underutilized).get(pool).is_none_or(|left| *left == 0) {
                return Err(Verdict::BudgetExhausted { pool: pool.clone(), reason: Reason::Underutilized });
            }
            let command = single_node::one(&context, candidate)?;
            if is_strict {
                PodBudgetUse::new(cluster).admit(cluster, [candidate], JointEvictions::AllNow)?;
            }
            Ok(command)
        }
        None => {
            let verdict =
                rejected.into_iter().find(|(index, _)| *index == state_node).map(|(_, verdict)| verdict);
            Err(verdict.unwrap_or(Verdict::Fine))
        }
    }
}

/// Which nodes are explained one by one if there are no commands.
#[derive(Debug, Clone, Default)]
pub struct VerdictRequest {
    /// Names of claims and nodes that users asked about.
    pub wanted: BTreeSet<String>,
    /// The last claim that was explained. The next call continues with the claims that follow by name, round-robin.
    pub after: Arc<str>,
    /// The maximum number of nodes to explain.
    pub most: usize,
}

/// In mode Cost, rebalance plans for all nodes together and has no verdict for a single node. This function explains
/// some of the nodes without a command with single-node consolidation, and replaces their verdicts. Returns the last
/// claim that was explained.
pub fn explain_nodes(
    evaluation: &mut Evaluation,
    cluster: &Cluster,
    settings: &Settings,
    request: &VerdictRequest,
) -> Arc<str> {
    let is_unexplained =
        |one: &&NodeVerdict| one.verdict.is_unexplained() && one.method == Some(Method::Rebalance);
    let fine: Vec<&NodeVerdict> = evaluation.verdicts.iter().filter(is_unexplained).collect();
    let is_wanted = |one: &&&NodeVerdict| {
        let node = cluster.state_nodes.get(one.state_node).and_then(|state_node| state_node.node.as_deref());
        request.wanted.contains(&*one.claim) || node.is_some_and(|node| request.wanted.contains(node))
    };
    let wanted: Vec<usize> = fine.iter().filter(is_wanted).map(|one| one.state_node).collect();
    let (before, next): (Vec<&NodeVerdict>, Vec<&NodeVerdict>) =
        fine.iter().copied().partition(|one| one.claim <= request.after);
    let turn = next.into_iter().chain(before).filter(|one| !wanted.contains(&one.state_node));
    let asked: Vec<usize> =
        wanted.iter().copied().chain(turn.map(|one| one.state_node)).take(request.most).collect();
    let last = asked.iter().rev().find(|state_node| !wanted.contains(state_node));
    let last = last
        .and_then(|state_node| cluster.state_nodes.get(*state_node))
        .map(|state_node| state_node.claim.clone());
    let last = last.unwrap_or_else(|| request.after.clone());
    if asked.is_empty() {
        return last;
    }
    let cluster = &*without_move_targets(cluster);
    let settings = &Settings { mode: Mode::Compat, ..settings.clone() };
    let context = EvaluationContext::new(cluster, settings);
    for state_node in asked {
        let answer = context.candidate(state_node, DisruptionClass::Graceful, Reason::Underutilized);
        let answer = answer.and_then(|one| single_node::one(&context, &one));
        if let (Err(verdict), Some(node_verdict)) = (answer, evaluation.verdicts.get_mut(state_node)) {
            node_verdict.verdict = verdict;
        }
    }
    last
}

/// Candidates of proposed commands may be deleted soon, so no pods are moved to them.
pub(crate) fn without_move_targets(cluster: &Cluster) -> Cow<'_, Cluster> {
    if cluster.proposed_commands.is_empty() {
        return Cow::Borrowed(cluster);
    }
    let mut cluster = cluster.clone();
    for index in 0..cluster.state_nodes.len() {
        let state_node = &cluster.state_nodes[index];
        let is_waiting = cluster.proposing_method(&state_node.claim).is_some();
        if let Some(node) =
            state_node.at.filter(|_| is_waiting).and_then(|at| cluster.problem.nodes.get_mut(at))
        {
            node.is_settling = true;
        }
    }
    Cow::Owned(cluster)
}

fn all_budgets(cluster: &Cluster) -> BTreeMap<(Arc<str>, Reason), Remaining> {
    let mut budgets = BTreeMap::new();
    for reason in Reason::ALL {
        for (pool, remaining) in remaining(cluster, reason) {
            budgets.insert((pool, reason), remaining);
        }
    }
    budgets
}

pub(crate) fn eligible(context: &EvaluationContext<'_>, method: Method) -> MethodCandidates {
    match method {
        Method::Repair => repair::eligible(context),
        Method::Expiration => expiration::eligible(context),
        Method::Emptiness => emptiness::eligible(context),
        Method::StaticDrift => static_drift::eligible(context),
        Method::Drift => drift::eligible(context),
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => {
            consolidation::eligible(context)
        }
    }
}

fn find(context: &EvaluationContext<'_>, method: Method, candidates: Vec<Candidate>) -> MethodResult {
    match method {
        Method::Repair => repair::find(context, candidates),
        Method::Expiration => expiration::find(context, candidates),
        Method::Emptiness => emptiness::find(context, candidates),
        Method::StaticDrift => static_drift::find(context, candidates),
        Method::Drift => drift::find(context, candidates),
        Method::MultiNodeConsolidation => multi_node::find(context, candidates),
        Method::SingleNodeConsolidation => single_node::find(context, candidates),
        Method::Rebalance => rebalance_commands::find(context, candidates),
    }
}

/// Collects one verdict per node: that of the method with the highest rank.
struct VerdictTable {
    by_state_node: Vec<Option<(Method, Verdict)>>,
    constrained: usize,
}

impl VerdictTable {
    fn new(cluster: &Cluster) -> Self {
        Self { by_state_node: vec![None; cluster.state_nodes.len()], constrained: 0 }
    }

    /// Verdicts of repair and drift take precedence over those of consolidation.
    fn rank(method: Method) -> u8 {
        match method {
            Method::Repair => 0,
            Method::Expiration | Method::StaticDrift | Method::Drift => 1,
            Method::Emptiness => 2,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => 3,
        }
    }

    fn refuse(&mut self, method: Method, rejected: Vec<(usize, Verdict)>) {
        for (state_node, verdict) in rejected {
            self.constrained += usize::from(matches!(verdict, Verdict::BudgetExhausted { .. }));
            self.put(state_node, method, verdict);
        }
    }

    fn put(&mut self, state_node: usize, method: Method, verdict: Verdict) {
        let Some(slot) = self.by_state_node.get_mut(state_node) else { return };
        let is_final = |verdict: &Verdict| matches!(verdict, Verdict::Chosen { .. } | Verdict::DryRun { .. });
        match slot {
            Some((by, said)) if is_final(said) || Self::rank(*by) < Self::rank(method) => {}
            _ => *slot = Some((method, verdict)),
        }
    }

    fn choose(&mut self, command: &Command, is_real: bool) {
        let method = command.method;
        let verdict = if is_real { Verdict::Chosen { method } } else { Verdict::DryRun { method } };
        for candidate in &command.candidates {
            if let Some(slot) = self.by_state_node.get_mut(candidate.state_node) {
                *slot = Some((method, verdict.clone()));
            }
        }
    }

    fn verdicts(self, cluster: &Cluster) -> Vec<NodeVerdict> {
        let with_machines = self.by_state_node.into_iter().zip(&cluster.state_nodes).enumerate();
        with_machines
            .map(|(index, (said, state_node))| {
                let unsaid = || {
                    let is_waiting = cluster.proposing_method(&state_node.claim).is_some();
                    if is_waiting { Verdict::Blocked(Blocked::InCommand) } else { Verdict::Fine }
                };
                let (method, verdict) = match said {
                    Some((method, verdict)) => (Some(method), verdict),
                    None => (None, unsaid()),
                };
                NodeVerdict { state_node: index, claim: state_node.claim.clone(), method, verdict }
            })
            .collect()
    }
}
