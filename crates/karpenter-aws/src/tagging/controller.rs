//! Tags instances one after another, with at most one call per second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_controllers::{Context, writes};
use karpenter_runtime::clock::until;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_state::claim::provider_id;
use serde_json::json;

use super::{ANNOTATION_CLUSTER_NAME_TAGGED, ANNOTATION_TAGGED, is_due, missing};
use crate::api::AwsError;
use crate::instance_calls::{InstanceCalls, instance_id};

const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// The delay before the next attempt after an AWS call failed.
const RETRY: Duration = Duration::from_secs(10);

/// Tags instances. It must run with one worker, because calls are made one at a time.
pub struct Tagging {
    context: Context,
    machines: Arc<dyn InstanceCalls>,
    cluster_name: String,
    /// The earliest time at which the next call may be made.
    next_call: Mutex<Option<Timestamp>>,
}

impl Tagging {
    pub fn new(context: Context, machines: Arc<dyn InstanceCalls>, cluster_name: String) -> Self {
        Self { context, machines, cluster_name, next_call: Mutex::default() }
    }

    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            if is_due(change.object()) {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }

    /// The time until the next call may be made.
    fn pause(&self) -> Option<Duration> {
        let next = *self.next_call.lock().unwrap_or_else(PoisonError::into_inner);
        next.map(|at| until(self.context.clock.now(), at)).filter(|wait| !wait.is_zero())
    }

    async fn tag(&self, claim: &NodeClaim, id: &str) -> Result<(), AwsError> {
        let machine = self.machines.get(id).await?;
        let tags = missing(claim, &self.cluster_name, &machine.tags);
        if tags.is_empty() {
            return Ok(());
        }
        let outcome = self.machines.create_tags(id, &tags).await;
        let next = self.context.clock.now().checked_add(CALL_INTERVAL).ok();
        *self.next_call.lock().unwrap_or_else(PoisonError::into_inner) = next;
        outcome
    }
}

impl Reconcile for Tagging {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Context { client, stores, .. } = &self.context;
        let Some(claim) = stores.node_claims.get_key(key) else { return Ok(Requeue::No) };
        if !self.context.is_managed(&claim.spec.node_class_ref) || !is_due(&claim) {
            return Ok(Requeue::No);
        }
        let Some(id) = provider_id(&claim).and_then(instance_id) else { return Ok(Requeue::No) };
        if let Some(wait) = self.pause() {
            return Ok(Requeue::After(wait));
        }
        match self.tag(&claim, id).await {
            Ok(()) => {}
            // The instance is terminated, so its NodeClaim will be deleted and needs no tags.
            Err(error) if error.is_not_found() => return Ok(Requeue::No),
            Err(error) => {
                tracing::error!(instance_id = id, %error, "failed to tag instance");
                return Ok(Requeue::After(RETRY));
            }
        }
        let annotations = json!({ANNOTATION_TAGGED: "true", ANNOTATION_CLUSTER_NAME_TAGGED: "true"});
        let patch = json!({"metadata": {"annotations": annotations}});
        writes::merge(client, &stores.node_claims, &*claim, patch).await?;
        Ok(Requeue::No)
    }
}
