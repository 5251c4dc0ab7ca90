//! Logs and counts the milestones of a NodeClaim's lifecycle: launched, registered, initialized, given up.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::clock::{Clock, since};
use karpenter_cluster::controllers::context::{label, name_of};
use karpenter_cluster::mirror::Mirror;

use crate::logs;
use crate::metrics::Metrics;
use crate::nodeclaim::hooks::{GiveUp, Milestone};
use crate::nodeclaim::{INSTANCE_TERMINATING, condition, provider_id, termination_mode};
use crate::pods;
use crate::stores::Stores;

type MilestoneReporter = dyn Fn(&NodeClaim, &Milestone) + Send + Sync;

pub(super) fn reporter(metrics: Metrics, stores: Stores, clock: Clock) -> Arc<MilestoneReporter> {
    Arc::new(move |claim, milestone| {
        log(claim, milestone, &stores.nodes);
        count(&metrics, &stores, claim, milestone, clock);
    })
}

/// Messages and keys are upstream's. The name of the claim is a field of the pass, but for controllers of the whole cluster.
fn log(claim: &NodeClaim, milestone: &Milestone, nodes: &Mirror<Node>) {
    let provider_id = provider_id(claim);
    let node = claim.status.as_ref().and_then(|status| status.node_name.as_deref());
    let get = |key| label(claim, key).unwrap_or_default();
    match milestone {
        Milestone::Launched => tracing::info!(
            provider_id,
            instance_type = get(labels::INSTANCE_TYPE),
            zone = get(labels::ZONE),
            capacity_type = get(labels::CAPACITY_TYPE),
            allocatable = logs::json(claim.status.as_ref().and_then(|status| status.allocatable.as_ref())),
            "launched nodeclaim"
        ),
        Milestone::LaunchFailed { message } => {
            tracing::error!(error = message, "failed launching nodeclaim");
        }
        Milestone::Registered => tracing::info!(provider_id, node, "registered nodeclaim"),
        Milestone::Initialized => {
            let found = node.and_then(|name| nodes.get("", name));
            let status = found.as_ref().and_then(|node| node.status.as_ref());
            let allocatable = logs::json(status.and_then(|status| status.allocatable.as_ref()));
            tracing::info!(provider_id, node, allocatable, "initialized nodeclaim");
        }
        Milestone::GaveUp(GiveUp::GarbageCollected) => tracing::info!(
            nodeclaim = name_of(claim),
            node,
            provider_id,
            "garbage collecting nodeclaim with no cloudprovider representation"
        ),
        Milestone::GaveUp(GiveUp::Expired) => tracing::info!(node, "deleting expired nodeclaim"),
        Milestone::GaveUp(reason @ (GiveUp::LaunchTimeout | GiveUp::RegistrationTimeout)) => {
            tracing::info!(provider_id, reason = reason.as_str(), "terminating due to timeout");
        }
        // The failed launch was logged.
        Milestone::GaveUp(GiveUp::InsufficientCapacity | GiveUp::NodeClassNotReady) => {}
        Milestone::InstanceTerminated => tracing::debug!(provider_id, node, "terminated instance"),
        Milestone::Terminated => tracing::info!(provider_id, node, "deleted nodeclaim"),
        Milestone::LeakedInstanceEnded => {
            tracing::info!(provider_id, "garbage collected cloudprovider instance");
        }
    }
}

fn count(metrics: &Metrics, stores: &Stores, claim: &NodeClaim, milestone: &Milestone, clock: Clock) {
    let pool = label(claim, labels::NODEPOOL).unwrap_or_default();
    match milestone {
        Milestone::GaveUp(reason) => {
            let capacity_type = label(claim, labels::CAPACITY_TYPE).unwrap_or_default();
            let series = [reason.as_str(), pool, capacity_type, "", termination_mode(claim)];
            metrics.nodeclaims_disrupted.with_label_values(&series).inc();
            // The other claims that are given up never had pods, and upstream does not count theirs.
            if let GiveUp::Expired | GiveUp::GarbageCollected = reason {
                let node = claim.status.as_ref().and_then(|status| status.node_name.as_deref());
                let pods = node.map_or(0, |node| pods::reschedulable_on(stores, node));
                metrics.disruption.pods_initiated.with_label_values(&series).inc_by(pods as u64);
            }
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
