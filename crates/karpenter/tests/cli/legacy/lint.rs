//! Tests of the binary with `karpenter lint`: formats and exit codes, v1alpha5 objects, and a Deployment with two
//! mistakes.

use serde_json::Value;

use crate::legacy::{fixture, karpenter, path, text};

const POOLS: &str = "apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: gpu}
spec:
  labels: {baseten.co/karpenter-provisioner: gpu}
  taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
  requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [g5]}]
  ttlSecondsAfterEmpty: 300
  providerRef: {name: gpu}
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: cpu}
spec:
  labels: {baseten.co/karpenter-provisioner: cpu}
  requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [c5]}]
  ttlSecondsAfterEmpty: 300
  providerRef: {name: gpu}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: gpu}
spec: {instanceProfile: p, subnetSelector: {a: b}, securityGroupSelector: {a: b}}
---
";

/// A Deployment with two mistakes, as in a published guide: a volume mount without a volume, and no toleration.
const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: dep-test, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app.kubernetes.io/name: dep-test}}
  template:
    metadata: {labels: {app.kubernetes.io/name: dep-test}}
    spec:
      nodeSelector: {baseten.co/karpenter-provisioner: gpu}
      containers:
        - name: nginx
          image: nginx
          volumeMounts: [{name: workdir, mountPath: /usr/share/nginx/html}]
          resources:
            limits: {memory: 1Gi, cpu: 800m, nvidia.com/gpu: '1'}
            requests: {memory: 100Mi, cpu: 100m, nvidia.com/gpu: '1'}
";

fn findings(arguments: &[&str], stdin: &str) -> (Vec<Value>, Option<i32>) {
    let mut all = vec!["lint", "-o", "json", "-f", "-"];
    all.extend(arguments);
    let output = karpenter(&all, stdin);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (report["findings"].as_array().expect("a list").clone(), output.status.code())
}

fn codes(findings: &[Value]) -> Vec<&str> {
    findings.iter().filter_map(|finding| finding["code"].as_str()).collect()
}

#[test]
fn deployment_with_two_mistakes_has_two_findings() {
    let (found, code) = findings(&["--ignore", "L02,L03"], &format!("{POOLS}{DEPLOYMENT}"));
    assert_eq!(codes(&found), ["L07", "L13"]);
    assert_eq!(code, Some(1));
    assert_eq!(found[0]["object"], "Deployment default/dep-test");
    assert_eq!(found[0]["field"], "spec.template.spec.tolerations");
    assert!(found[0]["fix"].as_str().is_some_and(|fix| fix.contains("nvidia.com/gpu")));
    assert_eq!((&found[1]["source"], &found[1]["document"]), (&"-".into(), &4.into()));
    let mended = DEPLOYMENT.replace(
        "      containers:",
        "      volumes: [{name: workdir, emptyDir: {}}]\n      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]\n      containers:",
    );
    assert_eq!(findings(&["--ignore", "L02,L03"], &format!("{POOLS}{mended}")), (vec![], Some(0)));
}

#[test]
fn labels_without_requirements_are_found_in_provisioners() {
    let (found, _) = findings(&[], POOLS);
    assert_eq!(codes(&found), ["L03"]);
    assert_eq!(found[0]["object"], "NodePool cpu (from Provisioner cpu)");
}

#[test]
fn fail_on_determines_exit_code() {
    let warning = findings(&[], POOLS).1;
    let forgiven = findings(&["--fail-on", "error"], POOLS).1;
    assert_eq!((warning, forgiven), (Some(1), Some(0)));
    let never = findings(&["--fail-on", "never"], &format!("{POOLS}{DEPLOYMENT}")).1;
    assert_eq!(never, Some(0));
    let unknown = karpenter(&["lint", "-f", "-", "--ignore", "L99"], POOLS);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("L01, "), "{}", text(&unknown.stderr));
    let region = karpenter(&["lint", "-f", "-", "--region", "nowhere"], POOLS);
    assert_eq!(region.status.code(), Some(1));
}

#[test]
fn v1alpha5_object_that_never_worked_is_an_error() {
    let both = POOLS.replacen(
        "ttlSecondsAfterEmpty: 300",
        "ttlSecondsAfterEmpty: 300\n  consolidation: {enabled: true}",
        1,
    );
    let output = karpenter(&["lint", "-f", "-", "--fail-on", "never"], &both);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("E18 Provisioner gpu spec.consolidation.enabled: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn text_has_position_reason_and_fix() {
    let output = karpenter(&["lint", "-f", "-"], POOLS);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(
        lines[0]
            .starts_with("warning L03 NodePool cpu (from Provisioner cpu) spec.template.metadata.labels["),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("  at: -: document 2, line "), "{lines:?}");
    assert!(lines[2].starts_with("  why: ") && lines[3].starts_with("  fix: "), "{lines:?}");
    assert_eq!(lines.last(), Some(&"0 errors, 1 warnings"));
}

#[test]
fn published_manifests_have_no_findings() {
    for case in ["inline-ids", "inline-tags", "current"] {
        let input = fixture(case).join("input.yaml");
        let region = if case == "inline-ids" { "ap-northeast-2" } else { "us-east-1" };
        let output = karpenter(&["lint", "--region", region, "-f", path(&input)], "");
        assert_eq!(output.status.code(), Some(0), "{case}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}
