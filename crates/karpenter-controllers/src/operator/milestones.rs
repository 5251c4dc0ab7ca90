//! What is said and counted about the way of a claim.

use std::sync::Arc;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::controllers::context::{label, name_of};

use crate::metrics::Metrics;
use crate::nodeclaim::hooks::Milestone;
use crate::nodeclaim::{INSTANCE_TERMINATING, condition, provider_id, termination_mode};

type Tell = dyn Fn(&NodeClaim, &Milestone) + Send + Sync;

pub(super) fn tell(metrics: Metrics, clock: Clock) -> Arc<Tell> {
    Arc::new(move |claim, milestone| {
        log(claim, milestone);
        count(&metrics, claim, milestone, clock);
    })
}

fn log(claim: &NodeClaim, milestone: &Milestone) {
    let name = name_of(claim);
    let instance = provider_id(claim).unwrap_or_default();
    let get = |key| label(claim, key).unwrap_or_default();
    match milestone {
        Milestone::Launched => tracing::info!(
            nodeclaim = name,
            provider_id = instance,
            instance_type = get(labels::INSTANCE_TYPE),
            zone = get(labels::ZONE),
            capacity_type = get(labels::CAPACITY_TYPE),
            "launched nodeclaim"
        ),
        Milestone::LaunchFailed { message } => {
            tracing::error!(nodeclaim = name, error = message, "failed launching nodeclaim");
        }
        Milestone::Registered => {
            tracing::info!(nodeclaim = name, provider_id = instance, "registered nodeclaim");
        }
        Milestone::Initialized => {
            tracing::info!(nodeclaim = name, provider_id = instance, "initialized nodeclaim");
        }
        Milestone::GaveUp(reason) => {
            tracing::info!(nodeclaim = name, reason = reason.as_str(), "deleting nodeclaim");
        }
        Milestone::InstanceTerminated => {
            tracing::debug!(nodeclaim = name, provider_id = instance, "instance is gone");
        }
        Milestone::Terminated => tracing::info!(nodeclaim = name, "deleted nodeclaim"),
        Milestone::LeakedInstanceEnded => {
            tracing::info!(provider_id = instance, "ended an instance that no nodeclaim knows");
        }
    }
}

fn count(metrics: &Metrics, claim: &NodeClaim, milestone: &Milestone, clock: Clock) {
    let pool = label(claim, labels::NODEPOOL).unwrap_or_default();
    match milestone {
        Milestone::GaveUp(reason) => {
            let capacity_type = label(claim, labels::CAPACITY_TYPE).unwrap_or_default();
            let series = [reason.as_str(), pool, capacity_type, "", termination_mode(claim)];
            metrics.nodeclaims_disrupted.with_label_values(&series).inc();
        }
        Milestone::InstanceTerminated => {
            let asked =
                condition(claim, INSTANCE_TERMINATING).and_then(|found| found.last_transition_time.as_ref());
            if let Some(asked) = asked {
                let seconds = since(clock.now(), asked.0).as_secs_f64();
                metrics.nodeclaims_instance_termination_duration.with_label_values(&[pool]).observe(seconds);
            }
        }
        _ => {}
    }
}
