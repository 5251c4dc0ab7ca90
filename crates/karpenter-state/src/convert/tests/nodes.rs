use karpenter_model::problem::{Node, Problem};

use crate::notes::Note;
use crate::testing::{POOL, pod_yaml, problem};

fn node(labels: &str, spec: &str, metadata: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Node, metadata: {{name: n1{metadata}, labels: {{karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: t, {labels}}}}}, spec: {{providerID: id, {spec}}}, status: {{allocatable: {{cpu: 3900m, memory: '0', pods: '110'}}, capacity: {{cpu: 4, memory: 8Gi}}}}}}\n"
    )
}

fn claim(spec: &str, status: &str, metadata: &str) -> String {
    format!(
        "---\n{{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {{name: general-x, labels: {{karpenter.sh/nodepool: general, zone: from-claim}}{metadata}}}, spec: {{requirements: [], nodeClassRef: {{group: g, kind: K, name: default}}, {spec}}}, status: {{providerID: id, allocatable: {{cpu: '4', memory: 7Gi}}, capacity: {{cpu: '4', memory: 8Gi}}, {status}}}}}\n"
    )
}

fn assemble(text: &str) -> (Problem, Vec<Note>) {
    problem(&format!("{POOL}{text}"))
}

fn only_node(text: &str) -> Node {
    let mut nodes = assemble(text).0.nodes;
    assert_eq!(nodes.len(), 1, "{text}");
    nodes.remove(0)
}

fn taints(text: &str) -> Vec<String> {
    only_node(text).taints.iter().map(ToString::to_string).collect()
}

const INITIALIZED: &str = "karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true'";
const REGISTERED: &str = "karpenter.sh/registered: 'true'";
const COMING_UP: &str = "taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: readiness.k8s.io/x, effect: NoSchedule}, {key: start, effect: NoSchedule}, {key: stay, value: v, effect: NoExecute}]";
const STARTUP: &str =
    "startupTaints: [{key: start, effect: NoSchedule}], taints: [{key: claimed, effect: NoSchedule}]";

#[test]
fn taints_depend_on_registration_and_initialization() {
    let all = [
        "node.kubernetes.io/not-ready:NoSchedule",
        "readiness.k8s.io/x:NoSchedule",
        "start:NoSchedule",
        "stay=v:NoExecute",
    ];
    let cases: [(&str, bool, &[&str]); 4] = [
        ("a: b", false, &all),
        (INITIALIZED, true, &all),
        (REGISTERED, true, &["stay=v:NoExecute"]),
        ("a: b", true, &["claimed:NoSchedule"]),
    ];
    for (labels, has_claim, expected) in cases {
        let claim = if has_claim { claim(STARTUP, "", "") } else { String::new() };
        assert_eq!(
            taints(&format!("{}{claim}", node(labels, COMING_UP, ""))),
            expected,
            "{labels} {has_claim}"
        );
    }
}

#[test]
fn cordoned_node_is_tainted() {
    assert_eq!(
        taints(&node("a: b", "unschedulable: true", "")),
        ["node.kubernetes.io/unschedulable:NoSchedule"]
    );
    let already =
        "unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]";
    assert_eq!(taints(&node("a: b", already, "")).len(), 1);
}

#[test]
fn rebooting_node_is_converted_without_its_taints() {
    let rebooting = "conditions: [{type: Rebooting, status: 'True', reason: R, message: m, lastTransitionTime: 2026-01-01T00:00:00Z}]";
    let spec = "taints: [{key: karpenter.sh/rebooting, effect: NoSchedule}, {key: node.kubernetes.io/not-ready, effect: NoExecute}, {key: stay, effect: NoSchedule}]";
    let text = format!("{}{}", node(INITIALIZED, spec, ""), claim("", rebooting, ""));
    assert_eq!(taints(&text), ["stay:NoSchedule"]);
}

#[test]
fn labels_come_from_the_claim_until_the_node_is_registered() {
    for (labels, expected) in
        [("zone: own", Some("from-claim")), ("zone: own, karpenter.sh/registered: 'true'", Some("own"))]
    {
        let found = only_node(&format!("{}{}", node(labels, "", ""), claim("", "", "")));
        assert_eq!(found.labels.get("zone").map(AsRef::as_ref), expected, "{labels}");
        assert!(!found.initialized);
    }
    let unmanaged = only_node(&node("zone: own", "", ""));
    assert_eq!((unmanaged.labels.get("zone").map(AsRef::as_ref), unmanaged.initialized), (Some("own"), true));
}

#[test]
fn deprecated_labels_are_read_as_their_stable_ones() {
    let found = only_node(&node(
        "beta.kubernetes.io/arch: arm64, failure-domain.beta.kubernetes.io/zone: old, topology.kubernetes.io/zone: new",
        "",
        "",
    ));
    assert_eq!(found.labels.get("kubernetes.io/arch").map(AsRef::as_ref), Some("arm64"));
    assert_eq!(found.labels.get("topology.kubernetes.io/zone").map(AsRef::as_ref), Some("new"));
    assert!(!found.labels.contains_key("beta.kubernetes.io/arch"));
}

#[test]
fn unreported_amounts_come_from_the_claim() {
    let amounts = |text: &str| {
        let node = only_node(text);
        (node.allocatable.get("cpu"), node.allocatable.get("memory"), node.allocatable.get("pods"))
    };
    assert_eq!(amounts(&format!("{}{}", node(REGISTERED, "", ""), claim("", "", ""))), (3900, 7 << 30, 110));
    assert_eq!(amounts(&format!("{}{}", node(INITIALIZED, "", ""), claim("", "", ""))), (3900, 0, 110));
    assert_eq!(amounts(&claim("", "", "")), (4000, 7 << 30, 0));
}

#[test]
fn claim_without_node_is_an_in_flight_node() {
    let found = only_node(&claim(STARTUP, "", ""));
    assert_eq!(
        (&*found.name, found.initialized, found.pool.as_deref()),
        ("general-x", false, Some("general"))
    );
    assert_eq!(found.taints.iter().map(ToString::to_string).collect::<Vec<_>>(), ["claimed:NoSchedule"]);
    let unlaunched = claim("", "", "").replace("allocatable: {cpu: '4', memory: 7Gi}, ", "");
    let (problem, notes) = assemble(&unlaunched);
    assert_eq!(problem.nodes.len(), 0);
    assert_eq!(notes, [Note::UnlaunchedClaims { names: vec!["general-x".to_owned()] }]);
}

#[test]
fn node_is_matched_by_provider_id_or_name() {
    let by_id = format!("{}{}", node(REGISTERED, "", ""), claim("", "", ""));
    assert!(!only_node(&by_id).initialized);
    let by_name = by_id.replace("providerID: id, allocatable", "nodeName: n1, allocatable");
    assert!(!only_node(&by_name).initialized);
    let unrelated = by_id.replace("status: {providerID: id,", "status: {providerID: other,");
    assert_eq!(assemble(&unrelated).0.nodes.len(), 2);
}

#[test]
fn unlabelled_managed_node_uses_its_claim() {
    let bare = node("a: b", COMING_UP, "").replace("node.kubernetes.io/instance-type: t, ", "");
    let found = only_node(&format!("{bare}{}", claim(STARTUP, "", "")));
    assert_eq!(found.labels.get("zone").map(AsRef::as_ref), Some("from-claim"));
    assert_eq!((&*found.name, found.allocatable.get("cpu")), ("n1", 4000));
}

#[test]
fn pods_of_deleted_nodes_are_pending() {
    let pods = [
        pod_yaml("moves", "nodeName: n1"),
        pod_yaml("daemon", "nodeName: n1").replace(
            "labels: {app: web}",
            "ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u}]",
        ),
        pod_yaml("mirror", "nodeName: n1")
            .replace("labels: {app: web}", "ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: u}]"),
        pod_yaml("stays", "nodeName: n1")
            .replace("labels: {app: web}", "annotations: {karpenter.sh/do-not-disrupt: 'true'}"),
        pod_yaml("leaves", "nodeName: n1")
            .replace("labels: {app: web}", "deletionTimestamp: 2026-01-01T00:00:00Z"),
        pod_yaml("returns", "nodeName: n1").replace(
            "labels: {app: web}",
            "deletionTimestamp: 2026-01-01T00:00:00Z, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: s, uid: u}]",
        ),
    ];
    let pods: String = pods.iter().map(|pod| format!("---\n{pod}")).collect();
    let deleted = ", deletionTimestamp: 2026-01-01T00:00:00Z";
    for text in [
        format!("{}{}", node(INITIALIZED, "", ""), claim("", "", deleted)),
        node("a: b", "", deleted),
        format!(
            "{}{}",
            node(INITIALIZED, "", ""),
            claim(
                "",
                "conditions: [{type: InstanceTerminating, status: 'True', reason: R, message: m, lastTransitionTime: 2026-01-01T00:00:00Z}]",
                ""
            )
        ),
    ] {
        let (problem, notes) = assemble(&format!("{text}{pods}"));
        assert_eq!(problem.nodes.len(), 0, "{text}");
        let mut names: Vec<String> = problem.pods.iter().map(|group| group.names.name(0)).collect();
        names.sort_unstable();
        assert_eq!(names, ["moves", "returns"], "{text}");
        assert_eq!(notes, [Note::DisplacedPods { count: 2 }]);
        assert_eq!(problem.pools[0].usage.get("nodes"), 0);
    }
    let (problem, _) = assemble(&format!("{}{pods}", node("a: b", "", "")));
    assert_eq!(problem.nodes[0].pods.len(), 6);
    let terminating = problem.nodes[0].pods.iter().filter(|pod| pod.is_terminating).count();
    let daemons = problem.nodes[0].pods.iter().filter(|pod| pod.is_daemon).count();
    assert_eq!((terminating, daemons), (2, 1));
}

#[test]
fn volume_limits_come_from_the_csi_node() {
    let csi = "---\n{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n1}, spec: {drivers: [{name: a, nodeID: x, allocatable: {count: 3}}, {name: b, nodeID: x}, {name: c, nodeID: x, allocatable: {}}]}}\n";
    let found = only_node(&format!("{}{csi}", node("a: b", "", "")));
    let limits: Vec<_> = found.volume_limits.iter().map(|(driver, limit)| (&**driver, *limit)).collect();
    assert_eq!(limits, [("a", 3)]);
}
