//! The rule that NodePools and nodes that Karpenter does not manage must not have a label in common by which pods
//! select nodes.

use serde_json::Value;

use crate::finding::{Code, Report};
use crate::{Context, text};

pub(crate) fn check(context: &Context<'_>, report: &mut Report) {
    for pool in &context.pools {
        for (key, value) in &pool.labels {
            let shared = context.unmanaged_nodes.iter().find(|(_, node)| {
                let label = node
                    .pointer("/metadata/labels")
                    .and_then(|labels| labels.get(key))
                    .and_then(Value::as_str);
                label == Some(value)
            });
            if let Some((_, node)) = shared {
                report.add(
                    Code::LabelShared,
                    pool.subject(),
                    format!("spec.template.metadata.labels[{key}]"),
                    format!(
                        "node {}, which Karpenter does not manage, has {key}={value} as well; pods that select it may run on nodes of \
                         two autoscalers",
                        text(node, "/metadata/name")
                    ),
                    "use a label that only the NodePool has",
                );
            }
        }
    }
}
