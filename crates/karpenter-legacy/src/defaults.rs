//! The requirements that the defaulting webhook of v1alpha5 added to every Provisioner.
//!
//! The rule is that of v0.19 and later, with one exception: as before v0.19, a label with the same key suppresses the
//! default. Otherwise a Provisioner with the label arm64 would require amd64 as well, and no instance could be
//! launched.
//!
//! Upstream: karpenter-core v0.31 `pkg/apis/v1alpha5/provisioner_defaults.go`.

use karpenter_model::labels;

use crate::finding::{Code, Report};
use crate::labels::{INSTANCE_CATEGORY, INSTANCE_FAMILY, INSTANCE_GENERATION, normalize};
use crate::types::{LegacyRequirement, ProvisionerSpec};

/// The requirements to append, in the webhook's order. The label keys in `spec` must be normalized.
pub(crate) fn missing_requirements(spec: &ProvisionerSpec, report: &mut Report) -> Vec<LegacyRequirement> {
    let mut missing = Vec::new();
    for (key, value) in [
        (labels::OS, "linux"),
        (labels::ARCH, "amd64"),
        (labels::CAPACITY_TYPE, labels::CAPACITY_TYPE_ON_DEMAND),
    ] {
        if is_required(spec, key) {
            continue;
        }
        match spec.labels.iter().find(|(label, _)| normalize(label) == key) {
            Some((label, chosen)) => report.add(
                Code::LabelAsRequirement,
                format!("spec.labels[{label}]"),
                format!("the label sets {chosen:?}; the default {value:?} is not added, although v1alpha5 required both"),
                "none needed",
            ),
            None => missing.push(requirement(key, "In", &[value])),
        }
    }
    let shapes = [labels::INSTANCE_TYPE, INSTANCE_FAMILY, INSTANCE_CATEGORY, INSTANCE_GENERATION];
    if !shapes.iter().any(|key| is_required(spec, key)) {
        let labelled = spec.labels.iter().find(|(label, _)| shapes.contains(&normalize(label)));
        match labelled {
            Some((label, chosen)) => report.add(
                Code::LabelAsRequirement,
                format!("spec.labels[{label}]"),
                format!("the label sets {chosen:?}; the default instance categories are not added"),
                "none needed",
            ),
            None => {
                missing.push(requirement(INSTANCE_CATEGORY, "In", &["c", "m", "r"]));
                missing.push(requirement(INSTANCE_GENERATION, "Gt", &["2"]));
            }
        }
    }
    missing
}

fn is_required(spec: &ProvisionerSpec, key: &str) -> bool {
    spec.requirements.iter().any(|requirement| normalize(&requirement.key) == key)
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> LegacyRequirement {
    LegacyRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn appended(spec: serde_json::Value) -> (Vec<String>, Vec<&'static str>) {
        let spec: ProvisionerSpec = serde_json::from_value(spec).expect("a spec");
        let mut report = Report::new(0, "Provisioner x");
        let missing = missing_requirements(&spec, &mut report);
        let shown =
            missing.iter().map(|one| format!("{} {} {}", one.key, one.operator, one.values.join(",")));
        (shown.collect(), report.findings.iter().map(|finding| finding.code.as_str()).collect())
    }

    #[test]
    fn empty_provisioner_gets_all_five_defaults() {
        let (missing, codes) = appended(json!({}));
        assert_eq!(
            missing,
            [
                "kubernetes.io/os In linux",
                "kubernetes.io/arch In amd64",
                "karpenter.sh/capacity-type In on-demand",
                "karpenter.k8s.aws/instance-category In c,m,r",
                "karpenter.k8s.aws/instance-generation Gt 2",
            ]
        );
        assert!(codes.is_empty());
    }

    #[test]
    fn requirement_on_category_family_or_type_suppresses_default_categories() {
        let spec = json!({"requirements": [
            {"key": "beta.kubernetes.io/os", "operator": "Exists"},
            {"key": "karpenter.k8s.aws/instance.family", "operator": "NotIn", "values": ["t3"]},
        ]});
        let (missing, _) = appended(spec);
        assert_eq!(missing, ["kubernetes.io/arch In amd64", "karpenter.sh/capacity-type In on-demand"]);
    }

    #[test]
    fn label_suppresses_default_and_is_reported() {
        let spec =
            json!({"labels": {"kubernetes.io/arch": "arm64", "karpenter.k8s.aws/instance-family": "m7g"}});
        let (missing, codes) = appended(spec);
        assert_eq!(missing, ["kubernetes.io/os In linux", "karpenter.sh/capacity-type In on-demand"]);
        assert_eq!(codes, ["W07", "W07"]);
    }
}
