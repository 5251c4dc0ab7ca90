//! Tests of required pod affinity and anti-affinity.

use serde_json::{Value, json};

use super::*;

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn term(key: &str, app: &str, over: Value) -> Value {
    let mut term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    merge(&mut term, over);
    term
}

fn near(term: Value) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn far(term: Value) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn app(name: &str, app: &str, spec: Value) -> Value {
    labelled(name, json!({"app": app}), spec)
}

fn zones() -> [Value; 3] {
    [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

#[test]
fn affinity_selects_domain_of_matching_pods() {
    let mut snapshot = cluster(zones(), [on("b1", app("db", "db", json!({})))]);
    assert_bound(&mut snapshot, app("web", "web", near(term(ZONE, "db", json!({})))), "b1");
    let refused = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.";
    assert_refused(&mut snapshot, app("web", "web", near(term(ZONE, "cache", json!({})))), refused);
    assert_refused(&mut snapshot, app("web", "web", near(term("rack", "db", json!({})))), refused);
}

#[test]
fn first_pod_of_self_affine_group_is_schedulable() {
    let spec = near(term(ZONE, "web", json!({})));
    let nodes = || [node("bare", json!({})), in_zone("z1", "a")];
    assert_bound(&mut cluster(nodes(), []), app("p", "web", spec.clone()), "z1");
    // After the first pod was scheduled, further pods must be scheduled to its zone.
    let mut snapshot = cluster(zones(), [on("b1", app("first", "web", json!({})))]);
    assert_bound(&mut snapshot, app("p", "web", spec.clone()), "b1");
    // A pod that does not match its own affinity term cannot be the first pod of a group.
    assert_refused(
        &mut cluster(zones(), []),
        app("p", "other", spec),
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.",
    );
}

#[test]
fn anti_affinity_is_symmetric() {
    let guard = || on("a1", app("guard", "guard", far(term(ZONE, "web", json!({})))));
    assert_bound(&mut cluster(zones(), [guard()]), app("p", "web", json!({})), "b1");
    let nodes = || [in_zone("a1", "a"), in_zone("a2", "a")];
    assert_refused(
        &mut cluster(nodes(), [guard()]),
        app("p", "web", json!({})),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.",
    );
    assert_refused(
        &mut cluster(nodes(), [on("a1", app("web", "web", json!({})))]),
        app("p", "guard", far(term(ZONE, "web", json!({})))),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
    );
    // With hostname as topology key the second node of the zone is feasible.
    let per_host = app("p", "guard", far(term(HOST, "web", json!({}))));
    assert_bound(&mut cluster(nodes(), [on("a1", app("web", "web", json!({})))]), per_host, "a2");
}

#[test]
fn terms_apply_to_named_and_selected_namespaces() {
    let foreign = || {
        let mut pod = on("b1", app("db", "db", json!({})));
        merge(&mut pod, json!({"metadata": {"namespace": "other"}}));
        pod
    };
    let place = |over: Value| {
        let mut snapshot = cluster(zones(), [foreign()]);
        snapshot.apply_namespace(&read(json!({"metadata": {"name": "other", "labels": {"team": "b"}}})));
        decide(&mut snapshot, app("web", "web", near(term(ZONE, "db", over))))
    };
    let cases = [
        (json!({}), false),
        (json!({"namespaces": ["other"]}), true),
        (json!({"namespaces": ["third"]}), false),
        (json!({"namespaceSelector": {}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), false),
        (json!({"namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "a"}}}), true),
    ];
    for (over, found) in cases {
        let decision = place(over.clone());
        assert_eq!(matches!(decision, Decision::Bind { .. }), found, "{over}: {decision:?}");
    }
}

#[test]
fn match_label_keys_and_mismatch_label_keys_use_the_pods_values() {
    let labels = |hash: &str| json!({"app": "web", "hash": hash});
    let old = || on("a1", labelled("old", labels("1"), json!({})));
    let one = || [in_zone("a1", "a")];
    let same = far(term(HOST, "web", json!({"matchLabelKeys": ["hash"]})));
    assert_bound(&mut cluster(one(), [old()]), labelled("p", labels("2"), same.clone()), "a1");
    assert_refused(
        &mut cluster(one(), [old()]),
        labelled("p", labels("1"), same),
        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
    );
    let others = far(term(HOST, "web", json!({"mismatchLabelKeys": ["hash"]})));
    assert_bound(&mut cluster(one(), [old()]), labelled("p", labels("1"), others.clone()), "a1");
    assert_refused(
        &mut cluster(one(), [old()]),
        labelled("p", labels("2"), others),
        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
    );
}

#[test]
fn counts_follow_pod_changes() {
    let spec = far(term(HOST, "web", json!({})));
    let mut snapshot = cluster([in_zone("a1", "a")], []);
    assert_bound(&mut snapshot, app("p", "web", spec.clone()), "a1");
    snapshot.apply_pod(&read(on("a1", app("q", "web", json!({})))));
    let refused = "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.";
    assert_refused(&mut snapshot, app("p", "web", spec.clone()), refused);
    snapshot.apply_pod(&read(on("a1", app("q", "api", json!({})))));
    assert_bound(&mut snapshot, app("p", "web", spec.clone()), "a1");
    snapshot.apply_pod(&read(on("a1", app("q", "api", far(term(HOST, "web", json!({})))))));
    let refused = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_refused(&mut snapshot, app("p", "web", spec.clone()), refused);
    snapshot.remove_pod(&karpenter_runtime::object::ObjectKey::new("default", "q"));
    assert_bound(&mut snapshot, app("p", "web", spec), "a1");
}
