//! Workloads that pass by a conversion: they are not converted, and some of what they say means nothing in v1.

use serde_json::Value;

use crate::finding::{Code, Report};

const DO_NOT_EVICT: &str = "karpenter.sh/do-not-evict";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Where objects keep the metadata of their pods.
const POD_METADATA: [&str; 2] = ["spec.template.metadata", "spec.jobTemplate.spec.template.metadata"];

/// Looks at whatever makes pods, by its shape: kinds of others count too.
pub(crate) fn check(input: &Value, report: &mut Report) {
    let own = (input.get("kind").and_then(Value::as_str) == Some("Pod")).then_some("metadata");
    for path in own.into_iter().chain(POD_METADATA) {
        let pointer = format!("/{}/annotations", path.replace('.', "/"));
        let annotations = input.pointer(&pointer).and_then(Value::as_object);
        let of = |key: &str| annotations.and_then(|annotations| annotations.get(key)?.as_str());
        // Any other value never kept a pod.
        if of(DO_NOT_EVICT) == Some("true") && of(DO_NOT_DISRUPT).is_none() {
            report.add(
                Code::DoNotEvict,
                format!("{path}.annotations[{DO_NOT_EVICT}]"),
                "means nothing on nodes of v1 pools; workloads are not written anew here",
                format!("write {DO_NOT_DISRUPT}: \"true\", which also holds up a drain"),
            );
        }
    }
}
