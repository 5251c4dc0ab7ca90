//! The API server: whether it answers, how old it is, and whether clocks agree.

use super::Finding;
use super::facts::{Facts, Server};

/// Rules in definitions are enforced from here on.
const MINOR_MIN: u32 = 25;
/// Answers tell the time to the second only, and take a while.
const SKEW_WARN_SECS: i64 = 10;
/// Signed requests to AWS are refused beyond this.
const SKEW_FAIL_SECS: i64 = 300;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    match &facts.server {
        Ok(server) => vec![version(server), clock(server)],
        Err(error) => vec![Finding::fail(
            "api-server",
            format!("the API server does not answer: {error}"),
            "check --kubeconfig, its current context, the network and the credentials: kubectl version",
        )],
    }
}

fn version(server: &Server) -> Finding {
    match server.minor {
        Some(minor) if minor < MINOR_MIN => Finding::fail(
            "api-server",
            format!("the API server is {}", server.version),
            format!(
                "upgrade the cluster to 1.{MINOR_MIN} or later: rules in definitions are not enforced before"
            ),
        ),
        _ => Finding::ok("api-server", format!("the API server answers and is {}", server.version)),
    }
}

fn clock(server: &Server) -> Finding {
    let Some(ahead) = server.ahead_secs else {
        return Finding::ok("clock", "the API server does not tell its time");
    };
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let message = format!("the API server's clock is {} s {direction} this machine's", ahead.abs());
    let fix =
        "let both machines keep their time with NTP or chrony: leases, tokens and signatures depend on it";
    match ahead.abs() {
        0..SKEW_WARN_SECS => Finding::ok("clock", "clocks agree"),
        SKEW_WARN_SECS..SKEW_FAIL_SECS => Finding::warn("clock", message, fix),
        _ => Finding::fail("clock", message, fix),
    }
}
