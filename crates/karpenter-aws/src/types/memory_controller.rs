//! Records the memory that nodes report when they are registered.
//!
//! Upstream: `pkg/controllers/providers/instancetype/capacity`

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{AmiStatus, EC2NodeClass, NodeClaim};
use karpenter_controllers::Context;
use karpenter_controllers::stores::BY_PROVIDER_ID;
use karpenter_model::quantity::Quantity;
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_runtime::object::{ObjectKey, label};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::ResourceExt;

use super::class_view::images_key;
use super::memory::DiscoveredMemory;

/// The AMI that a new instance with these labels would boot: the first one that is compatible.
pub(crate) fn image_for<'a>(labels_of_node: &Requirements, images: &'a [AmiStatus]) -> Option<&'a str> {
    let nothing_open = BTreeSet::new();
    let fits = |image: &&AmiStatus| {
        let wanted: Option<Requirements> = image
            .requirements
            .iter()
            .map(|one| {
                let operator = Operator::parse(&one.operator)?;
                Some(Requirement::new(one.key.as_str(), operator, one.values.iter().map(String::as_str)))
            })
            .collect();
        wanted.is_some_and(|wanted| labels_of_node.compatible(&wanted, &nothing_open).is_ok())
    };
    images.iter().find(fits).map(|image| image.id.as_str())
}

/// The instance type of a node, the key of its node class's AMIs, and its memory in bytes; `None` if a new node would
/// boot another AMI.
pub(super) fn reported_memory(
    node: &Node,
    claim: &NodeClaim,
    class: &EC2NodeClass,
) -> Option<(String, String, i64)> {
    let instance_type = label(node, labels::INSTANCE_TYPE)?.to_owned();
    let images = &class.status.as_ref()?.amis;
    let of_node: Requirements = node
        .labels()
        .iter()
        .map(|(key, value)| Requirement::in_values(key.as_str(), [value.as_str()]))
        .collect();
    let booted = claim.status.as_ref()?.image_id.as_deref()?;
    if image_for(&of_node, images) != Some(booted) {
        return None;
    }
    let memory = node.status.as_ref()?.capacity.as_ref()?.get("memory")?;
    let bytes = memory.0.parse::<Quantity>().ok()?.value_floor();
    Some((instance_type, images_key(images), bytes))
}

/// Records the memory of nodes. The controller must run with one worker.
pub struct MemoryController {
    context: Context,
    memory: DiscoveredMemory,
}

impl MemoryController {
    pub fn new(context: Context, memory: DiscoveredMemory) -> Self {
        Self { context, memory }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        let is_registered = |node: &Node| label(node, labels::REGISTERED) == Some("true");
        self.context.stores.nodes.observe(move |change: &Change<Node>| {
            // The memory is recorded when a node becomes registered, or when a registered node is first seen.
            if let Change::Applied { old, new } = change
                && is_registered(new)
                && !old.as_ref().is_some_and(|old| is_registered(old))
            {
                to.add(ObjectKey::of(&new.metadata));
            }
        });
    }

    fn class_of(&self, claim: &NodeClaim) -> Option<EC2NodeClass> {
        let reference = &claim.spec.node_class_ref;
        let class = self.context.stores.node_class(&reference.group, &reference.kind, &reference.name)?;
        serde_json::from_value(serde_json::to_value(&*class).ok()?).ok()
    }
}

impl Reconcile for MemoryController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        for claim in stores.node_claims.by(BY_PROVIDER_ID, provider_id) {
            if !self.context.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let found = self.class_of(&claim).and_then(|class| reported_memory(&node, &claim, &class));
            if let Some((instance_type, images, bytes)) = found
                && self.memory.record(&instance_type, &images, bytes)
            {
                tracing::debug!(memory_capacity = bytes, instance_type, "updating discovered capacity cache");
            }
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).expect("an object of the kind")
    }

    fn images() -> Value {
        let arch = |value: &str| json!({"key": "kubernetes.io/arch", "operator": "In", "values": [value]});
        let gpu =
            |operator: &str| json!({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": operator});
        json!([
            {"id": "ami-gpu", "requirements": [arch("amd64"), gpu("Exists")]},
            {"id": "ami-new", "requirements": [arch("amd64"), gpu("DoesNotExist")]},
            {"id": "ami-arm", "requirements": [arch("arm64")]},
            {"id": "ami-odd", "requirements": [{"key": "a", "operator": "Like", "values": ["b"]}]},
        ])
    }

    fn node(labels: Value, memory: Option<&str>) -> Node {
        let capacity = memory.map(|memory| json!({"memory": memory, "cpu": "2"}));
        read(json!({"metadata": {"name": "n", "labels": labels}, "status": {"capacity": capacity}}))
    }

    #[test]
    fn only_nodes_with_current_ami_count() {
        let of_class: EC2NodeClass =
            read(json!({"metadata": {"name": "c"}, "spec": {}, "status": {"amis": images()}}));
        let key = "ami-arm ami-gpu ami-new ami-odd";
        let m5 = json!({labels::INSTANCE_TYPE: "m5.large", "kubernetes.io/arch": "amd64"});
        let g5 = json!({
            labels::INSTANCE_TYPE: "g5.xlarge", "kubernetes.io/arch": "amd64",
            "karpenter.k8s.aws/instance-gpu-count": "1",
        });
        type Row<'a> = (Value, Option<&'a str>, Option<&'a str>, Option<(&'a str, i64)>);
        let table: [Row<'_>; 9] = [
            (m5.clone(), Some("7900000Ki"), Some("ami-new"), Some(("m5.large", 7_900_000 * 1024))),
            (m5.clone(), Some("8000000000"), Some("ami-new"), Some(("m5.large", 8_000_000_000))),
            (m5.clone(), Some("7900000Ki"), Some("ami-old"), None),
            (m5.clone(), Some("7900000Ki"), Some("ami-gpu"), None),
            (m5.clone(), Some("7900000Ki"), None, None),
            (m5.clone(), Some("plenty"), Some("ami-new"), None),
            (m5, None, Some("ami-new"), None),
            (g5, Some("15Gi"), Some("ami-gpu"), Some(("g5.xlarge", 15 << 30))),
            (json!({"kubernetes.io/arch": "amd64"}), Some("15Gi"), Some("ami-new"), None),
        ];
        for (labels, memory, image, expected) in table {
            let claim: NodeClaim =
                read(json!({"metadata": {"name": "c"}, "spec": {}, "status": {"imageID": image}}));
            let found = reported_memory(&node(labels.clone(), memory), &claim, &of_class);
            let expected = expected.map(|(name, bytes)| (name.to_owned(), key.to_owned(), bytes));
            assert_eq!(found, expected, "{labels} {memory:?} {image:?}");
        }
    }
}
