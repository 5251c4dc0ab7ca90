//! Tests of the conversion of Provisioners and AWSNodeTemplates, one rule per test.

use karpenter_legacy::{Expiration, Options, TTL_UNTIL_EXPIRED_ANNOTATION, is_legacy};
use serde_json::{Value, json};

use crate::{codes, converted, converted_with, values};

const TEMPLATE: &str = "
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: shared}
spec:
  instanceProfile: nodes
  subnetSelector: {karpenter.sh/discovery: demo}
  securityGroupSelector: {karpenter.sh/discovery: demo}
  tags: {Name: nodes}
";

fn provisioner(spec: &str) -> String {
    format!("apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {{name: some}}\nspec:\n{spec}\n")
}

fn with_template(spec: &str) -> String {
    format!("{}---{TEMPLATE}", provisioner(&format!("  providerRef: {{name: shared}}\n{spec}")))
}

fn template(spec: &str) -> String {
    TEMPLATE.replace("  tags: {Name: nodes}\n", &format!("  tags: {{Name: nodes}}\n{spec}\n"))
}

fn only_class(text: &str) -> (Value, Vec<&'static str>) {
    let converted = converted(text);
    assert_eq!(converted.objects.len(), 1, "{:#?}", converted.findings);
    (converted.objects[0].value["spec"].clone(), codes(&converted))
}

#[test]
fn expiration_and_consolidation_are_off_by_default() {
    let converted = converted(&with_template(""));
    let pool = values(&converted)[0];
    assert_eq!(pool["spec"]["template"]["spec"]["expireAfter"], "Never");
    assert_eq!(pool["spec"]["disruption"]["consolidationPolicy"], "WhenEmpty");
    assert_eq!(pool["spec"]["disruption"]["consolidateAfter"], "Never");
    assert_eq!(codes(&converted), ["W05"]);
}

#[test]
fn flags_change_defaults_budgets_and_drift() {
    let text = with_template("");
    let bare =
        converted_with(&text, &Options { ignore_defaults: true, v1_defaults: true, ..Options::default() });
    let pool = values(&bare)[0];
    assert_eq!(pool["spec"]["template"]["spec"]["requirements"], json!([]));
    assert_eq!(pool["spec"]["disruption"].get("budgets"), None);
    assert!(codes(&bare).contains(&"W04"));
    let drifting = converted_with(&text, &Options { drift_enabled: true, ..Options::default() });
    assert_eq!(
        values(&drifting)[0]["spec"]["disruption"]["budgets"][1],
        json!({"nodes": "1", "reasons": ["Drifted"]})
    );
}

#[test]
fn graceful_expiration_is_an_annotation() {
    let text = with_template("  ttlSecondsUntilExpired: 600");
    let live = converted_with(&text, &Options { expiration: Expiration::Graceful, ..Options::default() });
    let pool = values(&live)[0];
    assert_eq!(pool["spec"]["template"]["spec"]["expireAfter"], "Never");
    assert_eq!(pool["metadata"]["annotations"][TTL_UNTIL_EXPIRED_ANNOTATION], "600");
    assert!(!codes(&live).contains(&"W03"));
}

#[test]
fn zero_ttl_until_expired_is_kept() {
    let converted = converted(&with_template("  ttlSecondsUntilExpired: 0"));
    assert_eq!(values(&converted)[0]["spec"]["template"]["spec"]["expireAfter"], "0s");
}

#[test]
fn label_aliases_are_normalized_and_removed_labels_reported() {
    let text = with_template(
        "  labels: {beta.kubernetes.io/os: linux, karpenter.k8s.aws/instance-pods: '58'}\n  requirements:\n  - {key: karpenter.k8s.aws/instance.cpu, operator: Gt, values: ['3']}\n  - {key: karpenter.k8s.aws/instance-pods, operator: Gt, values: ['20']}\n  - {key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}",
    );
    let converted = converted(&text);
    let template = &values(&converted)[0]["spec"]["template"];
    assert_eq!(template["metadata"]["labels"], json!({"kubernetes.io/os": "linux"}));
    let keys: Vec<&str> = template["spec"]["requirements"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["key"].as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "karpenter.k8s.aws/instance-cpu",
            "topology.kubernetes.io/zone",
            "kubernetes.io/arch",
            "karpenter.sh/capacity-type",
            "karpenter.k8s.aws/instance-category",
            "karpenter.k8s.aws/instance-generation",
        ]
    );
    let mut found = codes(&converted);
    found.sort_unstable();
    assert_eq!(found, ["W05", "W07", "W08", "W08"]);
}

#[test]
fn kubelet_settings_create_a_separate_class() {
    let text = with_template(
        "  kubeletConfiguration: {maxPods: 110, containerRuntime: dockerd, clusterDNS: ['fd00::a'], kubeReserved: {cpu: 1}}",
    );
    let converted = converted(&text);
    let [pool, split, shared] = values(&converted)[..] else { panic!("{:?}", converted.objects) };
    assert_eq!(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"], "shared-some");
    assert_eq!(split["metadata"]["name"], "shared-some");
    assert_eq!(
        split["spec"]["kubelet"],
        json!({"maxPods": 110, "clusterDNS": ["fd00::a"], "kubeReserved": {"cpu": "1"}})
    );
    assert_eq!(split["spec"]["metadataOptions"]["httpProtocolIPv6"], "enabled");
    assert_eq!(shared["metadata"]["name"], "shared");
    assert_eq!(shared["spec"].get("kubelet"), None);
    let mut found = codes(&converted);
    found.sort_unstable();
    assert_eq!(found, ["N04", "W02", "W05"]);
}

#[test]
fn kubelet_settings_without_their_template_are_an_error() {
    let converted =
        converted(&provisioner("  providerRef: {name: elsewhere}\n  kubeletConfiguration: {maxPods: 10}"));
    assert_eq!(codes(&converted), ["E19"]);
    assert!(converted.objects.is_empty());
    assert_eq!(codes(&crate::converted(&provisioner("  providerRef: {name: elsewhere}"))), ["N03"]);
}

#[test]
fn inline_class_is_renamed_if_a_template_has_its_name() {
    let inline = "  provider: {instanceProfile: nodes, subnetSelector: {a: b}, securityGroupSelector: {a: b}, tags: {Name: x}}";
    let text = format!("{}---{}", provisioner(inline).replace("name: some", "name: shared"), TEMPLATE);
    let converted = converted(&text);
    let names: Vec<&str> =
        values(&converted).iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["shared", "shared-provider", "shared"]);
    assert_eq!(values(&converted)[0]["spec"]["template"]["spec"]["nodeClassRef"]["name"], "shared-provider");
}

#[test]
fn metadata_options_keep_v1alpha1_defaults() {
    let (spec, _) = only_class(&template("  metadataOptions: {httpEndpoint: disabled}"));
    let expected = json!({"httpEndpoint": "disabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "optional"});
    assert_eq!(spec["metadataOptions"], expected);
    let (spec, _) = only_class(TEMPLATE);
    assert_eq!(spec["metadataOptions"]["httpPutResponseHopLimit"], 2);
    assert_eq!(spec["metadataOptions"]["httpTokens"], "required");
}

#[test]
fn image_families_and_selectors() {
    let (spec, found) = only_class(&template("  amiFamily: Bottlerocket"));
    assert_eq!(spec["amiSelectorTerms"], json!([{"alias": "bottlerocket@latest"}]));
    assert_eq!((spec.get("amiFamily"), found), (None, vec![]));
    let (spec, found) = only_class(&template("  amiFamily: Ubuntu\n  amiSelector: {aws::ids: ami-1}"));
    assert_eq!(spec["amiFamily"], "AL2");
    assert_eq!(spec["blockDeviceMappings"][0]["deviceName"], "/dev/sda1");
    assert_eq!(found, ["W09"]);
    let (spec, found) =
        only_class(&template("  amiFamily: Custom\n  userData: hello\n  amiSelector: {aws::name: mine}"));
    assert_eq!((&spec["amiFamily"], &spec["userData"]), (&json!("Custom"), &json!("hello")));
    assert_eq!(found, ["W09", "W10"]);
    assert_eq!(codes(&converted(&template("  amiFamily: Ubuntu"))), ["E06"]);
}

#[test]
fn node_role_comes_from_object_then_settings() {
    let text = TEMPLATE.replace("  instanceProfile: nodes\n", "");
    let spec = |options: &Options| {
        let converted = converted_with(&text, options);
        (values(&converted)[0]["spec"].clone(), codes(&converted).contains(&"W13"))
    };
    let (placeholder, warned) = spec(&Options::default());
    assert_eq!((&placeholder["role"], warned), (&json!("$KARPENTER_NODE_ROLE"), true));
    let (named, warned) = spec(&Options { cluster_name: Some("demo".to_owned()), ..Options::default() });
    assert_eq!((&named["role"], warned), (&json!("KarpenterNodeRole-demo"), true));
    let (role, warned) = spec(&Options { role: Some("nodes".to_owned()), ..Options::default() });
    assert_eq!((&role["role"], warned), (&json!("nodes"), false));
    let both = Options {
        role: Some("r".to_owned()),
        default_instance_profile: Some("p".to_owned()),
        ..Options::default()
    };
    let (profile, warned) = spec(&both);
    assert_eq!((profile.get("role"), &profile["instanceProfile"], warned), (None, &json!("p"), false));
}

#[test]
fn global_tags_are_overridden_and_reserved_tags_dropped() {
    let tags =
        [("team", "settings"), ("stage", "settings")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let options = Options { tags: tags.into(), ..Options::default() };
    let text = TEMPLATE.replace("{Name: nodes}", "{team: own, kubernetes.io/cluster/demo: owned}");
    let converted = converted_with(&text, &options);
    assert_eq!(values(&converted)[0]["spec"]["tags"], json!({"team": "own", "stage": "settings"}));
    assert_eq!(codes(&converted), ["W05", "W14", "W15"]);
}

#[test]
fn do_not_consolidate_becomes_do_not_disrupt() {
    let converted =
        converted(&with_template("  annotations: {karpenter.sh/do-not-consolidate: 'true', a: b}"));
    let metadata = &values(&converted)[0]["spec"]["template"]["metadata"];
    assert_eq!(metadata["annotations"], json!({"karpenter.sh/do-not-disrupt": "true", "a": "b"}));
    assert!(codes(&converted).contains(&"N05"));
}

#[test]
fn server_fields_and_tool_annotations_are_dropped() {
    let text = with_template("").replace(
        "metadata: {name: some}",
        "metadata: {name: some, namespace: karpenter, uid: u, generation: 3, finalizers: [x], labels: {a: b}, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', c: d}}\nstatus: {resources: {cpu: 1}}",
    );
    let converted = converted(&text);
    let pool = values(&converted)[0];
    assert_eq!(pool["metadata"], json!({"name": "some", "labels": {"a": "b"}, "annotations": {"c": "d"}}));
    assert_eq!(pool.get("status"), None);
}

#[test]
fn other_kinds_are_counted_and_controller_kinds_reported() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: karpenter.sh/v1alpha5\nkind: Machine\nmetadata: {name: b}\n";
    let converted = converted(text);
    assert!(converted.objects.is_empty());
    assert_eq!(converted.skipped.get("Service"), Some(&1));
    assert_eq!(codes(&converted), ["N02"]);
    assert!(is_legacy(&json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Machine"})));
    assert!(!is_legacy(&json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool"})));
}

#[test]
fn two_results_with_one_name_are_an_error() {
    let current = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: shared}\nspec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}\n";
    let converted = converted(&format!("{current}---{TEMPLATE}"));
    assert_eq!(codes(&converted), ["W05", "E20"]);
    assert_eq!(converted.objects.len(), 1);
}
