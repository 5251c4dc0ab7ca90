//! Removes those fields of nodes that no controller reads. [`karpenter_state::pod`] does this for pods.

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, NodeSystemInfo};

/// Removes all fields that are not decoded from protobuf, so that a node is the same whether it was read as JSON or as
/// protobuf.
pub(super) fn node(node: &mut Node) {
    node.metadata.generate_name = None;
    node.metadata.self_link = None;
    if let Some(spec) = node.spec.take() {
        node.spec = Some(NodeSpec {
            provider_id: spec.provider_id,
            taints: spec.taints,
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        });
    }
    if let Some(status) = node.status.take() {
        let conditions = status.conditions.map(|mut conditions| {
            // The heartbeat is removed, because it changes every few minutes on every node.
            conditions.iter_mut().for_each(|condition| condition.last_heartbeat_time = None);
            conditions.shrink_to_fit();
            conditions
        });
        let node_info = status.node_info.map(|info| NodeSystemInfo { swap: None, ..info });
        node.status = Some(NodeStatus {
            addresses: status.addresses,
            allocatable: status.allocatable,
            capacity: status.capacity,
            conditions,
            node_info,
            phase: status.phase,
            ..NodeStatus::default()
        });
    }
}

/// Whether two versions of a node differ only in fields that no controller reads.
pub(super) fn is_equivalent_node(old: &Node, new: &Node) -> bool {
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
    fn heartbeat_is_no_relevant_change_of_a_node() {
        let before = trimmed(|_| {});
        let heartbeat = trimmed(|node| {
            node["metadata"]["resourceVersion"] = json!("2");
            node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
            node["status"]["images"] = json!([]);
        });
        assert!(is_equivalent_node(&before, &heartbeat));
        let changes: [(&str, Value); 7] = [
            ("/metadata/uid", json!("v")),
            ("/metadata/labels", json!({"a": "c"})),
            ("/metadata/annotations", json!({"a": "c"})),
            ("/metadata/finalizers", json!(["f"])),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/spec/taints", json!([{"key": "k", "effect": "NoSchedule"}])),
            ("/status/conditions/0/status", json!("False")),
        ];
        for (path, value) in changes {
            let (parent, field) = path.rsplit_once('/').expect("a path");
            let after = trimmed(|node| node.pointer_mut(parent).expect("a parent")[field] = value.clone());
            assert!(!is_equivalent_node(&before, &after), "{path}");
        }
    }
}
