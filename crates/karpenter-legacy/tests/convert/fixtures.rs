//! Complete manifests from practice, each compared with the expected result of its conversion.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{codes, converted, documents, values};

fn check(name: &str, expected_codes: &[&str]) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let read = |file: &str| std::fs::read_to_string(directory.join(file)).expect("the fixture is there");
    let converted = converted(&read("input.yaml"));
    let expected = documents(&read("expected.yaml"));
    assert_eq!(values(&converted), expected.iter().collect::<Vec<_>>(), "{name}");
    let found: BTreeSet<&str> = codes(&converted).into_iter().filter(|code| !code.starts_with('N')).collect();
    assert_eq!(found, expected_codes.iter().copied().collect(), "{name}: {:#?}", converted.findings);
}

#[test]
fn inline_settings_with_ids() {
    check("inline-ids", &["W03", "W05", "W13"]);
}

#[test]
fn inline_settings_with_tags() {
    check("inline-tags", &["W05", "W15"]);
}

#[test]
fn manifest_with_nulls() {
    check("add-on-with-nulls", &["W03", "W05", "W13", "W15"]);
}

#[test]
fn chart_with_four_pools() {
    check("configuration-chart", &["W05", "W15"]);
}

/// User data is copied unchanged, even if it has heredocs, quotes, substitutions, backslashes, tabs and trailing
/// blanks.
#[test]
fn user_data_is_copied_byte_for_byte() {
    check("user-data", &["W05", "W15"]);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/user-data");
    let read = |file: &str| std::fs::read_to_string(directory.join(file)).expect("the fixture is there");
    let converted = converted(&read("input.yaml"));
    for (object, file) in values(&converted).into_iter().zip(["lazy-loading.sh", "accelerated.sh"]) {
        assert_eq!(object["spec"]["userData"].as_str(), Some(&*read(file)), "{file}");
    }
}

/// Workloads are omitted from the result, but their annotation do-not-evict is reported.
#[test]
fn do_not_evict_of_workloads_is_reported() {
    let annotated = |kind: &str, spec: &str| {
        format!("apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n")
    };
    let metadata = "metadata: {annotations: {karpenter.sh/do-not-evict: 'true'}}";
    let template = format!("template: {{{metadata}}}");
    for (text, field) in [
        (annotated("Deployment", &format!("{{{template}}}")), "spec.template.metadata.annotations"),
        (
            annotated("CronJob", &format!("{{jobTemplate: {{spec: {{{template}}}}}}}")),
            "spec.jobTemplate.spec.template.metadata.annotations",
        ),
        (format!("apiVersion: v1\nkind: Pod\n{metadata}\n"), "metadata.annotations"),
    ] {
        let found = converted(&text);
        assert_eq!(codes(&found), ["W21"], "{text}");
        assert_eq!(found.findings[0].field, format!("{field}[karpenter.sh/do-not-evict]"));
        assert!(found.objects.is_empty());
        assert!(codes(&converted(&text.replace("'true'", "'false'"))).is_empty());
        assert!(codes(&converted(&text.replace("do-not-evict", "do-not-disrupt"))).is_empty());
    }
}

#[test]
fn v1_objects_are_copied() {
    check("current", &[]);
}

#[test]
fn v1beta1_class_is_split_by_kubelet_settings() {
    check("beta", &["W17"]);
}
