//! Workloads in the input of a conversion. They are not converted, but annotations that have no effect in v1 are
//! reported.

use serde_json::Value;

use crate::finding::{Code, Report};

const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Where workloads have the metadata of their pods.
const POD_METADATA: [&str; 2] = ["spec.template.metadata", "spec.jobTemplate.spec.template.metadata"];

/// Checks every object that has a pod template at one of these paths, whatever its kind.
pub(crate) fn check(input: &Value, report: &mut Report) {
    let own = (input.get("kind").and_then(Value::as_str) == Some("Pod")).then_some("metadata");
    for path in own.into_iter().chain(POD_METADATA) {
        let pointer = format!("/{}/annotations", path.replace('.', "/"));
        let annotations = input.pointer(&pointer).and_then(Value::as_object);
        let of = |key: &str| annotations.and_then(|annotations| annotations.get(key)?.as_str());
        // In v1alpha5, only the value "true" protected a pod.
        if of(DO_NOT_EVICT) == Some("true") && of(DO_NOT_DISRUPT).is_none() {
            report.add(
                Code::DoNotEvict,
                format!("{path}.annotations[{DO_NOT_EVICT}]"),
                "has no effect on nodes of v1 NodePools; workloads are not converted",
                format!("set {DO_NOT_DISRUPT}: \"true\", which also blocks the drain of the node"),
            );
        }
    }
}
