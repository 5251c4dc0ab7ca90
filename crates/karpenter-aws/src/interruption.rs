//! Handling of interruptions: when EC2 interrupts an instance, deletes its NodeClaim, so that the node is drained in
//! time.
//!
//! [`queue`] receives messages, [`message`] parses them, [`decide`] defines the reaction to each kind of message, and
//! [`Handler`] applies the reaction to the NodeClaims of the instances. A message may be handled twice without harm: a
//! terminating NodeClaim is not deleted again, and events are not repeated.
//!
//! Upstream: pkg/controllers/interruption (karpenter-provider-aws)

pub mod decide;
pub mod message;
mod metrics;
pub mod queue;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_controllers::Context;
use karpenter_controllers::events::ObjectEvent;
use karpenter_controllers::stores::BY_INSTANCE_ID;
use karpenter_controllers::writes;
use karpenter_runtime::clock::whole_seconds;
use karpenter_runtime::object::{annotation, is_deleting, label, name_of, uid_of};
use karpenter_state::claim::termination_mode;
use serde_json::json;
use tokio::sync::Semaphore;

use self::decide::{EventText, Reaction, Termination, reaction};
use self::message::Kind;
pub use self::metrics::InterruptionMetrics;

/// The maximum number of events that are published at the same time. Events are published in the background, so that
/// they do not delay deletions.
const CONCURRENT_EVENTS_MAX: usize = 32;

/// Marks capacity as unavailable for launches after an interruption.
pub trait Feedback: Send + Sync + 'static {
    /// Called when a spot instance was interrupted: its spot offering becomes unavailable for some minutes.
    fn mark_spot_unavailable(&self, instance_type: &str, zone: &str);

    /// Called when a capacity reservation was interrupted: the reservation counts as full.
    fn mark_reservation_exhausted(&self, reservation_id: &str);
}

/// Applies the reaction to a message to the NodeClaims of an instance. All clones share their state.
#[derive(Clone)]
pub struct Handler {
    context: Context,
    feedback: Arc<dyn Feedback>,
    metrics: InterruptionMetrics,
    event_permits: Arc<Semaphore>,
}

impl Handler {
    pub fn new(context: Context, feedback: Arc<dyn Feedback>) -> Self {
        let metrics = InterruptionMetrics::new(context.metrics.registry());
        Self { context, feedback, metrics, event_permits: Arc::new(Semaphore::new(CONCURRENT_EVENTS_MAX)) }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn metrics(&self) -> &InterruptionMetrics {
        &self.metrics
    }

    /// Handles a message for every managed NodeClaim of the instance; returns whether there is one. `queue` is the name
    /// of the queue, for the log.
    pub async fn handle(&self, kind: Kind, instance_id: &str, queue: Option<&str>) -> kube::Result<bool> {
        let reaction = reaction(kind);
        let Context { stores, .. } = &self.context;
        let claims = stores.node_claims.by(BY_INSTANCE_ID, instance_id);
        let node = stores.nodes.by(BY_INSTANCE_ID, instance_id).into_iter().next();
        let mut is_found = false;
        for claim in claims.iter().filter(|claim| self.context.is_managed(&claim.spec.node_class_ref)) {
            is_found = true;
            self.act(kind, &reaction, claim, node.as_ref(), queue).await?;
        }
        Ok(is_found)
    }

    async fn act(
        &self,
        kind: Kind,
        reaction: &Reaction,
        claim: &Arc<NodeClaim>,
        node: Option<&Arc<Node>>,
        queue: Option<&str>,
    ) -> kube::Result<()> {
        // Capacity is marked as unavailable before the NodeClaim is deleted, so that the replacement does not use it.
        self.mark_unavailable(reaction, claim);
        if let Some(event) = reaction.event {
            self.publish(event, event.message, event.message, claim, node);
        }
        let has_deadline = annotation(&**claim, labels::ANNOTATION_TERMINATION_TIMESTAMP).is_some();
        let wanted = decide::writes(reaction.ending, is_deleting(&**claim), has_deadline);
        let Context { client, stores, clock, .. } = &self.context;
        if wanted.deadline_now {
            let now = whole_seconds(clock.now()).to_string();
            let patch = json!({"metadata": {"annotations": {labels::ANNOTATION_TERMINATION_TIMESTAMP: now}}});
            writes::merge(client, &stores.node_claims, &**claim, patch).await?;
        }
        if wanted.delete {
            writes::delete(client, &stores.node_claims, &**claim).await?;
            tracing::info!(
                queue,
                messageKind = kind.name(),
                nodeclaim = name_of(&**claim),
                action = reaction.ending.map(Termination::action),
                node = node.map(|node| name_of(&**node)),
                "initiating delete from interruption message"
            );
            self.count(kind, reaction.ending, claim);
            let ending = EventText { reason: decide::TERMINATING_REASON, message: "", is_warning: true };
            self.publish(ending, decide::TERMINATING_CLAIM, decide::TERMINATING_NODE, claim, node);
        }
        Ok(())
    }

    fn mark_unavailable(&self, reaction: &Reaction, claim: &NodeClaim) {
        let value = |key| label(claim, key).filter(|value| !value.is_empty());
        if reaction.marks_spot_unavailable
            && let (Some(instance_type), Some(zone)) = (value(labels::INSTANCE_TYPE), value(labels::ZONE))
        {
            self.feedback.mark_spot_unavailable(instance_type, zone);
        }
        if reaction.marks_reservation_exhausted
            && let Some(id) = value(labels::AWS_CAPACITY_RESERVATION_ID)
        {
            self.feedback.mark_reservation_exhausted(id);
        }
    }

    fn count(&self, kind: Kind, ending: Option<Termination>, claim: &NodeClaim) {
        let value = |key| label(claim, key).unwrap_or_default();
        let mode = if ending == Some(Termination::Force) { "forceful" } else { termination_mode(claim) };
        let series = [kind.name(), value(labels::NODEPOOL), value(labels::CAPACITY_TYPE), "", mode];
        self.context.metrics.nodeclaims_disrupted.with_label_values(&series).inc();
    }

    /// Publishes an event for the NodeClaim and for its Node, in the background.
    fn publish(
        &self,
        event: EventText,
        of_claim: &str,
        of_node: &str,
        claim: &Arc<NodeClaim>,
        node: Option<&Arc<Node>>,
    ) {
        let on_claim = object_event(&**claim, event, of_claim);
        let on_node = node.map(|node| object_event(&**node, event, of_node));
        let notices: Vec<ObjectEvent> = std::iter::once(on_claim).chain(on_node).collect();
        let (recorder, event_permits) = (self.context.recorder.clone(), self.event_permits.clone());
        tokio::spawn(async move {
            // This cannot fail, because the semaphore is never closed.
            let _permit = event_permits.acquire().await;
            for object_event in notices {
                recorder.publish(object_event).await;
            }
        });
    }
}

fn object_event<K: kube::Resource<DynamicType = ()>>(
    about: &K,
    event: EventText,
    message: &str,
) -> ObjectEvent {
    let object_event = if event.is_warning {
        ObjectEvent::warning(about, event.reason, message)
    } else {
        ObjectEvent::normal(about, event.reason, message)
    };
    object_event.dedupe_by(uid_of(about))
}
