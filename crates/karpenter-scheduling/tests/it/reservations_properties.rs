//! Property tests of capacity reservations: plans remain valid if some instance types have reservations, whatever their
//! number of slots and the mode.

use crate::support::builders;
use crate::support::recipes;

use std::collections::BTreeSet;
use std::sync::Arc;

use builders::{offering, wants};
use karpenter_model::labels::{AWS_CAPACITY_RESERVATION_ID, CAPACITY_TYPE, CAPACITY_TYPE_RESERVED};
use karpenter_model::problem::{Mode, Problem, ReservedMode};
use karpenter_model::requirements::Requirement;
use karpenter_scheduling::schedule;
use karpenter_scheduling::validate::validate;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use recipes::any_recipe;

fn config() -> Config {
    Config {
        cases: 150,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20261116),
        max_shrink_iters: 2_000,
        ..Config::default()
    }
}

/// Gives every second instance type a reserved offering in each zone; the numbers of slots come from `rooms` in turn.
fn with_reservations(mut problem: Problem, rooms: &[u32], are_named: bool) -> Problem {
    let mut given = 0;
    for catalog in &mut problem.catalogs {
        let mut types = (**catalog).clone();
        for instance_type in types.iter_mut().step_by(2) {
            let zones: BTreeSet<Arc<str>> =
                instance_type.offerings.iter().filter_map(|offering| offering.zone().cloned()).collect();
            for zone in zones {
                let mut reserved = offering(&zone, CAPACITY_TYPE_RESERVED, 0.000_001);
                if are_named {
                    reserved.requirements.add(wants(AWS_CAPACITY_RESERVATION_ID, &[&format!("cr-{given}")]));
                }
                reserved.reservation_capacity = Some(rooms[given % rooms.len()]);
                reserved.reservation_id_label = Some(AWS_CAPACITY_RESERVATION_ID.into());
                given += 1;
                instance_type.offerings.push(reserved);
            }
            if let Some(known) = instance_type.requirements.get(CAPACITY_TYPE).cloned() {
                let values = known.values.iter().cloned().chain([CAPACITY_TYPE_RESERVED.into()]);
                instance_type.requirements.replace(Requirement::in_values(CAPACITY_TYPE, values));
            }
        }
        *catalog = Arc::new(types);
    }
    for pool in &mut problem.pools {
        if let Some(known) = pool.requirements.get(CAPACITY_TYPE).cloned().filter(|known| !known.complement) {
            let values = known.values.iter().cloned().chain([CAPACITY_TYPE_RESERVED.into()]);
            let widened = Requirement::in_values(CAPACITY_TYPE, values).with_min_values(known.min_values);
            pool.requirements.replace(widened);
        }
    }
    problem.well_known.insert(AWS_CAPACITY_RESERVATION_ID.into());
    problem
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn plans_with_reservations_are_valid(
        recipe in any_recipe(),
        rooms in prop::collection::vec(0u32..4, 1..5),
        are_named: bool,
    ) {
        let problem = recipe.without_upstream_deviations().build();
        let mut problem = with_reservations(problem, &rooms, are_named);
        for mode in [Mode::Compat, Mode::Cost] {
            for reserved_mode in [ReservedMode::Strict, ReservedMode::Fallback] {
                problem.options.mode = mode;
                problem.options.reserved_mode = reserved_mode;
                let faults: Vec<String> =
                    validate(&problem, &schedule(&problem)).iter().map(ToString::to_string).collect();
                prop_assert_eq!(faults, Vec::<String>::new(), "{:?} {:?}", mode, reserved_mode);
            }
        }
    }
}
