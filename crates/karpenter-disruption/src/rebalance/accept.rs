//! Which moves are worth being made.
//!
//! Budgets are not looked at here: a move that has to wait for them is still part of the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command;
use super::draft::{Draft, Move};
use crate::balanced::{self, Totals};
use crate::controls::is_worth_it;
use crate::fleet::Fleet;

/// Less than this share of the price is not worth a launch, whatever the pool's owner says: prices change as well.
const SAVING_SHARE_MIN: f64 = 0.005;
/// And so much more for every node by which each node that goes makes the fleet larger: nodes have to be looked after,
/// and every one of them runs its own daemons.
const SAVING_SHARE_PER_NODE_MORE: f64 = 0.01;

pub(crate) struct Rules<'a> {
    fleet: &'a Fleet,
    totals: BTreeMap<Arc<str>, Totals>,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(fleet: &'a Fleet) -> Self {
        Self { fleet, totals: balanced::totals(fleet) }
    }

    pub(crate) fn is_many_to_many(&self, pool: &Arc<str>) -> bool {
        self.fleet.pools.get(pool).is_none_or(|pool| pool.controls.is_many_to_many_enabled)
    }

    pub(crate) fn accepts(&self, draft: &Draft<'_>, one: &Move) -> bool {
        if one.replacements.len() > 1
            && !one.sources.iter().all(|source| self.is_many_to_many(&draft.candidates[*source].pool))
        {
            return false;
        }
        if !one.replacements.is_empty() {
            if one.saving_per_hour() <= saving_share_min(one) * one.price_before_per_hour {
                return false;
            }
            // The same nodes again, at another price perhaps: that is no improvement to last.
            if self.launched_again(draft, one).len() == one.sources.len() {
                return false;
            }
        }
        let command = command(draft.candidates, one.clone());
        is_worth_it(self.fleet, &command).is_ok()
            && balanced::approve(self.fleet, &self.totals, &command).is_ok()
    }

    /// Sources of which the move would launch the like again, one for each of those, the fullest first.
    pub(crate) fn launched_again(&self, draft: &Draft<'_>, one: &Move) -> Vec<usize> {
        let mut sources = one.sources.clone();
        let pods = |source: usize| draft.candidates[source].reschedule_cost;
        sources.sort_by(|a, b| pods(*b).total_cmp(&pods(*a)).then(a.cmp(b)));
        let mut again = Vec::new();
        for planned in &one.replacements {
            let Some(pool) = self.fleet.problem.pools.get(planned.pool) else { continue };
            let Some(instance_type) = self.fleet.problem.catalogs[pool.catalog].get(planned.instance_type)
            else {
                continue;
            };
            let capacity_type =
                instance_type.offerings.get(planned.offering).and_then(|one| one.capacity_type());
            let is_like = |source: &usize| {
                let candidate = &draft.candidates[*source];
                let machine = &self.fleet.machines[candidate.machine];
                candidate.pool == pool.name
                    && machine.instance_type.as_ref() == Some(&instance_type.name)
                    && machine.capacity_type.as_ref() == capacity_type
            };
            if let Some(at) = sources.iter().position(is_like) {
                again.push(sources.remove(at));
            }
        }
        again.sort_unstable();
        again
    }
}

fn saving_share_min(one: &Move) -> f64 {
    let more = one.replacements.len().saturating_sub(one.sources.len());
    SAVING_SHARE_MIN + SAVING_SHARE_PER_NODE_MORE * more as f64 / one.sources.len().max(1) as f64
}
