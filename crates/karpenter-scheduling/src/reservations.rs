//! Reserved capacity: which planned nodes launch into a reservation, and when a reservation is full.
//!
//! Nodes take slots in the order they were planned. A node that finds no slot uses other capacity if it may, which is
//! how the reservation looks to the round after the first nodes have launched; a node that may use nothing else is
//! refused. Upstream: pkg/controllers/provisioning/scheduling/reservationmanager.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::{Requirement, Requirements};

use crate::ledger::{Claim, Ledger};
use crate::states::StateType;

/// Slots left per reservation.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    left: BTreeMap<Arc<str>, u32>,
}

/// A slot that a node got.
pub(crate) struct Held {
    pub(crate) chosen: StateType,
    pub(crate) offering: u32,
    pub(crate) price: f64,
    /// Types that can launch into the same reservation, the chosen one first.
    pub(crate) options: Vec<StateType>,
    pub(crate) requirements: Requirements,
}

/// The reservation an offering belongs to. Without an id label, the type and zone tell reservations apart.
fn id_of(instance_type: &InstanceType, offering: &Offering) -> Arc<str> {
    match offering.requirements.get(labels::AWS_CAPACITY_RESERVATION_ID).and_then(Requirement::single_value) {
        Some(id) => id.clone(),
        None => format!("{}/{}", instance_type.name, offering.zone().map_or("", |zone| zone)).into(),
    }
}

pub(crate) fn any(problem: &Problem) -> bool {
    problem
        .catalogs
        .iter()
        .flat_map(|catalog| catalog.iter())
        .flat_map(|t| &t.offerings)
        .any(Offering::is_reserved)
}

impl Reservations {
    /// All reservations of the catalogs; offerings of one reservation that disagree count as the smallest.
    pub(crate) fn of(problem: &Problem) -> Self {
        let mut left: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for instance_type in problem.catalogs.iter().flat_map(|catalog| catalog.iter()) {
            for offering in instance_type.offerings.iter().filter(|o| o.available && o.is_reserved()) {
                let capacity = offering.reservation_capacity.unwrap_or(0);
                let known = left.entry(id_of(instance_type, offering)).or_insert(capacity);
                *known = (*known).min(capacity);
            }
        }
        Self { left }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes a slot for a node with these options, in the cheapest reservation that has one.
    pub(crate) fn take(&mut self, ledger: &Ledger<'_>, claim: &Claim, options: &[StateType]) -> Option<Held> {
        let state = ledger.states.get(claim.state);
        let mut found: Vec<(f64, Arc<str>, &StateType, u32)> = Vec::new();
        for entry in options {
            let instance_type = ledger.states.instance_type(state.template, entry.index);
            for offer in ledger.states.offers(claim.state, entry) {
                let offering = &instance_type.offerings[*offer as usize];
                let id = id_of(instance_type, offering);
                if offering.is_reserved() && self.left.get(&id).is_some_and(|left| *left > 0) {
                    found.push((offering.price_per_hour, id, entry, *offer));
                }
            }
        }
        found.sort_by(|a, b| {
            let name = |entry: &StateType| &ledger.states.instance_type(state.template, entry.index).name;
            a.0.total_cmp(&b.0).then_with(|| name(a.2).cmp(name(b.2))).then_with(|| a.1.cmp(&b.1))
        });
        let (price, id, chosen, offering) = found.first().cloned()?;
        if let Some(left) = self.left.get_mut(&id) {
            *left -= 1;
        }
        let mut requirements = state.requirements.clone();
        requirements.replace(Requirement::in_values(labels::CAPACITY_TYPE, [labels::CAPACITY_TYPE_RESERVED]));
        let of_offering = &ledger.states.instance_type(state.template, chosen.index).offerings
            [offering as usize]
            .requirements;
        if let Some(label) = of_offering.get(labels::AWS_CAPACITY_RESERVATION_ID) {
            requirements.replace(label.clone());
        }
        if let Some(zone) = of_offering.get(labels::ZONE) {
            requirements.add(zone.clone());
        }
        let mut same: Vec<StateType> =
            found.iter().filter(|entry| entry.1 == id).map(|entry| *entry.2).collect();
        same.dedup_by_key(|entry| entry.index);
        Some(Held { chosen: *chosen, offering, price, options: same, requirements })
    }
}
