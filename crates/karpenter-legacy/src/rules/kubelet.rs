//! Rules for `kubeletConfiguration`.

use std::collections::BTreeMap;

use karpenter_model::duration::parse_go_duration;
use karpenter_model::quantity::Quantity;
use serde_json::Value;

use crate::finding::Report;
use crate::quantities;
use crate::types::KubeletConfiguration;

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];

pub(crate) fn check(kubelet: &KubeletConfiguration, path: &str, report: &mut Report) {
    for (field, number) in [("maxPods", kubelet.max_pods), ("podsPerCore", kubelet.pods_per_core)] {
        if number.is_some_and(|number| number < 0) {
            report.never_valid(format!("{path}.{field}"), "is negative", "0 or more");
        }
    }
    if let Some(runtime) = kubelet.container_runtime.as_deref()
        && !["containerd", "dockerd"].contains(&runtime)
    {
        report.never_valid(
            format!("{path}.containerRuntime"),
            format!("{runtime:?} is not a container runtime"),
            "containerd",
        );
    }
    check_reserved(&kubelet.system_reserved, &format!("{path}.systemReserved"), report);
    check_reserved(&kubelet.kube_reserved, &format!("{path}.kubeReserved"), report);
    check_signals(&kubelet.eviction_hard, &format!("{path}.evictionHard"), report);
    check_signals(&kubelet.eviction_soft, &format!("{path}.evictionSoft"), report);
    check_grace_periods(kubelet, path, report);
    check_garbage_collection(kubelet, path, report);
}

fn check_reserved(reserved: &BTreeMap<String, Value>, path: &str, report: &mut Report) {
    for (name, amount) in reserved {
        let field = format!("{path}.{name}");
        if !RESERVABLE.contains(&name.as_str()) {
            report.never_valid(&field, "cannot be reserved", RESERVABLE.join(", "));
        }
        match quantities::parse(amount) {
            Err(problem) => report.never_valid(field, problem, "a quantity such as 100m or 1Gi"),
            Ok(amount) if amount.is_negative() => report.never_valid(field, "is negative", "0 or more"),
            Ok(_) => {}
        }
    }
}

fn check_signals(thresholds: &BTreeMap<String, String>, path: &str, report: &mut Report) {
    for (signal, threshold) in thresholds {
        let field = format!("{path}.{signal}");
        if !SIGNALS.contains(&signal.as_str()) {
            report.never_valid(&field, "is not an eviction signal", SIGNALS.join(", "));
        }
        let is_valid = match threshold.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
            None => threshold.parse::<Quantity>().is_ok(),
        };
        if !is_valid {
            report.never_valid(
                field,
                format!("{threshold:?} is not a threshold"),
                "a quantity, or 0% to 100%",
            );
        }
    }
}

/// Checks that each soft threshold has a grace period, and each grace period a soft threshold.
fn check_grace_periods(kubelet: &KubeletConfiguration, path: &str, report: &mut Report) {
    for signal in
        kubelet.eviction_soft.keys().filter(|key| !kubelet.eviction_soft_grace_period.contains_key(*key))
    {
        report.never_valid(
            format!("{path}.evictionSoft.{signal}"),
            "has no grace period",
            "the same signal in evictionSoftGracePeriod",
        );
    }
    for (signal, period) in &kubelet.eviction_soft_grace_period {
        let field = format!("{path}.evictionSoftGracePeriod.{signal}");
        if !kubelet.eviction_soft.contains_key(signal) {
            report.never_valid(&field, "has no threshold", "the same signal in evictionSoft");
        }
        if parse_go_duration(period).is_err() {
            report.never_valid(field, format!("{period:?} is not a duration"), "a duration such as 1m30s");
        }
    }
}

fn check_garbage_collection(kubelet: &KubeletConfiguration, path: &str, report: &mut Report) {
    let (high, low) = (kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent);
    for (field, percent) in [("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)] {
        if percent.is_some_and(|percent| !(0..=100).contains(&percent)) {
            report.never_valid(format!("{path}.{field}"), "is out of range", "0 to 100");
        }
    }
    if let (Some(high), Some(low)) = (high, low)
        && high < low
    {
        report.never_valid(
            format!("{path}.imageGCHighThresholdPercent"),
            format!("{high} is below imageGCLowThresholdPercent, which is {low}"),
            "at least the low threshold",
        );
    }
}
