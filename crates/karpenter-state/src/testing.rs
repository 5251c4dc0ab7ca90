//! Helpers for the tests of this crate, which turn YAML text into objects and problems.

use std::sync::Arc;

use karpenter_model::pod::PodSpec;
use karpenter_model::problem::Problem;

use crate::assemble::{CatalogChoice, assemble};
use crate::notes::Note;
use crate::objects::{Objects, Reading};

pub(crate) const POOL: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
";

pub(crate) fn read(text: &str) -> Reading {
    let manifests = karpenter_api::manifest::read("in.yaml", text);
    assert_eq!(manifests.errors, [], "{text}");
    Objects::from_documents(manifests.documents)
}

/// Objects of a text that has no errors or warnings.
pub(crate) fn objects(text: &str) -> Objects {
    let reading = read(text);
    let findings: Vec<String> = reading.errors.iter().map(ToString::to_string).collect();
    assert_eq!(findings, [""; 0], "{text}");
    reading.objects
}

pub(crate) fn problem(text: &str) -> (Problem, Vec<Note>) {
    assemble(&objects(text), &CatalogChoice::Kwok)
}

/// The spec of the only pending pod.
pub(crate) fn pod(text: &str) -> Arc<PodSpec> {
    let (problem, _) = problem(&format!("{POOL}---\n{text}"));
    assert_eq!(problem.pods.len(), 1, "{text}");
    problem.pods[0].spec.clone()
}

/// A pod with these lines added to its spec.
pub(crate) fn pod_with(spec_lines: &str) -> Arc<PodSpec> {
    pod(&pod_yaml("p", spec_lines))
}

pub(crate) fn pod_yaml(name: &str, spec_lines: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}}}\nspec:\n  containers: [{{name: c, image: i}}]\n{}",
        indented(spec_lines)
    )
}

fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("  {line}\n")).collect()
}
