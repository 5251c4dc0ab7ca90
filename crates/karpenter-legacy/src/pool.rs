//! Converts the spec of a Provisioner to the spec of a NodePool. The Provisioner must be valid by [`crate::rules`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::defaults;
use crate::finding::{Code, Report};
use crate::labels::{INSTANCE_CATEGORY, INSTANCE_FAMILY, normalize, removed_label_advice};
use crate::options::{Expiration, Options};
use crate::types::{LegacyRequirement, LegacyTaint, ProvisionerSpec};

const DO_NOT_CONSOLIDATE: &str = "karpenter.sh/do-not-consolidate";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Builds the spec of the NodePool; `class` is the name of its node class.
pub(crate) fn spec(spec: &ProvisionerSpec, class: &str, options: &Options, report: &mut Report) -> Value {
    let mut template_spec = Map::new();
    template_spec.insert(
        "nodeClassRef".to_owned(),
        json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class}),
    );
    template_spec.insert("expireAfter".to_owned(), json!(expire_after(spec, options, report)));
    template_spec.insert("requirements".to_owned(), json!(requirements(spec, options, report)));
    for (list, taints) in [("taints", &spec.taints), ("startupTaints", &spec.startup_taints)] {
        if !taints.is_empty() {
            template_spec.insert(list.to_owned(), converted_taints(list, taints, report));
        }
    }
    let mut template = Map::new();
    let metadata = template_metadata(spec, options, report);
    if !metadata.is_empty() {
        template.insert("metadata".to_owned(), Value::Object(metadata));
    }
    template.insert("spec".to_owned(), Value::Object(template_spec));

    let mut pool = Map::new();
    pool.insert("template".to_owned(), Value::Object(template));
    pool.insert("disruption".to_owned(), disruption(spec, options, report));
    if let Some(limits) = spec.limits.as_ref().filter(|limits| !limits.resources.is_empty()) {
        pool.insert("limits".to_owned(), json!(limits.resources));
    }
    if let Some(weight) = spec.weight {
        pool.insert("weight".to_owned(), json!(weight));
    }
    Value::Object(pool)
}

fn expire_after(spec: &ProvisionerSpec, options: &Options, report: &mut Report) -> String {
    let Some(seconds) = spec.ttl_seconds_until_expired else { return "Never".to_owned() };
    match options.expiration {
        Expiration::Graceful => "Never".to_owned(),
        Expiration::Forceful => {
            report.add(
                Code::ForcefulExpiration,
                "spec.ttlSecondsUntilExpired",
                "expiration was graceful (one node at a time, replacement first) and followed edits of the TTL; expireAfter of v1 \
                 drains the node at once, and each NodeClaim keeps the value it was created with",
                "set a long expireAfter, or Never; terminationGracePeriod limits the drain",
            );
            duration(seconds)
        }
    }
}

/// Formats a duration in hours if it has whole hours, else in minutes if it has whole minutes, else in seconds.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds {
        seconds if seconds != 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds != 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

fn requirements(spec: &ProvisionerSpec, options: &Options, report: &mut Report) -> Vec<LegacyRequirement> {
    let mut kept = Vec::with_capacity(spec.requirements.len() + 5);
    for (index, requirement) in spec.requirements.iter().enumerate() {
        let key = normalize(&requirement.key);
        match removed_label_advice(key) {
            Some(instead) => report.add(
                Code::LabelRemoved,
                format!("spec.requirements[{index}].key"),
                format!("v1 nodes do not have the label {key}; the requirement is left out"),
                instead,
            ),
            None => kept.push(LegacyRequirement { key: key.to_owned(), ..requirement.clone() }),
        }
    }
    if !options.ignore_defaults {
        kept.extend(defaults::missing_requirements(spec, report));
    }
    report_exclusion_only_requirements(&kept, report);
    kept
}

/// Reports a NotIn requirement on families, which suppresses the default categories, so that every other instance type
/// is allowed.
fn report_exclusion_only_requirements(requirements: &[LegacyRequirement], report: &mut Report) {
    let shapes = [INSTANCE_CATEGORY, INSTANCE_FAMILY, karpenter_model::labels::INSTANCE_TYPE];
    let has = |operator: &str| {
        requirements.iter().any(|one| one.operator == operator && shapes.contains(&one.key.as_str()))
    };
    if has("NotIn") && !has("In") {
        report.add(
            Code::ExclusionOnly,
            "spec.requirements",
            "instance types are only excluded; special purpose types (f1, vt1, dl1, u-*) may be launched too",
            format!("add {INSTANCE_CATEGORY} In [c, m, r] to allow general purpose instance types only"),
        );
    }
}

fn converted_taints(list: &str, taints: &[LegacyTaint], report: &mut Report) -> Value {
    for (index, taint) in taints.iter().enumerate().filter(|(_, taint)| taint.effect.is_empty()) {
        report.add(
            Code::EmptyTaintEffect,
            format!("spec.{list}[{index}].effect"),
            format!("taint {:?} has an empty effect, which v1 rejects", taint.key),
            "NoSchedule, PreferNoSchedule or NoExecute",
        );
    }
    // An empty value of a taint is removed: v1's pattern rejects it, and an absent value has the same meaning.
    let cleaned = taints
        .iter()
        .cloned()
        .map(|taint| LegacyTaint { value: taint.value.filter(|value| !value.is_empty()), ..taint });
    json!(cleaned.collect::<Vec<_>>())
}

fn template_metadata(spec: &ProvisionerSpec, options: &Options, report: &mut Report) -> Map<String, Value> {
    let mut labels = BTreeMap::new();
    for (key, value) in &spec.labels {
        let v1_key = normalize(key);
        match removed_label_advice(v1_key) {
            Some(instead) => report.add(
                Code::LabelRemoved,
                format!("spec.labels[{key}]"),
                format!("v1 nodes do not have the label {v1_key}; it is left out"),
                instead,
            ),
            None => drop(labels.insert(v1_key.to_owned(), value.clone())),
        }
    }
    let mut annotations = spec.annotations.clone();
    // Derived NodePools keep the annotation, because our controller respects it on their nodes.
    let is_served = options.expiration == Expiration::Graceful;
    if !is_served && let Some(value) = annotations.remove(DO_NOT_CONSOLIDATE) {
        report.add(
            Code::AnnotationRenamed,
            format!("spec.annotations[{DO_NOT_CONSOLIDATE}]"),
            format!("is renamed to {DO_NOT_DISRUPT}, which also blocks drift"),
            "none needed",
        );
        // In v1alpha5, only the value "true" protected a node.
        if value == "true" {
            annotations.insert(DO_NOT_DISRUPT.to_owned(), value);
        }
    }
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    metadata
}

fn disruption(spec: &ProvisionerSpec, options: &Options, report: &mut Report) -> Value {
    let consolidates = spec.consolidation.as_ref().and_then(|one| one.enabled).unwrap_or(false);
    let (policy, after) = match (consolidates, spec.ttl_seconds_after_empty) {
        (true, _) => ("WhenEmptyOrUnderutilized", "0s".to_owned()),
        (false, Some(seconds)) => ("WhenEmpty", duration(seconds)),
        // Consolidation was off, but v1's default would enable it.
        (false, None) => ("WhenEmpty", "Never".to_owned()),
    };
    let mut disruption = json!({"consolidationPolicy": policy, "consolidateAfter": after});
    if options.v1_defaults {
        report.add(
            Code::V1Defaults,
            "spec",
            "v1alpha5 had no budgets, and drift was off; the default budget of v1 is 10% of the nodes, also for drift",
            "none needed if v1 defaults are intended",
        );
    } else {
        // In v1alpha5, only nodes of a Provisioner with an AWSNodeTemplate could drift.
        let may_drift = options.drift_enabled && spec.provider.is_none();
        let drifted = if may_drift { "1" } else { "0" };
        disruption["budgets"] = json!([
            {"nodes": "100%", "reasons": ["Empty", "Underutilized"]},
            {"nodes": drifted, "reasons": ["Drifted"]},
        ]);
    }
    disruption
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_use_the_largest_whole_unit() {
        for (seconds, text) in
            [(2_592_000, "720h"), (300, "5m"), (30, "30s"), (0, "0s"), (3_660, "61m"), (3_601, "3601s")]
        {
            assert_eq!(duration(seconds), text);
        }
    }
}
