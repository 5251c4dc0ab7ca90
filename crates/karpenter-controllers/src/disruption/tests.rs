use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use karpenter_api::types::DisruptionReason;
use serde_json::{Value, json};

use super::budgets::{Remaining, remaining};
use super::candidate::{Blocked, candidate};
use super::command::{Finding, RETRY_MAX, VALIDATION_DELAY};
use super::cost::{eviction_cost, reschedule_cost};
use super::snapshot::{Machine, Pool};
use super::*;

fn time(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().expect("a time")
}

/// A working machine of the pool `general` that has been quiet since 11:00.
fn machine(name: &str) -> Machine {
    let claim = json!({
        "metadata": {"name": name, "uid": name, "labels": {"karpenter.sh/nodepool": "general"}},
        "status": {"providerID": name, "lastPodEventTime": "2026-01-01T11:00:00Z", "conditions": [
            {"type": "Initialized", "status": "True", "reason": "", "message": "",
                "lastTransitionTime": "2026-01-01T10:00:00Z"}]},
    });
    let node = json!({
        "metadata": {"name": name, "labels":
            {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    Machine {
        claim: Arc::new(serde_json::from_value(claim).expect("a claim")),
        node: Some(Arc::new(serde_json::from_value(node).expect("a node"))),
        ..Machine::default()
    }
}

fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut value = json!({"metadata": {"name": name, "namespace": "default", "uid": name,
        "labels": {"app": name}}, "spec": {"containers": []}, "status": {"phase": "Running"}});
    for (part, fields) in patch.as_object().into_iter().flatten() {
        for (key, field) in fields.as_object().into_iter().flatten() {
            value[part][key] = field.clone();
        }
    }
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

fn daemon(name: &str, annotations: Value) -> Arc<Pod> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]);
    pod(name, json!({"metadata": {"ownerReferences": owner, "annotations": annotations}}))
}

fn snapshot(machines: Vec<Machine>, disruption: Value) -> Snapshot {
    let pool = json!({"metadata": {"name": "general"}, "spec": {"disruption": disruption}});
    let pool = Pool { pool: Arc::new(serde_json::from_value(pool).expect("a pool")), ..Pool::default() };
    Snapshot { machines, pools: [("general".to_owned(), pool)].into(), ..Snapshot::default() }
}

fn all_may_go() -> Value {
    json!({"consolidateAfter": "30m", "budgets": [{"nodes": "100%"}]})
}

fn claims(commands: &[Command]) -> Vec<&str> {
    commands
        .iter()
        .flat_map(|command| command.candidates.iter().map(|candidate| candidate.claim.as_str()))
        .collect()
}

#[test]
fn empty_nodes_are_proposed_when_they_have_been_quiet() {
    let busy = Machine { pods: vec![pod("web", json!({}))], ..machine("busy") };
    let with_daemon = Machine { pods: vec![daemon("d", json!({}))], ..machine("with-daemon") };
    let snapshot = snapshot(vec![machine("a"), busy, with_daemon], all_may_go());
    assert_eq!(decide(&snapshot, &[], time("11:29:59")).keep, []);
    let now = time("11:30:00");
    let decision = decide(&snapshot, &[], now);
    assert_eq!(claims(&decision.keep), ["a", "with-daemon"]);
    assert_eq!(decision.keep[0].stage, Stage::Proposed { until: time("11:30:15") });
    assert_eq!((decision.start, decision.wait), (vec![], IDLE_POLL));
}

#[test]
fn every_policy_takes_empty_nodes_but_never_and_static_pools_do_not() {
    let now = time("12:00:00");
    for policy in ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] {
        let disruption = json!({"consolidateAfter": "0s", "consolidationPolicy": policy});
        let decision = decide(&snapshot(vec![machine("a")], disruption), &[], now);
        assert_eq!(claims(&decision.keep), ["a"], "{policy}");
    }
    let decision = decide(&snapshot(vec![machine("a")], json!({"consolidateAfter": "Never"})), &[], now);
    assert_eq!(decision.keep, []);
    assert_eq!(decision.findings, [Finding::NeverConsolidated { claim: "a".into() }]);
    let mut fixed = snapshot(vec![machine("a")], json!({"consolidateAfter": "0s"}));
    if let Some(pool) = fixed.pools.get_mut("general") {
        Arc::make_mut(&mut pool.pool).spec.replicas = Some(1);
    }
    assert_eq!(decide(&fixed, &[], now).keep, []);
}

#[test]
fn a_proposal_waits_and_is_looked_at_again() {
    let now = time("12:00:00");
    let before = snapshot(vec![machine("a"), machine("b"), machine("c")], all_may_go());
    let proposed = decide(&before, &[], now).keep;
    assert_eq!(claims(&proposed), ["a", "b", "c"]);
    // Meanwhile pods come to b, and pods are on their way to c.
    let b = Machine { pods: vec![pod("web", json!({}))], ..machine("b") };
    let c = Machine { is_nominated: true, ..machine("c") };
    let after = snapshot(vec![machine("a"), b, c], all_may_go());
    let early = decide(&after, &proposed, time("12:00:14"));
    assert_eq!((claims(&early.keep), early.start.len()), (vec!["a", "b", "c"], 0));
    assert_eq!(early.wait, Duration::from_secs(1));
    let due = time("12:00:15");
    assert_eq!(VALIDATION_DELAY, Duration::from_secs(15));
    let decision = decide(&after, &proposed, due);
    assert_eq!(claims(&decision.start), ["a"]);
    assert_eq!(decision.start[0].stage, Stage::Deleting { since: due });
    assert_eq!((decision.keep, decision.wait), (vec![], Duration::ZERO));
    // A namesake of a is another machine.
    let mut namesake = machine("a");
    Arc::make_mut(&mut namesake.claim).metadata.uid = Some("other".into());
    let decision = decide(&snapshot(vec![namesake], all_may_go()), &proposed, due);
    assert_eq!(decision.start, []);
}

#[test]
fn budgets_are_kept_when_proposing_and_again_when_acting() {
    let now = time("12:00:00");
    let two = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "2"}]});
    let machines = || vec![machine("a"), machine("b"), machine("c")];
    let proposed = decide(&snapshot(machines(), two.clone()), &[], now).keep;
    assert_eq!(claims(&proposed), ["a", "b"]);
    let mut later = machines();
    later[2].is_leaving = true;
    let decision = decide(&snapshot(later, two), &proposed, time("12:00:15"));
    assert_eq!(claims(&decision.start), ["a"]);

    let none = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0", "reasons": ["Empty"]}]});
    let decision = decide(&snapshot(machines(), none.clone()), &[], now);
    assert_eq!(decision.keep, []);
    assert_eq!(decision.findings, [Finding::BudgetExhausted { pool: "general".into(), reason: "Empty" }]);
    let decision = decide(&snapshot(machines(), none), &proposed, time("12:00:15"));
    assert_eq!(decision.start, []);
    // A budget for another reason does not count.
    let drift = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]});
    assert_eq!(claims(&decide(&snapshot(machines(), drift), &[], now).keep), ["a", "b", "c"]);
}

#[test]
fn what_uses_up_a_budget() {
    let now = time("12:00:00");
    let mut sick = machine("sick");
    if let Some(node) = &mut sick.node {
        Arc::make_mut(node).status = None;
    }
    let leaving = Machine { is_leaving: true, ..machine("leaving") };
    let mut fresh = machine("fresh");
    if let Some(node) = &mut fresh.node {
        Arc::make_mut(node).metadata.labels = None;
    }
    let machines = vec![machine("a"), machine("b"), sick, leaving, fresh];
    let half = json!({"budgets": [{"nodes": "60%"}]});
    let snapshot = snapshot(machines, half);
    let of = |reason: DisruptionReason| remaining(&snapshot, &reason, now)["general"];
    let empty = of(DisruptionReason::Empty);
    assert_eq!(empty, Remaining { allowed: 3, nodes: 4, disrupting: 2 });
    assert_eq!(empty.left(), 1);
    assert_eq!(of(DisruptionReason::Unhealthy), Remaining { allowed: 3, nodes: 4, disrupting: 1 });
}

#[test]
fn what_stands_against_a_disruption() {
    let now = time("12:00:00");
    let budget = |name: &str, allowed: i32, policy: Option<&str>| {
        let value = json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "unhealthyPodEvictionPolicy": policy},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}});
        Arc::new(serde_json::from_value(value).expect("a budget"))
    };
    let keep = json!({"karpenter.sh/do-not-disrupt": "true"});
    let mut annotated = machine("m");
    if let Some(node) = &mut annotated.node {
        Arc::make_mut(node).metadata.annotations = serde_json::from_value(keep.clone()).expect("annotations");
    }
    let with = |pods: Vec<Arc<Pod>>| Machine { pods, ..machine("m") };
    let unready =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}});
    let gone = json!({"metadata": {"annotations": keep.clone()}, "status": {"phase": "Succeeded"}});
    let web = || pod("web", json!({}));
    let blocks = |name: &str| Some(Blocked::PodBudget(name.to_owned()));
    let cases = [
        (machine("m"), vec![], None),
        (Machine { node: None, ..machine("m") }, vec![], Some(Blocked::NoNode)),
        (Machine { is_leaving: true, ..machine("m") }, vec![], Some(Blocked::Leaving)),
        (Machine { is_nominated: true, ..machine("m") }, vec![], Some(Blocked::Nominated)),
        (annotated, vec![], Some(Blocked::Annotated)),
        (with(vec![daemon("d", keep)]), vec![], Some(Blocked::PodAnnotated("default/d".into()))),
        (with(vec![pod("done", gone)]), vec![], None),
        (with(vec![web()]), vec![budget("one", 1, None)], None),
        (with(vec![web()]), vec![budget("one", 0, None)], blocks("default/one")),
        (
            with(vec![web()]),
            vec![budget("one", 1, None), budget("two", 1, None)],
            blocks("default/one default/two"),
        ),
        (with(vec![pod("web", unready.clone())]), vec![budget("one", 0, Some("AlwaysAllow"))], None),
        (with(vec![pod("web", unready)]), vec![budget("one", 0, None)], blocks("default/one")),
        (with(vec![pod("db", json!({}))]), vec![budget("one", 0, None)], None),
    ];
    for (machine, budgets, expected) in cases {
        let mut snapshot = snapshot(vec![machine.clone()], all_may_go());
        snapshot.pod_budgets.insert("default".to_owned(), budgets);
        assert_eq!(candidate(&machine, &snapshot, now).err(), expected, "{:?}", machine.pods);
    }
}

#[test]
fn deletions_are_followed_until_they_are_under_way_or_given_up() {
    let started = time("12:00:00");
    let proposed = decide(&snapshot(vec![machine("a"), machine("b")], all_may_go()), &[], started).keep;
    let command = Command { stage: Stage::Deleting { since: started }, ..proposed[0].clone() };
    let mut deleting = machine("a");
    let meta = &mut Arc::make_mut(&mut deleting.claim).metadata;
    meta.deletion_timestamp = serde_json::from_value(json!("2026-01-01T12:00:00Z")).expect("a time");
    deleting.is_leaving = true;
    let left = Machine { is_leaving: true, ..machine("b") };
    let commands = [command];
    let both = snapshot(vec![deleting.clone(), left], all_may_go());
    let decision = decide(&both, &commands, time("12:00:01"));
    assert_eq!((claims(&decision.retry), decision.wait), (vec!["b"], RETRY_POLL));
    let late = time("12:10:01");
    assert_eq!(RETRY_MAX, Duration::from_secs(600));
    let decision = decide(&both, &commands, late);
    assert_eq!((claims(&decision.roll_back), decision.retry.len()), (vec!["b"], 0));
    let decision = decide(&snapshot(vec![deleting], all_may_go()), &commands, late);
    assert_eq!((decision.retry, decision.roll_back), (vec![], vec![]));
}

#[test]
fn marks_without_a_command_are_taken_off() {
    let mut tainted = machine("tainted");
    if let Some(node) = &mut tainted.node {
        let spec = json!({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]});
        Arc::make_mut(node).spec = Some(serde_json::from_value(spec).expect("a spec"));
    }
    let going = Machine { is_leaving: true, ..tainted.clone() };
    let never = json!({"consolidateAfter": "Never"});
    let restored = |machine: Machine, commands: &[Command]| {
        decide(&snapshot(vec![machine], never.clone()), commands, time("12:00:00")).restore
    };
    assert_eq!(restored(tainted.clone(), &[]), ["tainted"]);
    assert_eq!(restored(going, &[]), Vec::<String>::new());
    assert_eq!(restored(machine("clean"), &[]), Vec::<String>::new());
    let found = candidate(&tainted, &snapshot(vec![], all_may_go()), time("12:00:00"));
    let command = Command {
        method: Method::Emptiness,
        candidates: vec![found.expect("a candidate")],
        stage: Stage::Deleting { since: time("12:00:00") },
    };
    assert_eq!(restored(tainted, &[command]), Vec::<String>::new());
}

#[test]
fn dear_nodes_go_first() {
    let now = time("12:00:00");
    let mut machines = vec![machine("a"), machine("b"), machine("c")];
    for (machine, zone) in machines.iter_mut().zip(["z1", "z3", "z2"]) {
        let labels = json!({"karpenter.sh/nodepool": "general", "node.kubernetes.io/instance-type": "big",
            "topology.kubernetes.io/zone": zone, "karpenter.sh/capacity-type": "spot"});
        Arc::make_mut(&mut machine.claim).metadata.labels = serde_json::from_value(labels).expect("labels");
    }
    let one = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]});
    let mut snapshot = snapshot(machines, one);
    let offering = |zone: &str, price_per_hour: f64| karpenter_model::instance_type::Offering {
        requirements: [
            karpenter_model::requirements::Requirement::in_values("topology.kubernetes.io/zone", [zone]),
            karpenter_model::requirements::Requirement::in_values("karpenter.sh/capacity-type", ["spot"]),
        ]
        .into_iter()
        .collect(),
        price_per_hour,
        available: false,
        reservation_capacity: None,
    };
    let big = karpenter_model::instance_type::InstanceType {
        name: "big".into(),
        requirements: Default::default(),
        offerings: vec![offering("z1", 1.0), offering("z2", 3.0), offering("z3", 2.0)],
        capacity: Default::default(),
        overhead: Default::default(),
        volume_attachment_limits: Default::default(),
    };
    if let Some(pool) = snapshot.pools.get_mut("general") {
        pool.types = Arc::new(vec![big]);
    }
    assert_eq!(claims(&decide(&snapshot, &[], now).keep), ["c"]);
}

#[test]
fn costs_of_moving_pods() {
    let with = |annotations: Value, priority: i32| {
        pod("web", json!({"metadata": {"annotations": annotations}, "spec": {"priority": priority}}))
    };
    let deletion = "controller.kubernetes.io/pod-deletion-cost";
    let ours = "karpenter.sh/disruption-cost";
    let cases = [
        (with(json!({}), 0), 1.0),
        (with(json!({deletion: "134217728"}), 0), 2.0),
        (with(json!({deletion: "-268435456"}), 0), -1.0),
        (with(json!({deletion: "1.5"}), 0), 1.0),
        (with(json!({}), 33_554_432), 2.0),
        (with(json!({}), 2_000_000_000), 10.0),
        (with(json!({}), -2_000_000_000), -10.0),
        (with(json!({ours: "134217728", deletion: "-134217728"}), 0), 2.0),
        (with(json!({ours: "much", deletion: "-134217728"}), 0), 1.0),
    ];
    for (pod, cost) in &cases {
        assert!((eviction_cost(pod) - cost).abs() < 1e-9, "{:?}", pod.metadata.annotations);
    }
    let all: Vec<&Pod> = cases.iter().map(|(pod, _)| &**pod).collect();
    assert!((reschedule_cost(all) - 20.0).abs() < 1e-9);
    let worthless = with(json!({deletion: "-268435456"}), 0);
    let machine = Machine { pods: vec![worthless, daemon("d", json!({}))], ..machine("m") };
    assert!(emptiness::is_empty(&machine));
}
