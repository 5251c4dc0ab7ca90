//! The fix of a removable blocker of a pod: text and patch.
//!
//! A patch replaces a list completely. So if two fixes change the same object, the patch of the second one contains
//! both changes.

use std::collections::BTreeMap;

use karpenter_model::taints::Taint;
use karpenter_view::{Fix, ObjectRef, PatchType};
use serde_json::{Value, json};

use super::lift::{Addition, Lift};
use crate::format::quantity;
use crate::input::{Facts, PoolFacts, WorkloadFacts};

/// Writes fixes in the order of the blockers.
pub(crate) struct FixWriter<'a> {
    facts: &'a Facts,
    owner: &'a ObjectRef,
    workload: WorkloadFacts,
    pools: BTreeMap<String, PoolFacts>,
}

impl<'a> FixWriter<'a> {
    pub(crate) fn new(facts: &'a Facts, owner: &'a ObjectRef) -> Self {
        let workload = facts.workloads.get(owner).cloned().unwrap_or_default();
        Self { facts, owner, workload, pools: facts.pools.clone() }
    }

    pub(crate) fn fix(&mut self, lift: &Lift) -> Fix {
        let owner = self.owner;
        match lift {
            Lift::NodePoolReady { pool } => self.ready(pool),
            Lift::Toleration { taint } => {
                let (toleration, text) = toleration(taint);
                self.workload.tolerations.push(toleration);
                let text = format!("add to {owner}, {}: tolerations: [{text}]", template_path(owner));
                self.of_template(text, json!({"tolerations": self.workload.tolerations}), true)
            }
            Lift::Label { key, value: Some(value) } => {
                let text = format!("set {key} to {value} in the nodeSelector of {owner}");
                self.of_template(text, json!({"nodeSelector": {&**key: &**value}}), false)
            }
            Lift::Label { key, value: None } => {
                let text = format!(
                    "remove {key} from the nodeSelector of {owner}, or add the label to the template of a NodePool"
                );
                self.of_template(text, json!({"nodeSelector": {&**key: null}}), false)
            }
            Lift::RenamedLabel { key, to } => {
                let value = self.workload.node_selector.get(&**key).cloned().unwrap_or_default();
                let text = format!("write {to} instead of {key} in the nodeSelector of {owner}");
                self.of_template(text, json!({"nodeSelector": {&**key: null, &**to: value}}), false)
            }
            Lift::Widen { pool, additions, instance_type } => {
                let what = match instance_type {
                    Some(name) => name.to_string(),
                    None => additions.iter().map(described).collect::<Vec<_>>().join(" and "),
                };
                let text = format!("allow {what} in spec.template.spec.requirements of NodePool {pool}");
                let patch = self.widened(pool, additions);
                Fix {
                    text,
                    object: Some(ObjectRef::cluster_scoped("NodePool", &**pool)),
                    patch_type: patch.as_ref().map(|_| PatchType::Merge),
                    patch,
                }
            }
            Lift::Requests { amounts } => {
                let list: Vec<String> = amounts
                    .iter()
                    .map(|(name, amount)| format!("the {name} request to {}", quantity(name, *amount)))
                    .collect();
                let text = format!("lower {} in {owner}", list.join(" and "));
                let requests: serde_json::Map<String, Value> = amounts
                    .iter()
                    .map(|(name, amount)| (name.to_string(), json!(quantity(name, *amount))))
                    .collect();
                match self.workload.containers.as_slice() {
                    [container] => {
                        let spec =
                            json!({"containers": [{"name": container, "resources": {"requests": requests}}]});
                        self.of_template(text, spec, false)
                    }
                    _ => Fix { text, object: Some(owner.clone()), patch: None, patch_type: None },
                }
            }
            Lift::Limit { pool, resource, amount } => limit_fix(pool, resource, *amount),
            Lift::Spread { key } => {
                let text = format!(
                    "add a domain of {key} to a NodePool, or set whenUnsatisfiable: ScheduleAnyway in {owner}"
                );
                let constraint = json!({"topologyKey": &**key, "whenUnsatisfiable": "ScheduleAnyway"});
                self.of_template(text, json!({"topologySpreadConstraints": [constraint]}), false)
            }
        }
    }

    /// The fix that changes the pod template. In pods and jobs most fields of the template are immutable.
    fn of_template(&self, text: String, spec: Value, is_mutable_in_pods: bool) -> Fix {
        let patch = match self.owner.kind.as_str() {
            "Pod" => is_mutable_in_pods.then(|| json!({"spec": spec})),
            "Job" => None,
            "CronJob" => Some(json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})),
            _ => Some(json!({"spec": {"template": {"spec": spec}}})),
        };
        let text = match &patch {
            Some(_) => text,
            None => format!("{text}; the field is immutable, so the object has to be created again"),
        };
        let patch_type = patch.as_ref().map(|_| PatchType::Strategic);
        Fix { text, object: Some(self.owner.clone()), patch, patch_type }
    }

    fn widened(&mut self, pool: &str, additions: &[Addition]) -> Option<Value> {
        let facts = self.pools.get_mut(pool)?;
        let mut requirements = facts.requirements.clone();
        for addition in additions {
            let entry = requirements.iter_mut().find(|one| one["key"] == *addition.key)?;
            let operator = entry["operator"].as_str()?.to_owned();
            let values = entry["values"].as_array_mut()?;
            match operator.as_str() {
                "In" => {
                    for value in &addition.values {
                        let value = json!(&**value);
                        if !values.contains(&value) {
                            values.push(value);
                        }
                    }
                }
                "NotIn" => values.retain(|value| !addition.values.iter().any(|one| *value == **one)),
                _ => return None,
            }
        }
        facts.requirements.clone_from(&requirements);
        Some(json!({"spec": {"template": {"spec": {"requirements": requirements}}}}))
    }

    fn ready(&self, pool: &str) -> Fix {
        not_ready_fix(self.facts, pool)
    }
}

/// The change that makes a NodePool ready.
pub(crate) fn not_ready_fix(facts: &Facts, pool: &str) -> Fix {
    let of_pool = facts.pools.get(pool);
    let class = of_pool.and_then(|pool| pool.node_class.as_ref());
    let object = Some(ObjectRef::cluster_scoped("NodePool", pool));
    let Some(class) = class else {
        let text = format!("set spec.template.spec.nodeClassRef of NodePool {pool}");
        return Fix { text, object, patch: None, patch_type: None };
    };
    let others: Vec<&ObjectRef> = facts.node_classes.iter().filter(|one| one.kind == class.kind).collect();
    if others.iter().any(|one| one.name == class.name) {
        let text = format!("correct {class}: its condition Ready has the cause");
        return Fix { text, object: Some(class.clone()), patch: None, patch_type: None };
    }
    let names: Vec<&str> = others.iter().map(|one| one.name.as_str()).collect();
    let text = match names.as_slice() {
        [] => format!("create {class}"),
        names => format!(
            "create {class}, or correct spec.template.spec.nodeClassRef.name of NodePool {pool}; existing: {}",
            names.join(", ")
        ),
    };
    let patch = match names.as_slice() {
        [only] => Some(json!({"spec": {"template": {"spec": {"nodeClassRef": {"name": only}}}}})),
        _ => None,
    };
    Fix { text, object, patch_type: patch.as_ref().map(|_| PatchType::Merge), patch }
}

/// The fix of an exceeded limit.
pub(crate) fn limit_fix(pool: &str, resource: &str, amount: Option<i64>) -> Fix {
    let object = Some(ObjectRef::cluster_scoped("NodePool", pool));
    match amount {
        Some(amount) => {
            let amount = quantity(resource, amount);
            Fix {
                text: format!("raise spec.limits.{resource} of NodePool {pool} to {amount}"),
                object,
                patch: Some(json!({"spec": {"limits": {resource: amount}}})),
                patch_type: Some(PatchType::Merge),
            }
        }
        None => Fix {
            text: format!("raise spec.limits.{resource} of NodePool {pool}"),
            object,
            patch: None,
            patch_type: None,
        },
    }
}

fn described(addition: &Addition) -> String {
    let values: Vec<&str> = addition.values.iter().map(|value| &**value).collect();
    format!("{} {}", addition.key, values.join(", "))
}

fn template_path(owner: &ObjectRef) -> &'static str {
    match owner.kind.as_str() {
        "Pod" => "spec",
        "CronJob" => "spec.jobTemplate.spec.template.spec",
        _ => "spec.template.spec",
    }
}

fn toleration(taint: &Taint) -> (Value, String) {
    let (key, value, effect) = (&*taint.key, &*taint.value, taint.effect.as_str());
    if value.is_empty() {
        let text = format!("{{key: {key}, operator: Exists, effect: {effect}}}");
        (json!({"key": key, "operator": "Exists", "effect": effect}), text)
    } else {
        let text = format!("{{key: {key}, value: {value}, effect: {effect}}}");
        (json!({"key": key, "operator": "Equal", "value": value, "effect": effect}), text)
    }
}
