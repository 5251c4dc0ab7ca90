//! Findings about the controller: whether exactly one is active, and whether its clock is right.

use super::Finding;
use super::facts::Facts;
use crate::controllers::{Controller, Program};
use crate::leases::Lease;

const CHECK: &str = "controller";
/// If a Lease was renewed more than this many seconds in the future, the clock of its holder is wrong.
const AHEAD_WARN_SECS: i64 = 10;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let controllers = match &facts.controllers {
        Ok(controllers) => controllers.as_slice(),
        Err(error) => {
            findings.push(Finding::unreadable(CHECK, error));
            &[]
        }
    };
    let leases = match &facts.leases {
        Ok(leases) => leases.as_slice(),
        Err(error) => {
            findings.push(Finding::unreadable("lease", error));
            &[]
        }
    };
    let running: Vec<&Controller> = controllers.iter().filter(|controller| controller.replicas > 0).collect();
    let held: Vec<&Lease> = leases.iter().filter(|lease| lease.is_held(facts.now)).collect();
    findings.extend(running.iter().map(|controller| readiness(controller)));
    match (running.len(), held.len()) {
        (0, 0) if facts.controllers.is_ok() && facts.leases.is_ok() => findings.push(Finding::fail(
            CHECK,
            "no active controller: none runs in the cluster, and the lease is not renewed",
            "karpenter install, or start karpenter controller --provider … outside of the cluster",
        )),
        (0, _) => {
            findings.extend(held.iter().map(|lease| {
                Finding::ok(CHECK, format!("{} is active outside of the cluster", lease.holder))
            }))
        }
        (2.., _) => {
            let names: Vec<String> = running.iter().map(|controller| called(controller)).collect();
            findings.push(Finding::fail(
                CHECK,
                format!("several controllers are installed: {}", names.join(", ")),
                "they would conflict: scale every other Deployment to zero, or replace it with karpenter install --take-over",
            ));
        }
        _ => {}
    }
    if held.len() > 1 {
        let holders: Vec<String> =
            held.iter().map(|lease| format!("{} in {}", lease.holder, lease.namespace)).collect();
        findings.push(Finding::fail(
            "lease",
            format!("several controllers hold a lease at once: {}", holders.join(", ")),
            "stop the others: leases in different namespaces are independent",
        ));
    }
    findings.extend(leases.iter().filter_map(|lease| judge_lease(lease, facts, &running)));
    findings
}

fn called(controller: &Controller) -> String {
    let program = match controller.program {
        Program::Ours => "this Karpenter",
        Program::Other => "another Karpenter",
    };
    format!("{program} as {}/{} ({})", controller.namespace, controller.name, controller.image)
}

fn readiness(controller: &Controller) -> Finding {
    let count = format!("{} of {} replicas are ready", controller.ready, controller.replicas);
    let line = format!("{}: {count}", called(controller));
    let fix = format!(
        "kubectl --namespace {0} describe deployment {1}; kubectl --namespace {0} logs deployment/{1}",
        controller.namespace, controller.name
    );
    match controller.ready {
        0 => Finding::fail(CHECK, line, fix),
        ready if ready < controller.replicas => Finding::warn(CHECK, line, fix),
        _ => Finding::ok(CHECK, line),
    }
}

fn judge_lease(lease: &Lease, facts: &Facts, running: &[&Controller]) -> Option<Finding> {
    let server_ahead = facts.server.as_ref().ok().and_then(|server| server.ahead_secs).unwrap_or(0);
    let age = lease.age_secs(facts.now)?;
    let place = format!("{}/{}", lease.namespace, lease.name);
    if age < -AHEAD_WARN_SECS && server_ahead.abs() < AHEAD_WARN_SECS {
        return Some(Finding::warn(
            "clock",
            format!("{} writes a renewal time {} s in the future to the lease {place}", lease.holder, -age),
            "synchronize its node's clock with NTP or chrony",
        ));
    }
    let is_expected = running.iter().any(|controller| controller.namespace == lease.namespace);
    if lease.is_held(facts.now) {
        Some(Finding::ok("lease", format!("{} holds {place}, renewed {} s ago", lease.holder, age.max(0))))
    } else if is_expected {
        let holder = if lease.holder.is_empty() { "no replica" } else { lease.holder.as_str() };
        Some(Finding::fail(
            "lease",
            format!("{holder} holds {place}, last renewed {age} s ago: the controller is not active"),
            format!(
                "read its log: kubectl --namespace {} logs --selector app.kubernetes.io/name=karpenter",
                lease.namespace
            ),
        ))
    } else {
        None
    }
}
