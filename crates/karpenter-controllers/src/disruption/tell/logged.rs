//! The line about a command that begins, in upstream's message and keys.

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::controllers::context::label;
use karpenter_disruption::command::Method;
use serde_json::{Value, json};

use super::super::Disruption;
use super::super::order::{Launch, Order, Target};
use crate::claims::values;
use crate::logs;
use crate::node::repair::{self, RepairCase};

impl Disruption {
    pub(in super::super) fn log_start(&self, id: &str, order: &Order) {
        let is_repair = order.method == Method::Repair;
        let cases = is_repair.then(|| repair::repair_cases(&self.context, self.context.clock.now()));
        let case_of = |target: &Target| cases.as_ref()?.get(&target.node);
        for (target, RepairCase { matched, .. }) in
            order.targets.iter().filter_map(|target| Some((target, case_of(target)?)))
        {
            tracing::info!(
                node = target.node,
                condition = matched.condition_type,
                status = matched.condition_status,
                reason = matched.reason,
                reason_regex = matched.reason_regex,
                fallback = matched.is_fallback,
                action = matched.action.as_str(),
                eligible_at = %matched.eligible_at,
                "selected repair policy"
            );
        }
        let disrupted: Vec<Value> = order
            .targets
            .iter()
            .map(|target| {
                let claim = self.context.stores.node_claims.get("", &target.id.name);
                let is_escalated = case_of(target).is_some_and(|case| case.is_escalated);
                disrupted_node(target, claim.as_deref(), is_escalated)
            })
            .collect();
        let is_single = order.launches.len() == 1;
        let replacements: Vec<Value> =
            order.launches.iter().map(|launch| replacement_node(launch, is_single)).collect();
        tracing::info!(
            command = order.describe(id),
            decision = order.decision.label(),
            disrupted_node_count = order.targets.len(),
            replacement_node_count = order.launches.len(),
            pod_count = order.targets.iter().map(|target| target.pods).sum::<usize>(),
            disrupted_nodes = logs::json(disrupted),
            replacement_nodes = logs::json(replacements),
            "disrupting node(s)"
        );
    }
}

fn disrupted_node(target: &Target, claim: Option<&NodeClaim>, is_escalated: bool) -> Value {
    let get = |key| claim.and_then(|claim| label(claim, key)).unwrap_or_default();
    let mut node = json!({
        "Node": {"name": target.node},
        "NodeClaim": {"name": target.id.name},
        "capacity-type": get(labels::CAPACITY_TYPE),
        "instance-type": get(labels::INSTANCE_TYPE),
    });
    if is_escalated {
        node["reboot-escalated"] = true.into();
    }
    node
}

/// The instance types only of a replacement that is the only one.
fn replacement_node(launch: &Launch, is_single: bool) -> Value {
    let capacity_types = values(&launch.claim, labels::CAPACITY_TYPE);
    let preferred = [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_SPOT];
    let preferred = preferred.into_iter().find(|one| capacity_types.iter().any(|value| value == one));
    let mut node = json!({"capacity-type": preferred.unwrap_or(labels::CAPACITY_TYPE_ON_DEMAND)});
    if is_single {
        let instance_types = values(&launch.claim, labels::INSTANCE_TYPE);
        node["instance-types"] = logs::names(instance_types.iter()).into();
    }
    node
}
