//! Checks instance types whose offerings differ in capacity. Only offerings with enough capacity count, because a
//! launch uses one of them.

use karpenter_model::plan::PlannedNode;

use super::super::claim_groups::{ClaimGroup, OptionStatus};
use super::{Amounts, Checker, amounts};

impl Checker<'_, '_> {
    /// Whether a node of an offering can hold the pods' total requests plus those of the instance type's DaemonSet
    /// pods.
    fn offering_holds(
        &self,
        pool: usize,
        claim_group: &ClaimGroup<'_>,
        option: usize,
        offering: usize,
    ) -> bool {
        let instance_type = &claim_group.catalog[option];
        let free =
            amounts(&self.resources, &instance_type.allocatable_of(&instance_type.offerings[offering]));
        let load = self.daemon_loads.get(&(pool, option)).map_or(&[][..], |load| &load.amounts);
        free.iter().zip(&self.sum).zip(load).all(|((free, sum), load)| {
            let wanted = sum.saturating_add(*load);
            wanted <= 0 || wanted <= *free
        })
    }

    pub(super) fn cheapest_that_holds(
        &self,
        pool: usize,
        claim_group: &ClaimGroup<'_>,
        option: usize,
        offerings: &[usize],
    ) -> Option<f64> {
        let of_type = &claim_group.catalog[option].offerings;
        let holding = offerings.iter().filter(|offering| {
            !of_type[**offering].is_reserved() && self.offering_holds(pool, claim_group, option, **offering)
        });
        holding.map(|offering| of_type[*offering].price_per_hour).min_by(f64::total_cmp)
    }

    /// The allocatable resources of an option whose offerings differ in capacity: for the chosen instance type, those
    /// of the planned offering; for others, those of the first offering with enough capacity.
    pub(super) fn best_capacity(
        &self,
        node: &PlannedNode,
        claim_group: &ClaimGroup<'_>,
        option: usize,
    ) -> Amounts {
        let instance_type = &claim_group.catalog[option];
        let offering = if option == node.instance_type {
            Some(node.offering)
        } else if let OptionStatus::Usable { offerings, .. } = &*claim_group.option_status(option) {
            let holds = |one: &&usize| self.offering_holds(node.pool, claim_group, option, **one);
            offerings.iter().find(holds).or(offerings.first()).copied()
        } else {
            None
        };
        let offering = offering.map(|offering| &instance_type.offerings[offering]);
        let allocatable = match offering {
            Some(offering) => instance_type.allocatable_of(offering),
            None => instance_type.allocatable(),
        };
        amounts(&self.resources, &allocatable)
    }
}
