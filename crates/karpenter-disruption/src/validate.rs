//! Validation: whether a command that was found some seconds ago may still be executed.
//!
//! Upstream: pkg/controllers/disruption/validation.go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use karpenter_model::problem::Mode as EngineMode;

use crate::balanced::approve;
use crate::budgets::{remaining_excluding, take};
use crate::cluster::Cluster;
use crate::command::{Candidate, Command, Method};
use crate::context::EvaluationContext;
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::pool_policy::MoveAllowance;
use crate::rebalance::rules::launched_again;
use crate::settings::{Mode, Settings};
use crate::verdict::{UnschedulablePod, Verdict};
use crate::{emptiness, evaluate, multi_node, rebalance_commands, single_node};

/// Why a proposed command is dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Rejection {
    /// The number of candidates that were deleted or that may not be disrupted any more.
    Churn { gone: usize },
    /// Pods were nominated for a candidate.
    Nominated,
    /// The budgets of the NodePool do not allow the command any more.
    Budget { pool: Arc<str> },
    /// The budgets of the NodePool would not allow so many nodes at once even if no other node were being disrupted,
    /// because the NodePool became smaller.
    TooMany { pool: Arc<str> },
    /// The maximum moves per hour of the NodePool are used up.
    MovesExhausted { pool: Arc<str> },
    /// A PodDisruptionBudget does not allow the evictions any more.
    PodBudget { name: Arc<str> },
    /// Pods cannot be scheduled any more.
    WouldNotFit { unschedulable: Vec<UnschedulablePod> },
    /// The replacements that are needed now differ from the proposed ones.
    NewResults,
    /// The command does not save enough any more.
    NotCheaper,
    /// The planner failed, so the command cannot be validated.
    PlannerFault,
}

impl Rejection {
    /// The reason as it is spelled in upstream's events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Churn { .. } => "churn",
            Self::Nominated
            | Self::Budget { .. }
            | Self::TooMany { .. }
            | Self::MovesExhausted { .. }
            | Self::PodBudget { .. } => "budget",
            Self::WouldNotFit { .. } | Self::NewResults | Self::NotCheaper | Self::PlannerFault => {
                "scheduling"
            }
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Churn { gone } => write!(f, "{gone} candidates are no longer valid"),
            Self::Nominated => f.write_str("a candidate was nominated during validation"),
            Self::Budget { pool } => {
                write!(
                    f,
                    "a candidate of NodePool {pool} can no longer be disrupted without violating budgets"
                )
            }
            Self::TooMany { pool } => {
                write!(f, "budgets of NodePool {pool} never allow so many nodes at once")
            }
            Self::MovesExhausted { pool } => {
                write!(f, "NodePool {pool} allows no more pod moves within this hour")
            }
            Self::PodBudget { name } => {
                write!(f, "PodDisruptionBudget {name} does not allow the evictions together")
            }
            Self::WouldNotFit { unschedulable } => {
                write!(f, "{} pods would not schedule", unschedulable.len())
            }
            Self::NewResults => f.write_str("scheduling simulation produced new results"),
            Self::NotCheaper => f.write_str("the command no longer saves enough"),
            Self::PlannerFault => f.write_str("the command cannot be validated because of a planner fault"),
        }
    }
}

/// Returns the command with current indexes and replacements, or why it may not be executed.
///
/// Nodes that are no longer empty are removed from a command of Emptiness; other commands need all of their candidates.
/// Replacements are planned again: in mode Compat they have to be as many as before, of the proposed instance types; in
/// mode Cost the command has to save more than its moves are priced at.
///
/// For methods without validation only the indexes are updated.
pub fn revalidate(command: &Command, cluster: &Cluster, settings: &Settings) -> Result<Command, Rejection> {
    let cluster = &*evaluate::without_move_targets(cluster);
    let own: BTreeSet<Arc<str>> = command.candidates.iter().map(|one| one.claim.clone()).collect();
    let context = EvaluationContext::excluding(cluster, settings, own);
    let candidates = current_candidates(&context, command)?;
    match command.method {
        Method::Emptiness => {
            let candidates = within_budgets(&context, command.method, candidates, true)?;
            Ok(emptiness::command(candidates))
        }
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => {
            let candidates = within_budgets(&context, command.method, candidates, false)?;
            if settings.mode == Mode::Cost {
                let mut pod_budgets = PodBudgetUse::new(cluster);
                let admitted = pod_budgets.admit(cluster, &candidates, JointEvictions::AllNow);
                admitted.map_err(|verdict| rejection(verdict, &context))?;
            }
            let fresh = replan(&context, command, &candidates)?;
            approve(cluster, &context.totals, &fresh).map_err(|verdict| rejection(verdict, &context))?;
            MoveAllowance::new(cluster)
                .admit(cluster, &fresh)
                .map_err(|verdict| rejection(verdict, &context))?;
            Ok(fresh)
        }
        Method::Repair | Method::Expiration | Method::StaticDrift | Method::Drift => {
            Ok(Command { candidates, ..command.clone() })
        }
    }
}

/// The command's candidates with current indexes, in the command's order.
fn current_candidates(
    context: &EvaluationContext<'_>,
    command: &Command,
) -> Result<Vec<Candidate>, Rejection> {
    let index_of: BTreeMap<&str, usize> = context
        .cluster
        .state_nodes
        .iter()
        .enumerate()
        .map(|(index, state_node)| (&*state_node.uid, index))
        .collect();
    let wanted: BTreeSet<usize> =
        command.candidates.iter().filter_map(|one| index_of.get(&*one.uid).copied()).collect();
    // If a candidate is nominated, the reason is `Nominated`, whatever else has changed.
    let is_nominated = |index: &usize| context.cluster.state_nodes[*index].is_nominated;
    if command.method != Method::Emptiness && wanted.iter().any(is_nominated) {
        return Err(Rejection::Nominated);
    }
    let mut eligible = evaluate::eligible(context, command.method).candidates;
    // The consolidation dry run may have been turned on since the command was proposed.
    let is_dry = |candidate: &Candidate| {
        command.method.is_for_savings() && context.pool(candidate).pool_policy.is_dry_run
    };
    eligible.retain(|candidate| wanted.contains(&candidate.state_node) && !is_dry(candidate));
    eligible.sort_by_key(|candidate| {
        command.candidates.iter().position(|one| one.uid == candidate.uid).unwrap_or(usize::MAX)
    });
    let gone = command.candidates.len() - eligible.len().min(command.candidates.len());
    let is_enough = if command.method == Method::Emptiness { !eligible.is_empty() } else { gone == 0 };
    if is_enough { Ok(eligible) } else { Err(Rejection::Churn { gone }) }
}

fn within_budgets(
    context: &EvaluationContext<'_>,
    method: Method,
    candidates: Vec<Candidate>,
    may_leave_out: bool,
) -> Result<Vec<Candidate>, Rejection> {
    let remaining = remaining_excluding(context.cluster, method.reason(), context.own());
    let wanted = |pool: &str| candidates.iter().filter(|candidate| &*candidate.pool == pool).count();
    let too_many = remaining
        .iter()
        .find(|(pool, remaining)| remaining.allowed > 0 && wanted(pool) > remaining.allowed as usize);
    if let Some((pool, _)) = too_many.filter(|_| !may_leave_out) {
        return Err(Rejection::TooMany { pool: pool.clone() });
    }
    let mut left: BTreeMap<Arc<str>, u32> =
        remaining.into_iter().map(|(name, remaining)| (name, remaining.left())).collect();
    let mut within = Vec::new();
    let mut rejected = None;
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            within.push(candidate);
        } else {
            rejected = Some(candidate.pool);
        }
    }
    match rejected {
        Some(pool) if !may_leave_out || within.is_empty() => Err(Rejection::Budget { pool }),
        _ => Ok(within),
    }
}

/// Plans the command again for the same candidates.
fn replan(
    context: &EvaluationContext<'_>,
    command: &Command,
    candidates: &[Candidate],
) -> Result<Command, Rejection> {
    if command.method == Method::Rebalance {
        // The first attempt searches for the cheapest plan, which may have more nodes than the command. Deletions and
        // single replacements were planned in upstream's order of pods, and another order may need one more node, so
        // the second attempt uses upstream's order.
        let first = rebalanced(context, command, candidates, context.engine_mode());
        return first.or_else(|verdict| {
            rebalanced(context, command, candidates, EngineMode::Compat).map_err(|_| verdict)
        });
    }
    let fresh = match (command.method, candidates) {
        (Method::SingleNodeConsolidation, [only]) => single_node::one(context, only),
        _ => multi_node::together(context, candidates),
    };
    let fresh = fresh.map_err(|verdict| rejection(verdict, context))?;
    // The number of replacements differs, so the command is dropped; the next evaluation may find a better one.
    if fresh.replacements.len() != command.replacements.len() {
        return Err(Rejection::NewResults);
    }
    for (foreseen, planned) in command.replacements.iter().zip(&fresh.replacements) {
        let is_planned = |option: &usize| planned.instance_type_options.contains(option);
        if foreseen.pool != planned.pool || !foreseen.instance_type_options.iter().all(is_planned) {
            return Err(Rejection::NewResults);
        }
    }
    Ok(fresh)
}

/// Replacements may differ from the proposed ones if the saving is still large enough.
fn rebalanced(
    context: &EvaluationContext<'_>,
    command: &Command,
    candidates: &[Candidate],
    mode: EngineMode,
) -> Result<Command, Rejection> {
    let fresh = rebalance_commands::replan(context, context.simulator(), candidates, mode);
    let fresh = fresh.map_err(|verdict| rejection(verdict, context))?;
    let is_single = |candidate: &Candidate| !context.pool(candidate).pool_policy.is_many_to_many_enabled;
    let launches_max = match (command.replacements.len(), candidates.iter().any(is_single)) {
        (0, _) => 0,
        (_, true) => 1,
        (_, false) => usize::MAX,
    };
    if fresh.replacements.len() > launches_max {
        return Err(Rejection::NewResults);
    }
    let is_enough =
        fresh.replacements.is_empty() || fresh.saving_per_hour() > command.disruption_price_per_hour;
    let removed: Vec<&Candidate> = candidates.iter().collect();
    let is_other = fresh.replacements.is_empty()
        || launched_again(context.cluster, &removed, &fresh.replacements).len() < candidates.len();
    if !is_enough || !is_other {
        return Err(Rejection::NotCheaper);
    }
    Ok(Command { disruption_price_per_hour: command.disruption_price_per_hour, ..fresh })
}

fn rejection(verdict: Verdict, context: &EvaluationContext<'_>) -> Rejection {
    match verdict {
        Verdict::WouldNotFit { unschedulable } => Rejection::WouldNotFit { unschedulable },
        Verdict::NeedsSeveralNodes { .. } => Rejection::NewResults,
        Verdict::PodBudgetJoint { name, .. } => Rejection::PodBudget { name },
        Verdict::BudgetExhausted { pool, .. } => Rejection::Budget { pool },
        Verdict::MovesExhausted { pool, .. } => Rejection::MovesExhausted { pool },
        Verdict::Blocked(_) => Rejection::Churn { gone: context.own().len() },
        _ => Rejection::NotCheaper,
    }
}
