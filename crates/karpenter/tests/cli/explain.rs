//! Tests of the binary with `karpenter explain`: the exact text for the situations in examples/explain, the documents as
//! JSON, exit codes and messages. `UPDATE_EXPECT=1 cargo test -p karpenter --test cli explain::` writes the expected output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect_file;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams, TypeMeta};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::up::{Folder, Up};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/explain")
}

fn explain(arguments: &[&str], example: &str) -> Output {
    let file = examples().join(example).with_extension("yaml");
    Command::new(env!("CARGO_BIN_EXE_karpenter"))
        .arg("explain")
        .args(arguments)
        .arg("-f")
        .arg(file)
        .output()
        .expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Compares the text with the file next to the example.
fn check(arguments: &[&str], example: &str) {
    let text = stdout(&explain(arguments, example));
    expect_file![examples().join(example).with_extension("txt")].assert_eq(&text);
}

#[test]
fn pod_with_untolerated_taint() {
    check(&["pod", "trainer-0", "-n", "ml"], "pod-taint");
}

#[test]
fn pod_larger_than_every_instance_type() {
    check(&["pod", "huge-5d8f7c9b64-84bkq"], "pod-too-large");
}

#[test]
fn pod_beyond_the_limit_of_its_node_pool() {
    check(&["pod", "batch-77f9df7b9-2zq8k"], "pod-limit");
}

#[test]
fn pod_with_node_in_flight() {
    check(&["pod", "web-5d8f7c9b64-9pm5g"], "pod-in-flight");
}

#[test]
fn pod_with_topology_spread() {
    check(&["pod", "web-5d8f7c9b64-t7v2c"], "pod-spread");
}

#[test]
fn pod_with_label_that_no_node_pool_has() {
    check(&["pod", "web-0", "-n", "shop"], "pod-label");
}

#[test]
fn pod_that_needs_a_node_pool_that_is_not_ready() {
    let text = stdout(&explain(&["pod", "trainer-0", "-n", "ml"], "nodepool-not-ready"));
    expect_file![examples().join("nodepool-not-ready-pod.txt")].assert_eq(&text);
}

#[test]
fn node_with_three_blockers() {
    check(&["node", "ip-10-0-3-17", "--min-spot-types", "15"], "node-pdb");
}

#[test]
fn node_that_waits_for_a_budget() {
    check(&["node", "ip-10-0-7-4"], "node-budget");
}

#[test]
fn node_with_do_not_disrupt_pod() {
    check(&["node", "ip-10-0-5-9"], "node-do-not-disrupt");
}

#[test]
fn spot_node_without_the_feature_gate() {
    check(&["node", "ip-10-0-3-17", "--min-spot-types", "15"], "node-spot-to-spot");
}

#[test]
fn node_without_a_cheaper_placement() {
    check(&["node", "ip-10-0-3-17"], "node-nothing-cheaper");
}

#[test]
fn node_whose_command_saves_too_little() {
    check(&["node", "ip-10-0-2-40"], "node-saving-too-low");
}

#[test]
fn node_claim_that_does_not_register() {
    check(&["nodeclaim", "slow-67kdr"], "nodeclaim-not-registered");
}

#[test]
fn node_pool_that_is_not_ready() {
    check(&["nodepool", "gpu"], "nodepool-not-ready");
}

#[test]
fn node_pool_with_blocked_nodes() {
    let text = stdout(&explain(&["nodepool", "general", "--min-spot-types", "15"], "node-pdb"));
    expect_file![examples().join("node-pdb-nodepool.txt")].assert_eq(&text);
}

#[test]
fn pod_that_karpenter_can_schedule_unlike_some_replicas() {
    check(&["pod", "web-0"], "pod-schedulable");
}

#[test]
fn pod_with_a_reason_that_no_patch_removes() {
    check(&["pod", "web-0"], "pod-affinity");
}

/// Checks the JSON of one document of each type.
#[test]
fn documents_are_printed_as_json() {
    for (arguments, example) in [
        (&["pod", "batch-77f9df7b9-2zq8k"][..], "pod-limit"),
        (&["node", "ip-10-0-3-17", "--min-spot-types", "15"][..], "node-pdb"),
        (&["nodeclaim", "slow-67kdr"][..], "nodeclaim-not-registered"),
        (&["nodepool", "gpu"][..], "nodepool-not-ready"),
    ] {
        let text = stdout(&explain(&[arguments, &["-o", "json"]].concat(), example));
        expect_file![examples().join(example).with_extension("json")].assert_eq(&text);
    }
}

#[test]
fn yaml_has_the_same_content_as_json() {
    let arguments = ["pod", "batch-77f9df7b9-2zq8k"];
    let json = stdout(&explain(&[&arguments[..], &["-o", "json"]].concat(), "pod-limit"));
    let yaml = stdout(&explain(&[&arguments[..], &["-o", "yaml"]].concat(), "pod-limit"));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let yaml: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    assert_eq!(json, yaml);
}

#[test]
fn node_is_found_by_the_name_of_its_node_claim() {
    let by_node = stdout(&explain(&["node", "ip-10-0-5-9"], "node-do-not-disrupt"));
    let by_claim = stdout(&explain(&["node", "batch-ip-10-0-5-9"], "node-do-not-disrupt"));
    assert_eq!(by_node, by_claim);
}

#[test]
fn feature_gate_removes_the_blocker_of_a_spot_node() {
    let node = ["node", "ip-10-0-3-17", "--min-spot-types", "15", "-o", "json"];
    let before = stdout(&explain(&node, "node-spot-to-spot"));
    let after = stdout(&explain(&[&node[..], &["--spot-to-spot"]].concat(), "node-spot-to-spot"));
    let [before, after] = [before, after].map(|text| serde_json::from_str::<Value>(&text).expect("JSON"));
    assert_eq!(before["chain"]["blockers"][0]["code"], "SpotToSpotOff");
    assert_eq!(before["chain"]["result"], after["command"]["outcome"]);
}

#[test]
fn check_fails_for_blocked_objects_only() {
    let code = |arguments: &[&str], example: &str| explain(arguments, example).status.code();
    assert_eq!(code(&["pod", "batch-77f9df7b9-2zq8k", "--check"], "pod-limit"), Some(1));
    assert_eq!(code(&["pod", "batch-77f9df7b9-2zq8k"], "pod-limit"), Some(0));
    assert_eq!(code(&["pod", "web-5d8f7c9b64-9pm5g", "--check"], "pod-in-flight"), Some(0));
}

#[test]
fn missing_object_is_an_error_with_the_known_names() {
    let output = explain(&["node", "nowhere"], "node-pdb");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(error, "error: Node nowhere is not in the input; the input has: ip-10-0-3-17\n");
    let output = explain(&["pod", "nowhere"], "pod-limit");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.starts_with("error: Pod default/nowhere is not in the input; the input has: "), "{error}");
    assert_eq!(explain(&["gadget", "x"], "pod-limit").status.code(), Some(2));
}

#[test]
#[cfg(unix)]
fn binary_answers_as_plugin_of_kubectl() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plugin-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let plugin = directory.join("kubectl-karpenter");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_karpenter"), &plugin).expect("a link");
    let file = examples().join("pod-limit.yaml");
    let run = |arguments: &[&str]| {
        Command::new(&plugin).args(arguments).arg("-f").arg(&file).output().expect("the plug-in runs")
    };
    let arguments = ["explain", "pod", "batch-77f9df7b9-2zq8k"];
    assert_eq!(stdout(&run(&arguments)), stdout(&explain(&arguments[1..], "pod-limit")));
    let usage = stdout(&run(&["explain", "--help"]));
    assert!(usage.contains("Usage: kubectl karpenter explain"), "{usage}");
    std::fs::remove_dir_all(&directory).expect("the directory is removed");
}

/// The document of `karpenter explain … -o json`, without its origin and revision.
fn document(arguments: &[&str]) -> (Value, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_karpenter"))
        .arg("explain")
        .args(arguments)
        .args(["-o", "json", "--now", "2030-01-01T00:00:00Z"])
        .output()
        .expect("the binary runs");
    let mut document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let meta = document["meta"].take();
    (document, meta)
}

#[tokio::test]
async fn cluster_and_its_dump_have_the_same_answer() {
    let folder = Folder::new("explain");
    let up = Up::start(&folder.0, &["--nodes", "1"]);
    let client = up.client().await;
    let resource = |group: &str, version: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    };
    let kinds = [
        resource("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses"),
        resource("karpenter.sh", "v1", "NodePool", "nodepools"),
        resource("", "v1", "Pod", "pods"),
        resource("", "v1", "Node", "nodes"),
    ];
    let [classes, pools, pods, _] = &kinds;
    let create = async |kind: &ApiResource, namespaced: bool, object: Value| {
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(client.clone(), "default", kind)
        } else {
            Api::all_with(client.clone(), kind)
        };
        let object = serde_json::from_value(object).expect("an object");
        api.create(&PostParams::default(), &object).await.expect("created");
    };
    create(
        classes,
        false,
        json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}),
    )
    .await;
    create(
        pools,
        false,
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "small"},
            "spec": {
                "limits": {"cpu": "4"},
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [],
                }},
            },
        }),
    )
    .await;
    create(
        pods,
        true,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"},
            "spec": {"containers": [
                {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "40"}}},
            ]},
        }),
    )
    .await;
    let all_pools: Api<DynamicObject> = Api::all_with(client.clone(), pools);
    let is_ready = |object: Option<&DynamicObject>| {
        let conditions = object.and_then(|pool| pool.data["status"]["conditions"].as_array());
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
    };
    await_condition(all_pools, "small", is_ready).await.expect("the NodePool becomes ready");

    let kubeconfig = up.kubeconfig.to_str().expect("UTF-8");
    let (live, live_meta) = document(&["pod", "large", "--kubeconfig", kubeconfig]);
    assert_eq!(live_meta["source"], "cluster");
    assert_eq!(live["resolution"]["is"], "Blocked");
    assert_eq!(live["chain"]["blockers"][0]["code"], "LimitExceeded");

    let mut items = Vec::new();
    for kind in &kinds {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
        for mut object in api.list(&ListParams::default()).await.expect("listed").items {
            object.types = Some(TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
            items.push(object);
        }
    }
    let dump = folder.0.join("dump.json");
    let text = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    std::fs::write(&dump, text).expect("written");
    let (offline, offline_meta) = document(&["pod", "large", "-f", dump.to_str().expect("UTF-8")]);
    assert_eq!(offline_meta["source"], "dump");
    assert_eq!(live, offline);
}

#[test]
fn cluster_that_cannot_be_reached_is_an_error() {
    let kubeconfig = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-such-kubeconfig");
    let output = Command::new(env!("CARGO_BIN_EXE_karpenter"))
        .args(["explain", "pod", "web", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.starts_with(&format!("error: cannot read --kubeconfig {}", kubeconfig.display())),
        "{error}"
    );
    assert!(output.stdout.is_empty());
}
