//! Preemption and nominations.

use karpenter_runtime::object::ObjectKey;
use serde_json::{Value, json};

use super::*;

fn with_priority(name: &str, priority: i32, cpu: &str) -> Value {
    let mut pod = labelled(name, json!({"app": name}), requests(json!({"cpu": cpu})));
    merge(&mut pod, json!({"spec": {"priority": priority}}));
    pod
}

fn nominated(mut pod: Value, node: &str) -> Value {
    merge(&mut pod, json!({"status": {"nominatedNodeName": node}}));
    pod
}

#[track_caller]
fn assert_victims(snapshot: &mut Snapshot, pod: Value, node: &str, expected: &[&str]) {
    let decision = decide(snapshot, pod);
    let Decision::Nominate { node: chosen, victims, failure } = decision else { panic!("{decision:?}") };
    assert_eq!(&*chosen, node);
    assert_eq!(victims.iter().map(|victim| victim.name.as_str()).collect::<Vec<_>>(), expected);
    assert!(!failure.message.contains("preemption"), "{}", failure.message);
}

fn nodes() -> [Value; 2] {
    [node("a", json!({})), node("b", json!({}))]
}

#[test]
fn minimal_victims_of_lower_priority_are_selected() {
    let pods = [
        on("a", with_priority("a1", 1, "2")),
        on("a", with_priority("a2", 2, "2")),
        on("b", with_priority("b1", 5, "2")),
        on("b", with_priority("b2", 5, "2")),
    ];
    let mut snapshot = cluster(nodes(), pods);
    // Of the two pods on node a, the one with the higher priority is kept.
    assert_victims(&mut snapshot, with_priority("p", 10, "2"), "a", &["a1"]);
    assert_victims(&mut snapshot, with_priority("p", 10, "3"), "a", &["a2", "a1"]);
    assert_eq!(
        message(&mut snapshot, with_priority("p", 1, "2")),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/2 nodes are available: \
         2 No preemption victims found for incoming pod."
    );
    // Preemption does not help a pod that is larger than every node.
    assert_eq!(
        message(&mut snapshot, with_priority("p", 10, "5")),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/2 nodes are available: \
         2 Preemption is not helpful for scheduling."
    );
    // On node a, the deletion of all pods of lower priority would free too little cpu; the message states this reason.
    let mut one = cluster(
        nodes(),
        [
            on("a", with_priority("a1", 1, "1")),
            on("a", with_priority("a2", 20, "3")),
            on("b", with_priority("b1", 20, "4")),
        ],
    );
    assert_eq!(
        message(&mut one, with_priority("p", 10, "2")),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, \
         preemption: 0/2 nodes are available: 1 Insufficient cpu, \
         1 No preemption victims found for incoming pod."
    );
}

#[test]
fn preemption_policy_never_prevents_preemption() {
    let mut meek = with_priority("p", 10, "2");
    merge(&mut meek, json!({"spec": {"preemptionPolicy": "Never"}}));
    let mut snapshot = cluster([node("a", json!({}))], [on("a", with_priority("x", 1, "4"))]);
    assert_eq!(
        message(&mut snapshot, meek),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
         preemption: not eligible due to preemptionPolicy=Never."
    );
}

#[test]
fn candidates_are_ordered_by_budget_violations_priority_count_and_age() {
    let budget = |app: &str, allowed: i32| {
        json!({"metadata": {"name": app, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}})
    };
    let started = |mut pod: Value, time: &str| {
        merge(&mut pod, json!({"status": {"startTime": time}}));
        pod
    };
    let p = || with_priority("p", 10, "4");
    // The victim on node b has lower priority, but its PodDisruptionBudget would be violated.
    let mut snapshot =
        cluster(nodes(), [on("a", with_priority("x", 5, "4")), on("b", with_priority("y", 1, "4"))]);
    assert_victims(&mut snapshot, p(), "b", &["y"]);
    snapshot.apply_budget(&read(budget("y", 0)));
    assert_victims(&mut snapshot, p(), "a", &["x"]);
    snapshot.apply_budget(&read(budget("y", 1)));
    assert_victims(&mut snapshot, p(), "b", &["y"]);
    // Of nodes whose victims have equal priority, the one with fewer victims is selected.
    let mut snapshot = cluster(
        nodes(),
        [
            on("a", with_priority("x1", 1, "2")),
            on("a", with_priority("x2", 1, "2")),
            on("b", with_priority("y", 1, "4")),
        ],
    );
    assert_victims(&mut snapshot, p(), "b", &["y"]);
    // Of victims with equal priority, the one that started later is selected.
    let mut snapshot = cluster(
        nodes(),
        [
            started(on("a", with_priority("x", 1, "4")), "2026-01-01T00:00:00Z"),
            started(on("b", with_priority("y", 1, "4")), "2026-01-02T00:00:00Z"),
        ],
    );
    assert_victims(&mut snapshot, p(), "b", &["y"]);
    // Of the pods on one node, those with a PodDisruptionBudget are kept first.
    let mut snapshot = cluster(
        [node("a", json!({}))],
        [on("a", with_priority("x1", 1, "2")), on("a", with_priority("x2", 2, "2"))],
    );
    snapshot.apply_budget(&read(budget("x1", 0)));
    assert_victims(&mut snapshot, with_priority("p", 10, "2"), "a", &["x2"]);
}

#[test]
fn nominated_node_is_preferred_to_higher_scores() {
    let mut snapshot = cluster(nodes(), [on("b", with_priority("x", 0, "2"))]);
    assert_bound(&mut snapshot, with_priority("p", 0, "1"), "a");
    assert_bound(&mut snapshot, nominated(with_priority("p", 0, "1"), "b"), "b");
    assert_bound(&mut snapshot, nominated(with_priority("p", 0, "3"), "b"), "a");
    assert_bound(&mut snapshot, nominated(with_priority("p", 0, "1"), "gone"), "a");
}

#[test]
fn nominated_pods_of_equal_or_higher_priority_reserve_resources() {
    let waiting = nominated(with_priority("waiting", 5, "3"), "a");
    let mut snapshot = cluster([node("a", json!({}))], [waiting.clone()]);
    let refused = "0/1 nodes are available: 1 Insufficient cpu.";
    assert_refused(&mut snapshot, with_priority("p", 5, "2"), refused);
    assert_refused(&mut snapshot, with_priority("p", 4, "2"), refused);
    assert_bound(&mut snapshot, with_priority("p", 6, "2"), "a");
    assert_bound(&mut snapshot, with_priority("p", 5, "1"), "a");
    // The pod's own nomination does not block it.
    assert_bound(&mut snapshot, waiting.clone(), "a");
    snapshot.remove_pod(&ObjectKey::new("default", "waiting"));
    assert_bound(&mut snapshot, with_priority("p", 5, "2"), "a");
}

#[test]
fn unwritten_nomination_lasts_until_the_object_changes() {
    let key = std::sync::Arc::new(ObjectKey::new("default", "waiting"));
    let mut snapshot = cluster(nodes(), [with_priority("waiting", 5, "3")]);
    snapshot.set_nomination(&key, Some("a".into()));
    snapshot.apply_pod(&read(with_priority("waiting", 5, "3")));
    assert_eq!(snapshot.nomination(&key).map(|node| &**node), Some("a"));
    snapshot.apply_pod(&read(nominated(with_priority("waiting", 5, "3"), "b")));
    assert_eq!(snapshot.nomination(&key).map(|node| &**node), Some("b"));
    snapshot.apply_pod(&read(with_priority("waiting", 5, "3")));
    assert_eq!(snapshot.nomination(&key), None);
}

#[test]
fn pod_waits_for_terminating_victims_before_preempting_again() {
    let leaving = |name: &str| {
        let mut pod = on("a", with_priority(name, 1, "4"));
        merge(
            &mut pod,
            json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
                    "reason": "PreemptionByScheduler"}]}}),
        );
        pod
    };
    let p = || nominated(with_priority("p", 10, "4"), "a");
    let mut snapshot = cluster(nodes(), [leaving("x"), on("b", with_priority("y", 1, "4"))]);
    let decision = decide(&mut snapshot, p());
    let Decision::Unschedulable { failure, gives_up_nomination } = decision else { panic!("{decision:?}") };
    assert_eq!(
        failure.message,
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, \
         preemption: not eligible due to a terminating pod on the \
         nominated node."
    );
    assert!(!gives_up_nomination);
    // Once the nominated node is not feasible, the pod may preempt pods on another node.
    snapshot.apply_node(&read(node("a", json!({"spec": {"unschedulable": true}}))));
    assert_victims(&mut snapshot, p(), "b", &["y"]);
}

#[test]
fn preemption_resolves_spread_and_anti_affinity() {
    let spec = json!({"priority": 10, "affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]}}});
    let mut snapshot = cluster(
        [node("a", json!({}))],
        [on("a", with_priority("x", 1, "1")), on("a", with_priority("other", 1, "1"))],
    );
    assert_victims(&mut snapshot, pod("p", spec), "a", &["x"]);
    let spread = json!({"priority": 10, "topologySpreadConstraints": [{"maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
        "labelSelector": {"matchLabels": {"app": "x"}}}]});
    assert_victims(&mut snapshot, labelled("p", json!({"app": "x"}), spread), "a", &["x"]);
}
