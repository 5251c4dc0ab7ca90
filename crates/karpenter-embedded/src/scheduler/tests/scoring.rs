//! Tests of the scores: which of several feasible nodes is chosen.

use serde_json::{Value, json};

use super::*;

fn cpu(name: &str, cpu: &str) -> Value {
    pod(name, requests(json!({"cpu": cpu, "memory": "1Gi"})))
}

#[test]
fn least_allocated_node_wins_then_first_by_name() {
    let nodes = || [node("b", json!({})), node("a", json!({}))];
    assert_bound(&mut cluster(nodes(), []), cpu("p", "1"), "a");
    assert_bound(&mut cluster(nodes(), [on("a", cpu("x", "1"))]), cpu("p", "1"), "b");
}

#[test]
fn containers_without_requests_count_with_default_amounts() {
    let nodes = [node("a", json!({})), node("b", json!({}))];
    assert_bound(&mut cluster(nodes, [on("a", pod("x", json!({})))]), pod("p", json!({})), "b");
}

#[test]
fn soft_taints_and_preferred_affinity_outweigh_free_resources() {
    let repelling = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    let nodes = || [node("a", repelling.clone()), node("b", json!({}))];
    assert_bound(&mut cluster(nodes(), [on("b", cpu("x", "1"))]), cpu("p", "1"), "b");
    let mut drawn = cpu("p", "1");
    merge(
        &mut drawn,
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}}]}}}}),
    );
    let nodes = || [node("a", json!({})), node("b", json!({}))];
    assert_bound(&mut cluster(nodes(), [on("b", cpu("x", "2"))]), drawn, "b");
}

#[test]
fn balanced_allocation_is_preferred() {
    // The free shares of cpu and memory add up to the same sum on both nodes; on node b they are more balanced.
    let sized = |name: &str, cpu: &str, memory: &str| {
        node(name, json!({"status": {"allocatable": {"cpu": cpu, "memory": memory}}}))
    };
    let nodes = [sized("a", "2", "10Gi"), sized("b", "5", "2500Mi")];
    let nodes = nodes.into_iter().chain([sized("c", "4", "4Gi")]);
    assert_bound(&mut cluster(nodes, []), cpu("p", "1"), "c");
}

#[test]
fn preferred_pod_affinity_is_symmetric() {
    let preferred = |kind: &str, app: &str| {
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100,
            "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": app}}}}]}}})
    };
    let nodes = || [node("a", json!({})), node("b", json!({}))];
    let web = || on("b", labelled("web", json!({"app": "web"}), json!({})));
    assert_bound(&mut cluster(nodes(), [web()]), pod("p", preferred("podAffinity", "web")), "b");
    let at_a = || on("a", labelled("web", json!({"app": "web"}), json!({})));
    let busy = || on("b", cpu("busy", "1"));
    assert_bound(&mut cluster(nodes(), [at_a(), busy()]), pod("p", preferred("podAntiAffinity", "web")), "b");
    // The preferred affinity of an existing pod to the new pod affects the score.
    let host = on("b", pod("host", preferred("podAffinity", "web")));
    assert_bound(&mut cluster(nodes(), [host]), labelled("p", json!({"app": "web"}), json!({})), "b");
}

#[test]
fn soft_spread_prefers_domain_with_fewer_pods() {
    let soft = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let nodes = [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")];
    let web = |name: &str| labelled(name, json!({"app": "web"}), json!({}));
    let mut snapshot = cluster(nodes, [on("a1", web("x")), on("b1", cpu("busy", "1"))]);
    assert_bound(&mut snapshot, labelled("p", json!({"app": "web"}), soft), "b1");
}

#[test]
fn pods_of_a_workload_spread_by_default() {
    let of = |name: &str| {
        let mut pod = labelled(name, json!({"app": "web"}), json!({}));
        merge(
            &mut pod,
            json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                "uid": "rs", "controller": true}]}}),
        );
        pod
    };
    let nodes = || [in_zone("a1", "a"), in_zone("b1", "b")];
    let pods = || [on("a1", of("x")), on("b1", cpu("busy", "500m"))];
    let mut plain = cluster(nodes(), pods());
    assert_bound(&mut plain, of("p"), "a1");
    plain.apply_replica_set(&read(json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}})));
    assert_bound(&mut plain, of("p"), "b1");
    let mut served = cluster(nodes(), pods());
    served.apply_service(&read(json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}}})));
    assert_bound(&mut served, of("p"), "b1");
}
