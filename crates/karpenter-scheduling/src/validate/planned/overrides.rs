//! Instance types whose offerings differ in size: a launch takes an offering that has room, so only those count.

use karpenter_model::plan::PlannedNode;

use super::super::frames::{Frame, Standing};
use super::{Amounts, Checker, amounts};

impl Checker<'_, '_> {
    /// Whether a node of an offering has room for the pods that were summed up and for the daemons of the type.
    fn offering_holds(&self, pool: usize, frame: &Frame<'_>, option: usize, offering: usize) -> bool {
        let instance_type = &frame.catalog[option];
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
        frame: &Frame<'_>,
        option: usize,
        offerings: &[usize],
    ) -> Option<f64> {
        let of_type = &frame.catalog[option].offerings;
        let holding = offerings.iter().filter(|offering| {
            !of_type[**offering].is_reserved() && self.offering_holds(pool, frame, option, **offering)
        });
        holding.map(|offering| of_type[*offering].price_per_hour).min_by(f64::total_cmp)
    }

    /// What an option has whose offerings differ in size: in the planned offering where it is the chosen type, else in the
    /// first that has room, since a launch takes one that has.
    pub(super) fn best_room(&self, node: &PlannedNode, frame: &Frame<'_>, option: usize) -> Amounts {
        let instance_type = &frame.catalog[option];
        let offering = if option == node.instance_type {
            Some(node.offering)
        } else if let Standing::Usable { offerings, .. } = &*frame.standing(option) {
            let holds = |one: &&usize| self.offering_holds(node.pool, frame, option, **one);
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
