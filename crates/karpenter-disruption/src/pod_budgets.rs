//! Whether pods can be evicted together: budgets count what several nodes take from them at once.
//!
//! Whether a single pod may be evicted at all is a question about its node, see [`crate::candidate`].

use std::collections::BTreeMap;

use crate::command::Candidate;
use crate::explain::Why;
use crate::fleet::{Fleet, Machine};

/// Evictions asked for so far, by index of the budget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodBudgetUse {
    used: BTreeMap<u32, u32>,
}

/// How strict to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jointly {
    /// All evictions have to be allowed at this moment.
    Strictly,
    /// Who comes first may take his pods one after the other; others have to fit in beside him.
    FirstMayQueue,
}

/// What a node's drain would ask of each budget.
fn needs(fleet: &Fleet, machine: &Machine) -> BTreeMap<u32, u32> {
    let mut needs = BTreeMap::new();
    for occupant in machine.occupants.iter().filter(|one| one.is_active && one.is_evictable) {
        for index in &occupant.budgets {
            let Some(budget) = fleet.pod_budgets.get(*index as usize) else { continue };
            if !(budget.always_allows_unready && occupant.is_unready) {
                *needs.entry(*index).or_insert(0) += 1;
            }
        }
    }
    needs
}

/// The same for several nodes.
fn together<'m>(fleet: &Fleet, machines: impl IntoIterator<Item = &'m Machine>) -> BTreeMap<u32, u32> {
    let mut all = BTreeMap::new();
    for (index, count) in machines.into_iter().flat_map(|machine| needs(fleet, machine)) {
        *all.entry(index).or_insert(0) += count;
    }
    all
}

impl PodBudgetUse {
    /// What nodes on their way out will still ask for.
    pub fn new(fleet: &Fleet) -> Self {
        let going = fleet.machines.iter().filter(|machine| machine.is_leaving || machine.is_rebooting);
        Self { used: together(fleet, going) }
    }

    /// Counts a node whose pods are evicted in any case, because its drain is bounded.
    pub fn count(&mut self, fleet: &Fleet, candidate: &Candidate) {
        for (index, count) in together(fleet, fleet.machines.get(candidate.machine)) {
            *self.used.entry(index).or_insert(0) += count;
        }
    }

    /// Counts the pods of these nodes too if they can be evicted beside all others, or says which budget refuses.
    pub fn admit<'c>(
        &mut self,
        fleet: &Fleet,
        candidates: impl IntoIterator<Item = &'c Candidate>,
        jointly: Jointly,
    ) -> Result<(), Why> {
        let machines = candidates.into_iter().filter_map(|one| fleet.machines.get(one.machine));
        let more = together(fleet, machines);
        for (index, count) in &more {
            let Some(budget) = fleet.pod_budgets.get(*index as usize) else { continue };
            let used = self.used.get(index).copied().unwrap_or(0);
            let wanted = used.saturating_add(*count);
            let may_queue = jointly == Jointly::FirstMayQueue && used == 0;
            if wanted > budget.disruptions_allowed && !may_queue {
                let allowed = budget.disruptions_allowed;
                return Err(Why::PodBudgetJoint { name: budget.name.clone(), wanted, allowed });
            }
        }
        for (index, count) in more {
            *self.used.entry(index).or_insert(0) += count;
        }
        Ok(())
    }
}
