//! The kubelet expressions of an EC2NodeClass: their validation, and their values for an instance type.

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_api::types::KubeletValues;
use karpenter_catalog::aws::{AmiFamily, AwsNodeClass, TypeInfo, pods};
use karpenter_model::quantity::Quantity;

use super::expression::Expressions;
use super::parse::ParsedKubelet;
use super::resolve::{check_on_type, resolve};
use super::validate::{Refusal, check};
use crate::options::AwsFeatureGates;
use crate::types::KubeletExpressions;

/// The feature gates and a cache of compiled expressions, which all clones share.
#[derive(Debug, Clone)]
pub struct ClassExpressions {
    gates: AwsFeatureGates,
    expressions: Arc<Expressions>,
}

impl ClassExpressions {
    pub fn new(gates: AwsFeatureGates, expressions: Arc<Expressions>) -> Self {
        Self { gates, expressions }
    }

    /// The first error of the settings that does not depend on the instance type; `None` if they are valid.
    pub fn problem(&self, values: &KubeletValues, family: AmiFamily) -> Option<Refusal> {
        check(values, family, self.gates, &self.expressions).err()
    }

    /// The first error of an expression for one of the instance types. `facts` are the node class's settings with which
    /// the instance types are resolved.
    pub fn problem_on_types<'a>(
        &self,
        values: &KubeletValues,
        facts: &AwsNodeClass,
        types: impl IntoIterator<Item = &'a TypeInfo>,
    ) -> Option<Refusal> {
        let parsed = ParsedKubelet::parse(values).ok().filter(ParsedKubelet::has_expressions)?;
        let error = types.into_iter().find_map(|info| {
            check_on_type(&parsed, &self.expressions, info, |max_pods| pods_with(info, facts, max_pods)).err()
        })?;
        Some(Refusal { reason: "KubeletExpressionEvaluationFailed", message: error.to_string() })
    }
}

impl KubeletExpressions for ClassExpressions {
    fn has_any(&self, kubelet: &KubeletValues) -> bool {
        self.gates.node_class_cel
            && ParsedKubelet::parse(kubelet).is_ok_and(|parsed| parsed.has_expressions())
    }

    fn evaluate(&self, kubelet: &KubeletValues, info: &TypeInfo, facts: &AwsNodeClass) -> AwsNodeClass {
        let mut facts = facts.clone();
        let Ok(parsed) = ParsedKubelet::parse(kubelet) else { return facts };
        let resolved = resolve(&parsed, self.gates, &self.expressions, info, |max_pods| {
            pods_with(info, &facts, max_pods)
        });
        match resolved {
            Ok(resolved) => {
                facts.max_pods = resolved.max_pods.and_then(|count| u32::try_from(count).ok());
                facts.kube_reserved = quantities(&resolved.kube_reserved);
                facts.system_reserved = quantities(&resolved.system_reserved);
            }
            // The node class reports the error in its condition `ValidationSucceeded`.
            Err(error) => tracing::debug!(%error, "failed to resolve kubelet settings of instance type"),
        }
        facts
    }
}

fn pods_with(info: &TypeInfo, facts: &AwsNodeClass, max_pods: Option<i32>) -> i64 {
    let max_pods = max_pods.and_then(|count| u32::try_from(count).ok());
    pods(info, &AwsNodeClass { max_pods, ..facts.clone() })
}

fn quantities(values: &BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    values.iter().filter_map(|(key, value)| Some((key.clone(), value.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use karpenter_catalog::aws::catalog;
    use karpenter_runtime::clock::Clock;
    use serde_json::{Value, json};

    use super::*;

    fn class_expressions(node_class_cel: bool) -> ClassExpressions {
        let expressions = Expressions::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        ClassExpressions::new(AwsFeatureGates { node_class_cel }, Arc::new(expressions))
    }

    fn values(value: Value) -> KubeletValues {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn expressions_are_ignored_without_feature_gate() {
        let expression = values(json!({ "kubeReserved": { "cpu": "vcpus * 10" } }));
        let plain = values(json!({ "maxPods": 10, "kubeReserved": { "cpu": "10m" } }));
        assert!(class_expressions(true).has_any(&expression));
        assert!(!class_expressions(false).has_any(&expression));
        assert!(!class_expressions(true).has_any(&plain));
    }

    #[test]
    fn expressions_are_evaluated_per_instance_type() {
        let settings = values(json!({
            "maxPods": "vcpus * 10",
            "kubeReserved": { "cpu": "vcpus * 30", "memory": "1Gi" },
            "systemReserved": { "memory": "max_pods * 16" },
        }));
        for (name, pods, cpu, memory) in
            [("m5.large", 20, "60m", "320Mi"), ("m5.4xlarge", 160, "480m", "2560Mi")]
        {
            let info = catalog().find(name).expect("a type");
            let facts = class_expressions(true).evaluate(&settings, info, &AwsNodeClass::default());
            assert_eq!(facts.max_pods, Some(pods), "{name}");
            assert_eq!(facts.kube_reserved["cpu"], cpu.parse().expect("a quantity"));
            assert_eq!(facts.kube_reserved["memory"], "1Gi".parse().expect("a quantity"));
            assert_eq!(facts.system_reserved["memory"], memory.parse().expect("a quantity"));
        }
    }

    #[test]
    fn evaluation_failure_on_an_instance_type_is_reported() {
        let expressions = class_expressions(true);
        let facts = AwsNodeClass::default();
        let on_types = |value: Value| {
            expressions
                .problem_on_types(&values(value), &facts, catalog().types())
                .map(|refusal| refusal.message)
        };
        assert_eq!(on_types(json!({ "maxPods": "max_pods" })), None);
        assert_eq!(on_types(json!({ "maxPods": 3 })), None);
        let message = on_types(json!({ "maxPods": "vcpus > 8 ? -1 : 1" })).expect("large types exist");
        assert!(
            message.starts_with("maxPods expression evaluated to a value outside the valid range"),
            "{message}"
        );
        let refusal =
            expressions.problem(&values(json!({ "maxPodz": 1 })), AmiFamily::Al2023).expect("unknown");
        assert_eq!(refusal.reason, "InvalidKubeletConfiguration");
    }

    #[test]
    fn unparseable_settings_leave_node_class_unchanged() {
        let info = catalog().find("m5.large").expect("a type");
        let facts = AwsNodeClass { max_pods: Some(7), ..AwsNodeClass::default() };
        let settings = values(json!({ "podsPerCore": "x" }));
        assert_eq!(class_expressions(true).evaluate(&settings, info, &facts), facts);
    }
}
