use super::plan::*;
use super::release::patch;
use crate::controllers::Controller;
use crate::leases::Lease;
use crate::owner::Owner;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

const NOW: &str = "2026-01-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().expect("a time")
}

fn choices(nodes: Nodes) -> Choices {
    Choices {
        name: "karpenter".to_owned(),
        nodes,
        with_definitions: false,
        timeout: Duration::from_secs(60),
        is_forced: false,
        is_dry_run: false,
    }
}

fn claim(registered: &str) -> Value {
    json!({"kind": "NodeClaim", "metadata": {"name": "c", "finalizers": ["karpenter.sh/termination"]},
        "status": {"nodeName": "n", "conditions": [{"type": "Registered", "status": registered}]}})
}

fn node() -> Value {
    json!({"kind": "Node", "metadata": {"name": "n", "finalizers": ["karpenter.sh/termination", "other/one"],
        "labels": {"karpenter.sh/nodepool": "p", "node.kubernetes.io/exclude-from-external-load-balancers": "karpenter"},
        "ownerReferences": [{"kind": "NodeClaim", "name": "c"}, {"kind": "Machine", "name": "m"}]},
        "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, {"key": "mine"}]}})
}

fn lease() -> Lease {
    Lease {
        namespace: "kube-system".to_owned(),
        name: "karpenter-leader-election".to_owned(),
        holder: "pod_1".to_owned(),
        renewed: Some(now()),
        duration_secs: 15,
    }
}

fn deployment() -> Value {
    json!({"kind": "Deployment", "metadata": {"name": "karpenter", "namespace": "kube-system"}})
}

fn seen() -> Seen {
    Seen {
        installed: vec![deployment(), json!({"kind": "ClusterRole", "metadata": {"name": "karpenter"}})],
        leases: vec![lease()],
        pools: vec![json!({"kind": "NodePool", "metadata": {"name": "p"}})],
        claims: vec![claim("True")],
        nodes: vec![node()],
        classes: vec![json!({"kind": "KWOKNodeClass", "metadata": {"name": "default"}})],
        definitions: vec![
            json!({"kind": "CustomResourceDefinition", "metadata": {"name": "nodepools.karpenter.sh"}}),
        ],
        ..Seen::default()
    }
}

fn words(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.to_string().split(' ').take(3).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn drain_terminates_instances_before_stopping_the_controller() {
    let steps =
        plan(&seen(), &Choices { with_definitions: true, ..choices(Nodes::Drain) }, now()).expect("planned");
    assert_eq!(
        words(&steps),
        [
            "delete NodePool p",
            "delete all NodeClaims",
            "delete KWOKNodeClass default",
            "stop Deployment kube-system/karpenter",
            "delete ClusterRole karpenter",
            "delete Lease kube-system/karpenter-leader-election",
            "delete CustomResourceDefinition nodepools.karpenter.sh",
        ]
    );
}

#[test]
fn provisioners_are_deleted_before_derived_pools() {
    let old = vec![json!({"kind": "Provisioner", "metadata": {"name": "p"}})];
    let steps = plan(&Seen { old, ..seen() }, &choices(Nodes::Drain), now()).expect("planned");
    assert_eq!(steps[0].to_string(), "delete Provisioner p, NodePool p");
}

#[test]
fn drain_needs_an_active_controller() {
    let idle = Seen { leases: vec![Lease { holder: String::new(), ..lease() }], ..seen() };
    let refusal = plan(&idle, &choices(Nodes::Drain), now()).expect_err("refused");
    assert!(refusal[0].contains("--nodes keep"), "{refusal:?}");
    let forced = Choices { is_forced: true, ..choices(Nodes::Drain) };
    assert!(plan(&idle, &forced, now()).is_ok());
    let empty = Seen { claims: Vec::new(), nodes: Vec::new(), ..idle };
    assert!(plan(&empty, &choices(Nodes::Drain), now()).is_ok(), "without nodes no controller is needed");
}

#[test]
fn kept_nodes_are_released_after_the_controller_stopped() {
    let steps = plan(&seen(), &choices(Nodes::Keep), now()).expect("planned");
    assert_eq!(
        words(&steps)[..3],
        ["stop Deployment kube-system/karpenter", "remove finalizers and", "delete ClusterRole karpenter"]
    );
    assert!(!steps.iter().any(|step| matches!(step, Step::DeletePools(_) | Step::TerminateInstances)));
}

#[test]
fn keep_waits_for_launching_claims_or_fails_without_controller() {
    let unfinished = Seen { claims: vec![claim("Unknown")], ..seen() };
    let steps = plan(&unfinished, &choices(Nodes::Keep), now()).expect("planned");
    assert_eq!(steps[0], Step::WaitForLaunches);
    let alone = Seen { leases: Vec::new(), ..unfinished };
    let refusal = plan(&alone, &choices(Nodes::Keep), now()).expect_err("refused");
    assert!(refusal[0].contains("NodeClaim c is") && refusal[0].contains("--force"), "{refusal:?}");
    assert!(plan(&alone, &Choices { is_forced: true, ..choices(Nodes::Keep) }, now()).is_ok());
}

#[test]
fn nodes_are_not_released_while_another_controller_is_active() {
    let helm = Controller {
        namespace: "karpenter".to_owned(),
        name: "karpenter".to_owned(),
        owner: Owner::Helm { release: "k".to_owned(), namespace: "karpenter".to_owned() },
        replicas: 2,
        ready: 2,
        ..Controller::default()
    };
    let beside = Seen { installed: Vec::new(), controllers: vec![helm], ..seen() };
    let refusal = plan(&beside, &choices(Nodes::Keep), now()).expect_err("refused");
    assert!(refusal[0].contains("kubectl --namespace karpenter scale"), "{refusal:?}");
    let drained = plan(&beside, &choices(Nodes::Drain), now()).expect("planned");
    assert!(drained.iter().any(|step| step.to_string().contains("helm uninstall k")), "{drained:?}");
    let outside = Seen { installed: Vec::new(), ..seen() };
    assert!(plan(&outside, &choices(Nodes::Keep), now()).expect_err("refused")[0].contains("pod_1"));
}

#[test]
fn controller_that_was_taken_over_is_restored() {
    let before = Controller {
        namespace: "karpenter".to_owned(),
        name: "karpenter".to_owned(),
        replicas_before: Some(3),
        taken_over_by: Some("karpenter".to_owned()),
        ..Controller::default()
    };
    let taken = Seen { controllers: vec![before.clone()], ..seen() };
    let steps = plan(&taken, &choices(Nodes::HandOver), now()).expect("planned");
    assert_eq!(steps.last(), Some(&Step::Restore(before)));
    assert!(!steps.iter().any(|step| matches!(step, Step::Release | Step::TerminateInstances)), "{steps:?}");
    let steps = plan(&taken, &choices(Nodes::Drain), now()).expect("planned");
    assert!(steps.last().expect("one").to_string().contains("--replicas 3"));
}

#[test]
fn release_removes_finalizers_taints_and_owner_of_karpenter() {
    let patch_of = patch(&node()).expect("something to do");
    assert_eq!(patch_of["metadata"]["finalizers"], json!(["other/one"]));
    assert_eq!(patch_of["metadata"]["ownerReferences"], json!([{"kind": "Machine", "name": "m"}]));
    assert_eq!(patch_of["spec"]["taints"], json!([{"key": "mine"}]));
    let labels = &patch_of["metadata"]["labels"];
    assert!(labels["node.kubernetes.io/exclude-from-external-load-balancers"].is_null());
    assert_eq!(patch(&claim("True")).expect("something"), json!({"metadata": {"finalizers": []}}));
    assert_eq!(patch(&json!({"kind": "Node", "metadata": {"name": "plain"}})), None);
}

#[test]
fn definitions_with_objects_are_not_deleted() {
    let definition = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "nodepools.karpenter.sh"},
        "spec": {"names": {"plural": "nodepools"}}});
    assert_eq!(definition_stays(&definition, 0), None);
    assert!(definition_stays(&definition, 2).expect("stays").contains("2 nodepools exist"));
}
