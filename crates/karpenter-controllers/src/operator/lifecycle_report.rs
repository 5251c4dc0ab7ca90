//! Logs and counts the transitions of a NodeClaim's lifecycle: launched, registered, initialized, deleted.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_runtime::clock::{Clock, since};
use karpenter_runtime::object::{label, name_of};
use karpenter_runtime::store::Store;
use karpenter_state::claim::{INSTANCE_TERMINATING, condition, provider_id, termination_mode};

use crate::claims::hooks::{DeletionCause, LifecycleOutcome};
use crate::logs;
use crate::metrics::Metrics;
use crate::stores::Stores;

type LifecycleReporter = dyn Fn(&NodeClaim, &LifecycleOutcome) + Send + Sync;

pub(super) fn reporter(metrics: Metrics, stores: Stores, clock: Clock) -> Arc<LifecycleReporter> {
    Arc::new(move |claim, outcome| {
        log(claim, outcome, &stores.nodes);
        count(&metrics, &stores, claim, outcome, clock);
    })
}

/// Logs a transition with upstream's message and keys. The log line contains the name of the NodeClaim as a field of
/// the pass. For controllers whose pass covers the whole cluster, the name is added here.
fn log(claim: &NodeClaim, outcome: &LifecycleOutcome, nodes: &Store<Node>) {
    let provider_id = provider_id(claim);
    let node = claim.status.as_ref().and_then(|status| status.node_name.as_deref());
    let get = |key| label(claim, key).unwrap_or_default();
    match outcome {
        LifecycleOutcome::Launched => tracing::info!(
            provider_id,
            instance_type = get(labels::INSTANCE_TYPE),
            zone = get(labels::ZONE),
            capacity_type = get(labels::CAPACITY_TYPE),
            allocatable = logs::json(claim.status.as_ref().and_then(|status| status.allocatable.as_ref())),
            "launched nodeclaim"
        ),
        LifecycleOutcome::LaunchFailed { message } => {
            tracing::error!(error = message, "failed launching nodeclaim");
        }
        LifecycleOutcome::Registered => tracing::info!(provider_id, node, "registered nodeclaim"),
        LifecycleOutcome::Initialized => {
            let found = node.and_then(|name| nodes.get("", name));
            let status = found.as_ref().and_then(|node| node.status.as_ref());
            let allocatable = logs::json(status.and_then(|status| status.allocatable.as_ref()));
            tracing::info!(provider_id, node, allocatable, "initialized nodeclaim");
        }
        LifecycleOutcome::Deleted(DeletionCause::GarbageCollected) => tracing::info!(
            nodeclaim = name_of(claim),
            node,
            provider_id,
            "garbage collecting nodeclaim with no cloudprovider representation"
        ),
        LifecycleOutcome::Deleted(DeletionCause::Expired) => {
            tracing::info!(node, "deleting expired nodeclaim")
        }
        LifecycleOutcome::Deleted(
            reason @ (DeletionCause::LaunchTimeout | DeletionCause::RegistrationTimeout),
        ) => {
            tracing::info!(provider_id, reason = reason.as_str(), "terminating due to timeout");
        }
        // The lifecycle controller has already logged why the launch failed.
        LifecycleOutcome::Deleted(DeletionCause::InsufficientCapacity | DeletionCause::NodeClassNotReady) => {
        }
        LifecycleOutcome::InstanceTerminated => tracing::debug!(provider_id, node, "terminated instance"),
        LifecycleOutcome::Terminated => tracing::info!(provider_id, node, "deleted nodeclaim"),
        LifecycleOutcome::LeakedInstanceTerminated => {
            tracing::info!(provider_id, "garbage collected cloudprovider instance");
        }
    }
}

fn count(metrics: &Metrics, stores: &Stores, claim: &NodeClaim, outcome: &LifecycleOutcome, clock: Clock) {
    let pool = label(claim, labels::NODEPOOL).unwrap_or_default();
    match outcome {
        LifecycleOutcome::Deleted(reason) => {
            let capacity_type = label(claim, labels::CAPACITY_TYPE).unwrap_or_default();
            let series = [reason.as_str(), pool, capacity_type, "", termination_mode(claim)];
            metrics.nodeclaims_disrupted.with_label_values(&series).inc();
            // Only NodeClaims that are deleted for these two causes can have had pods, so only their pods are counted.
            if let DeletionCause::Expired | DeletionCause::GarbageCollected = reason {
                let node = claim.status.as_ref().and_then(|status| status.node_name.as_deref());
                let pods = node.map_or(0, |node| stores.reschedulable_pods_on(node));
                metrics.disruption.pods_initiated.with_label_values(&series).inc_by(pods as u64);
            }
        }
        LifecycleOutcome::InstanceTerminated => {
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
