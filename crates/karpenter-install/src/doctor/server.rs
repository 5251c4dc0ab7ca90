//! Findings about the API server: whether it responds, its version, and its clock.

use super::Finding;
use super::facts::{Facts, Server};

/// The first Kubernetes minor version that enforces CEL rules in CRDs by default.
const MINOR_MIN: u32 = 25;
/// Smaller differences between the clocks are not reported: the response has whole seconds and takes time.
const SKEW_WARN_SECS: i64 = 10;
/// With a larger difference between the clocks, AWS rejects signed requests.
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
