use karpenter_disruption::cluster::Cluster;
use karpenter_model::problem::Mobility;

use super::*;
use crate::convert::pool::PoolLeftOut;
use crate::disruption::assemble_disruption;
use crate::testing::{POOL, objects, read};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata:
  name: n1
  uid: uid-n1
  creationTimestamp: '2026-01-01T10:00:00Z'
  labels:
    karpenter.sh/nodepool: general
    karpenter.sh/registered: 'true'
    karpenter.sh/initialized: 'true'
    node.kubernetes.io/instance-type: c-4x-amd64-linux
    topology.kubernetes.io/zone: test-zone-a
    karpenter.sh/capacity-type: on-demand
status:
  allocatable: {cpu: '4', memory: 8Gi, pods: '110'}
  conditions: [{type: Ready, status: 'True', lastHeartbeatTime: '2026-01-01T12:00:00Z', lastTransitionTime: '2026-01-01T10:01:00Z'}]
";

fn pod(name: &str, spec: &str, status: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: uid-{name}}}\nspec: {{containers: [{{name: c, image: i}}], {spec}}}\nstatus: {{{status}}}\n"
    )
}

fn cluster(text: &str) -> (Cluster, Vec<Note>) {
    let objects = objects(text);
    let now = captured_at(&objects).expect("there is a time");
    let dump = read_dump(objects, &CatalogChoice::Kwok, now);
    (assemble_disruption(&dump.live, &dump.input).cluster, dump.notes)
}

#[test]
fn node_without_claim_gets_one_from_labels_and_pool() {
    let pool = POOL
        .replace("nodeClassRef", "expireAfter: 1h\n      terminationGracePeriod: 30s\n      nodeClassRef");
    let text = format!(
        "{pool}---{NODE}{}",
        pod("p", "nodeName: n1", "phase: Running, startTime: '2026-01-01T11:00:00Z'")
    );
    let (cluster, notes) = cluster(&text);
    assert_eq!(notes, [Note::ClaimsAssumed { count: 1 }]);
    let state_node = &cluster.state_nodes[0];
    assert_eq!((&*state_node.claim, &*state_node.uid), ("n1", "uid-n1"));
    let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
    assert_eq!(state_node.last_pod_event_secs, Some(at("2026-01-01T11:00:00Z")));
    assert_eq!(
        (state_node.expire_after_secs, state_node.termination_grace_period_secs),
        (Some(3600), Some(30))
    );
    assert!(state_node.is_initialized && state_node.price_per_hour > 0.0);
    assert_eq!(
        cluster.problem.nodes[state_node.at.expect("in the problem")].pods[0].mobility,
        Mobility::Moves
    );
    assert_eq!(cluster.now_secs, at("2026-01-01T12:00:00Z"));
}

#[test]
fn move_annotations_of_the_controller_are_read() {
    let moved = r#"{"2026-01-01T10:59:59Z": 5, "2026-01-01T11:30:00Z": 2, "2026-01-01T12:00:00Z": 1}"#;
    let annotated = format!("{{name: general, annotations: {{karpenter.sh/pods-moved: '{moved}'}}}}");
    let pool = POOL.replace("{name: general}", &annotated);
    let claim = |name: &str, annotations: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: {name}, uid: uid-{name}, creationTimestamp: '2026-01-01T10:00:00Z', labels: {{karpenter.sh/nodepool: general}}, annotations: {{{annotations}}}}}\nspec: {{nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}, requirements: []}}\n"
        )
    };
    let text = format!(
        "{pool}---{NODE}{}{}{}",
        claim("a", "karpenter.sh/pods-moved-at: '2026-01-01T11:40:00Z'"),
        claim("b", "karpenter.sh/replaces: '{}'"),
        claim("c", ""),
    );
    let (cluster, _) = cluster(&text);
    assert_eq!(cluster.pools["general"].pool_policy.moved_last_hour, 3);
    let at = |text: &str| text.parse::<Timestamp>().expect("a time").as_second();
    let moved_onto: Vec<Option<i64>> = cluster
        .state_nodes
        .iter()
        .filter(|one| one.uid.len() == 5)
        .map(|one| one.moved_onto_at_secs)
        .collect();
    let expected = [Some(at("2026-01-01T11:40:00Z")), Some(at("2026-01-01T10:00:00Z")), None];
    assert_eq!(moved_onto, expected);
}

#[test]
fn pods_without_node_are_pending_unless_gated_or_nominated() {
    let text = format!(
        "{POOL}---{NODE}{}{}{}{}{}",
        pod("waits", "", "phase: Pending"),
        pod("comes", "", "phase: Pending, nominatedNodeName: n1"),
        pod("gated", "schedulingGates: [{name: g}]", "phase: Pending"),
        pod("lost", "nodeName: other", "phase: Running"),
        pod("ended", "nodeName: n1", "phase: Succeeded"),
    );
    let (cluster, notes) = cluster(&text);
    assert_eq!(cluster.problem.pods.len(), 1);
    assert_eq!(cluster.problem.pods[0].names.name(0), "waits");
    assert!(cluster.state_nodes[0].is_nominated);
    assert_eq!(&*cluster.state_nodes[0].pods[0].name, "default/comes");
    assert_eq!(
        notes,
        [
            Note::ClaimsAssumed { count: 1 },
            Note::GatedPods { count: 1 },
            Note::PodsOnUnknownNodes { count: 1 }
        ]
    );
}

#[test]
fn invalid_cost_annotations_are_noted() {
    let stated = |name: &str, cost: &str| {
        let annotations = format!("uid: uid-{name}, annotations: {{karpenter.sh/disruption-cost: '{cost}'}}");
        pod(name, "nodeName: n1", "phase: Running").replace(&format!("uid: uid-{name}"), &annotations)
    };
    let (_, notes) =
        cluster(&format!("{POOL}---{NODE}{}{}", stated("right", "-5"), stated("wrong", "a lot")));
    assert_eq!(notes[1..], [Note::CostsUnreadable { pods: vec!["default/wrong".to_owned()] }]);
    assert!(notes[1].to_string().ends_with(": default/wrong"), "{}", notes[1]);
}

#[test]
fn pods_of_deleted_nodes_are_pending() {
    let deleted = NODE.replace("uid: uid-n1", "uid: uid-n1\n  deletionTimestamp: '2026-01-01T12:00:00Z'");
    let text = format!("{POOL}---{deleted}{}", pod("p", "nodeName: n1", "phase: Running"));
    let (cluster, notes) = cluster(&text);
    assert!(cluster.state_nodes[0].is_marked_for_deletion && cluster.state_nodes[0].at.is_none());
    assert_eq!((cluster.problem.nodes.len(), cluster.problem.pods.len()), (0, 1));
    assert!(notes.contains(&Note::DisplacedPods { count: 1 }));
}

#[test]
fn pools_that_cannot_launch_still_price_their_nodes() {
    let fixed = POOL.replace("spec:\n  template", "spec:\n  replicas: 1\n  template");
    let (cluster, notes) = cluster(&format!("{fixed}---{NODE}"));
    assert_eq!(notes[0], Note::PoolLaunchesNothing { pool: "general".to_owned(), why: PoolLeftOut::Static });
    assert!(cluster.problem.pools.is_empty() && cluster.state_nodes[0].price_per_hour > 0.0);
}

#[test]
fn dump_without_timestamps_has_no_capture_time() {
    assert_eq!(captured_at(&read(POOL).objects), None);
}
