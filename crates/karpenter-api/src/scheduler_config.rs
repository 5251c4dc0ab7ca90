//! The configuration of the cluster's kube-scheduler: default topology spread constraints for pods that state none.
//!
//! Parses and validates the document passed with `--scheduler-config`. An unknown field is an error, because
//! kube-scheduler would respect it and plans would not. Another module decides to which pods the constraints apply.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::one_line;
use crate::runtime::qualified_name_problem;

/// The validated settings. By default they are empty, and pods get no constraints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulerConfig {
    /// Constraints for pods that state none; their selector is derived from each pod.
    pub default_constraints: Vec<TopologySpreadConstraint>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchedulerConfigError {
    #[error("the scheduler configuration cannot be read: {message}")]
    Decode { message: String },
    #[error("podTopologySpread.defaultConstraints[{index}]{problem}")]
    Constraint { index: usize, problem: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    pod_topology_spread: Option<PodTopologySpread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodTopologySpread {
    #[serde(default)]
    default_constraints: Option<Vec<Constraint>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Constraint {
    #[serde(default)]
    max_skew: i32,
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    when_unsatisfiable: String,
    #[serde(default)]
    min_domains: Option<i32>,
    #[serde(default)]
    node_affinity_policy: Option<String>,
    #[serde(default)]
    node_taints_policy: Option<String>,
    /// The parser accepts this field so that validation can explain why it must not be set.
    #[serde(default)]
    label_selector: Option<IgnoredAny>,
    #[serde(default)]
    match_label_keys: Option<Vec<String>>,
}

impl SchedulerConfig {
    /// Parses YAML or JSON; an empty text means default settings.
    pub fn parse(text: &str) -> Result<Self, SchedulerConfigError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let document: Option<Document> = serde_saphyr::from_str(text).map_err(|error| {
            SchedulerConfigError::Decode { message: one_line(&error.to_string()).into_owned() }
        })?;
        let spread = document.and_then(|document| document.pod_topology_spread);
        let constraints = spread.and_then(|spread| spread.default_constraints).unwrap_or_default();
        for (index, constraint) in constraints.iter().enumerate() {
            if let Some(problem) = problem_of(constraint) {
                return Err(SchedulerConfigError::Constraint { index, problem });
            }
            let is_same = |other: &Constraint| {
                (&other.topology_key, &other.when_unsatisfiable)
                    == (&constraint.topology_key, &constraint.when_unsatisfiable)
            };
            if let Some(first) = constraints[..index].iter().position(is_same) {
                let Constraint { topology_key, when_unsatisfiable, .. } = constraint;
                let problem = format!(
                    " is a duplicate of [{first}]: {topology_key}, {when_unsatisfiable} is there already"
                );
                return Err(SchedulerConfigError::Constraint { index, problem });
            }
        }
        Ok(Self { default_constraints: constraints.into_iter().map(Constraint::finish).collect() })
    }

    pub fn is_empty(&self) -> bool {
        self.default_constraints.is_empty()
    }
}

impl Constraint {
    fn finish(self) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: self.max_skew,
            topology_key: self.topology_key,
            when_unsatisfiable: self.when_unsatisfiable,
            min_domains: self.min_domains,
            node_affinity_policy: self.node_affinity_policy,
            node_taints_policy: self.node_taints_policy,
            label_selector: None,
            match_label_keys: None,
        }
    }
}

/// What is wrong with a constraint, as text that follows its path in the document; `None` if it is valid.
fn problem_of(constraint: &Constraint) -> Option<String> {
    let Constraint { topology_key, when_unsatisfiable, .. } = constraint;
    if constraint.max_skew <= 0 {
        return Some(".maxSkew must be greater than 0".to_owned());
    }
    if topology_key.is_empty() {
        return Some(".topologyKey must be set".to_owned());
    }
    if let Some(problem) = qualified_name_problem(topology_key) {
        return Some(format!(".topologyKey {topology_key:?} is not a valid label name, {problem}"));
    }
    if !matches!(when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
        return Some(format!(
            ".whenUnsatisfiable {when_unsatisfiable:?} must be one of \"DoNotSchedule\" or \"ScheduleAnyway\""
        ));
    }
    if constraint.label_selector.is_some() {
        return Some(".labelSelector must not be set, as selectors are deduced for each pod".to_owned());
    }
    if constraint.match_label_keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
        return Some(
            ".matchLabelKeys must not be set, as it has no effect on default constraints".to_owned(),
        );
    }
    None
}
