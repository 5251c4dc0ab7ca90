//! Sets the annotation `karpenter.sh/emptiness-timestamp` on empty nodes of Provisioners with `ttlSecondsAfterEmpty`,
//! so that a restart of the controller does not restart the TTL.
//!
//! [`crate::disruption`] deletes the nodes when the TTL has passed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{ConsolidationPolicy, NodePool};
use karpenter_runtime::object::{ObjectKey, annotation, is_deleting, label, name_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::pod::Pod;
use kube::Client;
use serde_json::json;

use crate::inputs::Reads;
use crate::nominations::expects_pods;
use crate::stores::BY_NODE;
use crate::{pods, writes};

/// How often a node with nominated pods is reconciled.
const NOMINATED_POLL: Duration = Duration::from_secs(30);

/// The input of the decision for one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub is_initialized: bool,
    /// Whether pods are nominated to the node.
    pub is_nominated: bool,
    /// Whether the node has only DaemonSet pods, static pods and terminal pods.
    pub is_empty: bool,
    pub is_stamped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Keep,
    Stamp,
    Clear,
    /// Reconcile again later, because nominated pods may be bound to the node.
    Requeue,
}

pub fn decide(facts: Facts) -> Step {
    match facts {
        Facts { is_initialized: false, .. } => Step::Keep,
        Facts { is_nominated: true, .. } => Step::Requeue,
        Facts { is_empty: true, is_stamped: false, .. } => Step::Stamp,
        Facts { is_empty: false, is_stamped: true, .. } => Step::Clear,
        Facts { .. } => Step::Keep,
    }
}

/// Whether this pod makes its node non-empty. A terminating pod does until it is deleted; finished pods, pods of
/// DaemonSets and static pods do not.
fn is_present(pod: &Pod) -> bool {
    !pods::is_terminal(pod) && !pods::is_owned_by_daemon_set(pod) && !pods::is_owned_by_node(pod)
}

/// Whether the NodePool was derived from a Provisioner with `ttlSecondsAfterEmpty`.
fn has_emptiness_ttl(pool: &NodePool) -> bool {
    let disruption = pool.spec.disruption.as_ref();
    let after = disruption.and_then(|one| one.consolidate_after.as_ref());
    labels::provisioner_of(&pool.metadata).is_some()
        && disruption.and_then(|one| one.consolidation_policy.as_ref())
            == Some(&ConsolidationPolicy::WhenEmpty)
        && after.is_none_or(|after| after.nanos().is_some())
}

/// The controller of the annotation `karpenter.sh/emptiness-timestamp`.
pub struct EmptinessTimestamps {
    pub reads: Reads,
    pub client: Client,
}

impl EmptinessTimestamps {
    pub fn watch(&self, queue: &Queue) {
        let stores = &self.reads.stores;
        for node in stores.nodes.list() {
            queue.add(ObjectKey::of(&node.metadata));
        }
        let to = queue.clone();
        stores.nodes.observe(move |change: &Change<Node>| {
            let node = change.object();
            if !change.is_deleted() && label(&**node, labels::PROVISIONER_NAME).is_some() {
                to.add(ObjectKey::of(&node.metadata));
            }
        });
        let to = queue.clone();
        stores.pods.observe(move |change: &Change<Pod>| {
            if let Some(node) = pods::node_name(change.object()) {
                to.add(ObjectKey::new("", node));
            }
        });
        let (to, nodes) = (queue.clone(), stores.nodes.clone());
        stores.node_pools.observe(move |change: &Change<NodePool>| {
            let has_new_ttl = match change {
                Change::Applied { old, new } => {
                    has_emptiness_ttl(new) && !old.as_deref().is_some_and(has_emptiness_ttl)
                }
                Change::Deleted { .. } => false,
            };
            if has_new_ttl {
                nodes.list().iter().for_each(|node| to.add(ObjectKey::of(&node.metadata)));
            }
        });
    }
}

impl Reconcile for EmptinessTimestamps {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.reads.stores;
        let Some(node) = stores.nodes.get_key(key) else { return Ok(Requeue::No) };
        let pool = label(&*node, labels::NODEPOOL).and_then(|name| stores.node_pools.get("", name));
        if is_deleting(&*node) || !pool.is_some_and(|pool| has_emptiness_ttl(&pool)) {
            return Ok(Requeue::No);
        }
        let now = self.reads.clock.now();
        let name = name_of(&*node);
        let claim = stores.claim_of_node(&node);
        let is_expected =
            |name: &str| self.reads.state.is_node_nominated(name, now) || expects_pods(&self.reads, name);
        let facts = Facts {
            is_initialized: label(&*node, labels::INITIALIZED) == Some("true"),
            is_nominated: is_expected(name)
                || claim.as_ref().is_some_and(|claim| is_expected(name_of(&**claim))),
            is_empty: !stores.pods.by(BY_NODE, name).iter().any(|pod| is_present(pod)),
            is_stamped: annotation(&*node, labels::ANNOTATION_EMPTINESS_TIMESTAMP).is_some(),
        };
        let value = match decide(facts) {
            Step::Keep => return Ok(Requeue::No),
            Step::Requeue => return Ok(Requeue::After(NOMINATED_POLL)),
            Step::Stamp => Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            Step::Clear => None,
        };
        let patch = json!({"metadata": {"annotations": {labels::ANNOTATION_EMPTINESS_TIMESTAMP: value}}});
        writes::merge(&self.client, &stores.nodes, &*node, patch).await?;
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_is_set_on_empty_node_without_nominated_pods_and_cleared_by_a_pod() {
        let facts = |is_initialized, is_nominated, is_empty, is_stamped| Facts {
            is_initialized,
            is_nominated,
            is_empty,
            is_stamped,
        };
        for (facts, step) in [
            (facts(false, false, true, false), Step::Keep),
            (facts(true, true, true, false), Step::Requeue),
            (facts(true, false, true, false), Step::Stamp),
            (facts(true, false, true, true), Step::Keep),
            (facts(true, false, false, true), Step::Clear),
            (facts(true, false, false, false), Step::Keep),
        ] {
            assert_eq!(decide(facts), step, "{facts:?}");
        }
    }

    #[test]
    fn terminating_pod_counts_until_it_is_deleted() {
        let pod = |metadata: serde_json::Value, phase: &str| -> Pod {
            let status = json!({ "phase": phase });
            serde_json::from_value(json!({"metadata": metadata, "status": status})).expect("a pod")
        };
        let daemon = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]});
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(is_present(&pod(json!({}), "Running")));
        assert!(is_present(&pod(terminating, "Running")));
        assert!(!is_present(&pod(json!({}), "Succeeded")));
        assert!(!is_present(&pod(daemon, "Running")));
    }

    #[test]
    fn only_provisioners_with_ttl_seconds_after_empty_have_an_emptiness_ttl() {
        let pool = |labels: serde_json::Value, policy: &str, after: &str| -> NodePool {
            let disruption = json!({"consolidationPolicy": policy, "consolidateAfter": after});
            let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"});
            let template = json!({"spec": {"nodeClassRef": reference, "requirements": []}});
            let spec = json!({"template": template, "disruption": disruption});
            serde_json::from_value(json!({"metadata": {"name": "p", "labels": labels}, "spec": spec}))
                .expect("a pool")
        };
        let derived = json!({"compatibility.karpenter.sh/derived-from": "provisioner"});
        assert!(has_emptiness_ttl(&pool(derived.clone(), "WhenEmpty", "30s")));
        assert!(!has_emptiness_ttl(&pool(derived.clone(), "WhenEmpty", "Never")));
        assert!(!has_emptiness_ttl(&pool(derived, "WhenEmptyOrUnderutilized", "0s")));
        assert!(!has_emptiness_ttl(&pool(json!({}), "WhenEmpty", "30s")));
    }
}
