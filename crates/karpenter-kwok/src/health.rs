//! The node conditions by which nodes are repaired, the repair policies, and reboots of simulated instances.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_cloud::{CloudError, RepairAction, RepairPolicy};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::provider::{failure, is_code, not_found};

/// A condition that kubelets do not report. If it is True, the node must be replaced although it is ready.
pub const UNHEALTHY: &str = "KWOKUnhealthy";
/// A condition that kubelets do not report. If it is True, the node must be rebooted.
pub const REBOOT_REQUIRED: &str = "KWOKRebootRequired";

/// The repair policies, which are those of upstream's kwok provider.
pub(crate) fn repair_policies() -> Vec<RepairPolicy> {
    let policy = |kind: &str, status: &str, reason: &str, times: (u64, u64), action| RepairPolicy {
        condition_type: kind.to_owned(),
        condition_status: status.to_owned(),
        reason_regex: reason.to_owned(),
        toleration_secs: times.0,
        termination_grace_period_secs: Some(times.1),
        priority: 0,
        action,
    };
    vec![
        policy("Ready", "False", "", (600, 0), RepairAction::Replace),
        policy("Ready", "Unknown", ".*", (600, 0), RepairAction::Replace),
        policy(UNHEALTHY, "True", ".*", (30, 45), RepairAction::Replace),
        policy(REBOOT_REQUIRED, "True", ".*", (30, 60), RepairAction::Reboot),
    ]
}

/// Simulates a reboot by setting a new boot id on the node. Calls with the same operation id set the same boot id.
pub(crate) async fn write_boot_id(
    nodes: &Api<Node>,
    name: &str,
    operation_id: &str,
) -> Result<(), CloudError> {
    let patch = json!({"status": {"nodeInfo": {"bootID": format!("kwok-{operation_id}")}}});
    written(name, nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

pub(crate) async fn write_condition(
    nodes: &Api<Node>,
    name: &str,
    (kind, status, reason): (&str, &str, &str),
    now: Time,
) -> Result<(), CloudError> {
    let patch = json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason,
        "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}]}});
    written(name, nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

pub(crate) async fn remove_condition(nodes: &Api<Node>, name: &str, kind: &str) -> Result<(), CloudError> {
    let patch = json!({"status": {"conditions": [{"type": kind, "$patch": "delete"}]}});
    written(name, nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

fn written(name: &str, answer: kube::Result<Node>) -> Result<(), CloudError> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) => Err(not_found(name)),
        Err(error) => Err(failure(error)),
    }
}
