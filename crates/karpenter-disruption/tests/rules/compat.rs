//! Tests of consolidation in compat mode: one or several nodes are deleted or replaced by one.

use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, Reason};
use karpenter_disruption::command::{Decision, Destination, Method};
use karpenter_disruption::evaluate::{evaluate, explain_node};
use karpenter_disruption::settings::Settings;
use karpenter_disruption::verdict::Verdict;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::problem::Mobility;

use crate::builders::*;

#[test]
fn node_is_deleted_if_its_pods_fit_on_others() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[pod("app", 500)]);
    add(&mut cluster, "b", "small", &[pod("app", 1300)]);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Delete));
    assert_eq!(command.moves[0].1, Destination::Existing(1));
    assert_eq!(command.moves.len(), 1);
}

#[test]
fn replacement_has_to_be_cheaper() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Replace));
    // The instance type large would fit too, but it is not cheaper than the candidates.
    assert_eq!(types_of(&cluster, command, 0), ["small", "medium"]);
    assert!((command.saving_per_hour() - 0.3).abs() < 1e-9);
    assert_eq!(command.moves[0].1, Destination::New(0));

    let mut cluster = crate::builders::cluster();
    add(&mut cluster, "a", "small", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty());
    let expected = Verdict::NotCheaper { price_now_per_hour: 0.1, cheapest_replacement_per_hour: Some(0.1) };
    assert_eq!(*verdict(&evaluation, "a"), expected);
    assert_eq!(expected.to_string(), "Can't replace with a cheaper node");
}

#[test]
fn single_node_is_not_replaced_by_two() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "large", &[pod("app", 3800), pod("app", 3800)]);
    cluster.problem.pools[0].requirements.add(wants(labels::INSTANCE_TYPE, &["small", "medium"]));
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty());
    assert_eq!(verdict(&evaluation, "a").to_string(), "Can't remove without creating 2 candidates");
}

#[test]
fn several_nodes_are_replaced_by_one() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "medium", &[pod("app", 600)]);
    }
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::MultiNodeConsolidation, Decision::Replace));
    assert_eq!(claims_of(command), ["a", "b", "c"]);
    // A candidate of type medium could have stayed, so only cheaper types are options.
    assert_eq!(types_of(&cluster, command, 0), ["small"]);
}

#[test]
fn replacement_of_same_type_as_candidate_is_rejected() {
    let mut cluster = cluster();
    // Both pods together need a node of type medium. If only one of the candidates is disrupted, its pod fits on the
    // other.
    add(&mut cluster, "a", "medium", &[pod("app", 1800)]);
    add(&mut cluster, "b", "medium", &[pod("app", 1800)]);
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::SingleNodeConsolidation, Decision::Delete));
    assert_eq!(claims_of(command), ["a"]);
}

#[test]
fn binary_search_misses_prefixes_as_upstream_does() {
    let mut cluster = cluster();
    let mut types = Vec::clone(&cluster.problem.catalogs[0]);
    types.push(instance_type("huge", 16, 0.8));
    cluster.problem.catalogs[0] = Arc::new(types);
    for name in ["a", "b", "c"] {
        add(&mut cluster, name, "small", &[pod("app", 1800)]);
    }
    // This node has no free capacity. Because of its many pods, it is the last candidate in the order of saving per
    // disruption.
    let many: Vec<_> = (0..16).map(|_| pod("app", 50)).collect();
    let last = add(&mut cluster, "d", "huge", &many);
    cluster.problem.nodes[last].allocatable.set("cpu", 800);
    // A cheaper node cannot replace two or three of the small nodes; it could replace all four, but the binary search
    // tries three first.
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!((command.method, claims_of(command)), (Method::SingleNodeConsolidation, vec!["d"]));
    // If two of the small nodes are protected, the first attempt includes the remaining nodes c and d.
    cluster.state_nodes[0].is_do_not_disrupt = true;
    cluster.state_nodes[1].is_do_not_disrupt = true;
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    assert_eq!((command.method, claims_of(command)), (Method::MultiNodeConsolidation, vec!["c", "d"]));
}

/// Replaces the three instance types by twenty of equal size, cheapest first.
fn many_types(cluster: &mut Cluster) {
    let types: Vec<InstanceType> = (0..20)
        .map(|number| instance_type(&format!("t{number:02}"), 2, 0.1 + 0.01 * f64::from(number)))
        .collect();
    cluster.problem.catalogs[0] = Arc::new(types);
}

#[test]
fn spot_to_spot_needs_gate_and_fifteen_cheaper_types() {
    let mut cluster = cluster();
    many_types(&mut cluster);
    add_pool(&mut cluster, "spot", &[labels::CAPACITY_TYPE_SPOT]);
    cluster.problem.pools.remove(0);
    cluster.problem.pools[0].weight = 1;
    pool(&mut cluster, "general").launches_as = None;
    pool(&mut cluster, "spot").launches_as = Some(0);
    add_to(&mut cluster, "a", "spot", "t19", labels::CAPACITY_TYPE_SPOT, &[pod("app", 1500)]);
    let off = evaluate(&cluster, &compat());
    assert!(off.commands.is_empty());
    assert_eq!(
        verdict(&off, "a").to_string(),
        "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    );
    let on = Settings { spot_to_spot: true, ..compat() };
    let evaluation = evaluate(&cluster, &on);
    let command = &evaluation.commands[0];
    assert_eq!(command.replacements[0].instance_type_options.len(), 15, "no more than the cheapest fifteen");
    assert_eq!(types_of(&cluster, command, 0)[14], "t14");

    let state_node = &mut cluster.state_nodes[0];
    state_node.instance_type = Some("t14".into());
    state_node.price_per_hour = (0.1 + 0.14) * 0.4;
    let evaluation = evaluate(&cluster, &on);
    assert!(evaluation.commands.is_empty());
    assert_eq!(
        verdict(&evaluation, "a").to_string(),
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to \
         consolidate, got 14"
    );
}

#[test]
fn multi_node_spot_to_spot_needs_no_fifteen_types() {
    let mut cluster = cluster();
    add_pool(&mut cluster, "spot", &[labels::CAPACITY_TYPE_SPOT]);
    cluster.problem.pools[1].weight = 10;
    for name in ["a", "b"] {
        add_to(&mut cluster, name, "spot", "large", labels::CAPACITY_TYPE_SPOT, &[pod("app", 3500)]);
    }
    // Both pods together fit only on a node of type large.
    for node in &mut cluster.problem.nodes {
        node.allocatable.set("cpu", 3600);
    }
    let evaluation = evaluate(&cluster, &Settings { spot_to_spot: true, ..compat() });
    assert!(
        evaluation.commands.is_empty(),
        "a large for a large saves nothing: {:?}",
        claims(&evaluation.commands)
    );
    for state_node in &mut cluster.state_nodes {
        state_node.instance_type = Some("medium".into());
    }
    let evaluation = evaluate(&cluster, &Settings { spot_to_spot: true, ..compat() });
    let command = &evaluation.commands[0];
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert_eq!(types_of(&cluster, command, 0), ["large"]);
}

#[test]
fn on_demand_node_is_replaced_by_spot_if_allowed() {
    let mut cluster = cluster();
    cluster.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT])]
            .into_iter()
            .collect();
    add(&mut cluster, "a", "small", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &compat());
    let command = &evaluation.commands[0];
    let capacity_type = requirement_of(command, labels::CAPACITY_TYPE).and_then(|one| one.single_value());
    assert_eq!(capacity_type.map(|one| &**one), Some(labels::CAPACITY_TYPE_SPOT));
    // As spot, medium costs 0.08 and large 0.16.
    assert_eq!(types_of(&cluster, command, 0), ["small", "medium"]);
    assert!((command.price_after_per_hour - 0.04).abs() < 1e-9);
}

#[test]
fn options_are_compared_by_worst_zone_price() {
    let mut cluster = cluster();
    let mut types = (*cluster.problem.catalogs[0]).clone();
    // The instance type small is expensive in the other zone, and the zone of the launch is not known.
    types[0].offerings[2].price_per_hour = 0.5;
    cluster.problem.catalogs[0] = Arc::new(types);
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(types_of(&cluster, &evaluation.commands[0], 0), ["medium"]);
}

#[test]
fn full_reservation_has_no_launch_price() {
    let mut cluster = cluster();
    cluster.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_RESERVED])]
            .into_iter()
            .collect();
    let mut types = (*cluster.problem.catalogs[0]).clone();
    types[0].offerings.push(reserved("zone-a", "cr-1", 0));
    cluster.problem.catalogs[0] = Arc::new(types);
    add(&mut cluster, "a", "small", &[pod("app", 1500)]);
    assert!(evaluate(&cluster, &compat()).commands.is_empty(), "the launch would be on-demand");
}

#[test]
fn min_values_hold_after_price_filter() {
    let mut cluster = cluster();
    let families = wants(labels::INSTANCE_TYPE, &["small", "medium", "large"]).with_min_values(Some(3));
    cluster.problem.pools[0].requirements.add(families);
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty());
    let expected = Verdict::TooFewTypes { key: labels::INSTANCE_TYPE.into(), wanted: 3, found: 2 };
    assert_eq!(*verdict(&evaluation, "a"), expected);
}

#[test]
fn ineligible_nodes_have_upstreams_messages() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "large", &[pod("app", 1500)]);
    type Change = fn(&mut Cluster);
    let cases: [(Change, &str); 8] = [
        (
            |cluster| pool(cluster, "general").policy = ConsolidationPolicy::WhenEmpty,
            "NodePool \"general\" has consolidation policy WhenEmpty, but node is not empty",
        ),
        (
            |cluster| pool(cluster, "general").consolidate_after_secs = None,
            "NodePool \"general\" has consolidation disabled",
        ),
        (
            |cluster| cluster.state_nodes[0].instance_type = Some("huge".into()),
            "Instance Type \"huge\" not found",
        ),
        // A NodePool that is not ready is not in the problem, but its catalog is known.
        (
            |cluster| {
                pool(cluster, "general").launches_as = None;
                cluster.state_nodes[0].instance_type = Some("huge".into());
                cluster.state_nodes[0].is_instance_type_unknown = true;
            },
            "Instance Type \"huge\" not found",
        ),
        (
            |cluster| cluster.state_nodes[0].capacity_type = None,
            "Node does not have label \"karpenter.sh/capacity-type\"",
        ),
        (
            |cluster| cluster.state_nodes[0].zone = None,
            "Node does not have label \"topology.kubernetes.io/zone\"",
        ),
        (
            |cluster| allow(cluster, "general", Reason::Underutilized, 0),
            "The budgets of NodePool \"general\" allow no further disruption for reason Underutilized",
        ),
        (
            |cluster| cluster.state_nodes[0].pods[0].is_do_not_disrupt = true,
            "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-0)",
        ),
    ];
    for (change, expected) in cases {
        let mut cluster = cluster.clone();
        change(&mut cluster);
        let evaluation = evaluate(&cluster, &compat());
        assert!(evaluation.commands.is_empty(), "{expected}");
        assert_eq!(verdict(&evaluation, "a").to_string(), expected);
    }
}

#[test]
fn pods_that_cannot_be_evicted_are_not_rescheduled() {
    let mut cluster = cluster();
    let state_node = add(&mut cluster, "a", "large", &[pod("app", 1500), pod("app", 3000)]);
    cluster.state_nodes[state_node].drifted_since_secs = Some(1);
    cluster.problem.nodes[0].pods[1].mobility = Mobility::Blocked;
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(evaluation.commands[0].moves.len(), 1);
}

#[test]
fn consolidation_moves_no_pods_to_node_within_consolidate_after() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[pod("app", 500)]);
    add(&mut cluster, "b", "small", &[pod("app", 1300)]);
    cluster.state_nodes[1].is_do_not_disrupt = true;
    for settings in [compat(), cost()] {
        assert_eq!(claims(&evaluate(&cluster, &settings).commands), [["a"]]);
        cluster.problem.nodes[1].is_settling = true;
        assert!(evaluate(&cluster, &settings).commands.is_empty(), "{:?}", settings.mode);
        cluster.problem.nodes[1].is_settling = false;
    }
}

#[test]
fn no_pods_are_moved_to_candidates_of_proposed_commands() {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[pod("app", 500)]);
    add(&mut cluster, "empty", "small", &[]);
    wait(&mut cluster, Method::Emptiness, &["empty"]);
    assert!(evaluate(&cluster, &cost()).commands.is_empty());
    // In compat mode, no node is evaluated while a command is proposed.
    assert!(explain_node(&cluster, &compat(), 0).is_err());
    cluster.proposed_commands.clear();
    assert!(explain_node(&cluster, &compat(), 0).is_ok());
}

#[test]
fn single_node_consolidation_interleaves_pools() {
    let mut cluster = cluster();
    add_pool(&mut cluster, "other", &[labels::CAPACITY_TYPE_ON_DEMAND]);
    let many = |count: usize, cpu_millis| -> Vec<_> { (0..count).map(|_| pod("app", cpu_millis)).collect() };
    // The nodes in the order of their saving per disruption: `a`, which cannot be replaced by a cheaper node, then `b`,
    // then `c`.
    add(&mut cluster, "a", "small", &many(1, 1800));
    add(&mut cluster, "b", "large", &many(8, 200));
    add_to(&mut cluster, "c", "other", "large", labels::CAPACITY_TYPE_ON_DEMAND, &many(12, 150));
    for (node, used) in cluster.problem.nodes.iter_mut().zip([1800, 1600, 1800]) {
        node.allocatable.set("cpu", used);
    }
    // With this limit, multi-node consolidation is possible.
    pool(&mut cluster, "general").pool_policy.max_moves_per_hour = Some(8);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["c"]], "the first of its pool before the second of the other");
    assert_eq!(*verdict(&evaluation, "b"), Verdict::NotNow);
}

#[test]
fn balanced_pool_rejects_low_score() {
    let mut cluster = cluster();
    pool(&mut cluster, "general").policy = ConsolidationPolicy::Balanced;
    // The command has a high disruption cost and a low saving: it moves ten pods for a quarter of the NodePool's price.
    let many: Vec<_> = (0..10).map(|_| pod("app", 100)).collect();
    add(&mut cluster, "a", "small", &many);
    add(&mut cluster, "b", "medium", &[pod("app", 2000)]);
    allow(&mut cluster, "general", Reason::Underutilized, 1);
    // The score of a is (0.1/0.3) / (11/13) = 0.39; b cannot be consolidated alone.
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty(), "{:?}", claims(&evaluation.commands));
    let Verdict::Unbalanced { score, threshold } = verdict(&evaluation, "a") else {
        panic!("{}", verdict(&evaluation, "a"))
    };
    assert!((score - (0.1 / 0.3) / (11.0 / 13.0)).abs() < 1e-9);
    assert_eq!(*threshold, 0.5);
    pool(&mut cluster, "general").pool_policy.balanced_k = 3.0;
    assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["a"]]);
}
