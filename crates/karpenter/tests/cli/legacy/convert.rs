//! Tests of `karpenter convert`: output streams, exit codes, and output that can be read again.

use crate::legacy::{documents, fixture, karpenter, path, text};

const GOOD: &str = "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: good}\nspec: {instanceProfile: p, amiFamily: Bottlerocket, tags: {Name: nodes}, subnetSelector: {a: b}, securityGroupSelector: {a: b}}\n";
const BAD: &str = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: bad}\nspec: {providerRef: {name: good}, weight: 200, requirements: [{key: topology.kubernetes.io/zone, operator: In, values: []}]}\n";

#[test]
fn yaml_and_json_are_equal_and_parse_again() {
    for case in [
        "inline-ids",
        "inline-tags",
        "add-on-with-nulls",
        "configuration-chart",
        "user-data",
        "current",
        "beta",
    ] {
        let input = fixture(case).join("input.yaml");
        let expected =
            documents(&std::fs::read_to_string(fixture(case).join("expected.yaml")).expect("there"));
        for format in ["yaml", "json"] {
            let output = karpenter(&["convert", "-f", path(&input), "-o", format], "");
            assert_eq!(output.status.code(), Some(0), "{case}: {}", text(&output.stderr));
            assert_eq!(documents(text(&output.stdout)), expected, "{case} as {format}");
        }
    }
}

#[test]
fn warnings_have_position_code_object_and_field() {
    let input = fixture("inline-ids").join("input.yaml");
    let output = karpenter(&["convert", "-f", path(&input)], "");
    let stderr = text(&output.stderr);
    for part in ["W03 Provisioner ops-provisioner spec.ttlSecondsUntilExpired: ", "W13 ", "W05 "] {
        let line =
            stderr.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part} in {stderr}"));
        assert!(line.starts_with(&format!("warning: {}: document 1, line 2: ", input.display())), "{line}");
        assert!(line.contains("(fix: "), "{line}");
    }
}

#[test]
fn v1alpha5_settings_are_flags() {
    let input = fixture("add-on-with-nulls").join("input.yaml");
    let class = |flags: &[&str]| {
        let mut arguments = vec!["convert", "-f", path(&input)];
        arguments.extend(flags);
        let output = karpenter(&arguments, "");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        documents(text(&output.stdout)).pop().expect("a class")["spec"].clone()
    };
    assert_eq!(class(&["--default-instance-profile", "nodes"])["instanceProfile"], "nodes");
    assert_eq!(class(&["--role", "nodes"])["role"], "nodes");
    assert_eq!(class(&["--cluster-name", "demo"])["role"], "KarpenterNodeRole-demo");
    assert_eq!(class(&["--default-tag", "team=a", "--default-tag", "x=y=z"])["tags"]["x"], "y=z");
    let both = karpenter(&["convert", "-f", "-", "--role", "a", "--default-instance-profile", "b"], "");
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn invalid_object_is_omitted_and_exit_code_is_one() {
    let output = karpenter(&["convert", "-f", "-"], &format!("{BAD}---\n{GOOD}"));
    assert_eq!(output.status.code(), Some(1));
    let kinds: Vec<_> = documents(text(&output.stdout)).into_iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["EC2NodeClass"]);
    let errors: Vec<&str> = text(&output.stderr).lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors.iter().all(|line| line.starts_with("error: -: document 1, line 1: E18 Provisioner bad spec.")),
        "{errors:?}"
    );
    assert!(errors.iter().any(|line| line.contains("spec.requirements[0].values: ") && line.contains("at least one value")));
    assert!(errors.iter().any(|line| line.contains("spec.weight: 200") && line.contains("1 to 100")));
}

#[test]
fn result_rejected_by_v1_is_an_error_and_omitted() {
    let current = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\nspec: {template: {spec: {requirements: []}}}\n";
    let output = karpenter(&["convert", "-f", "-"], current);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(
        text(&output.stderr).contains("NodePool p: spec.template.spec.nodeClassRef: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn other_kinds_are_noted_and_input_without_ours_is_an_error() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n";
    let mixed = karpenter(&["convert", "-f", "-"], &format!("{service}---\n{GOOD}"));
    assert_eq!(mixed.status.code(), Some(0));
    assert!(
        text(&mixed.stderr).contains("note: skipped, not Karpenter's: 1 Service"),
        "{}",
        text(&mixed.stderr)
    );
    let nothing = karpenter(&["convert", "-f", "-"], service);
    assert_eq!((nothing.status.code(), nothing.stdout.is_empty()), (Some(1), true));
    assert!(text(&nothing.stderr).contains("Provisioner, AWSNodeTemplate"), "{}", text(&nothing.stderr));
    let empty = karpenter(&["convert", "-f", "-"], "");
    assert_eq!(empty.status.code(), Some(1));
    let broken = karpenter(&["convert", "-f", "-"], "kind: [\n");
    assert_eq!(broken.status.code(), Some(1));
    let missing = karpenter(&["convert", "-f", "no-such-file.yaml"], "");
    assert!(text(&missing.stderr).contains("no-such-file.yaml"));
}

#[test]
fn directory_is_one_input() {
    let output = karpenter(&["convert", "-R", "-f", path(&fixture("inline-tags"))], "");
    // The folder contains the input and its expected result, whose objects have the same names; duplicates are an
    // error.
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("E20 Provisioner default metadata.name: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn v1alpha5_objects_are_planned_as_converted() {
    let input = fixture("inline-ids").join("input.yaml");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeSelector: {role: ops}, tolerations: [{key: role, operator: Exists}], containers: [{name: c, image: x, resources: {requests: {cpu: 1}}}]}\n";
    let output =
        karpenter(&["plan", "--region", "ap-northeast-2", "-o", "json", "-f", path(&input), "-f", "-"], pod);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["nodes"].as_array().map(Vec::len), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 v1alpha5 or v1beta1 objects"), "{}", text(&output.stderr));
    let by_name = pod.replace("role: ops}", "karpenter.sh/provisioner-name: ops-provisioner}");
    let output = karpenter(
        &["plan", "--region", "ap-northeast-2", "-o", "json", "-f", path(&input), "-f", "-"],
        &by_name,
    );
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["nodes"].as_array().map(Vec::len), Some(1), "{plan}");
    let lost = karpenter(&["plan", "-f", "-"], &format!("{BAD}---\n{pod}"));
    assert_eq!(lost.status.code(), Some(1), "no pool is made up in place of a wrong one");
    assert!(text(&lost.stderr).contains("E18 Provisioner bad"), "{}", text(&lost.stderr));
}
