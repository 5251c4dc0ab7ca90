//! Adds the label of the node class to NodeClaims that were created without it, by an earlier version or by a user.
//!
//! Upstream: pkg/controllers/nodeclaim/hydration.

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::object::{ObjectKey, label};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};
use serde_json::{Value, json};

use crate::inputs::{Reads, Writes};
use crate::writes;

fn decide(claim: &NodeClaim) -> Option<Value> {
    let class = &claim.spec.node_class_ref;
    let key = labels::node_class_label(&class.group, &class.kind);
    let is_right = label(claim, &key) == Some(&class.name);
    (!is_right).then(|| json!({"metadata": {"labels": {key: class.name}}}))
}

pub struct HydrationController {
    pub reads: Reads,
    pub writes: Writes,
}

impl HydrationController {
    pub fn watch(&self, queue: &Queue) {
        self.reads.stores.enqueue_claims(queue);
    }
}

impl Reconcile for HydrationController {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(claim) = self.reads.managed_claim(key) else { return Ok(Requeue::No) };
        if let Some(patch) = decide(&claim) {
            writes::merge(&self.writes.client, &self.reads.stores.node_claims, &*claim, patch).await?;
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_has_the_name_of_the_node_class() {
        let claim = |labels: Value| -> NodeClaim {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": {"nodeClassRef":
                {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}))
            .expect("a claim")
        };
        let patch = json!({"metadata": {"labels": {"karpenter.kwok.sh/kwoknodeclass": "default"}}});
        assert_eq!(decide(&claim(json!(null))), Some(patch.clone()));
        assert_eq!(decide(&claim(json!({"karpenter.kwok.sh/kwoknodeclass": "other"}))), Some(patch));
        assert_eq!(decide(&claim(json!({"karpenter.kwok.sh/kwoknodeclass": "default"}))), None);
    }
}
