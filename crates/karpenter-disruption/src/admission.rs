//! Admits consolidation commands one after the other: a command is admitted only if budgets, PodDisruptionBudgets and
//! the settings of NodePools allow it together with the commands admitted before.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::balanced::approve;
use crate::cluster::Reason;
use crate::command::Command;
use crate::context::EvaluationContext;
use crate::pod_budgets::{JointEvictions, PodBudgetUse};
use crate::pool_policy::{MoveAllowance, check_saving};
use crate::verdict::Verdict;

/// What is left of budgets, of PodDisruptionBudgets and of the maximum moves per hour after the admitted commands.
pub(crate) struct Admission<'p, 'a> {
    context: &'p EvaluationContext<'a>,
    left: BTreeMap<Arc<str>, u32>,
    pod_budgets: PodBudgetUse,
    moves_left: MoveAllowance,
}

impl<'p, 'a> Admission<'p, 'a> {
    pub(crate) fn new(context: &'p EvaluationContext<'a>, left: BTreeMap<Arc<str>, u32>) -> Self {
        Self {
            context,
            left,
            pod_budgets: PodBudgetUse::new(context.cluster),
            moves_left: MoveAllowance::new(context.cluster),
        }
    }

    /// Subtracts what the command needs from what is left. If not enough is left, subtracts nothing and returns what
    /// the command would exceed.
    pub(crate) fn admit(&mut self, command: &Command) -> Result<(), Verdict> {
        let cluster = self.context.cluster;
        check_saving(cluster, command)?;
        approve(cluster, &self.context.totals, command)?;
        let is_single = |candidate: &crate::command::Candidate| {
            !self.context.pool(candidate).pool_policy.is_many_to_many_enabled
        };
        if command.replacements.len() > 1 && command.candidates.iter().any(is_single) {
            return Err(Verdict::NeedsSeveralNodes { count: command.replacements.len() });
        }
        let mut left = self.left.clone();
        for candidate in &command.candidates {
            if !crate::budgets::take(&mut left, &candidate.pool) {
                let pool = candidate.pool.clone();
                return Err(Verdict::BudgetExhausted { pool, reason: Reason::Underutilized });
            }
        }
        let mut pod_budgets = self.pod_budgets.clone();
        pod_budgets.admit(cluster, &command.candidates, JointEvictions::AllNow)?;
        self.moves_left.admit(cluster, command)?;
        self.left = left;
        self.pod_budgets = pod_budgets;
        Ok(())
    }
}
