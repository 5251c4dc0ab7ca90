//! Findings about the API server: whether it responds, which version it has, and whether its clock is right.

use super::Finding;
use super::facts::{Facts, Server};

/// The first Kubernetes minor version that checks CEL rules of CRDs by default.
const MINOR_MIN: u32 = 25;
/// Clocks that differ by fewer seconds are not reported, because responses state whole seconds and take some time.
const SKEW_WARN_SECS: i64 = 10;
/// If the clocks differ by more seconds than this, AWS rejects signed requests.
const SKEW_FAIL_SECS: i64 = 300;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    match &facts.server {
        Ok(server) => vec![version(server), clock(server)],
        Err(error) => vec![Finding::fail(
            "api-server",
            format!("the API server does not respond: {error}"),
            "check --kubeconfig, its current context, the network and the credentials: kubectl version",
        )],
    }
}

fn version(server: &Server) -> Finding {
    match server.minor {
        Some(minor) if minor < MINOR_MIN => Finding::fail(
            "api-server",
            format!("the API server has version {}", server.version),
            format!(
                "upgrade the cluster to 1.{MINOR_MIN} or later: older versions do not enforce the rules of CRDs"
            ),
        ),
        _ => Finding::ok("api-server", format!("the API server responds and has version {}", server.version)),
    }
}

fn clock(server: &Server) -> Finding {
    let Some(ahead) = server.ahead_secs else {
        return Finding::ok("clock", "the Date header of the API server does not advance");
    };
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let message = format!("the API server's clock is {} s {direction} this machine's", ahead.abs());
    let fix = "synchronize both clocks with NTP or chrony: leases, tokens and signatures depend on it";
    match ahead.abs() {
        0..SKEW_WARN_SECS => Finding::ok("clock", "clocks are in sync"),
        SKEW_WARN_SECS..SKEW_FAIL_SECS => Finding::warn("clock", message, fix),
        _ => Finding::fail("clock", message, fix),
    }
}
