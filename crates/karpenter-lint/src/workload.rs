//! The properties of a workload that the rules need.

use std::collections::BTreeSet;

use karpenter_model::labels;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};
use serde_json::Value;

use crate::pool::{Pool, read_requirement};
use crate::{list, pairs, text, title};

pub(crate) struct Workload<'a> {
    pub(crate) input: usize,
    pub(crate) object: String,
    pub(crate) value: &'a Value,
    /// The spec of the workload's pods; `path` is where the object has it.
    pub(crate) pod: &'a Value,
    pub(crate) path: &'static str,
    pub(crate) is_daemon: bool,
    /// What the pod requires of its node: at least one alternative, of which one must be met.
    pub(crate) wanted: Vec<Requirements>,
    pub(crate) tolerations: Vec<Toleration>,
    /// The extended resources that the pods request, such as nvidia.com/gpu.
    pub(crate) extended: BTreeSet<&'a str>,
}

impl<'a> Workload<'a> {
    pub(crate) fn read(input: usize, value: &'a Value) -> Option<Self> {
        let (pointer, path) = match (text(value, "/kind"), text(value, "/apiVersion")) {
            ("Pod", "v1") => ("/spec", "spec"),
            ("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet", "apps/v1") | ("Job", "batch/v1") => {
                ("/spec/template/spec", "spec.template.spec")
            }
            ("CronJob", "batch/v1") => {
                ("/spec/jobTemplate/spec/template/spec", "spec.jobTemplate.spec.template.spec")
            }
            _ => return None,
        };
        let pod = value.pointer(pointer)?;
        Some(Self {
            input,
            object: title(value),
            value,
            pod,
            path,
            is_daemon: text(value, "/kind") == "DaemonSet",
            wanted: node_requirements(pod, false),
            tolerations: list(pod, "/tolerations").iter().map(read_toleration).collect(),
            extended: extended_resources(pod),
        })
    }

    /// The workload as it is in a cluster with nodes of Provisioners, which also have label keys with dots.
    pub(crate) fn with_dotted_labels(self) -> Self {
        Self { wanted: node_requirements(self.pod, true), ..self }
    }

    /// The metadata of the workload's pods.
    pub(crate) fn pod_metadata(&self) -> Option<&'a Value> {
        let pointer = format!("/{}", self.path.replace('.', "/"));
        self.value.pointer(&format!("{}metadata", pointer.strip_suffix("spec")?))
    }

    pub(crate) fn subject(&self) -> (usize, &str) {
        (self.input, &self.object)
    }

    pub(crate) fn tolerates(&self, pool: &Pool<'_>) -> bool {
        self.tolerates_all(pool.repelling_taints.iter().cloned())
    }

    pub(crate) fn tolerates_all(&self, mut taints: impl Iterator<Item = Taint>) -> bool {
        taints.all(|taint| self.tolerations.iter().any(|one| one.tolerates(&taint)))
    }

    /// The path of the field in which the pod has its requirements on nodes.
    pub(crate) fn selector_field(&self) -> String {
        let part =
            if self.pod.get("nodeSelector").is_some() { "nodeSelector" } else { "affinity.nodeAffinity" };
        format!("{}.{part}", self.path)
    }
}

/// `has_dots` states whether nodes have v1alpha5's label keys with dots; otherwise these keys are unknown.
fn node_requirements(pod: &Value, has_dots: bool) -> Vec<Requirements> {
    let undot = |mut requirement: Requirement| {
        if let Some(key) = labels::undotted(&requirement.key).filter(|_| has_dots) {
            requirement.key = key.into();
        }
        requirement
    };
    let selector: Requirements = pairs(pod, "/nodeSelector")
        .map(|(key, value)| undot(Requirement::in_values(labels::normalize(key), [value])))
        .collect();
    let terms =
        list(pod, "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
    if terms.is_empty() {
        return vec![selector];
    }
    let with_term = |term: &Value| {
        let mut all = selector.clone();
        for requirement in list(term, "/matchExpressions").iter().filter_map(read_requirement) {
            all.add(undot(requirement));
        }
        all
    };
    terms.iter().map(with_term).collect()
}

fn read_toleration(value: &Value) -> Toleration {
    let operator = match text(value, "/operator") {
        "Exists" => TolerationOperator::Exists,
        _ => TolerationOperator::Equal(text(value, "/value").into()),
    };
    Toleration { key: text(value, "/key").into(), operator, effect: Effect::parse(text(value, "/effect")) }
}

/// The extended resources, which are those with a domain in their name.
fn extended_resources(pod: &Value) -> BTreeSet<&str> {
    let containers = list(pod, "/containers").iter().chain(list(pod, "/initContainers"));
    let amounts =
        containers.flat_map(|one| ["/resources/limits", "/resources/requests"].map(|at| one.pointer(at)));
    let names = amounts.flatten().filter_map(Value::as_object).flat_map(|amounts| {
        amounts.iter().filter(|(_, amount)| !is_zero(amount)).map(|(name, _)| name.as_str())
    });
    names.filter(|name| name.contains('/')).collect()
}

pub(crate) fn is_zero(amount: &Value) -> bool {
    amount.as_i64() == Some(0) || amount.as_str() == Some("0")
}
