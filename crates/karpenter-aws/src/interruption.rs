//! What happens to machines by itself, and what is done about it before it is too late.
//!
//! [`message`] reads what is in the queue, [`decide`] is the table of what each kind means, [`Handler`] carries it out
//! on the claims of the machines concerned, and [`queue`] receives. Whatever is found twice is done once: a claim that
//! ends already is left alone, and events are not repeated.

pub mod decide;
pub mod message;
mod metrics;
pub mod queue;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::whole_seconds;
use karpenter_cluster::controllers::context::{annotation, is_deleting, label, name_of, uid_of};
use karpenter_controllers::Context;
use karpenter_controllers::events::Notice;
use karpenter_controllers::mirrors::BY_INSTANCE_ID;
use karpenter_controllers::nodeclaim::termination_mode;
use karpenter_controllers::writes;
use serde_json::json;
use tokio::sync::Semaphore;

use self::decide::{Ending, Reaction, Told, reaction};
use self::message::Kind;
pub use self::metrics::InterruptionMetrics;

/// So many events are on their way to the API server at once: telling must not slow down doing.
const TELLING_MAX: usize = 32;

/// What launches should know about machines that were taken away.
pub trait Feedback: Send + Sync + 'static {
    /// A spot machine was taken back: its pool is not worth trying for a while.
    fn close_spot_pool(&self, instance_type: &str, zone: &str);

    /// A reservation was taken back: it has nothing left.
    fn close_reservation(&self, reservation_id: &str);
}

/// Carries out what a kind of message means for the claims of an instance. Clones share everything.
#[derive(Clone)]
pub struct Handler {
    context: Context,
    feedback: Arc<dyn Feedback>,
    metrics: InterruptionMetrics,
    telling: Arc<Semaphore>,
}

impl Handler {
    pub fn new(context: Context, feedback: Arc<dyn Feedback>) -> Self {
        let metrics = InterruptionMetrics::new(context.metrics.registry());
        Self { context, feedback, metrics, telling: Arc::new(Semaphore::new(TELLING_MAX)) }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn metrics(&self) -> &InterruptionMetrics {
        &self.metrics
    }

    /// Acts on every claim of the instance; whether there is one. Instances of others are ignored. `queue` is where the message
    /// came from, for the log.
    pub async fn handle(&self, kind: Kind, instance_id: &str, queue: Option<&str>) -> kube::Result<bool> {
        let reaction = reaction(kind);
        let Context { mirrors, .. } = &self.context;
        let claims = mirrors.node_claims.by(BY_INSTANCE_ID, instance_id);
        let node = mirrors.nodes.by(BY_INSTANCE_ID, instance_id).into_iter().next();
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
        // First what needs no answer, so that replacements already avoid what is closed.
        self.close(reaction, claim);
        if let Some(told) = reaction.told {
            self.tell(told, told.message, told.message, claim, node);
        }
        let has_deadline = annotation(&**claim, labels::ANNOTATION_TERMINATION_TIMESTAMP).is_some();
        let wanted = decide::writes(reaction.ending, is_deleting(&**claim), has_deadline);
        let Context { client, mirrors, clock, .. } = &self.context;
        if wanted.deadline_now {
            let now = whole_seconds(clock.now()).to_string();
            let patch = json!({"metadata": {"annotations": {labels::ANNOTATION_TERMINATION_TIMESTAMP: now}}});
            writes::merge(client, &mirrors.node_claims, &**claim, patch).await?;
        }
        if wanted.delete {
            writes::delete(client, &mirrors.node_claims, &**claim).await?;
            tracing::info!(
                queue,
                messageKind = kind.name(),
                nodeclaim = name_of(&**claim),
                action = reaction.ending.map(Ending::action),
                node = node.map(|node| name_of(&**node)),
                "initiating delete from interruption message"
            );
            self.count(kind, reaction.ending, claim);
            let ending = Told { reason: decide::TERMINATING_REASON, message: "", is_warning: true };
            self.tell(ending, decide::TERMINATING_CLAIM, decide::TERMINATING_NODE, claim, node);
        }
        Ok(())
    }

    fn close(&self, reaction: &Reaction, claim: &NodeClaim) {
        let value = |key| label(claim, key).filter(|value| !value.is_empty());
        if reaction.closes_spot_pool
            && let (Some(instance_type), Some(zone)) = (value(labels::INSTANCE_TYPE), value(labels::ZONE))
        {
            self.feedback.close_spot_pool(instance_type, zone);
        }
        if reaction.closes_reservation
            && let Some(id) = value(labels::AWS_CAPACITY_RESERVATION_ID)
        {
            self.feedback.close_reservation(id);
        }
    }

    fn count(&self, kind: Kind, ending: Option<Ending>, claim: &NodeClaim) {
        let value = |key| label(claim, key).unwrap_or_default();
        let mode = if ending == Some(Ending::Force) { "forceful" } else { termination_mode(claim) };
        let series = [kind.name(), value(labels::NODEPOOL), value(labels::CAPACITY_TYPE), "", mode];
        self.context.metrics.nodeclaims_disrupted.with_label_values(&series).inc();
    }

    /// Tells on the claim and on its node, in its own time.
    fn tell(
        &self,
        told: Told,
        of_claim: &str,
        of_node: &str,
        claim: &Arc<NodeClaim>,
        node: Option<&Arc<Node>>,
    ) {
        let on_claim = notice(&**claim, told, of_claim);
        let on_node = node.map(|node| notice(&**node, told, of_node));
        let notices: Vec<Notice> = std::iter::once(on_claim).chain(on_node).collect();
        let (recorder, telling) = (self.context.recorder.clone(), self.telling.clone());
        tokio::spawn(async move {
            // Never closed, so this only waits.
            let _turn = telling.acquire().await;
            for notice in notices {
                recorder.publish(notice).await;
            }
        });
    }
}

fn notice<K: kube::Resource<DynamicType = ()>>(about: &K, told: Told, message: &str) -> Notice {
    let notice = if told.is_warning {
        Notice::warning(about, told.reason, message)
    } else {
        Notice::normal(about, told.reason, message)
    };
    notice.of_episode(uid_of(about))
}
