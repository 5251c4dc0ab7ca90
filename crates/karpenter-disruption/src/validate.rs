//! The second look: whether a command that was proposed a while ago may still be carried out.
//!
//! Upstream: pkg/controllers/disruption/validation.go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use karpenter_model::problem::Mode as EngineMode;

use crate::balanced::approve;
use crate::budgets::{remaining_besides, take};
use crate::command::{Candidate, Command, Method};
use crate::controls::MovesLeft;
use crate::explain::{Unplaced, Why};
use crate::fleet::Fleet;
use crate::pass::Pass;
use crate::pod_budgets::{Jointly, PodBudgetUse};
use crate::rebalance::accept::{launched_again, pays_for_launches};
use crate::settings::{Mode, Settings};
use crate::{emptiness, multi, propose, savings, single};

/// How much of what was promised has to be left.
const SAVING_KEPT: f64 = 0.5;

/// Why a proposed command is dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Rejection {
    /// So many of its nodes are no longer there, or no longer candidates.
    Churn { gone: usize },
    /// Pods are on their way to one of its nodes.
    Nominated,
    /// Budgets of nodes do not allow it any more.
    Budget { pool: Arc<str> },
    /// Budgets of nodes never let so many go at once any more: the fleet has become smaller since that was planned.
    TooMany { pool: Arc<str> },
    /// So many pods of the pool were moved already that no more may be for now.
    MovesExhausted { pool: Arc<str> },
    /// Budgets of pods do not allow it any more.
    PodBudget { name: Arc<str> },
    /// Pods would have no place any more.
    WouldNotFit { unplaced: Vec<Unplaced> },
    /// Other nodes would be needed than those that were proposed.
    NewResults,
    /// It does not save enough any more.
    NotCheaper,
    /// The planner is at fault and cannot say whether it may still be carried out.
    PlannerFault,
}

impl Rejection {
    /// As upstream's event and metrics spell it.
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
                write!(f, "budgets of NodePool {pool} no longer let so many nodes go at once")
            }
            Self::MovesExhausted { pool } => {
                write!(f, "no more pods of NodePool {pool} may be moved within this hour")
            }
            Self::PodBudget { name } => {
                write!(f, "PodDisruptionBudget {name} does not allow its evictions together")
            }
            Self::WouldNotFit { unplaced } => write!(f, "{} pods would not schedule", unplaced.len()),
            Self::NewResults => f.write_str("scheduling simulation produced new results"),
            Self::NotCheaper => f.write_str("the command does not save enough any more"),
            Self::PlannerFault => {
                f.write_str("the command cannot be validated because of a fault of the planner")
            }
        }
    }
}

/// The command as it may be carried out on the fleet as it is now, indexes and all, or why it may not.
///
/// Empty nodes that are no longer candidates are left out one by one; of other commands all nodes have to be. The nodes
/// to launch are planned anew: in mode Compat they have to be as many and of types that were foreseen, in mode Cost they
/// have to save at least half of what was promised.
///
/// Methods that are not validated have nothing to fear from a second look: only their nodes are looked up again.
pub fn revalidate(command: &Command, fleet: &Fleet, settings: &Settings) -> Result<Command, Rejection> {
    let fleet = &*propose::closed_to_moves(fleet);
    let own: BTreeSet<Arc<str>> = command.candidates.iter().map(|one| one.claim.clone()).collect();
    let pass = Pass::besides(fleet, settings, own);
    let candidates = current_candidates(&pass, command)?;
    match command.method {
        Method::Emptiness => {
            let candidates = within_budgets(&pass, command.method, candidates, true)?;
            Ok(emptiness::command(candidates))
        }
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation | Method::Rebalance => {
            let candidates = within_budgets(&pass, command.method, candidates, false)?;
            if settings.mode == Mode::Cost {
                let mut pod_budgets = PodBudgetUse::new(fleet);
                let admitted = pod_budgets.admit(fleet, &candidates, Jointly::Strictly);
                admitted.map_err(|why| rejection(why, &pass))?;
            }
            let fresh = anew(&pass, command, &candidates)?;
            approve(fleet, &pass.totals, &fresh).map_err(|why| rejection(why, &pass))?;
            MovesLeft::new(fleet).admit(fleet, &fresh).map_err(|why| rejection(why, &pass))?;
            Ok(fresh)
        }
        Method::Repair | Method::Expiration | Method::StaticDrift | Method::Drift => {
            Ok(Command { candidates, ..command.clone() })
        }
    }
}

/// The command's nodes as they are now, in the command's order.
fn current_candidates(pass: &Pass<'_>, command: &Command) -> Result<Vec<Candidate>, Rejection> {
    let index_of: BTreeMap<&str, usize> =
        pass.fleet.machines.iter().enumerate().map(|(index, machine)| (&*machine.uid, index)).collect();
    let wanted: BTreeSet<usize> =
        command.candidates.iter().filter_map(|one| index_of.get(&*one.uid).copied()).collect();
    // Pods on their way are worth a word of their own.
    let is_nominated = |index: &usize| pass.fleet.machines[*index].is_nominated;
    if command.method != Method::Emptiness && wanted.iter().any(is_nominated) {
        return Err(Rejection::Nominated);
    }
    let mut eligible = propose::eligible(pass, command.method).candidates;
    // Its owner may have thought better of it meanwhile.
    let is_dry =
        |candidate: &Candidate| command.method.is_for_savings() && pass.pool(candidate).controls.is_dry_run;
    eligible.retain(|candidate| wanted.contains(&candidate.machine) && !is_dry(candidate));
    eligible.sort_by_key(|candidate| {
        command.candidates.iter().position(|one| one.uid == candidate.uid).unwrap_or(usize::MAX)
    });
    let gone = command.candidates.len() - eligible.len().min(command.candidates.len());
    let is_enough = if command.method == Method::Emptiness { !eligible.is_empty() } else { gone == 0 };
    if is_enough { Ok(eligible) } else { Err(Rejection::Churn { gone }) }
}

fn within_budgets(
    pass: &Pass<'_>,
    method: Method,
    candidates: Vec<Candidate>,
    may_leave_out: bool,
) -> Result<Vec<Candidate>, Rejection> {
    let remaining = remaining_besides(pass.fleet, method.reason(), pass.own());
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
    let mut refused = None;
    for candidate in candidates {
        if take(&mut left, &candidate.pool) {
            within.push(candidate);
        } else {
            refused = Some(candidate.pool);
        }
    }
    match refused {
        Some(pool) if !may_leave_out || within.is_empty() => Err(Rejection::Budget { pool }),
        _ => Ok(within),
    }
}

/// The same nodes, planned for once more.
fn anew(pass: &Pass<'_>, command: &Command, candidates: &[Candidate]) -> Result<Command, Rejection> {
    if command.method == Method::Rebalance {
        // The cheapest fleet may be more nodes than are wanted, and pods that are placed in another order may need one
        // more. Deletions and single nodes were planned by upstream's order.
        let first = rebalanced(pass, command, candidates, pass.engine_mode());
        return first
            .or_else(|why| rebalanced(pass, command, candidates, EngineMode::Compat).map_err(|_| why));
    }
    let fresh = match (command.method, candidates) {
        (Method::SingleNodeConsolidation, [only]) => single::one(pass, only),
        _ => multi::together(pass, candidates),
    };
    let fresh = fresh.map_err(|why| rejection(why, pass))?;
    // Fewer nodes than foreseen: there is likely something better to be done.
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

/// Other nodes than foreseen are as good, as long as the trouble is paid for.
fn rebalanced(
    pass: &Pass<'_>,
    command: &Command,
    candidates: &[Candidate],
    mode: EngineMode,
) -> Result<Command, Rejection> {
    let fresh = savings::replan(pass, pass.simulator(), candidates, mode);
    let mut fresh = fresh.map_err(|why| rejection(why, pass))?;
    fresh.is_thorough = command.is_thorough;
    let is_single = |candidate: &Candidate| !pass.pool(candidate).controls.is_many_to_many_enabled;
    let launches_max = match (command.replacements.len(), candidates.iter().any(is_single)) {
        (0, _) => 0,
        (_, true) => 1,
        (_, false) => usize::MAX,
    };
    if fresh.replacements.len() > launches_max {
        return Err(Rejection::NewResults);
    }
    let is_enough = fresh.saving_per_hour() >= SAVING_KEPT * command.saving_per_hour();
    let going: Vec<&Candidate> = candidates.iter().collect();
    let is_other = fresh.replacements.is_empty()
        || launched_again(pass.fleet, &going, &fresh.replacements).len() < candidates.len();
    let is_good = is_enough && is_other && pays_for_launches(&fresh);
    if is_good { Ok(fresh) } else { Err(Rejection::NotCheaper) }
}

fn rejection(why: Why, pass: &Pass<'_>) -> Rejection {
    match why {
        Why::WouldNotFit { unplaced } => Rejection::WouldNotFit { unplaced },
        Why::NeedsSeveralNodes { .. } => Rejection::NewResults,
        Why::PodBudgetJoint { name, .. } => Rejection::PodBudget { name },
        Why::BudgetExhausted { pool, .. } => Rejection::Budget { pool },
        Why::MovesExhausted { pool, .. } => Rejection::MovesExhausted { pool },
        Why::Blocked(_) => Rejection::Churn { gone: pass.own().len() },
        _ => Rejection::NotCheaper,
    }
}
