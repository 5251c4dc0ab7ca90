//! Tests which nodes may be disrupted, by disruption class, and the messages for those that may not.

use karpenter_disruption::candidate::{DisruptionClass, candidate};
use karpenter_disruption::cluster::{Cluster, Reason, StateNode};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::evaluate;

use crate::builders::*;

const CLASSES: [(DisruptionClass, Reason); 3] = [
    (DisruptionClass::Graceful, Reason::Underutilized),
    (DisruptionClass::Eventual, Reason::Drifted),
    (DisruptionClass::Repair, Reason::Unhealthy),
];

fn one_node() -> Cluster {
    let mut cluster = cluster();
    add(&mut cluster, "a", "small", &[pod("app", 500), pod("app", 500)]);
    cluster
}

/// The expected messages by class: graceful, eventual, repair. An empty message means that the node may be disrupted.
fn check(case: &str, cluster: &Cluster, expected: [&str; 3]) {
    for ((class, reason), expected) in CLASSES.into_iter().zip(expected) {
        let said = candidate(cluster, 0, class, reason);
        let said = said.map_or_else(|blocked| blocked.to_string(), |_| String::new());
        assert_eq!(said, expected, "{case}, {class:?}");
    }
}

#[test]
fn candidate_of_running_command_gets_no_event() {
    let mut cluster = one_node();
    cluster.state_nodes[0].is_marked_for_deletion = true;
    cluster.state_nodes[0].drifted_since_secs = Some(1);
    cluster.disrupting_claims.insert("a".into());
    check("in a command", &cluster, ["Candidate is already being disrupted"; 3]);
    for settings in [compat(), cost()] {
        let evaluation = evaluate(&cluster, &settings);
        let events: Vec<_> =
            evaluation.verdicts.iter().filter_map(|node_verdict| node_verdict.event()).collect();
        assert_eq!(events, [], "{:?}", settings.mode);
    }
}

#[test]
fn node_state_blocks_disruption_by_class() {
    type Change = fn(&mut StateNode);
    let cases: [(&str, Change, [&str; 3]); 12] = [
        ("nothing", |_| {}, ["", "", ""]),
        ("no node", |one| one.node = None, ["Nodeclaim does not have an associated node"; 3]),
        ("rebooting", |one| one.is_rebooting = true, ["Node is rebooting"; 3]),
        ("leaving", |one| one.is_marked_for_deletion = true, ["Node is deleting or marked for deletion"; 3]),
        // Deletion is checked before initialization.
        (
            "marked for deletion before initialization",
            |one| (one.is_marked_for_deletion, one.is_initialized) = (true, false),
            ["Node is deleting or marked for deletion"; 3],
        ),
        (
            "unregistered",
            |one| (one.is_registered, one.is_initialized) = (false, false),
            ["Node isn't initialized nor registered"; 3],
        ),
        (
            "uninitialised",
            |one| one.is_initialized = false,
            ["Node isn't initialized", "Node isn't initialized", ""],
        ),
        // Pods that are nominated for a node that never initializes do not block its repair.
        (
            "uninitialized and nominated",
            |one| (one.is_initialized, one.is_nominated) = (false, true),
            ["Node isn't initialized", "Node isn't initialized", ""],
        ),
        ("nominated", |one| one.is_nominated = true, ["Node is nominated for a pending pod"; 3]),
        (
            "kept",
            |one| one.is_do_not_disrupt = true,
            [
                "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
                "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation",
                "",
            ],
        ),
        (
            "no pool label",
            |one| one.pool = None,
            [
                "Node doesn't have required label (label=karpenter.sh/nodepool)",
                "Node doesn't have required label (label=karpenter.sh/nodepool)",
                "repair requires a NodePool to construct and budget a safe replacement",
            ],
        ),
        ("unknown pool", |one| one.pool = Some("gone".into()), ["NodePool not found (NodePool=gone)"; 3]),
    ];
    for (case, change, expected) in cases {
        let mut cluster = one_node();
        change(&mut cluster.state_nodes[0]);
        check(case, &cluster, expected);
    }
}

#[test]
fn candidate_of_proposed_command_is_blocked() {
    let mut cluster = one_node();
    wait(&mut cluster, Method::Emptiness, &["a"]);
    check("waiting", &cluster, ["Candidate is already being disrupted"; 3]);
}

#[test]
fn hold_off_applies_to_failed_reasons_only() {
    const HELD_OFF: &str = "A command for it failed, and its replacement is not initialized yet";
    let mut cluster = one_node();
    cluster.held_off.insert("a".into(), [Reason::Drifted].into());
    check("drift failed", &cluster, ["", HELD_OFF, ""]);
    cluster.held_off.insert("a".into(), [Reason::Underutilized, Reason::Unhealthy].into());
    check("consolidation and repair failed", &cluster, [HELD_OFF, "", HELD_OFF]);
}

#[test]
fn protected_pods_block_disruption_by_class() {
    type Change = fn(&mut Cluster);
    const KEPT: &str = "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-1)";
    const BUDGET: &str = "Pdb prevents pod evictions (PodDisruptionBudget=[default/guard])";
    const BUDGETS: &str =
        "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/guard default/other])";
    let cases: [(&str, Change, &str); 9] = [
        ("kept", |cluster| cluster.state_nodes[0].pods[1].is_do_not_disrupt = true, KEPT),
        (
            "do-not-disrupt, but terminal",
            |cluster| {
                let pod = &mut cluster.state_nodes[0].pods[1];
                (pod.is_do_not_disrupt, pod.is_active, pod.is_evictable) = (true, false, false);
            },
            "",
        ),
        (
            "DaemonSet pod with do-not-disrupt",
            |cluster| bind_daemon(cluster, 0, pod("log", 10)).is_do_not_disrupt = true,
            { "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/a-2)" },
        ),
        (
            "PodDisruptionBudget that allows an eviction",
            |cluster| {
                guard(cluster, "default/guard", 1, &[(0, 0), (0, 1)]);
            },
            "",
        ),
        (
            "PodDisruptionBudget of zero",
            |cluster| {
                guard(cluster, "default/guard", 0, &[(0, 0)]);
            },
            BUDGET,
        ),
        (
            "PodDisruptionBudget of zero, on a pod that is not evicted",
            |cluster| {
                guard(cluster, "default/guard", 0, &[(0, 0)]);
                cluster.state_nodes[0].pods[0].is_evictable = false;
            },
            "",
        ),
        (
            "PodDisruptionBudget of zero with AlwaysAllow",
            |cluster| {
                let budget = guard(cluster, "default/guard", 0, &[(0, 0)]);
                cluster.pod_budgets[budget].always_allows_unready = true;
                cluster.state_nodes[0].pods[0].is_unready = true;
            },
            "",
        ),
        (
            "the same with a ready pod",
            |cluster| {
                let budget = guard(cluster, "default/guard", 0, &[(0, 0)]);
                cluster.pod_budgets[budget].always_allows_unready = true;
            },
            BUDGET,
        ),
        (
            "two PodDisruptionBudgets that allow an eviction",
            |cluster| {
                guard(cluster, "default/guard", 5, &[(0, 0)]);
                guard(cluster, "default/other", 5, &[(0, 0)]);
            },
            BUDGETS,
        ),
    ];
    for (case, change, expected) in cases {
        let mut cluster = one_node();
        change(&mut cluster);
        check(case, &cluster, [expected, expected, ""]);
        // With a termination grace period, the drain evicts the pod eventually, so the pod does not block it.
        cluster.state_nodes[0].termination_grace_period_secs = Some(60);
        check(case, &cluster, [expected, "", ""]);
    }
}

#[test]
fn disruption_cost_sums_eviction_costs_of_rescheduled_pods() {
    let mut cluster = one_node();
    bind_daemon(&mut cluster, 0, pod("log", 10)).eviction_cost = 5.0;
    bind(&mut cluster, 0, pod("worthless", 10)).eviction_cost = -3.0;
    let found =
        candidate(&cluster, 0, DisruptionClass::Graceful, Reason::Empty).expect("nothing stands against it");
    assert_eq!(found.reschedule_cost, 3.0, "one, and two ordinary pods");
    assert_eq!(found.savings_ratio(), 0.1 / 3.0);
    assert!(!found.is_empty);
    cluster.state_nodes[0].pods.drain(..2);
    let found =
        candidate(&cluster, 0, DisruptionClass::Graceful, Reason::Empty).expect("nothing stands against it");
    assert!(found.is_empty, "a pod with eviction cost 0 does not count");
}
