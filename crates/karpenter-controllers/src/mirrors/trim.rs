//! What is dropped from objects before they are kept. What is kept of a pod is [`karpenter_state::pod`]'s to say.

use k8s_openapi::api::core::v1::Node;

pub(super) fn node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        // The largest part of a node.
        status.images = None;
        status.volumes_in_use = None;
        status.volumes_attached = None;
        status.conditions.iter_mut().for_each(Vec::shrink_to_fit);
        // Would make a difference every few minutes, of every node.
        let conditions = status.conditions.iter_mut().flatten();
        conditions.for_each(|condition| condition.last_heartbeat_time = None);
    }
}

/// Whether a node that was written says nothing new.
pub(super) fn is_same_node(old: &Node, new: &Node) -> bool {
    let (was, is) = (&old.metadata, &new.metadata);
    was.uid == is.uid
        && was.deletion_timestamp == is.deletion_timestamp
        && was.labels == is.labels
        && was.annotations == is.annotations
        && was.finalizers == is.finalizers
        && was.owner_references == is.owner_references
        && old.spec == new.spec
        && old.status == new.status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn trimmed(patch: impl Fn(&mut Value)) -> Node {
        let mut value = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}},
            "spec": {"providerID": "p"},
            "status": {"images": [{"names": ["i"]}], "conditions": [{"type": "Ready", "status": "True",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        patch(&mut value);
        let mut kept = serde_json::from_value(value).expect("a node");
        node(&mut kept);
        kept
    }

    #[test]
    fn a_heartbeat_is_no_news_and_all_else_is() {
        let before = trimmed(|_| {});
        let beat = trimmed(|node| {
            node["metadata"]["resourceVersion"] = json!("2");
            node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
            node["status"]["images"] = json!([]);
        });
        assert!(is_same_node(&before, &beat));
        let news: [(&str, Value); 7] = [
            ("/metadata/uid", json!("v")),
            ("/metadata/labels", json!({"a": "c"})),
            ("/metadata/annotations", json!({"a": "c"})),
            ("/metadata/finalizers", json!(["f"])),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/spec/taints", json!([{"key": "k", "effect": "NoSchedule"}])),
            ("/status/conditions/0/status", json!("False")),
        ];
        for (path, value) in news {
            let (parent, field) = path.rsplit_once('/').expect("a path");
            let after = trimmed(|node| node.pointer_mut(parent).expect("a parent")[field] = value.clone());
            assert!(!is_same_node(&before, &after), "{path}");
        }
    }
}
