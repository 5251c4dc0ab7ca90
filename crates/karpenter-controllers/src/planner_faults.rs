//! Reports faults of the planner, for all controllers that run it.

use jiff::Timestamp;
use karpenter_model::problem::Mode;
use karpenter_scheduling::validated::{Cause, Fault};

use crate::inputs::Writes;

/// Counts the faults and logs each cause, rate-limited.
pub(crate) fn report(
    writes: &Writes,
    now: Timestamp,
    controller: &str,
    found: &[Fault],
    pods: &str,
    nodes: &str,
) {
    for fault in found {
        let (mode, cause) = (mode_name(fault.mode), fault.cause.name());
        writes.metrics.planner_faults.with_label_values(&[mode, &cause]).inc();
        if matches!(fault.cause, Cause::Panicked(_)) {
            writes.metrics.runtime.count_panic(controller);
        }
        if writes.log_throttle.is_due("planner fault", format!("{controller} {mode} {cause}"), now) {
            let details = fault.cause.to_string();
            tracing::error!(controller, mode, cause, details, pods, nodes, "planner fault");
        }
    }
}

pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Cost => "cost",
        Mode::Compat => "compat",
    }
}
