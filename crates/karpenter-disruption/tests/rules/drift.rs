//! Tests of drift in ordinary and static NodePools.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_disruption::command::{Decision, Destination, Method};
use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::settings::Settings;
use karpenter_disruption::static_drift::{full_reservations, terminate_first_reason};
use karpenter_disruption::verdict::Verdict;
use karpenter_model::labels;

use crate::builders::*;

/// Creates full nodes that drifted one after the other; the first to drift is the last by name.
fn drifted(names: &[&str]) -> Cluster {
    let mut cluster = cluster();
    for (number, name) in names.iter().enumerate() {
        let state_node = add(&mut cluster, name, "medium", &[pod("app", 1900), pod("app", 1900)]);
        cluster.state_nodes[state_node].drifted_since_secs = Some(100 + number as i64);
    }
    cluster
}

#[test]
fn compat_mode_replaces_oldest_drift_one_per_evaluation() {
    let cluster = drifted(&["z", "a"]);
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["z"]]);
    let command = &evaluation.commands[0];
    assert_eq!((command.method, command.decision), (Method::Drift, Decision::Replace));
    assert_eq!(command.moves.len(), 2);
    assert!(command.moves.iter().all(|(_, to)| *to == Destination::New(0)));
    assert_eq!(*verdict(&evaluation, "a"), Verdict::NotNow);
}

#[test]
fn cost_mode_replaces_several_drifted_nodes_within_budget() {
    let mut cluster = drifted(&["a", "b", "c"]);
    assert_eq!(claims(&evaluate(&cluster, &cost()).commands), [["a"], ["b"], ["c"]]);
    allow(&mut cluster, "general", Reason::Drifted, 2);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["a"], ["b"]]);
    let exhausted = Verdict::BudgetExhausted { pool: "general".into(), reason: Reason::Drifted };
    assert_eq!(*verdict(&evaluation, "c"), exhausted);
}

#[test]
fn drifted_node_is_replaced_by_several_only_for_enough_saving() {
    for (small_per_hour, count) in [(0.098, 1), (0.06, 4)] {
        let mut cluster = cluster();
        cluster.problem.catalogs[0] =
            Arc::new(vec![instance_type("small", 2, small_per_hour), instance_type("large", 8, 0.4)]);
        let pods: Vec<_> = (0..4).map(|_| pod("app", 1900)).collect();
        let state_node = add(&mut cluster, "a", "large", &pods);
        cluster.state_nodes[state_node].drifted_since_secs = Some(100);
        let evaluation = evaluate(&cluster, &cost());
        assert_eq!(evaluation.commands[0].replacements.len(), count, "small ones at {small_per_hour}");
        assert_eq!(evaluation.commands[0].moves.len(), 4);
    }
}

#[test]
fn drift_commands_do_not_share_capacity() {
    let mut cluster = drifted(&["a", "b"]);
    // There is free capacity for two of the four pods.
    add(&mut cluster, "other", "large", &[pod("app", 3900)]);
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(claims(&evaluation.commands), [["a"], ["b"]]);
    let onto_other = evaluation.commands.iter().flat_map(|command| &command.moves);
    assert_eq!(onto_other.filter(|(_, to)| *to == Destination::Existing(2)).count(), 2);
}

#[test]
fn empty_drifted_nodes_come_first() {
    let mut cluster = drifted(&["a"]);
    let empty = add(&mut cluster, "empty", "small", &[]);
    cluster.state_nodes[empty].drifted_since_secs = Some(900);
    pool(&mut cluster, "general").consolidate_after_secs = None;
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["empty"]]);
    assert_eq!(evaluation.commands[0].decision, Decision::Delete);
}

#[test]
fn drifted_node_may_be_replaced_by_several() {
    let mut cluster = cluster();
    // No instance type fits both pods.
    let state_node = add(&mut cluster, "a", "large", &[pod("app", 3800), pod("app", 3800)]);
    cluster.state_nodes[state_node].drifted_since_secs = Some(1);
    cluster.problem.pools[0].requirements.add(wants(labels::INSTANCE_TYPE, &["small", "medium"]));
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(evaluation.commands[0].replacements.len(), 2);
}

#[test]
fn drifted_node_with_unschedulable_pods_is_skipped() {
    let mut cluster = drifted(&["a", "b"]);
    let stuck = bind(&mut cluster, 0, pod("huge", 100)).name.clone();
    let mut spec = pod("huge", 100);
    spec.node_selector.add(wants("disk", &["fast"]));
    cluster.problem.nodes[0].pods[2].spec = spec.into();
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["b"]]);
    let Verdict::WouldNotFit { unschedulable } = verdict(&evaluation, "a") else {
        panic!("{:?}", verdict(&evaluation, "a"))
    };
    assert_eq!(unschedulable.len(), 1);
    assert_eq!(unschedulable[0].pod, stuck);
    assert!(!unschedulable[0].reasons.is_empty());
    let text = verdict(&evaluation, "a").to_string();
    assert!(text.starts_with("Not all pods would schedule, default/a-2 => "), "{text}");
}

#[test]
fn pods_do_not_move_to_uninitialized_node() {
    let mut cluster = drifted(&["a"]);
    let coming = add(&mut cluster, "coming", "large", &[]);
    cluster.state_nodes[coming].is_initialized = false;
    cluster.problem.nodes[1].initialized = false;
    let evaluation = evaluate(&cluster, &compat());
    assert!(evaluation.commands.is_empty());
    let text = verdict(&evaluation, "a").to_string();
    assert!(text.contains("would schedule against uninitialized nodeclaim/coming, node/coming"), "{text}");
    let evaluation = evaluate(&cluster, &cost());
    assert_eq!(evaluation.commands[0].replacements.len(), 1, "a new node is launched instead");
}

#[test]
fn pending_pods_do_not_block_drift_or_launch_nodes() {
    let mut cluster = drifted(&["a"]);
    let group = |prefix: &str, spec| karpenter_model::problem::PodGroup {
        spec: std::sync::Arc::new(spec),
        names: karpenter_model::problem::PodNames::Numbered { prefix: prefix.into(), count: 1 },
        created_at_secs: 0,
    };
    let mut nowhere = pod("nowhere", 100);
    nowhere.node_selector.add(wants("disk", &["fast"]));
    cluster.problem.pods = vec![group("nowhere", nowhere), group("large", pod("large", 7500))];
    let evaluation = evaluate(&cluster, &compat());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    assert_eq!(
        evaluation.commands[0].replacements.len(),
        1,
        "nodes for pending pods are launched by provisioning"
    );
}

#[test]
fn drift_moves_pods_to_node_within_consolidate_after() {
    let mut cluster = drifted(&["a"]);
    add(&mut cluster, "b", "medium", &[]);
    cluster.problem.nodes[1].is_settling = true;
    pool(&mut cluster, "general").consolidate_after_secs = None;
    for settings in [compat(), cost()] {
        let evaluation = evaluate(&cluster, &settings);
        assert_eq!(evaluation.commands[0].decision, Decision::Delete, "{:?}", settings.mode);
        assert!(evaluation.commands[0].moves.iter().all(|(_, to)| *to == Destination::Existing(1)));
    }
    // Pods are not moved to a node that is itself a candidate.
    wait(&mut cluster, Method::Emptiness, &["b"]);
    assert_eq!(evaluate(&cluster, &cost()).commands[0].decision, Decision::Replace);
}

/// A node in a full capacity reservation; its NodePool allows no other offerings.
fn reserved_node() -> Cluster {
    let mut cluster = cluster();
    let mut only = instance_type("small", 2, 0.1);
    only.offerings = vec![reserved(ZONES[0], "cr-1", 0)];
    only.requirements.replace(wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED]));
    cluster.problem.catalogs[0] = std::sync::Arc::new(vec![only]);
    cluster.problem.pools[0].requirements =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED])].into_iter().collect();
    let kind = labels::CAPACITY_TYPE_RESERVED;
    let state_node = add_to(&mut cluster, "a", "general", "small", kind, &[pod("app", 1500)]);
    cluster.state_nodes[state_node].drifted_since_secs = Some(1);
    cluster.state_nodes[state_node].reservation_id = Some("cr-1".into());
    cluster
}

#[test]
fn terminate_first_frees_full_reservation_with_gate() {
    let cluster = reserved_node();
    let blocked = evaluate(&cluster, &compat());
    assert!(blocked.commands.is_empty());
    assert!(matches!(verdict(&blocked, "a"), Verdict::WouldNotFit { .. }));
    let event = blocked.verdicts[0].event();
    assert_eq!(event, Some(karpenter_disruption::verdict::EventKind::DisruptionBlocked));
    for settings in [terminate_first(), Settings { terminate_first_drift: true, ..cost() }] {
        let evaluation = evaluate(&cluster, &settings);
        let command = &evaluation.commands[0];
        assert_eq!(command.decision, Decision::TerminateFirst);
        assert!(command.replacements.is_empty() && command.moves.is_empty());
        assert_eq!(terminate_first_reason(&cluster, command), "no-reserved-capacity");
    }
    // A slot of another capacity reservation cannot be used.
    let mut cluster = cluster;
    cluster.state_nodes[0].reservation_id = Some("cr-2".into());
    assert!(evaluate(&cluster, &terminate_first()).commands.is_empty());
}

#[test]
fn terminate_first_needs_freed_slot_to_suffice() {
    let mut cluster = reserved_node();
    // Each of the two pods needs a node of its own.
    let state_node = 0;
    cluster.problem.nodes[0].allocatable.set("cpu", 4000);
    bind(&mut cluster, state_node, pod("app", 1500));
    let evaluation = evaluate(&cluster, &terminate_first());
    assert!(evaluation.commands.is_empty());
    assert!(matches!(verdict(&evaluation, "a"), Verdict::WouldNotFit { .. }));
}

fn of_static_pool(replicas: u32, nodes_left: Option<u32>, names: &[&str]) -> Cluster {
    let mut cluster = cluster();
    add_static_pool(&mut cluster, "fixed", replicas, nodes_left);
    for (number, name) in names.iter().enumerate() {
        let state_node = add_to(&mut cluster, name, "fixed", "small", labels::CAPACITY_TYPE_ON_DEMAND, &[]);
        cluster.state_nodes[state_node].drifted_since_secs = Some(number as i64);
    }
    cluster
}

fn terminate_first() -> Settings {
    Settings { terminate_first_drift: true, ..compat() }
}

#[test]
fn static_drift_respects_limit_and_budget() {
    let names = ["a", "b", "c"];
    let none: [[&str; 1]; 0] = [];
    let all = evaluate(&of_static_pool(3, None, &names), &compat());
    assert_eq!(claims(&all.commands), [["a"], ["b"], ["c"]]);
    for command in &all.commands {
        assert_eq!((command.method, command.decision), (Method::StaticDrift, Decision::Replace));
        assert_eq!(command.static_pool.as_deref(), Some("fixed"));
    }
    let limited = evaluate(&of_static_pool(3, Some(1), &names), &compat());
    assert_eq!(claims(&limited.commands), [["a"]]);
    assert_eq!(*verdict(&limited, "b"), Verdict::NotNow);
    let full = evaluate(&of_static_pool(3, Some(0), &names), &compat());
    assert_eq!(claims(&full.commands), none);
    assert_eq!(
        verdict(&full, "a").to_string(),
        "static NodePool is at its node limit and cannot stage a replacement"
    );
    let too_many = evaluate(&of_static_pool(2, None, &names), &compat());
    assert_eq!(claims(&too_many.commands), none);
    assert_eq!(*verdict(&too_many, "a"), Verdict::StaticScalingDown);
    // In compat mode, as in upstream, a marked node with a replacement counts as scaling down until it is being
    // deleted.
    let mut under_way = of_static_pool(2, None, &names);
    under_way.state_nodes[2].drifted_since_secs = None;
    under_way.state_nodes[0].is_marked_for_deletion = true;
    assert_eq!(claims(&evaluate(&under_way, &compat()).commands), none);
    assert_eq!(claims(&evaluate(&under_way, &cost()).commands), [["b"]]);
    under_way.state_nodes[0].is_deleting = true;
    assert_eq!(claims(&evaluate(&under_way, &compat()).commands), [["b"]]);
    let mut held = of_static_pool(3, None, &names);
    pool(&mut held, "fixed").is_in_launch_backoff = true;
    let held = evaluate(&held, &cost());
    assert_eq!(claims(&held.commands), none);
    assert_eq!(*verdict(&held, "a"), Verdict::LaunchesFail { pool: "fixed".into() });
    let mut budgeted = of_static_pool(3, None, &names);
    allow(&mut budgeted, "fixed", Reason::Drifted, 2);
    assert_eq!(claims(&evaluate(&budgeted, &compat()).commands), [["a"], ["b"]]);
}

#[test]
fn static_pool_at_limit_terminates_first_with_gate() {
    let mut cluster = of_static_pool(2, Some(0), &["a", "b"]);
    allow(&mut cluster, "fixed", Reason::Drifted, 1);
    let evaluation = evaluate(&cluster, &terminate_first());
    assert_eq!(claims(&evaluation.commands), [["a"]]);
    let command = &evaluation.commands[0];
    assert_eq!((command.decision, command.static_pool.as_deref()), (Decision::TerminateFirst, None));
    assert_eq!(terminate_first_reason(&cluster, command), "static-at-limit");
    // The NodePool is not ready and could not launch the missing node.
    pool(&mut cluster, "fixed").is_ready = false;
    assert!(evaluate(&cluster, &terminate_first()).commands.is_empty());
}

#[test]
fn full_reservations_replace_only_nodes_with_slot() {
    let mut cluster = of_static_pool(2, None, &["a", "b"]);
    pool(&mut cluster, "fixed").full_reservations = Some(BTreeSet::from(["cr-1".into()]));
    let holder = &mut cluster.state_nodes[1];
    holder.capacity_type = Some(labels::CAPACITY_TYPE_RESERVED.into());
    holder.reservation_id = Some("cr-1".into());
    let evaluation = evaluate(&cluster, &terminate_first());
    assert_eq!(claims(&evaluation.commands), [["b"]]);
    assert_eq!(evaluation.commands[0].decision, Decision::TerminateFirst);
    assert_eq!(terminate_first_reason(&cluster, &evaluation.commands[0]), "no-reserved-capacity");
    assert_eq!(
        verdict(&evaluation, "a").to_string(),
        "static NodePool's capacity reservations are full and cannot stage a replacement"
    );
    // Without the feature gate, the replacement is attempted.
    assert_eq!(claims(&evaluate(&cluster, &compat()).commands), [["a"], ["b"]]);
}

#[test]
fn reservations_count_as_full() {
    let cluster = cluster();
    let open = &cluster.problem.well_known;
    let mut of_type = instance_type("r", 2, 0.1);
    let only_reserved =
        [wants(labels::CAPACITY_TYPE, &[labels::CAPACITY_TYPE_RESERVED])].into_iter().collect();
    of_type.requirements.replace(wants(
        labels::CAPACITY_TYPE,
        &[labels::CAPACITY_TYPE_ON_DEMAND, labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_RESERVED],
    ));
    of_type.offerings.push(reserved("zone-a", "cr-1", 0));
    let full = full_reservations(&[of_type.clone()], &only_reserved, open);
    assert_eq!(full, Some(BTreeSet::from(["cr-1".into()])));
    assert_eq!(full_reservations(&[of_type.clone()], &no_requirements(), open), None, "on-demand is allowed");
    of_type.offerings.last_mut().expect("pushed").reservation_capacity = Some(1);
    assert_eq!(
        full_reservations(&[of_type.clone()], &only_reserved, open),
        None,
        "a reservation has free capacity"
    );
    let last = of_type.offerings.last_mut().expect("pushed");
    (last.available, last.reservation_capacity) = (false, Some(0));
    assert_eq!(
        full_reservations(&[of_type], &only_reserved, open),
        Some(BTreeSet::new()),
        "the reservation is unavailable"
    );
}
