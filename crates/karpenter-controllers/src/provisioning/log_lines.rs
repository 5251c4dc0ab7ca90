//! Logs the result of a batch, with upstream's messages and keys.

use std::sync::Arc;
use std::time::Duration;

use karpenter_model::duration::GoDuration;
use karpenter_runtime::object::name_of;
use karpenter_state::buffers::is_virtual;
use karpenter_state::pod::Pod;

use super::decide::Decided;
use crate::logs;

/// Log lines about single pods are sampled: the first ones are all logged, after that, one in this number. Upstream's
/// logger samples lines with the same message in this way.
const SAMPLE: usize = 100;

/// The names of the pods of a batch for log lines; if there are many, only the first ones and the number of the others.
pub(super) fn names(pods: &[Arc<Pod>]) -> String {
    logs::names(pods.iter().map(|pod| name(pod)))
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name)
}

/// Logs the decision for a batch before it is executed.
pub(super) fn log(decided: &Decided, pods: &str, took: Duration) {
    let duration = GoDuration { nanos: i64::try_from(took.as_nanos()).unwrap_or(i64::MAX) };
    if !decided.launches.is_empty() {
        tracing::info!(Pods = pods, %duration, "found provisionable pod(s)");
    }
    for (pool, _) in &decided.pools_without_types {
        let nodepool = name_of(&**pool);
        tracing::info!(nodepool, "skipping, nodepool requirements filtered out all instance types");
    }
    let failures = decided.failures.iter().filter(|failure| failure.is_reported);
    let failed = failures.flat_map(|failure| failure.pods.iter().map(|pod| (pod, failure.why.as_str())));
    let failed = failed.filter(|(pod, _)| !is_virtual(pod));
    for (pod, error) in sampled(failed) {
        tracing::error!(pod = name(pod), error, "could not schedule pod");
    }
    let launched: usize = decided.launches.iter().map(|launch| launch.pods.len()).sum();
    if launched == 0 {
        return;
    }
    let nodeclaims = decided.launches.len();
    tracing::info!(nodeclaims, pods = launched, "computed new nodeclaim(s) to fit pod(s)");
    let placed: usize = decided.placements.iter().map(|placement| placement.pods.len()).sum();
    if placed > 0 {
        let nodes = decided.placements.len();
        tracing::info!(nodes, pods = placed, "computed unready node(s) will fit pod(s)");
    }
}

fn sampled<T>(lines: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let is_printed = |number: usize| number < SAMPLE || number.is_multiple_of(SAMPLE);
    lines.enumerate().filter(move |(number, _)| is_printed(*number)).map(|(_, line)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hundred_lines_and_every_hundredth_line_are_logged() {
        for (lines, printed) in [(0, 0), (99, 99), (100, 100), (101, 101), (1_000, 109), (1_001, 110)] {
            assert_eq!(sampled(0..lines).count(), printed, "{lines}");
        }
    }
}
