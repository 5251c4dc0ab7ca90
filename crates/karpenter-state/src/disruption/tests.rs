use std::sync::Arc;

use karpenter_disruption::candidate::{DisruptionClass, candidate};
use karpenter_disruption::cluster::{ConsolidationPolicy, LegacyNodeMarks, LegacyRules, Reason, StateNode};
use karpenter_disruption::pod_budgets::{JointEvictions, PodBudgetUse};
use karpenter_disruption::verdict::Verdict;
use karpenter_model::problem::Mobility;

use super::*;
use crate::testing::objects;

const NOW: &str = "2026-01-01T12:00:00Z";
const TYPE: &str = "c-4x-amd64-linux";

/// A NodePool of kwok nodes; `lines` go under `spec.disruption`, or replace it if they start with `replicas`.
fn pool(name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  {spec}
  template:
    spec:
      requirements: []
      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}
---
"
    )
}

/// A claim with its node.
fn state_node(name: &str, pool: &str, claim_status: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {{name: {name}, uid: uid-{name}, creationTimestamp: '2026-01-01T10:00:00Z', labels: {{karpenter.sh/nodepool: {pool}}}}}
spec:
  nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}
  requirements: []
  expireAfter: 720h
  terminationGracePeriod: 90s
status: {{providerID: 'kwok://{name}', nodeName: node-{name}, {claim_status}}}
---
apiVersion: v1
kind: Node
metadata:
  name: node-{name}
  labels:
    karpenter.sh/nodepool: {pool}
    karpenter.sh/registered: 'true'
    karpenter.sh/initialized: 'true'
    node.kubernetes.io/instance-type: {TYPE}
    topology.kubernetes.io/zone: test-zone-a
    karpenter.sh/capacity-type: on-demand
spec: {{providerID: 'kwok://{name}'}}
status: {{allocatable: {{cpu: '4', memory: 8Gi, pods: '110'}}, conditions: [{{type: Ready, status: 'True'}}]}}
---
"
    )
}

const INITIALIZED: &str = "conditions: [{type: Initialized, status: 'True', lastTransitionTime: '2026-01-01T11:00:00Z', reason: Initialized, message: ''}]";

fn pod(name: &str, node: &str, metadata: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: uid-{name}, labels: {{app: web}}, {metadata}}}
spec: {{nodeName: {node}, containers: [{{name: c, image: i, resources: {{requests: {{cpu: 100m}}}}}}]}}
status: {{phase: Running, {rest}}}
---
"
    )
}

fn round_with(text: &str, change: impl FnOnce(&mut ClusterInput, &mut DisruptionInput)) -> AssembledCluster {
    let read = objects(text);
    let types = Arc::new(karpenter_catalog::kwok::generic());
    let pools = read.node_pools.into_iter();
    let pools = pools.map(|pool| PoolInput { pool: Arc::new(pool), instance_types: types.clone() });
    let (others, pools) = pools.partition(|one| one.pool.spec.replicas.is_some());
    let mut live = ClusterInput {
        pools,
        well_known: karpenter_catalog::kwok::well_known_labels(&types).into_iter().collect(),
        nodes: read.nodes.into_iter().map(Arc::new).collect(),
        node_claims: read.node_claims.into_iter().map(Arc::new).collect(),
        bound: read.pods.into_iter().map(Arc::new).collect(),
        ..ClusterInput::default()
    };
    let mut input = DisruptionInput {
        now: NOW.parse().expect("a time"),
        other_pools: others,
        pod_budgets: read.pod_disruption_budgets.into_iter().map(Arc::new).collect(),
        ..DisruptionInput::default()
    };
    change(&mut live, &mut input);
    assemble_disruption(&live, &input)
}

fn round(text: &str) -> AssembledCluster {
    round_with(text, |_, _| {})
}

#[test]
fn reservation_of_node_is_read_from_label_of_its_provider() {
    let label = "example.com/reservation";
    let reserved =
        state_node("a", "general", "").replace("labels:\n", &format!("labels:\n    {label}: r-1\n"));
    let text = pool("general", "", "") + &reserved;
    assert_eq!(round(&text).cluster.state_nodes[0].reservation_id, None, "no reservation is offered");
    let offered = round_with(&text, |live, _| {
        let types = Arc::make_mut(&mut live.pools[0].instance_types);
        types[0].offerings[0].reservation_id_label = Some(label.into());
    });
    assert_eq!(offered.cluster.state_nodes[0].reservation_id.as_deref(), Some("r-1"));
}

#[test]
fn state_node_has_facts_of_claim_node_and_labels() {
    let drifted = format!(
        "lastPodEventTime: '2026-01-01T11:30:00Z', {}, {{type: Drifted, status: 'True', lastTransitionTime: '2026-01-01T11:45:00Z', reason: NodePoolDrifted, message: ''}}]",
        INITIALIZED.trim_end_matches(']')
    );
    let text =
        pool("general", "", "") + &state_node("b", "general", &drifted) + &state_node("a", "general", "");
    let round = round(&text);
    let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
    let names: Vec<&str> = round.cluster.state_nodes.iter().map(|state_node| &*state_node.claim).collect();
    assert_eq!(names, ["a", "b"]);
    let StateNode { at: place, .. } = round.cluster.state_nodes[1];
    let place = place.expect("in the problem");
    assert_eq!(&*round.cluster.problem.nodes[place].name, "node-b");
    assert_eq!(round.state_nodes[1].claim.as_ref().unwrap().metadata.name.as_deref(), Some("b"));
    let state_node = &round.cluster.state_nodes[1];
    let price = {
        let types = karpenter_catalog::kwok::generic();
        let one = types.iter().find(|one| &*one.name == TYPE).expect("in the list");
        let is_it = |offering: &&karpenter_model::instance_type::Offering| {
            offering.zone().is_some_and(|zone| &**zone == "test-zone-a")
                && offering.capacity_type().is_some_and(|one| &**one == "on-demand")
        };
        one.offerings.iter().find(is_it).expect("offered").price_per_hour
    };
    assert_eq!(state_node.price_per_hour, price);
    assert_eq!(state_node.last_pod_event_secs, Some(at("2026-01-01T11:30:00Z")));
    assert_eq!(state_node.drifted_since_secs, Some(at("2026-01-01T11:45:00Z")));
    assert_eq!(
        (state_node.expire_after_secs, state_node.termination_grace_period_secs),
        (Some(2_592_000), Some(90))
    );
    assert!(state_node.is_initialized && state_node.is_registered && state_node.is_ready);
    assert!(
        !state_node.is_marked_for_deletion
            && !state_node.is_nominated
            && !state_node.is_instance_type_unknown
    );
    // The claim has no condition Initialized, so the time of the last pod event is unknown.
    assert_eq!(round.cluster.state_nodes[0].last_pod_event_secs, None);
    assert_eq!(round.cluster.state_nodes[0].drifted_since_secs, None);
}

#[test]
fn cluster_state_is_set_on_state_nodes() {
    let text = pool("general", "", "")
        + &state_node("a", "general", INITIALIZED)
        + &state_node("b", "general", INITIALIZED)
        + &state_node("c", "general", INITIALIZED)
        + &state_node("d", "unknown", INITIALIZED)
        + &pod(
            "p",
            "node-c",
            "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: uid-r, controller: true}]",
            "",
        );
    let round = round_with(&text, |live, input| {
        live.marked_for_deletion.insert("a".to_owned());
        input.nominated.insert("node-b".to_owned());
        input.pods_moved_at_secs.insert("uid-r".to_owned(), 7);
        input.claims_moved_onto_at_secs.insert("uid-c".to_owned(), 8);
        input.moved_last_hour.insert("general".to_owned(), 9);
    });
    let [a, b, c, d] = &round.cluster.state_nodes[..] else { panic!("four nodes") };
    assert!(a.is_marked_for_deletion && a.at.is_none() && !b.is_marked_for_deletion);
    assert!(b.is_nominated && !c.is_nominated);
    assert_eq!((c.pods[0].moved_at_secs, c.moved_onto_at_secs), (Some(7), Some(8)));
    assert_eq!(round.cluster.pools["general"].pool_policy.moved_last_hour, 9);
    assert!(d.is_instance_type_unknown && d.price_per_hour == 0.0);
    assert_eq!(round.cluster.problem.nodes.len(), 3);
}

#[test]
fn mobility_of_pods_is_in_order_of_their_node() {
    let daemon =
        "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: uid-d, controller: true}]";
    let kept = "annotations: {karpenter.sh/do-not-disrupt: 'true'}";
    let budget = "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: none}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: db}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 1, currentHealthy: 1, desiredHealthy: 0, expectedPods: 1}
---
";
    let db = pod("db", "node-a", "", "").replace("app: web", "app: db");
    let text = pool("general", "", "")
        + &state_node("a", "general", INITIALIZED)
        + &pod("moves", "node-a", "", "")
        + &pod("daemon", "node-a", daemon, "")
        + &pod("kept", "node-a", kept, "")
        + &db
        + budget;
    let round = round(&text);
    let state_node = &round.cluster.state_nodes[0];
    let node = &round.cluster.problem.nodes[state_node.at.expect("in the problem")];
    let seen: Vec<(&str, Mobility)> =
        state_node.pods.iter().zip(&node.pods).map(|(one, pod)| (&*one.name, pod.mobility)).collect();
    assert_eq!(
        seen,
        [
            ("default/moves", Mobility::Moves),
            ("default/daemon", Mobility::Stays),
            ("default/kept", Mobility::Blocked),
            ("default/db", Mobility::Blocked),
        ]
    );
    let names = |index: usize| -> Vec<&str> {
        let budgets = state_node.pods[index].budgets.iter();
        budgets.map(|at| &*round.cluster.pod_budgets[*at as usize].name).collect()
    };
    assert_eq!((names(0), names(3)), (vec!["default/all"], vec!["default/none"]));
    assert!(state_node.pods[2].is_do_not_disrupt && !state_node.pods[1].is_reschedulable);
    let [all, none] = &round.cluster.pod_budgets[..] else { panic!("two budgets") };
    assert!((all.disruptions_allowed, all.is_fully_blocking) == (1, false));
    assert!((none.disruptions_allowed, none.is_fully_blocking) == (0, true));
}

#[test]
fn pods_that_a_drain_has_to_evict_count_against_their_budget() {
    let budget = "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 1, currentHealthy: 3, desiredHealthy: 2, expectedPods: 3}
---
";
    let db = pod("db", "node-a", "", "").replace("app: web", "app: db");
    let text = pool("general", "", "")
        + &state_node("a", "general", INITIALIZED)
        + &state_node("b", "general", INITIALIZED)
        + &pod("waits", "node-a", "", "")
        + &pod("goes", "node-a", "deletionTimestamp: '2026-01-01T11:59:00Z'", "")
        + &db
        + &pod("other", "node-b", "", "")
        + budget;
    // A node is marked for deletion by the process (the set of names), by its claim, or by the Node object.
    let marks: [fn(&mut ClusterInput); 3] = [
        |live| {
            live.marked_for_deletion.insert("a".to_owned());
        },
        |live| {
            let at = live.node_claims[0].metadata.creation_timestamp.clone();
            Arc::make_mut(&mut live.node_claims[0]).metadata.deletion_timestamp = at;
        },
        |live| {
            let at = live.node_claims[0].metadata.creation_timestamp.clone();
            Arc::make_mut(&mut live.nodes[0]).metadata.deletion_timestamp = at;
        },
    ];
    for (index, mark) in marks.into_iter().enumerate() {
        let round = round_with(&text, |live, _| mark(live));
        let [a, _] = &round.cluster.state_nodes[..] else { panic!("two nodes") };
        assert!(a.is_marked_for_deletion && a.at.is_none(), "{index}");
        let waiting: Vec<&str> = a.pods.iter().map(|one| &*one.name).collect();
        assert_eq!(waiting, ["default/waits"], "{index}");
        let candidate = candidate(&round.cluster, 1, DisruptionClass::Graceful, Reason::Empty)
            .expect("nothing else stands against it");
        let mut used = PodBudgetUse::new(&round.cluster);
        let expected = Verdict::PodBudgetJoint { name: "default/all".into(), wanted: 2, allowed: 1 };
        assert_eq!(
            used.admit(&round.cluster, [&candidate], JointEvictions::AllNow),
            Err(expected),
            "{index}"
        );
    }
}

#[test]
fn nominated_pod_reserves_capacity_and_does_not_move() {
    let text =
        pool("general", "", "") + &state_node("a", "general", INITIALIZED) + &pod("p", "node-a", "", "");
    let round = round_with(&text, |live, _| {
        let mut pod = (*live.bound.remove(0)).clone();
        pod.node_name = None;
        live.expected.push(("a".to_owned(), Arc::new(pod)));
    });
    let state_node = &round.cluster.state_nodes[0];
    assert!(state_node.is_nominated);
    assert_eq!(state_node.pods.len(), 1);
    assert!(!state_node.pods[0].is_reschedulable);
    assert_eq!(round.cluster.problem.nodes[0].pods[0].mobility, Mobility::Stays);
    assert_eq!(&*round.pods_by_node[0][0].name, "p");
}

#[test]
fn node_within_consolidate_after_takes_no_moved_pods() {
    // There was no pod event for an hour.
    let cases = [
        ("consolidateAfter: 0s", false, Some(0)),
        ("consolidateAfter: 1h", false, Some(3600)),
        ("consolidateAfter: 61m", true, Some(3660)),
        ("consolidateAfter: Never", false, None),
    ];
    for (after, is_settling, secs) in cases {
        let text = pool("general", "", &format!("disruption: {{{after}}}"))
            + &state_node("a", "general", INITIALIZED);
        let round = round(&text);
        assert_eq!(round.cluster.problem.nodes[0].is_settling, is_settling, "{after}");
        assert_eq!(round.cluster.pools["general"].consolidate_after_secs, secs, "{after}");
    }
    let text = pool("general", "", "disruption: {consolidateAfter: 61m}") + &state_node("a", "general", "");
    assert!(!round(&text).cluster.problem.nodes[0].is_settling, "not initialised");
}

#[test]
fn pools_have_their_policy_and_allowed_disruptions() {
    let budgets = "disruption: {consolidationPolicy: Balanced, consolidateAfter: 0s, budgets: [{nodes: 50%}, {nodes: '1', reasons: [Drifted]}]}";
    let mut text = pool("general", "karpenter.sh/consolidation-dry-run: maybe", budgets);
    text += &pool("fixed", "", "replicas: 2\n  limits: {nodes: 3}");
    for name in ["a", "b", "c"] {
        text += &state_node(name, "general", INITIALIZED);
    }
    text += &state_node("f", "fixed", INITIALIZED);
    // A fourth node that is terminating counts towards the node limit, but budgets do not count it.
    let ended = INITIALIZED.replace(
        ']',
        ", {type: InstanceTerminating, status: 'True', lastTransitionTime: '2026-01-01T11:00:00Z', reason: InstanceTerminating, message: ''}]",
    );
    text += &state_node("g", "fixed", &ended);
    let round = round(&text);
    let general = &round.cluster.pools["general"];
    assert_eq!(general.policy, ConsolidationPolicy::Balanced);
    assert_eq!(general.launches_as, Some(0));
    // The budget allows half of three nodes, rounded up.
    assert_eq!(general.allowed[&Reason::Underutilized], 2);
    assert_eq!(general.allowed[&Reason::Unhealthy], 2);
    assert_eq!(general.allowed[&Reason::Drifted], 1);
    assert!(general.pool_policy.is_dry_run && general.is_ready);
    assert_eq!(round.control_errors.len(), 1);
    let fixed = &round.cluster.pools["fixed"];
    assert_eq!((fixed.replicas, fixed.nodes_left, fixed.launches_as), (Some(2), Some(1), None));
    assert!(!fixed.is_ready, "no Ready condition");
    assert_eq!((&fixed.full_reservations, &general.full_reservations), (&None, &None), "not reserved only");
    let state_node =
        round.cluster.state_nodes.iter().find(|state_node| &*state_node.claim == "f").expect("there");
    assert!(state_node.price_per_hour > 0.0 && state_node.at.is_some());
    assert_eq!(round.cluster.problem.pools.len(), 1);
}

#[test]
fn invalid_budget_allows_no_disruption_and_is_reported() {
    // The pattern of the CRD accepts the schedule, but there is no minute 61.
    let broken = "disruption: {budgets: [{nodes: 100%}, {nodes: '1', reasons: [Drifted], schedule: 61 * * * *, duration: 1h}]}";
    let mut text = pool("general", "", broken) + &pool("other", "", "disruption: {budgets: [{nodes: '2'}]}");
    text += &state_node("a", "general", INITIALIZED);
    let round = round(&text);
    let allowed = |pool: &str| Reason::ALL.map(|reason| round.cluster.pools[pool].allowed[&reason]);
    assert_eq!(allowed("general"), [0; 4], "whatever reason the broken one is for");
    assert_eq!(allowed("other"), [2; 4]);
    let message: Vec<String> = round.budget_errors.iter().map(ToString::to_string).collect();
    let [message] = message.as_slice() else { panic!("{message:?}") };
    assert!(
        message.starts_with("nodepool general: spec.disruption.budgets: budget 1: schedule field minute"),
        "{message}"
    );
    assert!(message.ends_with("; until it is corrected, no node of the nodepool is disrupted"), "{message}");
}

#[test]
fn pools_of_provisioners_have_v1alpha5_rules_and_marks() {
    let ttl = "compatibility.karpenter.sh/v1alpha5-ttl-seconds-until-expired: '600'";
    let derived = |text: String| {
        text.replace(
            "annotations: {",
            "labels: {compatibility.karpenter.sh/derived-from: provisioner}, annotations: {",
        )
    };
    let marked = |text: String, since: &str| {
        let marks = format!(
            "  name: node-a\n  creationTimestamp: '2026-01-01T10:30:00Z'\n  annotations: {{karpenter.sh/emptiness-timestamp: '{since}', karpenter.sh/do-not-consolidate: 'yes'}}"
        );
        text.replace("  name: node-a", &marks)
    };
    let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
    let by_time = "disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}";
    let never = "disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}";
    let consolidating = "disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s}";
    for (annotations, spec, expires, empty) in [
        (ttl, by_time, Some(600), Some(30)),
        ("", by_time, None, Some(30)),
        (ttl, never, Some(600), None),
        ("", consolidating, None, None),
    ] {
        let pool = derived(pool("general", annotations, spec));
        let state_node = marked(state_node("a", "general", INITIALIZED), "2026-01-01T11:10:00Z");
        let round = round(
            &(pool
                + &state_node
                + &pod("p", "node-a", "annotations: {karpenter.sh/do-not-evict: 'true'}", "")),
        );
        let rules = LegacyRules { expires_after_secs: expires, empty_after_secs: empty };
        assert_eq!(round.cluster.pools["general"].legacy_rules, Some(rules), "{spec}");
        let marks = LegacyNodeMarks {
            node_created_at_secs: Some(at("2026-01-01T10:30:00Z")),
            empty_since_secs: Some(at("2026-01-01T11:10:00Z")),
            do_not_consolidate: Some(false),
        };
        assert_eq!(round.cluster.state_nodes[0].legacy_marks, marks);
        assert!(
            round.cluster.state_nodes[0].pods[0].is_do_not_evict
                && !round.cluster.state_nodes[0].pods[0].is_do_not_disrupt
        );
    }
    let unreadable =
        derived(pool("general", "", by_time)) + &marked(state_node("a", "general", INITIALIZED), "recently");
    assert_eq!(round(&unreadable).cluster.state_nodes[0].legacy_marks.empty_since_secs, Some(0), "long ago");
    let current = pool("general", ttl, by_time)
        + &marked(state_node("a", "general", INITIALIZED), "2026-01-01T11:10:00Z");
    let current = round(&current).cluster;
    assert_eq!(
        (current.pools["general"].legacy_rules, current.state_nodes[0].legacy_marks),
        (None, LegacyNodeMarks::default())
    );
}
