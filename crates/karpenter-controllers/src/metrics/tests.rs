use super::*;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::stores::Stores;

/// A strict parser of Prometheus' text format.
fn parse(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut families: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    let mut described: BTreeSet<String> = BTreeSet::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty(), "{name} has no help");
            assert!(described.insert(name.to_owned()), "{name} is described twice");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert_eq!(name, current);
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            // Names of counters must end in `_total`. The gauge of the price of a NodePool does so too, as in upstream.
            let is_total = name.ends_with("_total") && name != "karpenter_nodepools_cost_total";
            assert_eq!(kind == "counter", is_total, "{name} is a {kind}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            assert!(series.starts_with(&current), "{series} is not of {current}");
            let value = value.parse().expect("a number");
            families.entry(current.clone()).or_default().push((series.to_owned(), value));
        }
    }
    families
}

#[test]
fn page_is_valid_prometheus_text() {
    let metrics = Metrics::default();
    metrics.nodeclaims_created.with_label_values(&["provisioned", "a \"quoted\" \\ pool\n", "false"]).inc();
    metrics.scheduling_duration.with_label_values(&["provisioner"]).observe(0.3);
    let families = parse(&metrics.render());
    let created = &families["karpenter_nodeclaims_created_total"];
    assert_eq!(created.len(), 1);
    assert!(created[0].0.contains(r#"nodepool="a \"quoted\" \\ pool\n""#), "{}", created[0].0);
    let durations = &families["karpenter_scheduler_scheduling_duration_seconds"];
    assert_eq!(durations.len(), DURATION_BUCKETS.len() + 3, "buckets, infinity, sum and count");
    assert_eq!(families["karpenter_build_info"][0].1, 1.0);
    for process in ["process_resident_memory_bytes", "process_cpu_seconds_total", "go_gc_heap_live_bytes"] {
        assert!(families.contains_key(process), "{process} is missing");
    }
    assert!(families["go_gc_heap_live_bytes"][0].1 > 0.0);
}

/// The value of the series whose line contains all these parts.
fn value(text: &str, parts: &[&str]) -> Option<f64> {
    let line =
        text.lines().find(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn metrics_follow_objects() {
    let client = Client::new(ApiServer::new(Config::default()), "default");
    let clock = Clock::system();
    let (stores, watches) = Stores::watch(&client, Vec::new());
    stores.nodes.synced().await;
    stores.pods.synced().await;
    let metrics = Metrics::default();
    metrics.follow(&stores, clock, true);

    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "one", "labels": {"karpenter.sh/nodepool": "a", "topology.kubernetes.io/zone": "z"}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "1Gi"}},
    }))
    .expect("a node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, owner) in [("web", "ReplicaSet"), ("agent", "DaemonSet")] {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "u", "controller": true}]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": owner},
            "spec": {"containers": [
                {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        }))
        .expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("created");
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "one"}});
        let create = PostParams::default();
        let answer = pods.create_subresource::<_, serde_json::Value>("binding", name, &create, &binding);
        answer.await.expect("bound");
    }
    let patch = json!({"metadata": {"labels": {"seen": "true"}}});
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    let is_bound =
        |name: &str| stores.pods.get("default", name).is_some_and(|pod| crate::pods::is_bound(&pod));
    let mut changes = stores.pods.subscribe();
    while !(is_bound("web") && is_bound("agent")) {
        changes.recv().await;
    }
    let text = metrics.page(&stores, clock, true);
    parse(&text);
    let on_node = |name: &str, resource: &str| {
        value(
            &text,
            &[name, "node_name=\"one\"", "managed=\"true\"", &format!("resource_type=\"{resource}\"")],
        )
    };
    assert_eq!(on_node("karpenter_nodes_allocatable{", "cpu"), Some(4.0));
    assert_eq!(on_node("karpenter_nodes_allocatable{", "ephemeral_storage"), Some(f64::from(1 << 30)));
    assert_eq!(
        on_node("karpenter_nodes_total_pod_requests{", "cpu"),
        Some(1.0),
        "DaemonSet pods are included"
    );
    assert_eq!(on_node("karpenter_nodes_total_daemon_requests{", "cpu"), Some(0.5));
    assert_eq!(on_node("karpenter_nodes_total_daemon_requests{", "memory"), Some(f64::from(1 << 30)));
    assert_eq!(value(&text, &["karpenter_cluster_utilization_percent{resource_type=\"cpu\"}"]), Some(25.0));
    assert_eq!(value(&text, &["karpenter_cluster_state_node_count "]), Some(1.0));
    assert_eq!(
        value(&text, &["karpenter_cluster_state_synced "]),
        Some(0.0),
        "the NodeClaim store is not synced"
    );
    assert_eq!(value(&text, &["karpenter_pods_bound_duration_seconds_count{"]), Some(2.0));
    let web = ["karpenter_pods_state{", r#"name="web""#, r#"node="one""#, r#"nodepool="a""#, r#"zone="z""#];
    assert_eq!(value(&text, &web), Some(1.0));
    let standby = Metrics::default().page(&stores, clock, true);
    assert_eq!(
        value(&standby, &["karpenter_pods_state{"]),
        None,
        "only the leader publishes metrics of objects"
    );
    let plain = metrics.page(&stores, clock, false);
    assert_eq!(value(&plain, &["node_name="]), None, "metrics of objects can be disabled");

    nodes.delete("one", &DeleteParams::default()).await.expect("deleted");
    let mut changes = stores.nodes.subscribe();
    while stores.nodes.get("", "one").is_some() {
        changes.recv().await;
    }
    let text = metrics.page(&stores, clock, true);
    assert_eq!(value(&text, &["karpenter_nodes_allocatable{"]), None, "deleted objects have no series");
    parse(&text);
    assert_eq!(value(&text, &["karpenter_nodes_terminated_total{nodepool=\"a\",zone=\"z\"}"]), Some(1.0));
    for watch in watches {
        watch.abort();
    }
}
