//! Tests of edge cases in v1beta1 objects.

use serde_json::json;

use crate::{codes, converted, values};

fn class(spec: &str) -> String {
    format!(
        "apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {{name: c, annotations: {{compatibility.karpenter.k8s.aws/v1-alias-version: v20240928}}}}\nspec:\n  associatePublicIPAddress: false\n  subnetSelectorTerms: [{{id: subnet-1}}]\n  securityGroupSelectorTerms: [{{id: sg-1}}]\n{spec}\n"
    )
}

fn pool(spec: &str) -> String {
    format!("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: p}}\nspec:\n{spec}\n")
}

#[test]
fn alias_keeps_pinned_version() {
    let converted = converted(&class("  amiFamily: AL2\n  role: r"));
    assert_eq!(values(&converted)[0]["spec"]["amiSelectorTerms"], json!([{"alias": "al2@v20240928"}]));
    assert_eq!(values(&converted)[0]["metadata"], json!({"name": "c"}));
    assert_eq!(codes(&converted), ["W05"]);
}

#[test]
fn ubuntu_needs_images() {
    assert_eq!(codes(&converted(&class("  amiFamily: Ubuntu\n  role: r"))), ["E06"]);
    let with_terms = converted(&class("  amiFamily: Ubuntu\n  role: r\n  amiSelectorTerms: [{id: ami-1}]"));
    assert_eq!(values(&with_terms)[0]["spec"]["amiFamily"], "AL2");
}

#[test]
fn disabled_consolidation_stays_disabled() {
    let text = pool(
        "  template: {spec: {requirements: [], nodeClassRef: {name: c}}}\n  disruption: {consolidationPolicy: WhenUnderutilized, consolidateAfter: Never, expireAfter: Never}",
    );
    let off = converted(&text);
    let spec = &values(&off)[0]["spec"];
    assert_eq!(spec["disruption"]["consolidateAfter"], "Never");
    assert_eq!(spec["template"]["spec"]["expireAfter"], "Never");
    let text = text.replace("consolidateAfter: Never", "consolidateAfter: 30s");
    assert_eq!(codes(&converted(&text)), ["N03", "E18"]);
}

#[test]
fn pools_with_equal_kubelet_settings_share_one_class() {
    let one = pool("  template: {spec: {requirements: [], kubelet: {maxPods: 50}, nodeClassRef: {name: c}}}");
    let text = format!(
        "{one}---\n{}---\n{}",
        one.replace("name: p", "name: q"),
        class("  amiFamily: AL2023\n  role: r")
    );
    let converted = converted(&text);
    assert_eq!(converted.objects.len(), 3);
    assert_eq!(values(&converted)[2]["spec"]["kubelet"], json!({"maxPods": 50}));
    assert_eq!(codes(&converted), Vec::<&str>::new());
}

#[test]
fn unknown_fields_and_missing_references_are_reported() {
    let unknown =
        converted(&pool("  template: {spec: {requirements: [], nodeClassRef: {name: c}, kubelets: {}}}"));
    assert_eq!(codes(&unknown), ["E18"]);
    assert!(unknown.findings[0].to_string().contains("kubelets"), "{}", unknown.findings[0]);
    assert_eq!(codes(&converted(&pool("  template: {spec: {requirements: []}}"))), ["E18"]);
}
