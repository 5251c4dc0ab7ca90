//! Whole manifests as they are found in the wild, and what becomes of them.

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
fn a_program_writes_nulls() {
    check("add-on-with-nulls", &["W03", "W05", "W13", "W15"]);
}

#[test]
fn a_chart_with_four_pools() {
    check("configuration-chart", &["W05", "W15"]);
}

#[test]
fn what_is_v1_already() {
    check("current", &[]);
}

#[test]
fn v1beta1_with_a_class_that_splits() {
    check("beta", &["W17"]);
}
