//! The log line of a command that starts, with upstream's message and keys.

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::command::Method;
use karpenter_runtime::object::label;
use serde_json::{Value, json};

use super::super::Disruption;
use super::super::resolved_command::{Candidate, Replacement, ResolvedCommand};
use crate::claims::values;
use crate::logs;
use crate::node_health::RepairCase;

impl Disruption {
    pub(in super::super) fn log_start(&self, id: &str, resolved: &ResolvedCommand) {
        let is_repair = resolved.method == Method::Repair;
        let cases = is_repair.then(|| self.reader.node_health.repair_cases(self.reads.clock.now()));
        let case_of = |candidate: &Candidate| cases.as_ref()?.get(&candidate.node);
        for (candidate, RepairCase { matched, .. }) in
            resolved.candidates.iter().filter_map(|candidate| Some((candidate, case_of(candidate)?)))
        {
            tracing::info!(
                node = candidate.node,
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
        let disrupted: Vec<Value> = resolved
            .candidates
            .iter()
            .map(|candidate| {
                let claim = self.reads.stores.node_claims.get("", &candidate.id.name);
                let is_escalated = case_of(candidate).is_some_and(|case| case.is_escalated);
                disrupted_node(candidate, claim.as_deref(), is_escalated)
            })
            .collect();
        let is_single = resolved.replacements.len() == 1;
        let replacements: Vec<Value> =
            resolved.replacements.iter().map(|launch| replacement_node(launch, is_single)).collect();
        tracing::info!(
            command = resolved.describe(id),
            decision = resolved.decision.label(),
            disrupted_node_count = resolved.candidates.len(),
            replacement_node_count = resolved.replacements.len(),
            pod_count = resolved.candidates.iter().map(|candidate| candidate.pods).sum::<usize>(),
            disrupted_nodes = logs::json(disrupted),
            replacement_nodes = logs::json(replacements),
            "disrupting node(s)"
        );
    }
}

fn disrupted_node(candidate: &Candidate, claim: Option<&NodeClaim>, is_escalated: bool) -> Value {
    let get = |key| claim.and_then(|claim| label(claim, key)).unwrap_or_default();
    let mut node = json!({
        "Node": {"name": candidate.node},
        "NodeClaim": {"name": candidate.id.name},
        "capacity-type": get(labels::CAPACITY_TYPE),
        "instance-type": get(labels::INSTANCE_TYPE),
    });
    if is_escalated {
        node["reboot-escalated"] = true.into();
    }
    node
}

/// The replacement in the log line. Its instance types are listed only if it is the only replacement of the command.
fn replacement_node(launch: &Replacement, is_single: bool) -> Value {
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
