//! Adopts nodes that an earlier Karpenter launched with the v1alpha5 API: creates a NodeClaim for each, so that the
//! node is disrupted, drained and counted like other nodes.
//!
//! For such a claim, the lifecycle controller looks up the existing instance instead of launching one. The node keeps
//! its labels, annotations and taints. The claim has no NodePool hash, so that the node does not count as drifted.

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::stdx::fnv32a;
use karpenter_runtime::object::{ObjectKey, is_already_exists, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::annotations::ANNOTATION_ADOPTS;
use crate::claims;
use crate::stores::Stores;

/// Labels that are not copied from the node to the claim.
const NODE_ONLY_LABELS: [&str; 4] =
    [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED, "karpenter.sh/machine-name"];

/// The claim for a node that has none; `None` if the node belongs to a v1 NodePool or is terminating.
fn claim_for(node: &Node, pool: &NodePool) -> Option<NodeClaim> {
    let provider_id = node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())?;
    let provisioner = labels::provisioner_of(&pool.metadata)?;
    // Nodes with the label of a NodePool are excluded: v1 adds it at registration.
    let is_v1alpha5_node =
        label(node, labels::PROVISIONER_NAME) == Some(provisioner) && label(node, labels::NODEPOOL).is_none();
    if !is_v1alpha5_node || is_deleting(node) || is_deleting(pool) {
        return None;
    }
    let mut claim = claims::claim_from_template(pool);
    let found = claim.metadata.labels.get_or_insert_default();
    for (key, value) in node.metadata.labels.iter().flatten() {
        if !NODE_ONLY_LABELS.contains(&key.as_str()) {
            found.insert(key.clone(), value.clone());
        }
    }
    let annotations = claim.metadata.annotations.get_or_insert_default();
    annotations.remove(labels::ANNOTATION_NODEPOOL_HASH);
    annotations.remove(labels::ANNOTATION_NODEPOOL_HASH_VERSION);
    annotations.insert(ANNOTATION_ADOPTS.to_owned(), provider_id.to_owned());
    // The name is derived from the node, so that a second attempt finds the existing claim.
    claim.metadata.generate_name = None;
    claim.metadata.name = Some(format!("{provisioner}-{:08x}", fnv32a(provider_id.as_bytes())));
    // The node was initialized before, so its startup taints do not matter.
    claim.spec.startup_taints = None;
    Some(claim)
}

/// The controller that adopts nodes.
pub struct Adoption {
    pub stores: Stores,
    pub client: Client,
}

impl Adoption {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.stores;
        for node in stores.nodes.list() {
            queue.add(ObjectKey::of(&node.metadata));
        }
        let to = queue.clone();
        stores.nodes.observe(move |change: &Change<Node>| {
            let is_new = matches!(change, Change::Applied { old: None, .. });
            if is_new && label(&**change.object(), labels::PROVISIONER_NAME).is_some() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.node_pools.observe(move |change: &Change<NodePool>| {
            let is_new = matches!(change, Change::Applied { old: None, .. });
            if is_new && labels::provisioner_of(&change.object().metadata).is_some() {
                nodes.list().iter().for_each(|node| to.add(ObjectKey::of(&node.metadata)));
            }
        });
    }
}

impl Reconcile for Adoption {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Self { stores, client } = self;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let pool = label(&*node, labels::PROVISIONER_NAME).and_then(|name| stores.node_pools.get("", name));
        let claim =
            pool.and_then(|pool| claim_for(&node, &pool)).filter(|_| stores.claim_of_node(&node).is_none());
        let Some(claim) = claim.filter(|claim| stores.node_claims.get("", name_of(claim)).is_none()) else {
            return Ok(Requeue::No);
        };
        match Api::<NodeClaim>::all(client.clone()).create(&PostParams::default(), &claim).await {
            Ok(created) => stores.node_claims.apply(created),
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(error),
        }
        tracing::info!(node = name_of(&*node), nodeclaim = name_of(&claim), "adopted v1alpha5 node");
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use karpenter_runtime::object::annotation;

    use super::*;
    use crate::annotations::adopted_provider_id;
    use serde_json::{Value, json};

    fn pool(labels: Value) -> NodePool {
        let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "t"});
        let template = json!({"spec": {"nodeClassRef": reference, "requirements": [],
            "startupTaints": [{"key": "s", "effect": "NoSchedule"}]}});
        let metadata = json!({"name": "old", "uid": "u", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"template": template}})).expect("a pool")
    }

    fn node(labels: Value, provider_id: Value) -> Node {
        let metadata = json!({"name": "n", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"providerID": provider_id}}))
            .expect("a node")
    }

    #[test]
    fn v1alpha5_node_gets_a_claim_with_its_labels_and_provider_id() {
        let derived = pool(json!({"compatibility.karpenter.sh/derived-from": "provisioner"}));
        let labels = json!({"karpenter.sh/provisioner-name": "old", "kubernetes.io/hostname": "n",
            "karpenter.sh/initialized": "true", "node.kubernetes.io/instance-type": "m5.large"});
        let claim = claim_for(&node(labels.clone(), json!("aws:///a/i-1")), &derived).expect("a claim");
        assert_eq!(adopted_provider_id(&claim), Some("aws:///a/i-1"));
        let found = claim.metadata.labels.clone().unwrap_or_default();
        let keys: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "karpenter.k8s.aws/ec2nodeclass",
                "karpenter.sh/nodepool",
                "karpenter.sh/provisioner-name",
                "node.kubernetes.io/instance-type",
            ]
        );
        assert_eq!(claim.spec.startup_taints, None);
        assert_eq!(annotation(&claim, labels::ANNOTATION_NODEPOOL_HASH), None);
        let again = claim_for(&node(labels.clone(), json!("aws:///a/i-1")), &derived).expect("a claim");
        assert_eq!(again.metadata.name, claim.metadata.name);
        let other = claim_for(&node(labels.clone(), json!("aws:///a/i-2")), &derived).expect("a claim");
        assert_ne!(other.metadata.name, claim.metadata.name);
        for (labels, id, pool) in [
            (labels.clone(), json!(null), &derived),
            (labels.clone(), json!(""), &derived),
            (labels.clone(), json!("aws:///a/i-1"), &pool(json!({}))),
            (json!({"karpenter.sh/provisioner-name": "other"}), json!("aws:///a/i-1"), &derived),
            (
                json!({"karpenter.sh/provisioner-name": "old", "karpenter.sh/nodepool": "old"}),
                json!("aws:///a/i-1"),
                &derived,
            ),
        ] {
            assert!(claim_for(&node(labels.clone(), id), pool).is_none(), "{labels}");
        }
    }
}
