//! Checks `minValues`: whether the instance types that remain have as many distinct values of a label as the NodePool
//! requires.
//!
//! A label value counts if an instance type defines it and the node's requirement allows it. Values that only offerings
//! define do not count.
//!
//! Upstream: pkg/cloudprovider/types.go.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_model::requirements::Requirements;

use super::{Claim, Ledger};
use crate::states::{StateId, StateType};

impl Ledger {
    /// The first `minValues` requirement that these instance types do not meet, as (key, required number, number
    /// found).
    pub(crate) fn unmet_min_values(
        &self,
        state: StateId,
        types: &[StateType],
    ) -> Option<(Arc<str>, u32, u32)> {
        self.min_values_short(state, types, &[]).next()
    }

    /// Whether a planned node still meets its `minValues` if it holds the reservations that it would get.
    pub(crate) fn meets_min_values(&self, claim: &Claim) -> bool {
        if !self.prepared.templates[self.states.get(claim.state).template].has_min_values {
            return true;
        }
        let mut types = self.holding_of(claim);
        let held = self.reservations_for(claim.state, &types, &claim.reservations).unwrap_or_default();
        types = self.usable(claim.state, &types, &held);
        self.min_values_short(claim.state, &types, &claim.lowered_min_values).next().is_none()
    }

    /// The lowered `minValues` for a new node with one pod of a variant of a pod class: one entry for each requirement
    /// that the instance types do not meet.
    pub(super) fn lowered_min_values(&self, variant: usize, state: StateId) -> Vec<(Arc<str>, u32)> {
        let mut survivors = self.survivors(variant, None, state, &self.total_with(variant, None));
        if let Ok(held) = self.reservations_for(state, &survivors, &[]) {
            survivors = self.usable(state, &survivors, &held);
        }
        self.min_values_short(state, &survivors, &[]).map(|(key, _, found)| (key, found)).collect()
    }

    /// Lowers the `minValues` in the NodeClaim's requirements to the number of values that its instance types have;
    /// returns whether any was lowered.
    pub(crate) fn lower_min_values(
        &self,
        claim: &Claim,
        types: &[StateType],
        requirements: &mut Requirements,
    ) -> bool {
        let short: Vec<(Arc<str>, u32, u32)> = self.min_values_short(claim.state, types, &[]).collect();
        for (key, _, found) in &short {
            // A minimum of 0 is left out of the requirement.
            let least = Some(*found).filter(|found| *found > 0);
            if let Some(requirement) = requirements.remove(key) {
                requirements.replace(requirement.with_min_values(least));
            }
        }
        !short.is_empty()
    }

    /// Every `minValues` requirement that these instance types do not meet; `lowered` has requirements that were
    /// lowered earlier.
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
