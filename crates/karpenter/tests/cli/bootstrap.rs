//! Tests of the binary with `bootstrap aws`.
#![cfg(feature = "aws")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bootstrap(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_karpenter"))
        .args(["bootstrap", "aws", "--cluster"])
        .args(arguments)
        .env_remove("AWS_REGION")
        .env_remove("CLUSTER_NAME")
        .output()
        .expect("the binary runs")
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parsed(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&bootstrap(arguments))).expect("JSON")
}

const PLACE: [&str; 6] = ["-o", "json", "--account", "111122223333", "--region", "us-west-2"];

#[test]
fn policy_documents_contain_account_region_and_partition() {
    let with = |arguments: &[&str]| parsed(&[&["shop"][..], &PLACE[..], arguments].concat()).to_string();
    let plain = with(&[]);
    assert!(plain.contains("arn:aws:iam::111122223333:role/KarpenterNodeRole-shop"));
    assert!(plain.contains("arn:aws:sqs:us-west-2:111122223333:shop"));
    let named = with(&["--node-role", "team/nodes", "--node-role", "batch", "--queue", "news"]);
    assert!(!named.contains("KarpenterNodeRole"), "exactly those that were named");
    assert!(named.contains(":role/team/nodes") && named.contains(":role/batch"));
    assert!(named.contains("arn:aws:sqs:us-west-2:111122223333:news"));
    assert!(with(&["--ssm-parameter", "/images/nodes"]).contains(":111122223333:parameter/images/nodes"));
    // Without `--partition`, the partition is derived from the region.
    let of_region = |region: &str| {
        parsed(&["shop", "-o", "json", "--account", "111122223333", "--region", region]).to_string()
    };
    assert!(of_region("cn-northwest-1").contains("arn:aws-cn:eks:cn-northwest-1:"));
    assert!(of_region("us-gov-east-1").contains("arn:aws-us-gov:eks:us-gov-east-1:"));
}

#[test]
fn invalid_arguments_are_rejected() {
    let json = |arguments: &[&'static str]| [&["shop"][..], &PLACE[..], arguments].concat();
    let table: [(Vec<&str>, &str); 10] = [
        (vec!["shop", "-o", "json", "--region", "us-west-2"], "--account"),
        (vec!["shop", "-o", "json", "--account", "111122223333"], "--region"),
        (json(&["--partition", "aws-moon"]), "aws-us-gov"),
        (json(&["--partition", "aws-cn"]), "belongs to aws"),
        (json(&["--pod-identity"]), "policies only"),
        (vec!["shop", "--node-role", "arn:aws:iam::1:role/x"], "no ARN"),
        (vec!["shop", "--queue", "a/b"], "80"),
        (vec!["shop", "--oidc-provider", "AB12"], "issuer"),
        (vec!["shop", "--oidc-provider", "https://oidc.example/x", "--pod-identity"], "cannot be used with"),
        (vec!["shop", "--region", "$(reboot)"], "us-west-2"),
    ];
    for (arguments, expected) in table {
        let output = bootstrap(&arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
    let mut many = vec!["shop".to_owned()];
    for number in 0..80 {
        many.extend([
            "--node-role".to_owned(),
            format!("a-role-with-a-name-that-takes-up-a-lot-of-room-{number}"),
        ]);
    }
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(said(&bootstrap(&many)).contains("6144"));
}

#[test]
fn options_without_effect_and_shortened_names_are_noted() {
    let quiet = bootstrap(&["shop", "-o", "terraform"]);
    assert_eq!(said(&quiet), "");
    for option in [["--account", "111122223333"], ["--region", "us-west-2"], ["--partition", "aws"]] {
        let output = bootstrap(&["shop", "-o", "terraform", option[0], option[1]]);
        assert_eq!(printed(&output), printed(&quiet));
        assert!(said(&output).contains(&format!("{} has no effect", option[0])), "{}", said(&output));
    }
    let long = "c".repeat(100);
    let output = bootstrap(&[&long, "-o", "cloudformation"]);
    let stack: Value = serde_json::from_str(&printed(&output)).expect("JSON");
    for name in [&stack["Outputs"]["NodeRole"]["Value"], &stack["Outputs"]["InterruptionQueue"]["Value"]] {
        let name = name.as_str().expect("a name");
        assert!(said(&output).contains(name), "{name}: {}", said(&output));
    }
    let named = bootstrap(&[&long, "--node-role", "nodes", "--queue", "news"]);
    assert_eq!(said(&named), "");
}

#[test]
fn roles_are_created_only_on_request() {
    let stack = parsed(&["shop", "--no-create-node-role", "--node-role", "mine", "--pod-identity"]);
    let resources = stack["Resources"].as_object().expect("resources");
    assert!(!resources.contains_key("KarpenterNodeRole"));
    assert!(
        resources.contains_key("KarpenterControllerRole") && resources.contains_key("KarpenterPodIdentity")
    );
    let issuer = "https://oidc.eks.us-west-2.amazonaws.com/id/AB12";
    let plan = parsed(&["shop", "-o", "terraform", "--oidc-provider", issuer, "--namespace", "karpenter"]);
    let trust = &plan["resource"]["aws_iam_role"]["karpenter_controller"]["assume_role_policy"];
    assert!(
        trust.as_str().expect("a policy").contains("system:serviceaccount:karpenter:karpenter"),
        "{trust}"
    );
}

/// A substitute for the program `aws`. It records created resources in files, and fails like the real program for
/// missing and for existing resources.
const AWS: &str = r#"#!/bin/sh
echo "$1 $2" >> "$STATE/calls"
value() { want=$1; shift; while [ $# -gt 0 ]; do [ "$1" = "$want" ] && echo "$2" | tr '/:' '__' && return; shift; done; }
make() { [ ! -e "$STATE/$1" ] && touch "$STATE/$1"; }
case "$1 $2" in
  'sts get-caller-identity') case "$4" in Account) echo 111122223333 ;; *) echo arn:aws:iam::111122223333:user/me ;; esac ;;
  'iam get-role') [ -e "$STATE/role-$(value --role-name "$@")" ] ;;
  'iam create-role') make "role-$(value --role-name "$@")" ;;
  'iam create-service-linked-role') make role-AWSServiceRoleForEC2Spot ;;
  'iam get-policy') [ -e "$STATE/policy-$(value --policy-arn "$@" | sed 's/.*policy_//')" ] ;;
  'iam create-policy') make "policy-$(value --policy-name "$@")" ;;
  'sqs get-queue-url') [ -e "$STATE/queue-$(value --queue-name "$@")" ] && echo https://queue ;;
  'sqs create-queue') make "queue-$(value --queue-name "$@")" ;;
  'eks list-pod-identity-associations') [ ! -e "$STATE/association" ] || echo a-1 ;;
  'eks create-pod-identity-association') make association ;;
esac
"#;

fn run_script(folder: &Path, script: &str) -> Vec<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let calls = folder.join("calls");
    let _ = fs::remove_file(&calls);
    let output = Command::new("sh")
        .args(["-c", script])
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("STATE", folder)
        .env("AWS_REGION", "us-west-2")
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("KarpenterNodeRole-shop"));
    fs::read_to_string(&calls).expect("calls").lines().map(ToOwned::to_owned).collect()
}

#[test]
fn script_is_idempotent() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bootstrap");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let aws = folder.join("aws");
    fs::write(&aws, AWS).expect("written");
    fs::set_permissions(&aws, fs::Permissions::from_mode(0o755)).expect("executable");
    let script = printed(&bootstrap(&["shop", "-o", "cli", "--pod-identity"]));
    let made = |calls: &[String]| {
        let is_made = |call: &&String| call.contains(" create-") && !call.contains("policy-version");
        calls.iter().filter(is_made).count()
    };
    let first = run_script(&folder, &script);
    // The resources are the spot role, the node role, the controller role, six policies, a queue and an association.
    assert_eq!(made(&first), 11, "{first:?}");
    let second = run_script(&folder, &script);
    assert_eq!(made(&second), 0, "{second:?}");
    assert_eq!(second.iter().filter(|call| *call == "iam create-policy-version").count(), 6);
}
