//! Pools next to nodes of others: labels that pods use to choose between them must not be the same.

use serde_json::Value;

use crate::finding::{Code, Report};
use crate::{Scene, text};

pub(crate) fn check(scene: &Scene<'_>, report: &mut Report) {
    for pool in &scene.pools {
        for (key, value) in &pool.labels {
            let shared = scene.foreign_nodes.iter().find(|(_, node)| {
                let label = node
                    .pointer("/metadata/labels")
                    .and_then(|labels| labels.get(key))
                    .and_then(Value::as_str);
                label == Some(value)
            });
            if let Some((_, node)) = shared {
                report.add(
                    Code::LabelShared,
                    pool.place(),
                    format!("spec.template.metadata.labels[{key}]"),
                    format!(
                        "node {} of another node group carries {key}={value} as well, so that pods which select it belong to \
                         two autoscalers",
                        text(node, "/metadata/name")
                    ),
                    "a label of the pool's own",
                );
            }
        }
    }
}
