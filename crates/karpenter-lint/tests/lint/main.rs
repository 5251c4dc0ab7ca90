//! Tests of every rule, once with a manifest that it reports and once with the same manifest after the fix.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_lint::{Code, Finding, Input, Subject, lint};
use karpenter_model::instance_type::InstanceType;
use serde_json::Value;

fn documents(text: &str) -> Vec<Value> {
    let read = karpenter_api::manifest::read("input.yaml", text);
    assert_eq!(read.errors, [], "the fixture is readable: {text}");
    read.documents.into_iter().map(|document| document.value).collect()
}

fn findings_from(text: &str, provisioner: Option<&str>) -> Vec<Finding> {
    let values = documents(text);
    static TYPES: OnceLock<Arc<Vec<InstanceType>>> = OnceLock::new();
    let types = TYPES.get_or_init(|| Arc::new(aws::catalog().resolve(&AwsNodeClass::default())));
    let is_pool = |value: &&Value| value["kind"] == "NodePool";
    let pools = values.iter().filter(is_pool).filter_map(|value| value["metadata"]["name"].as_str());
    let catalogs: BTreeMap<String, _> = pools.map(|name| (name.to_owned(), types.clone())).collect();
    let well_known =
        karpenter_api::labels::LabelRules::for_all_providers().well_known().map(Into::into).collect();
    let subject = |value| Subject { value, provisioner };
    lint(&Input { objects: values.iter().map(subject).collect(), catalogs, well_known })
}

fn codes(text: &str) -> Vec<&'static str> {
    findings_from(text, None).iter().map(|finding| finding.code.as_str()).collect()
}

/// Checks that the rule reports `wrong` with the field and the reason, and that it does not report `right`.
fn check(code: Code, wrong: &str, field: &str, part: &str, right: &str) {
    let findings = findings_from(wrong, None);
    let found = findings.iter().find(|finding| finding.code == code);
    let found = found.unwrap_or_else(|| panic!("{} in {findings:#?} of {wrong}", code.as_str()));
    assert_eq!(found.field, field, "{found:?}");
    assert!(found.why.contains(part), "{part:?} in {:?}", found.why);
    assert!(!found.fix.is_empty() && !found.object.is_empty(), "{found:?}");
    assert!(!codes(right).contains(&code.as_str()), "{:#?} of {right}", findings_from(right, None));
}

/// A NodePool with labels, taints and requirements (in YAML flow syntax), and further lines `more` of its spec.
fn pool(name: &str, labels: &str, taints: &str, requirements: &str, more: &str) -> String {
    format!(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    metadata: {{labels: {{{labels}}}}}\n    spec:\n      taints: [{taints}]\n      requirements: [{requirements}]\n      nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}\n{more}\n---\n"
    )
}

fn family(value: &str) -> String {
    format!("{{key: karpenter.k8s.aws/instance-family, operator: In, values: [{value}]}}")
}

/// A Deployment whose pod spec has these fields, and whose container has these requests.
fn deployment(name: &str, pod: &str, requests: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec: {{{pod}containers: [{{name: c, image: x, resources: {{requests: {{{requests}}}}}}}]}}\n---\n"
    )
}

const SIZED: &str = "cpu: 1, memory: 1Gi";

fn plain(more: &str) -> String {
    pool("plain", "", "", &family("m5"), more)
}

#[test]
fn overlapping_pools_need_weights() {
    let one = pool("one", "", "", &family("m5, c5"), "");
    let other = pool("other", "", "", &family("m5"), "");
    let wrong = format!("{one}{other}");
    let weighted = format!("{one}{}", pool("other", "", "", &family("m5"), "  weight: 10"));
    check(Code::PoolsOverlap, &wrong, "spec.weight", "NodePool one", &weighted);
    for apart in [
        pool("other", "", "", &family("r5"), ""),
        pool("other", "", "{key: team, effect: NoSchedule}", &family("m5"), ""),
    ] {
        assert!(!codes(&format!("{one}{apart}")).contains(&"L01"));
    }
    let labelled = |name: &str| pool(name, &format!("example.com/pool: {name}"), "", &family("m5"), "");
    assert!(
        !codes(&format!("{}{}", labelled("a"), labelled("b"))).contains(&"L01"),
        "labels distinguish them"
    );
}

#[test]
fn unselectable_pool_is_reported() {
    let arm = "{key: kubernetes.io/arch, operator: In, values: [amd64]}";
    check(
        Code::PoolUnselectable,
        &pool("some", "kubernetes.io/arch: arm64", "", arm, ""),
        "spec.template.metadata.labels[kubernetes.io/arch]",
        "arm64",
        &pool("some", "kubernetes.io/arch: amd64", "", arm, ""),
    );
    let tainted = pool("some", "", "{key: team, value: a, effect: NoSchedule}", &family("m5"), "");
    let tolerant = "tolerations: [{key: team, operator: Exists}], ";
    check(
        Code::PoolUnselectable,
        &format!("{tainted}{}", deployment("web", "", SIZED)),
        "spec.template.spec.taints",
        "team=a:NoSchedule",
        &format!("{tainted}{}", deployment("web", tolerant, SIZED)),
    );
    let labelled = pool("some", "example.com/pool: a", "", &family("m5"), "");
    let elsewhere = deployment("web", "nodeSelector: {example.com/pool: b}, ", SIZED);
    let here = deployment("web", "nodeSelector: {example.com/pool: a}, ", SIZED);
    check(
        Code::PoolUnselectable,
        &format!("{labelled}{elsewhere}"),
        "spec.template",
        "no workload",
        &format!("{labelled}{here}"),
    );
    assert!(!codes(&tainted).contains(&"L02"), "without workloads in the input it is unknown");
}

#[test]
fn label_without_taint_is_reported() {
    let labelled = |name: &str, taints: &str| {
        pool(name, &format!("example.com/pool: {name}"), taints, &family("m5"), "")
    };
    let taint = |name: &str| format!("{{key: example.com/pool, value: {name}, effect: NoSchedule}}");
    check(
        Code::LabelDoesNotRepel,
        &format!("{}{}", labelled("a", ""), labelled("b", &taint("b"))),
        "spec.template.metadata.labels[example.com/pool]",
        "can still be scheduled",
        &format!("{}{}", labelled("a", &taint("a")), labelled("b", &taint("b"))),
    );
    assert!(!codes(&labelled("a", "")).contains(&"L03"), "a single pool needs no distinction");
}

#[test]
fn selector_without_matching_pool_is_reported() {
    let labelled = pool("some", "example.com/pool: a", "", &family("m5"), "");
    let with = |selector: &str| {
        format!("{labelled}{}", deployment("web", &format!("nodeSelector: {{{selector}}}, "), SIZED))
    };
    let field = "spec.template.spec.nodeSelector";
    let right = with("example.com/pool: a");
    check(
        Code::NoMatchingPool,
        &with("example.com/pool: b"),
        field,
        "the closest, NodePool some, has",
        &right,
    );
    check(
        Code::NoMatchingPool,
        &with("example.com/pol: a"),
        field,
        "no NodePool has the label example.com/pol",
        &right,
    );
    check(
        Code::NoMatchingPool,
        &with("node.kubernetes.io/instance-type: g5.xlarge"),
        field,
        "",
        &with("node.kubernetes.io/instance-type: m5.large"),
    );
    let affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/pool, operator: In, values: [b]}]}, {matchExpressions: [{key: example.com/pool, operator: In, values: [VALUE]}]}]}}}, ";
    let with =
        |value: &str| format!("{labelled}{}", deployment("web", &affinity.replace("VALUE", value), SIZED));
    check(Code::NoMatchingPool, &with("c"), "spec.template.spec.affinity.nodeAffinity", "", &with("a"));
    let device = |amount: &str| {
        format!("{}{}", plain(""), deployment("web", "", &format!("{SIZED}, nvidia.com/gpu: {amount}")))
    };
    check(
        Code::NoMatchingPool,
        &device("1"),
        "spec.template.spec.containers",
        "nvidia.com/gpu",
        &device("0"),
    );
}

#[test]
fn workload_that_fits_unmanaged_node_is_not_reported() {
    let selecting = deployment("web", "nodeSelector: {group: static}, ", SIZED);
    let node = |labels: &str| {
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: static-1, labels: {{{labels}}}}}\n---\n")
    };
    let text = |labels: &str| format!("{}{}{selecting}", plain(""), node(labels));
    check(
        Code::NoMatchingPool,
        &text("group: other"),
        "spec.template.spec.nodeSelector",
        "group",
        &text("group: static"),
    );
    let tainted = text("group: static")
        .replace("group: static}}\n", "group: static}}\nspec: {taints: [{key: team, effect: NoSchedule}]}\n");
    assert!(codes(&tainted).contains(&"L04"), "the taint of the node keeps it away");
    let ours = text("group: static, karpenter.sh/nodepool: plain");
    assert!(codes(&ours).contains(&"L04"), "nodes of Karpenter do not count");
}

#[test]
fn pool_without_instance_types_is_reported() {
    let field = "spec.template.spec.requirements";
    let right = pool("some", "", "", &family("m5"), "");
    check(
        Code::PoolWithoutTypes,
        &pool("some", "", "", &family("m5x"), ""),
        field,
        "instance-family",
        &right,
    );
    let both = format!("{}, {{key: kubernetes.io/arch, operator: In, values: [arm64]}}", family("m5"));
    check(Code::PoolWithoutTypes, &pool("some", "", "", &both, ""), field, "together", &right);
    let elsewhere = "{key: topology.kubernetes.io/zone, operator: In, values: [ap-northeast-2a]}";
    let findings = findings_from(&pool("some", "", "", elsewhere, ""), None);
    let found = findings.iter().find(|finding| finding.code == Code::PoolWithoutTypes).expect("a finding");
    assert!(found.fix.contains("--region"), "{found:?}");
}

#[test]
fn missing_requests_are_reported() {
    let field = "spec.template.spec.containers[0].resources.requests";
    let right = deployment("web", "", SIZED);
    check(Code::RequestsMissing, &deployment("web", "", ""), field, "cpu and memory", &right);
    check(Code::RequestsMissing, &deployment("web", "", "cpu: 1"), field, "for memory", &right);
    let limits = deployment("web", "", SIZED).replace("requests:", "limits:");
    assert!(!codes(&limits).contains(&"L06"), "requests default to limits");
}

#[test]
fn untolerated_taint_of_gpu_pool_is_reported() {
    let gpus =
        pool("gpu", "example.com/pool: gpu", "{key: nvidia.com/gpu, effect: NoSchedule}", &family("g5"), "");
    let gpu_pod = |pod: &str| deployment("model", pod, &format!("{SIZED}, nvidia.com/gpu: 1"));
    let tolerant = "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}], ";
    let text = |pod: &str| format!("{gpus}{}{}", plain(""), gpu_pod(pod));
    check(
        Code::TaintNotTolerated,
        &text(""),
        "spec.template.spec.tolerations",
        "nvidia.com/gpu:NoSchedule",
        &text(tolerant),
    );
    let preferred = text("").replace("effect: NoSchedule", "effect: PreferNoSchedule");
    assert!(!codes(&preferred).contains(&"L07"), "PreferNoSchedule does not keep pods away");
}

#[test]
fn karpenter_on_its_own_nodes_is_reported() {
    let affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}]}}}, ";
    let karpenter = |pod: &str| {
        deployment("karpenter", pod, SIZED).replace(
            "metadata: {name: karpenter}",
            "metadata: {name: karpenter, labels: {app.kubernetes.io/name: karpenter}}",
        )
    };
    let field = "spec.template.spec.affinity.nodeAffinity";
    let with_pool = |pod: &str| format!("{}{}", plain(""), karpenter(pod));
    check(Code::KarpenterOnOwnNodes, &with_pool(""), field, "NodePool plain", &with_pool(affinity));
    check(Code::KarpenterOnOwnNodes, &karpenter(""), field, "that it manages", &karpenter(affinity));
    assert!(
        !codes(&with_pool("nodeSelector: {group: static}, ")).contains(&"L08"),
        "no NodePool can launch such nodes"
    );
    let by_image = deployment("k", "", SIZED)
        .replace("name: c, image: x", "name: controller, image: 'example.com/karpenter/controller:1.0'");
    assert!(codes(&by_image).contains(&"L08"));
}

#[test]
fn contradicting_consolidate_after_is_reported() {
    let with = |policy: &str, after: &str, expire: &str| {
        plain(&format!("  disruption: {{consolidationPolicy: {policy}, consolidateAfter: {after}}}"))
            .replace("      taints: []\n", &format!("      expireAfter: {expire}\n"))
    };
    let field = "spec.disruption.consolidateAfter";
    let right = with("WhenEmpty", "Never", "Never");
    check(
        Code::ConsolidateAfterConflict,
        &with("WhenEmptyOrUnderutilized", "Never", "720h"),
        field,
        "disables",
        &right,
    );
    check(
        Code::ConsolidateAfterConflict,
        &with("WhenEmpty", "2h", "1h"),
        field,
        "expire before",
        &with("WhenEmpty", "30m", "1h"),
    );
}

#[test]
fn budgets_that_never_allow_disruption_are_reported() {
    let with = |budgets: &str, after: &str| {
        plain(&format!("  disruption: {{consolidateAfter: {after}, budgets: [{budgets}]}}"))
    };
    let right = with("{nodes: '0', schedule: '@daily', duration: 8h}", "0s");
    let all = "spec.disruption.budgets[0].nodes";
    check(Code::BudgetNeverOpens, &with("{nodes: '0'}", "0s"), all, "every reason", &right);
    check(
        Code::BudgetNeverOpens,
        &with("{nodes: 0%, schedule: '@daily', duration: 24h}", "0s"),
        all,
        "every reason",
        &right,
    );
    check(
        Code::BudgetNeverOpens,
        &with("{nodes: '0', schedule: '* * * * *', duration: 1m}", "0s"),
        all,
        "every reason",
        &right,
    );
    let some = with("{nodes: '0', reasons: [Empty]}, {nodes: '0', reasons: [Underutilized]}", "0s");
    let never = with("{nodes: '0', reasons: [Empty]}, {nodes: '0', reasons: [Underutilized]}", "Never");
    check(Code::BudgetNeverOpens, &some, "spec.disruption.budgets", "Empty and Underutilized", &never);
    let drift_off =
        with("{nodes: '100%', reasons: [Empty, Underutilized]}, {nodes: '0', reasons: [Drifted]}", "0s");
    assert!(!codes(&drift_off).contains(&"L10"), "disabling drift alone is valid");
    let weekdays = with("{nodes: '0', schedule: '0 0 * * 1-5', duration: 24h}", "0s");
    assert!(!codes(&weekdays).contains(&"L10"), "it is not active at weekends");
}

#[test]
fn budget_whose_schedule_matches_no_date_is_reported() {
    let with = |schedule: &str| {
        plain(&format!("  disruption: {{budgets: [{{nodes: '1', schedule: '{schedule}', duration: 1h}}]}}"))
    };
    check(
        Code::BudgetNeverApplies,
        &with("0 0 31 2 *"),
        "spec.disruption.budgets[0].schedule",
        "matches no date",
        &with("0 0 29 2 *"),
    );
}

#[test]
fn invalid_budget_schedule_is_reported() {
    let with = |schedule: &str, more: &str| {
        plain(&format!(
            "  disruption: {{budgets: [{{nodes: '1'}}, {{nodes: '1', schedule: '{schedule}', duration: 1h}}]}}{more}"
        ))
    };
    let field = "spec.disruption.budgets[1].schedule";
    // The CRD's pattern accepts all these schedules.
    for (schedule, part) in [
        ("61 * * * *", "minute"),
        ("0 0 * 13 *", "month"),
        ("@daily @hourly", "unknown"),
        ("0 0 * * * *", "6 fields"),
    ] {
        check(Code::BudgetUnreadable, &with(schedule, ""), field, part, &with("1 * * * *", ""));
    }
    // Budgets apply to the drift of static NodePools as well.
    let fixed = "\n  replicas: 2";
    check(
        Code::BudgetUnreadable,
        &with("61 * * * *", fixed),
        field,
        "no node of the NodePool is disrupted",
        &with("1 * * * *", fixed),
    );
}

#[test]
fn provisioner_name_selector_needs_a_provisioner() {
    let text = format!(
        "{}{}",
        plain(""),
        deployment("web", "nodeSelector: {karpenter.sh/provisioner-name: plain}, ", SIZED)
    );
    let modern = text.replace("karpenter.sh/provisioner-name", "karpenter.sh/nodepool");
    check(Code::ProvisionerNameSelected, &text, "spec.template.spec.nodeSelector", "do not have", &modern);
    let legacy = findings_from(&text, Some("plain"));
    assert_eq!(legacy, [], "the pool is converted from a Provisioner of that name");
}

#[test]
fn dotted_label_selector_needs_a_provisioner() {
    let wants = |key: &str| deployment("web", &format!("nodeSelector: {{{key}: m5}}, "), SIZED);
    let dotted = format!("{}{}", plain(""), wants("karpenter.k8s.aws/instance.family"));
    let dashed = format!("{}{}", plain(""), wants("karpenter.k8s.aws/instance-family"));
    check(Code::NoMatchingPool, &dotted, "spec.template.spec.nodeSelector", "instance.family", &dashed);
    assert_eq!(findings_from(&dotted, Some("plain")), []);
}

#[test]
fn mount_of_undefined_volume_is_reported() {
    let with = |pod: &str| {
        deployment("web", pod, SIZED)
            .replace("image: x, ", "image: x, volumeMounts: [{name: workdir, mountPath: /data}], ")
    };
    let field = "spec.template.spec.containers[0].volumeMounts[0].name";
    check(
        Code::VolumeMissing,
        &with(""),
        field,
        "\"workdir\"",
        &with("volumes: [{name: workdir, emptyDir: {}}], "),
    );
    let set = with("").replace("kind: Deployment", "kind: StatefulSet").replace(
        "spec:\n  selector",
        "spec:\n  volumeClaimTemplates: [{metadata: {name: workdir}}]\n  selector",
    );
    assert!(!codes(&set).contains(&"L13"), "a volume claim template defines a volume");
}

#[test]
fn label_shared_with_unmanaged_node_is_reported() {
    let labelled = pool("some", "group: a", "", &family("m5"), "");
    let node = |value: &str| {
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: static-1, labels: {{group: {value}}}}}\n")
    };
    check(
        Code::LabelShared,
        &format!("{labelled}{}", node("a")),
        "spec.template.metadata.labels[group]",
        "node static-1",
        &format!("{labelled}{}", node("b")),
    );
}

#[test]
fn missing_node_class_is_reported() {
    let class = |name: &str| {
        format!("apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\n")
    };
    check(
        Code::ClassMissing,
        &format!("{}{}", plain(""), class("other")),
        "spec.template.spec.nodeClassRef.name",
        "EC2NodeClass default",
        &format!("{}{}", plain(""), class("default")),
    );
    assert!(!codes(&plain("")).contains(&"L15"), "the input may lack all classes");
}

#[test]
fn do_not_evict_without_provisioner_is_reported() {
    let old = deployment("web", "", SIZED).replace(
        "metadata: {labels: {app: web}}",
        "metadata: {labels: {app: web}, annotations: {karpenter.sh/do-not-evict: 'true'}}",
    );
    let field = "spec.template.metadata.annotations[karpenter.sh/do-not-evict]";
    let text = format!("{}{old}", plain(""));
    check(Code::DoNotEvict, &text, field, "has no effect", &text.replace("do-not-evict", "do-not-disrupt"));
    let both = text.replace(
        "{karpenter.sh/do-not-evict",
        "{karpenter.sh/do-not-disrupt: 'true', karpenter.sh/do-not-evict",
    );
    assert!(!codes(&both).contains(&"L16"), "both annotations are present");
    assert!(!codes(&text.replace("'true'", "'false'")).contains(&"L16"), "only true protected a pod");
    assert_eq!(findings_from(&text, Some("plain")), [], "the pool is converted from a Provisioner");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {karpenter.sh/do-not-evict: 'true'}}\nspec: {containers: []}\n";
    let fixed = pod.replace("do-not-evict", "do-not-disrupt");
    check(Code::DoNotEvict, pod, "metadata.annotations[karpenter.sh/do-not-evict]", "evict the pods", &fixed);
}

#[test]
fn codes_are_unique() {
    let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), 17);
}

#[test]
fn malformed_objects_do_not_panic() {
    for text in [
        "{}\n",
        "kind: NodePool\n",
        "kind: NodePool\nspec: []\n",
        "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: 3, nodeSelector: [], tolerations: x}}}\n",
    ] {
        let _ = codes(text);
    }
}
