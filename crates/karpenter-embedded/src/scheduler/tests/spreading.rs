//! Tests of hard topology spread constraints.

use serde_json::{Value, json};

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const REFUSED: &str = "node(s) didn't match pod topology spread constraints";

fn constraint(over: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    merge(&mut constraint, over);
    json!({"topologySpreadConstraints": [constraint]})
}

fn web(name: &str) -> Value {
    labelled(name, json!({"app": "web"}), json!({}))
}

fn web_with(name: &str, over: Value) -> Value {
    labelled(name, json!({"app": "web"}), constraint(over))
}

fn zones() -> [Value; 3] {
    [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

#[test]
fn skew_is_limited_by_max_skew() {
    let mut snapshot = cluster(zones(), [on("a1", web("x"))]);
    assert_bound(&mut snapshot, web_with("p", json!({})), "b1");
    // With a larger maxSkew, the node with the least allocated resources is chosen.
    let mut snapshot = cluster(zones(), [on("a1", web("x")), on("b1", web("y")), on("b1", web("z"))]);
    assert_bound(&mut snapshot, web_with("p", json!({})), "a2");
    assert_bound(&mut snapshot, web_with("p", json!({"maxSkew": 2})), "a2");
}

#[test]
fn nodes_without_topology_key_are_infeasible_and_not_counted() {
    let mut snapshot = cluster([node("bare", json!({}))], []);
    assert_refused(
        &mut snapshot,
        web_with("p", json!({})),
        &format!("0/1 nodes are available: 1 {REFUSED} (missing required label)."),
    );
    let nodes = zones().into_iter().chain([node("bare", json!({}))]);
    let mut snapshot = cluster(nodes, [on("bare", web("x")), on("bare", web("y")), on("a1", web("z"))]);
    assert_bound(&mut snapshot, web_with("p", json!({})), "b1");
}

#[test]
fn missing_min_domains_count_as_an_empty_domain() {
    let pods = || [on("a1", web("x")), on("b1", web("y"))];
    assert_bound(&mut cluster(zones(), pods()), web_with("p", json!({"minDomains": 2})), "a2");
    assert_refused(
        &mut cluster(zones(), pods()),
        web_with("p", json!({"minDomains": 3})),
        &format!("0/3 nodes are available: 3 {REFUSED}."),
    );
}

#[test]
fn only_non_terminating_pods_of_the_namespace_are_counted() {
    let mut foreign = on("b1", web("x"));
    merge(&mut foreign, json!({"metadata": {"namespace": "other"}}));
    let mut going = on("b1", web("y"));
    merge(&mut going, json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}));
    let mut snapshot = cluster(zones(), [on("a1", web("z")), foreign, going]);
    assert_bound(&mut snapshot, web_with("p", json!({})), "b1");
}

#[test]
fn match_label_keys_limit_the_count_to_one_revision() {
    let of = |name: &str, hash: &str, spec: Value| labelled(name, json!({"app": "web", "hash": hash}), spec);
    let old = || [on("b1", of("x", "1", json!({}))), on("b1", of("y", "1", json!({})))];
    // Node b1 has two pods of the old revision; no node has a pod of the new revision.
    let spec = constraint(json!({"matchLabelKeys": ["hash"]}));
    let mut snapshot = cluster([in_zone("a1", "a"), in_zone("b1", "b")], old());
    snapshot.apply_pod(&read(on("a1", of("z", "2", json!({})))));
    assert_bound(&mut snapshot, of("p", "2", spec.clone()), "b1");
    assert_bound(&mut snapshot, of("p", "1", spec), "a1");
}

#[test]
fn node_inclusion_policies_decide_which_nodes_count() {
    let tainted = || {
        let mut node = in_zone("c1", "c");
        merge(&mut node, json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
        node
    };
    let nodes = || zones().into_iter().chain([tainted()]);
    let pods = || [on("a1", web("x")), on("b1", web("y"))];
    // The empty zone c counts although the pod does not tolerate its taint, unless nodeTaintsPolicy is Honor.
    assert_refused(
        &mut cluster(nodes(), pods()),
        web_with("p", json!({})),
        &format!("0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 {REFUSED}."),
    );
    assert_bound(&mut cluster(nodes(), pods()), web_with("p", json!({"nodeTaintsPolicy": "Honor"})), "a2");
    // An empty zone that the node selector excludes counts only if nodeAffinityPolicy is Ignore.
    let chosen = |over: Value| {
        let mut pod = web_with("p", over);
        merge(&mut pod, json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "a2"}}}));
        pod
    };
    let one = || [on("a1", web("x")), on("a1", web("y"))];
    assert_bound(&mut cluster(zones(), one()), chosen(json!({})), "a2");
    assert_refused(
        &mut cluster(zones(), one()),
        chosen(json!({"nodeAffinityPolicy": "Ignore"})),
        &format!(
            "0/3 nodes are available: 1 {REFUSED}, 2 node(s) didn't match Pod's node affinity/selector."
        ),
    );
}

#[test]
fn pod_not_matching_its_own_selector_is_not_counted() {
    let spec = constraint(json!({}));
    let nodes = || [in_zone("a1", "a"), in_zone("b1", "b")];
    let mut snapshot = cluster(nodes(), [on("a1", web("x"))]);
    assert_bound(&mut snapshot, labelled("p", json!({"app": "other"}), spec.clone()), "b1");
    snapshot.apply_node(&read(in_zone("b1", "a")));
    let mut snapshot = cluster([in_zone("a1", "a"), in_zone("b1", "b")], [on("a1", web("x"))]);
    snapshot.apply_node(&read({
        let mut node = in_zone("b1", "b");
        merge(&mut node, json!({"spec": {"unschedulable": true}}));
        node
    }));
    assert_bound(&mut snapshot, labelled("p", json!({"app": "other"}), spec), "a1");
    assert_refused(
        &mut snapshot,
        web_with("p", json!({})),
        &format!("0/2 nodes are available: 1 {REFUSED}, 1 node(s) were unschedulable."),
    );
}
