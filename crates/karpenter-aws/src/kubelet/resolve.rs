//! The kubelet settings of one instance type: evaluates the expressions, and builds the settings for user data.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use karpenter_api::types::KubeletValues;
use karpenter_catalog::aws::TypeInfo;
use karpenter_userdata::Kubelet;

use super::expression::{ExpressionError, Expressions, Variables};
use super::parse::{MaxPods, ParsedKubelet, is_expression};
use super::units;
use crate::options::AwsFeatureGates;

/// Why an expression has no valid value for an instance type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    #[error(
        "evaluating maxPods expression, {error} (instance-type={instance_type}, expression={expression})"
    )]
    MaxPods { instance_type: Box<str>, expression: Box<str>, error: Box<ExpressionError> },
    #[error(
        "maxPods expression evaluated to a value outside the valid range [0, {}] (instance-type={instance_type}, \
         expression={expression}, result={result})",
        i32::MAX
    )]
    MaxPodsOutOfRange { instance_type: Box<str>, expression: Box<str>, result: i64 },
    #[error(
        "evaluating kubelet resource expression, {error} (instance-type={instance_type}, field={field}, key={key}, \
         expression={expression})"
    )]
    Reserved {
        instance_type: Box<str>,
        field: &'static str,
        key: Box<str>,
        expression: Box<str>,
        error: Box<ExpressionError>,
    },
    #[error(
        "kubelet resource expression evaluated to a negative value (instance-type={instance_type}, field={field}, \
         key={key}, expression={expression}, result={result})"
    )]
    NegativeReserved {
        instance_type: Box<str>,
        field: &'static str,
        key: Box<str>,
        expression: Box<str>,
        result: i64,
    },
}

/// The kubelet settings for one instance type, with every expression replaced by its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The maximum number of pods; if absent, the default of the AMI family applies.
    pub max_pods: Option<i32>,
    pub kube_reserved: BTreeMap<String, String>,
    pub system_reserved: BTreeMap<String, String>,
    /// Reserved resources whose expression has no value for this instance type. A node class with such an entry is not
    /// ready. If it was ready before, instances are launched without the entry.
    pub dropped: Vec<Dropped>,
}

/// An entry of `kubeReserved` or `systemReserved` whose expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    pub field: &'static str,
    pub key: String,
    pub error: EvaluationError,
}

/// Resolves the settings for one instance type. `pods` returns the type's pod capacity, given a `maxPods` setting or
/// none. If the feature gate is off, expressions are ignored.
pub fn resolve(
    parsed: &ParsedKubelet,
    gates: AwsFeatureGates,
    expressions: &Expressions,
    info: &TypeInfo,
    pods: impl Fn(Option<i32>) -> i64,
) -> Result<Resolved, EvaluationError> {
    let max_pods = match &parsed.max_pods {
        None => None,
        Some(MaxPods::Count(count)) => Some(*count),
        Some(MaxPods::Expression(_)) if !gates.node_class_cel => None,
        Some(MaxPods::Expression(expression)) => {
            Some(evaluated_max_pods(expression, expressions, &Variables::of(info, pods(None)))?)
        }
    };
    Ok(Resolved { max_pods, ..resolve_reserved(parsed, gates, expressions, info, || pods(max_pods)) })
}

/// Resolves only the reserved resources, for an instance type with the given pod capacity; `max_pods` stays `None`.
pub fn resolve_reserved(
    parsed: &ParsedKubelet,
    gates: AwsFeatureGates,
    expressions: &Expressions,
    info: &TypeInfo,
    pods: impl Fn() -> i64,
) -> Resolved {
    let mut resolved = Resolved::default();
    let mut variables = None;
    for (field, key, value) in parsed.reserved() {
        let quantity = if !is_expression(value) {
            Some(value.to_owned())
        } else if !gates.node_class_cel {
            None
        } else {
            let variables = variables.get_or_insert_with(|| Variables::of(info, pods()));
            match evaluated_reserved(field, key, value, expressions, variables) {
                Ok(amount) => Some(units::quantity(key, amount)),
                Err(error) => {
                    resolved.dropped.push(Dropped { field, key: key.to_owned(), error });
                    None
                }
            }
        };
        if let Some(quantity) = quantity {
            let values = match field {
                "kubeReserved" => &mut resolved.kube_reserved,
                _ => &mut resolved.system_reserved,
            };
            values.insert(key.to_owned(), quantity);
        }
    }
    resolved
}

/// Checks that every expression has a value for an instance type. A node class is ready only if this holds for all
/// instance types.
pub fn check_on_type(
    parsed: &ParsedKubelet,
    expressions: &Expressions,
    info: &TypeInfo,
    pods: impl Fn(Option<i32>) -> i64,
) -> Result<(), EvaluationError> {
    let gates = AwsFeatureGates { node_class_cel: true };
    let resolved = resolve(parsed, gates, expressions, info, pods)?;
    resolved.dropped.into_iter().next().map_or(Ok(()), |dropped| Err(dropped.error))
}

fn evaluated_max_pods(
    expression: &str,
    expressions: &Expressions,
    variables: &Variables,
) -> Result<i32, EvaluationError> {
    let (instance_type, expression): (Box<str>, Box<str>) =
        (variables.instance_type.as_str().into(), expression.into());
    match expressions.evaluate(&expression, variables) {
        Err(error) => Err(EvaluationError::MaxPods { instance_type, expression, error: Box::new(error) }),
        Ok(result) => match i32::try_from(result) {
            Ok(count) if count >= 0 => Ok(count),
            _ => Err(EvaluationError::MaxPodsOutOfRange { instance_type, expression, result }),
        },
    }
}

fn evaluated_reserved(
    field: &'static str,
    key: &str,
    expression: &str,
    expressions: &Expressions,
    variables: &Variables,
) -> Result<i64, EvaluationError> {
    let instance_type: Box<str> = variables.instance_type.as_str().into();
    let (key, expression): (Box<str>, Box<str>) = (key.into(), expression.into());
    match expressions.evaluate(&expression, variables) {
        Err(error) => {
            let error = Box::new(error);
            Err(EvaluationError::Reserved { instance_type, field, key, expression, error })
        }
        Ok(result) if result < 0 => {
            Err(EvaluationError::NegativeReserved { instance_type, field, key, expression, result })
        }
        Ok(result) => Ok(result),
    }
}

/// The settings for the instances of one launch template. `pods` is the pod capacity of their instance types, which is
/// used if `maxPods` is not a number. `cluster_dns` is the address of the cluster's DNS server.
pub fn settings(
    values: &KubeletValues,
    parsed: &ParsedKubelet,
    resolved: &Resolved,
    pods: i32,
    cluster_dns: Option<&str>,
) -> Kubelet {
    let max_pods = match parsed.max_pods {
        Some(MaxPods::Count(count)) => count,
        _ => pods,
    };
    let cluster_dns = match parsed.cluster_dns.is_empty() {
        true => cluster_dns.map(str::to_owned).into_iter().collect(),
        false => parsed.cluster_dns.clone(),
    };
    Kubelet {
        raw: values.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        cluster_dns,
        max_pods: Some(max_pods),
        pods_per_core: parsed.pods_per_core,
        system_reserved: resolved.system_reserved.clone(),
        kube_reserved: resolved.kube_reserved.clone(),
        eviction_hard: parsed.eviction_hard.clone(),
        eviction_soft: parsed.eviction_soft.clone(),
        eviction_soft_grace_period: parsed.eviction_soft_grace_period.clone(),
        eviction_max_pod_grace_period_seconds: parsed.eviction_max_pod_grace_period,
        image_gc_high_threshold_percent: parsed.image_gc_high_threshold_percent,
        image_gc_low_threshold_percent: parsed.image_gc_low_threshold_percent,
        cpu_cfs_quota: parsed.cpu_cfs_quota,
    }
}
