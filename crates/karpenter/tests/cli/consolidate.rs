//! Tests of the binary with `karpenter plan --consolidate` and small dumps.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const KIND: &str = "m-8x-amd64-linux";

fn pool(name: &str, annotations: Value, more: Value) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "template": {"spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            }},
            "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        },
    });
    for (key, value) in more.as_object().expect("fields") {
        pool["spec"][key] = value.clone();
    }
    pool
}

/// A node with eight cores, its NodeClaim, and this number of pods that request half a core each.
fn node(name: &str, pool: &str, kind: &str, conditions: &[&str], pods: usize) -> Vec<Value> {
    let labels = json!({
        "karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "test-zone-a",
    });
    let all = ["Launched", "Registered", "Initialized"].iter().chain(conditions);
    let conditions: Vec<Value> = all
        .map(|one| json!({"type": one, "status": "True", "reason": one, "lastTransitionTime": "2026-01-01T08:00:00Z"}))
        .collect();
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": format!("claim-{name}"), "uid": format!("uid-{name}"), "labels": labels.clone()},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
        "status": {"nodeName": name, "providerID": format!("kwok://{name}"), "conditions": conditions},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T08:00:00Z", "labels": labels},
        "spec": {"providerID": format!("kwok://{name}")},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "7900m", "memory": "30Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z", "lastTransitionTime": "2026-01-01T08:00:00Z"}],
        },
    });
    let pods = (0..pods).map(|number| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true});
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-{number}"), "namespace": "default", "uid": format!("{name}-{number}"), "ownerReferences": [owner], "labels": {"app": "web"}},
            "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
            "status": {"phase": "Running"},
        })
    });
    [claim, node].into_iter().chain(pods).collect()
}

fn ask(objects: Vec<Vec<Value>>, arguments: &[&str]) -> Output {
    let items: Vec<Value> = objects.into_iter().flatten().collect();
    let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}});
    let items: Vec<Value> = [class].into_iter().chain(items).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let mut child = Command::new(env!("CARGO_BIN_EXE_karpenter"))
        .args(["plan", "--consolidate", "-f", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let text = list.to_string();
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("the binary reads its input");
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn report(objects: Vec<Vec<Value>>, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_slice(&ask(objects, &arguments).stdout).expect("valid JSON")
}

fn reason<'r>(report: &'r Value, node: &str) -> &'r str {
    let staying = report["staying"].as_array().expect("a list");
    let found =
        staying.iter().find(|one| one["node"] == node).unwrap_or_else(|| panic!("{node}: {report:#}"));
    found["reason"].as_str().expect("text")
}

fn general(annotations: Value) -> Vec<Value> {
    vec![pool("general", annotations, json!({}))]
}

#[test]
fn static_nodepool_is_not_consolidated() {
    let dump = || {
        vec![
            vec![pool("fixed", json!({}), json!({"replicas": 2}))],
            node("a", "fixed", KIND, &["Drifted"], 3),
            node("b", "fixed", KIND, &[], 1),
        ]
    };
    for rounds in ["1", "all"] {
        let report = report(dump(), &["--rounds", rounds]);
        assert_eq!(report["commands"].as_array().map(Vec::len), Some(1), "{rounds}: {report:#}");
        assert_eq!(report["commands"][0]["podsMoved"], 3, "{rounds}: {report:#}");
        assert_eq!(report["stats"]["podsMoved"], 3, "{rounds}: {report:#}");
        assert_eq!((&report["stats"]["nodesBefore"], &report["stats"]["nodesAfter"]), (&json!(2), &json!(2)));
        assert_eq!(report["cost"]["hourlyBefore"], report["cost"]["hourlyAfter"]);
    }
    let text = String::from_utf8(ask(dump(), &[]).stdout).expect("UTF-8");
    assert!(text.contains("1  Drifted: 1 node replaced by 1, 3 pods moved"), "{text}");
}

#[test]
fn all_passes_move_at_most_the_pods_of_one_hour() {
    let dump = |moves: &str| {
        let pool = general(json!({"karpenter.sh/consolidation-max-moves-per-hour": moves}));
        let nodes = ["a", "b", "c", "d"].map(|name| node(name, "general", KIND, &[], 2));
        [[pool].to_vec(), nodes.to_vec()].concat()
    };
    for (moves, expected) in [("2", 2), ("4", 4), ("0", 0)] {
        let report = report(dump(moves), &["--rounds", "all", "--mode", "compat"]);
        let moved = report["stats"]["podsMoved"].as_u64().expect("a number");
        assert!(moved <= expected, "{moves} allowed, {moved} moved: {report:#}");
        assert_eq!(moved > 0, expected > 0, "{report:#}");
    }
}

#[test]
fn earlier_moves_in_dump_count() {
    let nodes = || ["a", "b", "c"].map(|name| node(name, "general", KIND, &[], 2));
    let moves = |at: &str| {
        let annotations = json!({
            "karpenter.sh/consolidation-max-moves-per-hour": "4",
            "karpenter.sh/pods-moved": json!({at: 4}).to_string(),
        });
        report([[general(annotations)].to_vec(), nodes().to_vec()].concat(), &[])
    };
    let within = moves("2026-01-01T11:30:00Z");
    assert_eq!((&within["commands"], reason(&within, "a")), (&json!([]), "MovesExhausted"), "{within:#}");
    assert_ne!(moves("2026-01-01T10:59:00Z")["commands"], json!([]));

    let cooling = |cool_down: &str| {
        let mut nodes = nodes().to_vec();
        for objects in &mut nodes {
            objects[0]["metadata"]["annotations"] =
                json!({"karpenter.sh/pods-moved-at": "2026-01-01T11:30:00Z"});
        }
        let pool = general(json!({"karpenter.sh/consolidation-cool-down": cool_down}));
        report([[pool].to_vec(), nodes].concat(), &[])
    };
    let hot = cooling("45m");
    assert_eq!((&hot["commands"], reason(&hot, "a")), (&json!([]), "CoolDown"), "{hot:#}");
    assert_ne!(cooling("30m")["commands"], json!([]));
}

#[test]
fn unknown_price_is_not_zero() {
    let dump = vec![
        general(json!({})),
        node("strange", "general", "zz9.mega", &[], 15),
        node("known", "general", KIND, &[], 15),
    ];
    let output = ask(dump, &["-o", "json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("note: nodes without a known price count as 0: strange;"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(reason(&report, "strange"), "UnknownInstanceType");
    let cost = &report["cost"];
    assert!(
        cost["lowerBound"].is_f64() && cost["gapPercent"].is_null(),
        "half a sum against the whole: {cost}"
    );
    let staying = report["staying"].as_array().expect("a list").iter();
    let going = report["commands"].as_array().expect("a list").iter();
    let nodes: Vec<&Value> =
        going.flat_map(|one| one["candidates"].as_array().expect("a list")).chain(staying).collect();
    let price = |node: &str| &nodes.iter().find(|one| one["node"] == node).expect("it is there")["price"];
    assert!(price("strange").is_null() && price("known").is_f64(), "{report:#}");
}

#[test]
fn postponed_drifted_node_has_no_price_reason() {
    // The first command deletes the empty node.
    let dump = vec![
        general(json!({})),
        node("empty", "general", KIND, &[], 0),
        node("drifted", "general", KIND, &["Drifted"], 15),
    ];
    let report = report(dump, &["--explain"]);
    assert_eq!(report["commands"][0]["reason"], "Empty", "{report:#}");
    assert_eq!(reason(&report, "drifted"), "NotNow");
}

#[test]
fn unreadable_value_prevents_moves_and_is_reported() {
    for (name, value, valid) in [
        ("min-saving-percent", "5%", "a number from 0 to 100, such as 5"),
        ("min-saving-per-hour", "$1", "dollars per hour, such as 0.05"),
        ("cool-down", "30", "a duration such as 30m or 2h"),
        ("max-moves-per-hour", "1.5", "a whole number, such as 100"),
    ] {
        let nodes = ["a", "b", "c"].map(|name| node(name, "general", KIND, &[], 2));
        let annotation = format!("karpenter.sh/consolidation-{name}");
        let pool = general(json!({annotation.as_str(): value}));
        let output = ask([[pool].to_vec(), nodes.to_vec()].concat(), &["-o", "json"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let warning = format!(
            "warning: nodepool general: annotation {annotation}: {value:?} is invalid; valid: {valid}; "
        );
        assert!(stderr.contains(&warning), "{stderr}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
        assert_eq!(
            (&report["commands"], reason(&report, "a")),
            (&json!([]), "MovesExhausted"),
            "{name}: {report:#}"
        );
    }
}

#[test]
fn dry_run_reports_possible_saving() {
    let nodes = ["a", "b", "c"].map(|name| node(name, "general", KIND, &[], 2));
    let pool = general(json!({"karpenter.sh/consolidation-dry-run": "true"}));
    let text = String::from_utf8(ask([[pool].to_vec(), nodes.to_vec()].concat(), &[]).stdout).expect("UTF-8");
    assert!(text.starts_with("nothing to do for 3 nodes\n"), "{text}");
    assert!(text.contains("\ndry run      $") && text.contains("would be saved by "), "{text}");
    assert!(
        text.contains(
            "Would be disrupted (Underutilized), but the consolidation dry run of its NodePool is on"
        ),
        "{text}"
    );
}

#[test]
fn replacements_have_unique_stable_names() {
    // The budget allows to disrupt one node at a time.
    let budget = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}});
    let pool = vec![pool("general", json!({}), budget)];
    let nodes = ["a", "b", "c"].map(|name| node(name, "general", KIND, &["Drifted"], 14));
    let report = report([vec![pool], nodes.to_vec()].concat(), &["--rounds", "all", "--mode", "compat"]);
    let commands = report["commands"].as_array().expect("a list");
    let launched = commands.iter().flat_map(|one| one["replacements"].as_array().expect("a list"));
    let names: Vec<&str> = launched.filter_map(|one| one["name"].as_str()).collect();
    let expected: Vec<String> = (1..=names.len()).map(|number| format!("replacement-{number}")).collect();
    assert!(names.len() >= 2 && names == expected, "{names:?}");
    let gone = commands.iter().flat_map(|one| one["candidates"].as_array().expect("a list"));
    let to = commands.iter().flat_map(|one| one["moves"].as_array().expect("a list")).map(|one| &one["to"]);
    let staying = report["staying"].as_array().expect("a list");
    for name in gone.chain(staying).map(|one| &one["node"]).chain(to) {
        let name = name.as_str().expect("a name");
        assert!(["a", "b", "c"].contains(&name) || names.contains(&name), "who is {name}?");
    }
}

#[test]
fn lower_bound_is_reported_if_empty_node_is_deleted_first() {
    let dump = || {
        vec![general(json!({})), node("empty", "general", KIND, &[], 0), node("a", "general", KIND, &[], 9)]
    };
    for mode in ["cost", "compat"] {
        let report = report(dump(), &["--mode", mode]);
        assert_eq!(report["commands"][0]["reason"], "Empty", "{report:#}");
        let (bound, after) = (report["cost"]["lowerBound"].as_f64(), report["cost"]["hourlyAfter"].as_f64());
        assert!(bound.is_some_and(|bound| bound > 0.0) && bound <= after, "{mode}: {:#}", report["cost"]);
    }
    let text = String::from_utf8(ask(dump(), &[]).stdout).expect("UTF-8");
    assert!(text.contains("\nlower bound  $"), "{text}");
}

fn refused(items: &[Value]) -> String {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("damaged-dump.json");
    std::fs::write(&path, list.to_string()).expect("writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_karpenter"));
    let output =
        command.args(["plan", "--consolidate", "-f"]).arg(&path).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn dump_with_errors_is_rejected() {
    let whole =
        [general(json!({})), node("a", "general", KIND, &[], 1), node("b", "general", KIND, &[], 1)].concat();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": "one"},
    });
    let stderr = refused(&[whole.clone(), vec![budget]].concat());
    assert!(stderr.contains("PodDisruptionBudget default/web: status.disruptionsAllowed: "), "{stderr}");
    assert!(stderr.contains("error: consolidation is not simulated for a dump with errors"), "{stderr}");
    let mut pod = whole[3].clone();
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("lots");
    let stderr = refused(&[&whole[..3], &[pod]].concat());
    assert!(stderr.contains("Pod default/a-0: spec.containers[0].resources.requests.cpu: "), "{stderr}");
}

#[test]
fn pending_and_missing_pods_are_reported() {
    let mut waiting = node("none", "general", KIND, &[], 1).pop().expect("a pod");
    waiting["spec"].as_object_mut().expect("a map").remove("nodeName");
    waiting["status"] = json!({"phase": "Pending"});
    let output = ask(vec![general(json!({})), node("a", "general", KIND, &[], 9), vec![waiting]], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("note: pending pods: 1; "), "{stderr}");
    let output = ask(vec![general(json!({})), node("a", "general", KIND, &[], 0)], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("warning: the input has no pods, so every node counts as empty"), "{stderr}");
}

#[test]
fn explanation_of_one_node_has_every_budget() {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": 1},
    });
    let closed = json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}});
    let dump = vec![
        vec![pool("general", json!({}), json!({})), pool("closed", json!({}), closed), budget],
        node("a", "general", KIND, &[], 2),
        node("b", "general", KIND, &[], 2),
        node("c", "closed", KIND, &[], 2),
        node("empty", "general", KIND, &[], 0),
    ];
    let report = report(dump, &["--explain"]);
    assert_eq!(report["commands"][0]["reason"], "Empty", "{report:#}");
    for name in ["a", "b"] {
        assert_eq!(reason(&report, name), "PodBudgetJoint", "{report:#}");
    }
    assert_eq!(reason(&report, "c"), "BudgetExhausted");
}
