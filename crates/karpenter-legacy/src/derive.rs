//! Derives v1 objects from the Provisioners and AWSNodeTemplates of a cluster, and computes the status of both kinds.
//!
//! Derived objects are what [`convert`](crate::convert) returns, plus an owner reference, with three differences:
//! expiration stays graceful; selectors may combine ids with tags; and if a v1 object that was not derived has the
//! name, this is an error. The caller compares the result with the objects in the cluster and writes what differs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::convert::{AWS_NODE_TEMPLATE, Converted, PROVISIONER, convert, kind_of, named};
use crate::finding::{Code, Finding, Severity};
use crate::metadata::{name_of, title};
use crate::names;
use crate::options::{Expiration, MixedSelectors, Options};

/// The label that marks derived objects.
const DERIVED_FROM: &str = "compatibility.karpenter.sh/derived-from";

/// The names of v1 objects in the cluster that were not derived. Derived objects cannot have these names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    pub pools: BTreeSet<String>,
    pub classes: BTreeSet<String>,
}

/// Why no v1 objects are derived from a v1alpha5 object: reason and message of its condition `Active`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: String,
}

/// Result of [`derive`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Derived {
    /// The derived v1 objects with label and owner reference, each with the index of its owner in the input.
    pub objects: Vec<(usize, Value)>,
    /// For each object from which nothing is derived, by index in the input: the reason.
    pub refusals: BTreeMap<usize, Refusal>,
    /// For each Provisioner that depends on an AWSNodeTemplate: the indexes of the two in the input.
    pub depends_on: BTreeMap<usize, usize>,
}

impl Derived {
    /// Records a refusal for an object and for the Provisioners that depend on it. If an object has a refusal already,
    /// it is kept.
    pub fn refuse(&mut self, objects: &[Value], input: usize, refusal: Refusal) {
        let Refusal { reason, message } = self.refusals.entry(input).or_insert(refusal).clone();
        let message = format!("{}: {message}", title(&objects[input]));
        let dependents = self.depends_on.iter().filter(|(_, needed)| **needed == input);
        for (dependent, _) in dependents {
            self.refusals.entry(*dependent).or_insert_with(|| Refusal { reason, message: message.clone() });
        }
    }
}

/// Derives v1 objects from all Provisioners and AWSNodeTemplates that are not terminating.
pub fn derive(objects: &[Value], foreign: &Foreign, options: &Options) -> Derived {
    let options = Options {
        expiration: Expiration::Graceful,
        mixed_selectors: MixedSelectors::Annotated,
        ..options.clone()
    };
    let is_terminating =
        |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    // Indexes must stay the same, so terminating objects are replaced by empty ones instead of being removed.
    let inputs: Vec<Value> = objects
        .iter()
        .map(|object| if is_terminating(object) { json!({}) } else { object.clone() })
        .collect();
    let converted = convert(&inputs, &options);
    let mut derived = Derived { depends_on: depends_on(&inputs, &converted), ..Derived::default() };
    // Findings about AWSNodeTemplates are handled first, so that Provisioners that depend on them report them.
    let is_template = |input: usize| kind_of(&inputs[input]) == AWS_NODE_TEMPLATE;
    let (of_templates, of_others): (Vec<&Finding>, Vec<&Finding>) =
        converted.findings.iter().partition(|finding| is_template(finding.input));
    for finding in of_templates.into_iter().chain(of_others) {
        if let Some(refusal) = refusal(finding) {
            derived.refuse(objects, finding.input, refusal);
        }
    }
    for object in &converted.objects {
        let names = if object.value["kind"] == "NodePool" { &foreign.pools } else { &foreign.classes };
        if names.contains(name_of(&object.value)) {
            let message = format!(
                "{} exists and is not derived from this object; rename or delete one of them",
                title(&object.value)
            );
            derived.refuse(objects, object.input, Refusal { reason: "NameConflict", message });
        }
    }
    for object in converted.objects {
        let owner = &objects[object.input];
        if !derived.refusals.contains_key(&object.input)
            && [PROVISIONER, AWS_NODE_TEMPLATE].contains(&kind_of(owner))
        {
            derived.objects.push((object.input, owned(object.value, owner)));
        }
    }
    derived
}

/// Which AWSNodeTemplate each Provisioner depends on. A Provisioner with its own node class depends on none, because
/// that class may be a copy.
fn depends_on(inputs: &[Value], converted: &Converted) -> BTreeMap<usize, usize> {
    let templates = named(inputs, AWS_NODE_TEMPLATE);
    let has_own_class = |input: usize| {
        converted.objects.iter().any(|one| one.input == input && one.value["kind"] == "EC2NodeClass")
    };
    let provisioners = inputs.iter().enumerate().filter(|(_, input)| kind_of(input) == PROVISIONER);
    provisioners
        .filter(|(at, _)| !has_own_class(*at))
        .filter_map(|(at, input)| {
            let template = input.pointer("/spec/providerRef/name").and_then(Value::as_str)?;
            Some((at, *templates.get(template)?))
        })
        .collect()
}

fn refusal(finding: &Finding) -> Option<Refusal> {
    let reason = match (finding.code, finding.code.severity()) {
        (Code::NeverValid, _) => "Invalid",
        (Code::ClassNotInInput | Code::KubeletWithoutClass, _) => "TemplateNotFound",
        (Code::NameTaken, _) => "NameConflict",
        (_, Severity::Error) => "Unsupported",
        _ => return None,
    };
    let field = if finding.field.is_empty() { String::new() } else { format!("{}: ", finding.field) };
    let message = format!("{}: {field}{} (fix: {})", finding.code.as_str(), finding.message, finding.fix);
    Some(Refusal { reason, message })
}

/// Adds the label of derived objects, and an owner reference to `owner`.
fn owned(mut object: Value, owner: &Value) -> Value {
    let origin = if kind_of(owner) == PROVISIONER { "provisioner" } else { "awsnodetemplate" };
    let mut labels =
        object.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    labels.insert(DERIVED_FROM.to_owned(), json!(origin));
    let (version, kind) = kind_of(owner);
    let reference = json!({
        "apiVersion": version,
        "kind": kind,
        "name": name_of(owner),
        "uid": owner.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    });
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), Value::Object(labels));
        metadata.insert("ownerReferences".to_owned(), json!([reference]));
    }
    object
}

/// The name of the object that is derived from an object with this name.
pub fn derived_name(name: &str) -> String {
    names::for_label(name)
}

/// The status of a Provisioner: the condition `Active`, and the resources in the status of its NodePool.
pub fn provisioner_status(refusal: Option<&Refusal>, pool: Option<&Value>, old: &Value, now: &str) -> Value {
    let ready = pool.and_then(|pool| condition(pool, "Ready"));
    let text = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default();
    let (status, reason, message) = match (refusal, text("status")) {
        (Some(refusal), _) if pool.is_some() => {
            let message = format!("{}; its NodePool is kept unchanged until this is fixed", refusal.message);
            ("False", refusal.reason, message)
        }
        (Some(refusal), _) => ("False", refusal.reason, refusal.message.clone()),
        (None, "True") => ("True", "Active", String::new()),
        (None, "False") => ("False", "NodeClassNotReady", text("message").to_owned()),
        (None, _) => {
            ("Unknown", "NotReconciled", "the derived NodePool has no Ready condition yet".to_owned())
        }
    };
    let resources = pool.and_then(|pool| pool.pointer("/status/resources")).and_then(Value::as_object);
    let is_shown = |name: &str, amount: &Value| {
        name != "nodes" && !matches!(amount.as_str(), Some("0")) && amount.as_i64() != Some(0)
    };
    let resources: Map<String, Value> = resources
        .into_iter()
        .flatten()
        .filter(|(name, amount)| is_shown(name, amount))
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    json!({"conditions": [active(status, reason, &message, old, now)], "resources": resources})
}

fn active(status: &str, reason: &str, message: &str, old: &Value, now: &str) -> Value {
    let before = condition(&json!({"status": old}), "Active").cloned();
    let since = before
        .as_ref()
        .filter(|before| before["status"] == status)
        .and_then(|before| before["lastTransitionTime"].as_str())
        .unwrap_or(now)
        .to_owned();
    json!({"type": "Active", "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// The status of an AWSNodeTemplate: what the derived EC2NodeClass resolved, in the fields of v1alpha1.
pub fn template_status(class: Option<&Value>) -> Value {
    let reduced = |list: &str, fields: &[&str]| -> Vec<Value> {
        let items =
            class.and_then(|class| class.pointer(&format!("/status/{list}"))).and_then(Value::as_array);
        let keep = |item: &Value| {
            let fields =
                fields.iter().filter_map(|field| Some(((*field).to_owned(), item.get(*field)?.clone())));
            Value::Object(fields.collect())
        };
        items.into_iter().flatten().map(keep).collect()
    };
    json!({
        "subnets": reduced("subnets", &["id", "zone"]),
        "securityGroups": reduced("securityGroups", &["id", "name"]),
        "amis": reduced("amis", &["id", "name", "requirements"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(name: &str, uid: &str) -> Value {
        json!({
            "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": name, "uid": uid},
            "spec": {"instanceProfile": "p", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}},
        })
    }

    fn provisioner(name: &str, template: &str, more: Value) -> Value {
        let mut spec = json!({"providerRef": {"name": template}, "ttlSecondsUntilExpired": 600});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": name, "uid": "u-1"}, "spec": spec})
    }

    fn derived(objects: &[Value]) -> Derived {
        derive(objects, &Foreign::default(), &Options::default())
    }

    #[test]
    fn derived_objects_are_owned_labelled_and_graceful() {
        let derived = derived(&[provisioner("default", "t", json!({})), template("t", "u-2")]);
        assert!(derived.refusals.is_empty(), "{:?}", derived.refusals);
        let [(0, pool), (1, class)] = &derived.objects[..] else { panic!("{derived:?}") };
        assert_eq!(pool["metadata"]["labels"][DERIVED_FROM], "provisioner");
        assert_eq!(pool["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(pool["metadata"]["ownerReferences"][0]["kind"], "Provisioner");
        assert_eq!(pool["metadata"]["annotations"][crate::TTL_UNTIL_EXPIRED_ANNOTATION], "600");
        assert_eq!(pool["spec"]["template"]["spec"]["expireAfter"], "Never");
        assert_eq!(class["metadata"]["labels"][DERIVED_FROM], "awsnodetemplate");
        assert_eq!(class["metadata"]["ownerReferences"][0]["uid"], "u-2");
    }

    #[test]
    fn selectors_with_ids_and_tags_are_derived() {
        let mut mixed = template("t", "u");
        mixed["spec"]["subnetSelector"] = json!({"aws-ids": "subnet-1,subnet-2", "team": "a"});
        mixed["spec"]["securityGroupSelector"] = json!({"aws::ids": "sg-1", "team": "a"});
        let derived = derived(&[mixed]);
        assert!(derived.refusals.is_empty(), "{:?}", derived.refusals);
        let class = &derived.objects[0].1;
        assert_eq!(class["spec"]["subnetSelectorTerms"], json!([{"tags": {"team": "a"}}]));
        assert_eq!(class["metadata"]["annotations"][crate::SUBNET_IDS_ANNOTATION], "subnet-1,subnet-2");
        assert_eq!(class["metadata"]["annotations"][crate::SECURITY_GROUP_IDS_ANNOTATION], "sg-1");
    }

    #[test]
    fn invalid_object_affects_only_itself() {
        let wrong = provisioner("wrong", "t", json!({"weight": 200}));
        let lost = provisioner("lost", "nowhere", json!({}));
        let unmanaged = json!({
            "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": {"name": "lt"},
            "spec": {"subnetSelector": {"a": "b"}, "launchTemplate": "mine"},
        });
        let derived = derived(&[wrong, template("t", "u"), lost, unmanaged]);
        let reasons: Vec<(usize, &str)> =
            derived.refusals.iter().map(|(at, refusal)| (*at, refusal.reason)).collect();
        assert_eq!(reasons, [(0, "Invalid"), (2, "TemplateNotFound"), (3, "Unsupported")]);
        assert_eq!(derived.objects.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1]);
        assert!(derived.refusals[&0].message.contains("spec.weight"), "{:?}", derived.refusals[&0]);
    }

    #[test]
    fn refusal_of_template_is_reported_on_dependent_provisioners() {
        let launch_template = json!({"subnetSelector": {"a": "b"}, "launchTemplate": "mine"});
        let endless =
            json!({"instanceProfile": "p", "subnetSelector": {}, "securityGroupSelector": {"a": "b"}});
        for (spec, reason, text) in
            [(launch_template, "Unsupported", "E16"), (endless, "Invalid", "spec.subnetSelector")]
        {
            let mut wrong = template("t", "u");
            wrong["spec"] = spec;
            let plain = provisioner("plain", "t", json!({}));
            let with_kubelet = provisioner("kubelet", "t", json!({"kubeletConfiguration": {"maxPods": 20}}));
            let derived = derived(&[plain, with_kubelet, wrong]);
            assert!(derived.objects.is_empty(), "{:?}", derived.objects);
            for position in 0..2 {
                let refusal = &derived.refusals[&position];
                assert_eq!(refusal.reason, reason);
                assert!(refusal.message.starts_with("AWSNodeTemplate t: "), "{refusal:?}");
                assert!(refusal.message.contains(text), "{refusal:?}");
            }
        }
    }

    #[test]
    fn existing_class_that_was_not_derived_is_a_name_conflict() {
        let foreign = Foreign { pools: BTreeSet::new(), classes: ["t".to_owned()].into() };
        let objects = [
            provisioner("default", "t", json!({})),
            provisioner("apart", "t", json!({"kubeletConfiguration": {"maxPods": 20}})),
            template("t", "u"),
        ];
        let derived = derive(&objects, &foreign, &Options::default());
        let refusal = &derived.refusals[&0];
        assert_eq!(refusal.reason, "NameConflict");
        assert!(refusal.message.contains("EC2NodeClass t exists"), "{refusal:?}");
        // The class of this Provisioner is a copy of the AWSNodeTemplate's class, with a name that is not in use.
        let kept: Vec<(usize, &str)> =
            derived.objects.iter().map(|(at, object)| (*at, name_of(object))).collect();
        assert_eq!(kept, [(1, "apart"), (1, "t-apart")]);
    }

    #[test]
    fn existing_pool_is_a_name_conflict_and_terminating_template_is_ignored() {
        let foreign = Foreign { pools: ["default".to_owned()].into(), classes: BTreeSet::new() };
        let mut leaving = template("t", "u");
        let objects = [provisioner("default", "t", json!({})), leaving.clone()];
        let conflict = derive(&objects, &foreign, &Options::default());
        assert_eq!(conflict.refusals[&0].reason, "NameConflict");
        assert_eq!(conflict.objects.len(), 1, "the name of the class is unused");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let left = derived(&[provisioner("default", "t", json!({})), leaving]);
        assert_eq!(left.refusals[&0].reason, "TemplateNotFound");
        assert!(left.objects.is_empty());
    }

    #[test]
    fn provisioner_status_reflects_its_pool() {
        let pool = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "resources": {"cpu": "4", "memory": "0", "nodes": "1"},
        }});
        let status = provisioner_status(None, Some(&pool), &json!({}), "now");
        assert_eq!(status["resources"], json!({"cpu": "4"}));
        assert_eq!(
            (&status["conditions"][0]["status"], &status["conditions"][0]["lastTransitionTime"]),
            (&json!("True"), &json!("now"))
        );
        let later = provisioner_status(None, Some(&pool), &status, "later");
        assert_eq!(later["conditions"][0]["lastTransitionTime"], "now", "the condition status is unchanged");
        let refusal = Refusal { reason: "Invalid", message: "no".to_owned() };
        let refused = provisioner_status(Some(&refusal), None, &status, "later");
        assert_eq!(refused["conditions"][0]["reason"], "Invalid");
        assert_eq!(refused["conditions"][0]["lastTransitionTime"], "later");
        let kept = provisioner_status(Some(&refusal), Some(&pool), &status, "later");
        assert_eq!(
            kept["conditions"][0]["message"],
            "no; its NodePool is kept unchanged until this is fixed"
        );
        assert_eq!(provisioner_status(None, None, &json!({}), "now")["conditions"][0]["status"], "Unknown");
    }

    #[test]
    fn template_status_reflects_its_class() {
        let class = json!({"status": {
            "subnets": [{"id": "subnet-1", "zone": "a", "zoneID": "use1-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "nodes"}],
            "amis": [{"id": "ami-1", "name": "image", "requirements": [], "deprecated": true}],
        }});
        let status = template_status(Some(&class));
        assert_eq!(status["subnets"], json!([{"id": "subnet-1", "zone": "a"}]));
        assert_eq!(status["amis"], json!([{"id": "ami-1", "name": "image", "requirements": []}]));
        assert_eq!(template_status(None)["subnets"], json!([]));
    }
}
