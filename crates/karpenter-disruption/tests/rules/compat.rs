//! Consolidation as upstream does it: one or several nodes for none or one.

use std::sync::Arc;

use karpenter_disruption::command::{Decision, Destination, Method};
use karpenter_disruption::explain::Why;
use karpenter_disruption::fleet::{ConsolidationPolicy, Fleet, Reason};
use karpenter_disruption::propose::{propose, why_not};
use karpenter_disruption::settings::Settings;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::problem::Mobility;

use crate::builders::*;

#[test]
fn a_node_whose_pods_fit_elsewhere_is_deleted() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[pod("app", 500)]);
    add(&mut fleet, "b", "small", &[pod("app", 1300)]);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["a"]]);
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Delete));
    assert_eq!(command.moves[0].1, Destination::Existing(1));
    assert_eq!(command.moves.len(), 1);
}

#[test]
fn a_node_is_replaced_by_a_cheaper_one_only() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Replace));
    // Large itself would hold the pod, but does not cost less.
    assert_eq!(types_of(&fleet, command, 0), ["small", "medium"]);
    assert!((command.saving_per_hour() - 0.3).abs() < 1e-9);
    assert_eq!(command.moves[0].1, Destination::New(0));

    let mut fleet = crate::builders::fleet();
    add(&mut fleet, "a", "small", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty());
    let expected = Why::NotCheaper { price_now_per_hour: 0.1, cheapest_replacement_per_hour: Some(0.1) };
    assert_eq!(*why(&proposal, "a"), expected);
    assert_eq!(expected.to_string(), "Can't replace with a cheaper node");
}

#[test]
fn one_node_is_never_turned_into_two() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "large", &[pod("app", 3800), pod("app", 3800)]);
    fleet.problem.pools[0].requirements.add(wants(labels::INSTANCE_TYPE, &["small", "medium"]));
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty());
    assert_eq!(why(&proposal, "a").to_string(), "Can't remove without creating 2 candidates");
}

#[test]
fn several_nodes_become_one() {
    let mut fleet = fleet();
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "medium", &[pod("app", 600)]);
    }
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::MultiNodeConsolidation, Decision::Replace));
    assert_eq!(claims_of(command), ["a", "b", "c"]);
    // Medium goes: one of them could have stayed, so only what is cheaper counts.
    assert_eq!(types_of(&fleet, command, 0), ["small"]);
}

#[test]
fn a_replacement_of_a_type_that_goes_is_no_replacement() {
    let mut fleet = fleet();
    // Both need a medium; with one of the two gone the other would hold both.
    add(&mut fleet, "a", "medium", &[pod("app", 1800)]);
    add(&mut fleet, "b", "medium", &[pod("app", 1800)]);
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Delete));
    assert_eq!(claims_of(command), ["a"]);
}

#[test]
fn beginnings_that_a_binary_search_passes_by_are_not_found() {
    let mut fleet = fleet();
    let mut types = Vec::clone(&fleet.problem.catalogs[0]);
    types.push(instance_type("huge", 16, 0.8));
    fleet.problem.catalogs[0] = Arc::new(types);
    for name in ["a", "b", "c"] {
        add(&mut fleet, name, "small", &[pod("app", 1800)]);
    }
    // Last in the list, for all its pods, and none has room for others.
    let many: Vec<_> = (0..16).map(|_| pod("app", 50)).collect();
    let last = add(&mut fleet, "d", "huge", &many);
    fleet.problem.nodes[last].allocatable.set("cpu", 800);
    // Two or three of the small ones cannot be had cheaper; all four could, for a large, but three are asked about first.
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!((command.method, claims_of(command)), (Method::SingleNodeConsolidation, vec!["d"]));
    // With two of the small ones out of the way the first question is about all that are left.
    fleet.machines[0].is_do_not_disrupt = true;
    fleet.machines[1].is_do_not_disrupt = true;
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    assert_eq!((command.method, claims_of(command)), (Method::MultiNodeConsolidation, vec!["c", "d"]));
}

/// Twenty types of equal size, cheapest first, in place of the three.
fn many_types(fleet: &mut Fleet) {
    let types: Vec<InstanceType> = (0..20)
        .map(|number| instance_type(&format!("t{number:02}"), 2, 0.1 + 0.01 * f64::from(number)))
        .collect();
    fleet.problem.catalogs[0] = Arc::new(types);
}

#[test]
fn spot_to_spot() {
    let mut fleet = fleet();
    many_types(&mut fleet);
    add_pool(&mut fleet, "spot", &[labels::CAPACITY_TYPE_SPOT]);
    fleet.problem.pools.remove(0);
    fleet.problem.pools[0].weight = 1;
    pool(&mut fleet, "general").launches_as = None;
    pool(&mut fleet, "spot").launches_as = Some(0);
    add_to(&mut fleet, "a", "spot", "t19", labels::CAPACITY_TYPE_SPOT, &[pod("app", 1500)]);
    let off = propose(&fleet, &compat());
    assert!(off.commands.is_empty());
    assert_eq!(
        why(&off, "a").to_string(),
        "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    );
    let on = Settings { spot_to_spot: true, ..compat() };
    let proposal = propose(&fleet, &on);
    let command = &proposal.commands[0];
    assert_eq!(command.replacements[0].instance_type_options.len(), 15, "no more than the cheapest fifteen");
    assert_eq!(types_of(&fleet, command, 0)[14], "t14");

    let machine = &mut fleet.machines[0];
    machine.instance_type = Some("t14".into());
    machine.price_per_hour = (0.1 + 0.14) * 0.4;
    let proposal = propose(&fleet, &on);
    assert!(proposal.commands.is_empty());
    assert_eq!(
        why(&proposal, "a").to_string(),
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to \
         consolidate, got 14"
    );
}

#[test]
fn several_spot_nodes_need_no_choice_of_fifteen() {
    let mut fleet = fleet();
    add_pool(&mut fleet, "spot", &[labels::CAPACITY_TYPE_SPOT]);
    fleet.problem.pools[1].weight = 10;
    for name in ["a", "b"] {
        add_to(&mut fleet, name, "spot", "large", labels::CAPACITY_TYPE_SPOT, &[pod("app", 3500)]);
    }
    // Neither fits beside the other's pod on anything but a large.
    for node in &mut fleet.problem.nodes {
        node.allocatable.set("cpu", 3600);
    }
    let proposal = propose(&fleet, &Settings { spot_to_spot: true, ..compat() });
    assert!(proposal.commands.is_empty(), "large for large is no saving: {:?}", claims(&proposal.commands));
    for machine in &mut fleet.machines {
        machine.instance_type = Some("medium".into());
    }
    let proposal = propose(&fleet, &Settings { spot_to_spot: true, ..compat() });
    let command = &proposal.commands[0];
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert_eq!(types_of(&fleet, command, 0), ["large"]);
}

#[test]
fn on_demand_for_either_is_bought_as_spot() {
    let mut fleet = fleet();
    fleet.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT])]
            .into_iter()
            .collect();
    add(&mut fleet, "a", "small", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &compat());
    let command = &proposal.commands[0];
    let capacity_type = requirement_of(command, labels::CAPACITY_TYPE).and_then(|one| one.single_value());
    assert_eq!(capacity_type.map(|one| &**one), Some(labels::CAPACITY_TYPE_SPOT));
    // Medium as spot costs 0.08, large 0.16.
    assert_eq!(types_of(&fleet, command, 0), ["small", "medium"]);
    assert!((command.price_after_per_hour - 0.04).abs() < 1e-9);
}

#[test]
fn the_worst_zone_decides() {
    let mut fleet = fleet();
    let mut types = (*fleet.problem.catalogs[0]).clone();
    // Small is dear in the other zone; nobody knows where it will be launched.
    types[0].offerings[2].price_per_hour = 0.5;
    fleet.problem.catalogs[0] = Arc::new(types);
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &compat());
    assert_eq!(types_of(&fleet, &proposal.commands[0], 0), ["medium"]);
}

#[test]
fn a_full_reservation_is_no_price() {
    let mut fleet = fleet();
    fleet.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_RESERVED])]
            .into_iter()
            .collect();
    let mut types = (*fleet.problem.catalogs[0]).clone();
    types[0].offerings.push(reserved("zone-a", "cr-1", 0));
    fleet.problem.catalogs[0] = Arc::new(types);
    add(&mut fleet, "a", "small", &[pod("app", 1500)]);
    assert!(propose(&fleet, &compat()).commands.is_empty(), "on demand is what would be launched");
}

#[test]
fn min_values_hold_after_filtering_by_price() {
    let mut fleet = fleet();
    let families = wants(labels::INSTANCE_TYPE, &["small", "medium", "large"]).with_min_values(Some(3));
    fleet.problem.pools[0].requirements.add(families);
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty());
    let expected = Why::TooFewTypes { key: labels::INSTANCE_TYPE.into(), wanted: 3, found: 2 };
    assert_eq!(*why(&proposal, "a"), expected);
}

#[test]
fn who_is_not_consolidated() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "large", &[pod("app", 1500)]);
    type Change = fn(&mut Fleet);
    let cases: [(Change, &str); 8] = [
        (
            |fleet| pool(fleet, "general").policy = ConsolidationPolicy::WhenEmpty,
            "NodePool \"general\" has consolidation policy WhenEmpty, but node is not empty",
        ),
        (
            |fleet| pool(fleet, "general").consolidate_after_secs = None,
            "NodePool \"general\" has consolidation disabled",
        ),
        (|fleet| fleet.machines[0].instance_type = Some("huge".into()), "Instance Type \"huge\" not found"),
        // A pool that launches nothing for now has no catalog in the problem, but one all the same.
        (
            |fleet| {
                pool(fleet, "general").launches_as = None;
                fleet.machines[0].instance_type = Some("huge".into());
                fleet.machines[0].is_instance_type_unknown = true;
            },
            "Instance Type \"huge\" not found",
        ),
        (
            |fleet| fleet.machines[0].capacity_type = None,
            "Node does not have label \"karpenter.sh/capacity-type\"",
        ),
        (|fleet| fleet.machines[0].zone = None, "Node does not have label \"topology.kubernetes.io/zone\""),
        (
            |fleet| allow(fleet, "general", Reason::Underutilized, 0),
            "The budgets of NodePool \"general\" allow no further disruption for reason Underutilized",
        ),
        (
            |fleet| fleet.machines[0].occupants[0].is_do_not_disrupt = true,
            "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-0)",
        ),
    ];
    for (change, expected) in cases {
        let mut fleet = fleet.clone();
        change(&mut fleet);
        let proposal = propose(&fleet, &compat());
        assert!(proposal.commands.is_empty(), "{expected}");
        assert_eq!(why(&proposal, "a").to_string(), expected);
    }
}

#[test]
fn pods_that_may_not_be_evicted_now_are_not_planned_for() {
    let mut fleet = fleet();
    let machine = add(&mut fleet, "a", "large", &[pod("app", 1500), pod("app", 3000)]);
    fleet.machines[machine].drifted_since_secs = Some(1);
    fleet.problem.nodes[0].pods[1].mobility = Mobility::Blocked;
    let proposal = propose(&fleet, &compat());
    assert_eq!(proposal.commands[0].moves.len(), 1);
}

#[test]
fn a_settling_node_takes_no_moved_pods() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[pod("app", 500)]);
    add(&mut fleet, "b", "small", &[pod("app", 1300)]);
    fleet.machines[1].is_do_not_disrupt = true;
    for settings in [compat(), cost()] {
        assert_eq!(claims(&propose(&fleet, &settings).commands), [["a"]]);
        fleet.problem.nodes[1].is_settling = true;
        assert!(propose(&fleet, &settings).commands.is_empty(), "{:?}", settings.mode);
        fleet.problem.nodes[1].is_settling = false;
    }
}

#[test]
fn nodes_that_may_go_in_a_moment_take_no_moved_pods() {
    let mut fleet = fleet();
    add(&mut fleet, "a", "small", &[pod("app", 500)]);
    add(&mut fleet, "empty", "small", &[]);
    wait(&mut fleet, Method::Emptiness, &["empty"]);
    assert!(propose(&fleet, &cost()).commands.is_empty());
    // By upstream's rules, which propose nothing at all for now.
    assert!(why_not(&fleet, &compat(), 0).is_err());
    fleet.waiting.clear();
    assert!(why_not(&fleet, &compat(), 0).is_ok());
}

#[test]
fn pools_take_turns() {
    let mut fleet = fleet();
    add_pool(&mut fleet, "other", &[labels::CAPACITY_TYPE_ON_DEMAND]);
    let many = |count: usize, cpu_millis| -> Vec<_> { (0..count).map(|_| pod("app", cpu_millis)).collect() };
    // By what is saved per trouble: `a`, which cannot be had cheaper, then `b`, then `c`.
    add(&mut fleet, "a", "small", &many(1, 1800));
    add(&mut fleet, "b", "large", &many(8, 200));
    add_to(&mut fleet, "c", "other", "large", labels::CAPACITY_TYPE_ON_DEMAND, &many(12, 150));
    for (node, used) in fleet.problem.nodes.iter_mut().zip([1800, 1600, 1800]) {
        node.allocatable.set("cpu", used);
    }
    // Several at once are another matter.
    pool(&mut fleet, "general").controls.max_moves_per_hour = Some(8);
    let proposal = propose(&fleet, &compat());
    assert_eq!(claims(&proposal.commands), [["c"]], "the first of its pool before the second of the other");
    assert_eq!(*why(&proposal, "b"), Why::NotNow);
}

#[test]
fn balanced_pools_want_their_share() {
    let mut fleet = fleet();
    pool(&mut fleet, "general").policy = ConsolidationPolicy::Balanced;
    // Much trouble for little: ten pods to save a quarter of the pool's price.
    let many: Vec<_> = (0..10).map(|_| pod("app", 100)).collect();
    add(&mut fleet, "a", "small", &many);
    add(&mut fleet, "b", "medium", &[pod("app", 2000)]);
    allow(&mut fleet, "general", Reason::Underutilized, 1);
    // a: (0.1/0.3) / (11/13) = 0.39; b alone cannot move.
    let proposal = propose(&fleet, &compat());
    assert!(proposal.commands.is_empty(), "{:?}", claims(&proposal.commands));
    let Why::Unbalanced { score, threshold } = why(&proposal, "a") else { panic!("{}", why(&proposal, "a")) };
    assert!((score - (0.1 / 0.3) / (11.0 / 13.0)).abs() < 1e-9);
    assert_eq!(*threshold, 0.5);
    pool(&mut fleet, "general").controls.balanced_k = 3.0;
    assert_eq!(claims(&propose(&fleet, &compat()).commands), [["a"]]);
}
