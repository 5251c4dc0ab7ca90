//! Tests of `karpenter plan` with the prices of volumes and addresses: what is printed, and which nodes are planned.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The price per hour of 20 GiB of gp3 in us-east-1, in dollars.
const ROOT_VOLUME: f64 = 20.0 * 0.08 / 730.0;

/// A Deployment of 60 pods, and an EC2NodeClass with one volume.
fn manifests(requests: &str, ebs: &str) -> String {
    let terms = "subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]";
    let mapping = format!("[{{deviceName: /dev/xvda, ebs: {{{ebs}}}}}]");
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 60
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: web, resources: {{requests: {{{requests}}}}}}}]}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: default}}
spec:
  template:
    spec:
      requirements:
      - {{key: kubernetes.io/os, operator: In, values: [linux]}}
      - {{key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}}
      - {{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}}
      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: default}}
spec: {{amiSelectorTerms: [{{alias: al2023@latest}}], role: r, {terms}, blockDeviceMappings: {mapping}}}
"
    )
}

/// The plan with the lowest price, without a tolerance for fewer nodes.
fn plan(text: &str, format: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    command
        .args(["plan", "--strict", "--node-count-tolerance", "0", "-f", "-", "-o", format])
        .env_remove("COLUMNS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("the binary reads its input");
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn plan_json(text: &str) -> Value {
    serde_json::from_str(&plan(text, "json")).expect("valid JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn node_count(plan: &Value) -> usize {
    plan["nodes"].as_array().expect("a list").len()
}

/// The part of the price that is not for instances but for volumes and addresses.
fn attached(plan: &Value) -> f64 {
    number(&plan["cost"]["hourly"]) - number(&plan["cost"]["instanceHourly"])
}

#[test]
fn root_volumes_make_a_plan_use_fewer_nodes() {
    // The size of a snapshot is unknown, so its volume is not priced.
    let unpriced = "snapshotID: snap-1";
    for (requests, ebs, per_node) in [
        // Larger instances cost the same per pod, so a price for volumes makes larger nodes cheaper.
        ("cpu: 1800m, memory: 6Gi", "volumeSize: 20Gi, volumeType: gp3", ROOT_VOLUME),
        // The smallest burstable instances cost a third less per pod than larger ones. Larger volumes cost more than
        // this difference.
        ("cpu: 500m, memory: 512Mi", "volumeSize: 200Gi, volumeType: gp3", 10.0 * ROOT_VOLUME),
    ] {
        let without = plan_json(&manifests(requests, unpriced));
        let with = plan_json(&manifests(requests, ebs));
        let (many, few) = (node_count(&without), node_count(&with));
        assert!(few < many, "{requests}: {few} nodes, {many} without");
        assert_eq!(attached(&without), 0.0);
        assert!((attached(&with) - few as f64 * per_node).abs() < 1e-4, "{requests}");
        let other = number(&without["cost"]["hourly"]) + many as f64 * per_node;
        assert!(number(&with["cost"]["hourly"]) < other, "{requests}: the other fleet costs {other}");
    }
}

#[test]
fn instance_price_is_shown_beside_the_price_of_the_node() {
    let with = manifests("cpu: 500m, memory: 512Mi", "volumeSize: 20Gi, volumeType: gp3");
    for node in plan_json(&with)["nodes"].as_array().expect("a list") {
        let difference = number(&node["price"]) - number(&node["instancePrice"]);
        assert!((difference - ROOT_VOLUME).abs() < 2e-6, "{difference}");
    }
    for format in ["table", "wide"] {
        let table = plan(&with, format);
        assert!(table.contains("instances    $"), "{table}");
        assert!(table.contains("  INSTANCE  "), "{table}");
        let without = plan(&manifests("cpu: 500m, memory: 512Mi", "snapshotID: snap-1"), format);
        assert!(!without.contains("instances    $") && !without.contains("INSTANCE"), "{without}");
    }
}
