//! Several commands at once: each is admitted only if all budgets and controls hold for it together with those before.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::balanced::approve;
use crate::command::Command;
use crate::controls::{MovesLeft, is_worth_it};
use crate::explain::Why;
use crate::fleet::Reason;
use crate::pass::Pass;
use crate::pod_budgets::{Jointly, PodBudgetUse};

/// What commands that save money may still take.
pub(crate) struct Gate<'p, 'a> {
    pass: &'p Pass<'a>,
    left: BTreeMap<Arc<str>, u32>,
    pod_budgets: PodBudgetUse,
    moves_left: MovesLeft,
}

impl<'p, 'a> Gate<'p, 'a> {
    pub(crate) fn new(pass: &'p Pass<'a>, left: BTreeMap<Arc<str>, u32>) -> Self {
        Self {
            pass,
            left,
            pod_budgets: PodBudgetUse::new(pass.fleet),
            moves_left: MovesLeft::new(pass.fleet),
        }
    }

    /// Takes what the command needs, or says what it would need too much of; then nothing is taken.
    pub(crate) fn admit(&mut self, command: &Command) -> Result<(), Why> {
        let fleet = self.pass.fleet;
        is_worth_it(fleet, command)?;
        approve(fleet, &self.pass.totals, command)?;
        let is_single = |candidate: &crate::command::Candidate| {
            !self.pass.pool(candidate).controls.is_many_to_many_enabled
        };
        if command.replacements.len() > 1 && command.candidates.iter().any(is_single) {
            return Err(Why::NeedsSeveralNodes { count: command.replacements.len() });
        }
        let mut left = self.left.clone();
        for candidate in &command.candidates {
            if !crate::budgets::take(&mut left, &candidate.pool) {
                let pool = candidate.pool.clone();
                return Err(Why::BudgetExhausted { pool, reason: Reason::Underutilized });
            }
        }
        let mut pod_budgets = self.pod_budgets.clone();
        pod_budgets.admit(fleet, &command.candidates, Jointly::Strictly)?;
        self.moves_left.admit(fleet, command)?;
        self.left = left;
        self.pod_budgets = pod_budgets;
        Ok(())
    }
}
