//! Whether enough different values are left of what a pool wants several of.
//!
//! Upstream: pkg/cloudprovider/types.go. The values that instance types state themselves count, as far as the node's own
//! requirement still allows them; what only their offerings say does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::requirements::Requirements;

use super::{Claim, Ledger};
use crate::states::{StateId, StateType};

impl Ledger {
    /// The first minValues requirement that these types do not meet: (key, wanted, found).
    pub(crate) fn unmet_min_values(
        &self,
        state: StateId,
        types: &[StateType],
    ) -> Option<(Arc<str>, u32, u32)> {
        self.min_values_short(state, types, &[]).next()
    }

    /// Whether a planned node as it is has the minValues it must keep, with the reservations it would hold then.
    pub(crate) fn meets_min_values(&self, claim: &Claim) -> bool {
        if !self.prepared.templates[self.states.get(claim.state).template].has_min_values {
            return true;
        }
        let mut types = self.holding_of(claim);
        let held = self.book(claim.state, &types, &claim.reservations).unwrap_or_default();
        types = self.usable(claim.state, &types, &held);
        self.min_values_short(claim.state, &types, &claim.lowered_min_values).next().is_none()
    }

    /// What remains of the minValues that a fresh node with one pod of a variant does not meet.
    pub(super) fn lowered_min_values(&self, variant: usize, state: StateId) -> Vec<(Arc<str>, u32)> {
        let mut survivors = self.survivors(variant, None, state, &self.total_with(variant, None));
        if let Ok(held) = self.book(state, &survivors, &[]) {
            survivors = self.usable(state, &survivors, &held);
        }
        self.min_values_short(state, &survivors, &[]).map(|(key, _, found)| (key, found)).collect()
    }

    /// Lowers what the claim of a planned node asks for to what its types still have; says whether anything was lowered.
    pub(crate) fn lower_min_values(
        &self,
        claim: &Claim,
        types: &[StateType],
        requirements: &mut Requirements,
    ) -> bool {
        let short: Vec<(Arc<str>, u32, u32)> = self.min_values_short(claim.state, types, &[]).collect();
        for (key, _, found) in &short {
            // No value at all is nothing that could be asked for.
            let least = Some(*found).filter(|found| *found > 0);
            if let Some(requirement) = requirements.remove(key) {
                requirements.replace(requirement.with_min_values(least));
            }
        }
        !short.is_empty()
    }

    /// Every minValues requirement that these types do not meet, where some of them may have been lowered.
    pub(super) fn min_values_short<'a>(
        &'a self,
        state: StateId,
        types: &'a [StateType],
        lowered: &'a [(Arc<str>, u32)],
    ) -> impl Iterator<Item = (Arc<str>, u32, u32)> + 'a {
        let data = self.states.get(state);
        data.requirements.iter().filter_map(|r| r.min_values.map(|min| (r, min))).filter_map(
            move |(requirement, wanted)| {
                let wanted = lowered
                    .iter()
                    .find(|(key, _)| *key == requirement.key)
                    .map_or(wanted, |(_, remaining)| *remaining);
                let mut values = BTreeSet::new();
                for entry in types {
                    let instance_type = self.states.instance_type(data.template, entry.index);
                    let own = instance_type.requirements.get(&requirement.key).filter(|own| !own.complement);
                    values.extend(
                        own.iter().flat_map(|own| own.values.iter()).filter(|value| requirement.has(value)),
                    );
                }
                let found = values.len() as u32;
                (found < wanted).then(|| (requirement.key.clone(), wanted, found))
            },
        )
    }
}
