//! Converts v1beta1 objects to v1. The kinds are similar; fields whose default differs in v1 are set explicitly.
//!
//! In v1, kubelet settings belong to the node class instead of the NodePool. If NodePools with different kubelet
//! settings share a class, the class is split into one per distinct settings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::class;
use crate::convert::{BETA_NODE_CLASS, BETA_NODE_POOL, kind_of, named, named_metadata, node_class};
use crate::finding::{Code, Report};
use crate::metadata::{carried_over, name_of};
use crate::names;
use crate::options::Options;
use crate::read;
use crate::rules;
use crate::types::{BetaEC2NodeClassSpec, BetaNodeClassRef, BetaNodePoolSpec, KubeletConfiguration};

const ALIAS_VERSION: &str = "compatibility.karpenter.k8s.aws/v1-alias-version";
const ALIAS_FAMILIES: [&str; 5] = ["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"];

/// For each NodePool the class that it uses, and for each class its kubelet settings.
pub(crate) struct Classes {
    /// The name of the class that each NodePool uses, by the NodePool's index in the input.
    class_of_pool: BTreeMap<usize, String>,
    /// The resulting classes with their kubelet settings, by the name of the class in the input that they come from.
    variants: BTreeMap<String, Vec<Variant>>,
    /// The names of the classes in the input.
    present: BTreeSet<String>,
}

/// A NodePool that uses a class, as index in the input, name, and kubelet settings.
type User<'a> = (usize, &'a str, Option<KubeletConfiguration>);

/// The name of a resulting class, and its kubelet settings.
type Variant = (String, Option<KubeletConfiguration>);

impl Classes {
    pub(crate) fn new(inputs: &[Value]) -> Self {
        let classes = named(inputs, BETA_NODE_CLASS);
        let present: BTreeSet<String> = classes.into_keys().collect();
        let mut taken = present.clone();
        let mut class_of_pool = BTreeMap::new();
        let mut variants: BTreeMap<String, Vec<Variant>> = BTreeMap::new();
        let mut users: BTreeMap<String, Vec<User<'_>>> = BTreeMap::new();
        for (index, input) in inputs.iter().enumerate().filter(|(_, input)| kind_of(input) == BETA_NODE_POOL)
        {
            let Some(spec) = spec_without_findings(input) else { continue };
            let Some(reference) = spec.template.spec.node_class_ref else { continue };
            let kubelet =
                spec.template.spec.kubelet.filter(|kubelet| *kubelet != KubeletConfiguration::default());
            users.entry(reference.name).or_default().push((index, name_of(input), kubelet));
        }
        for (class, mut pools) in users {
            // The original name of the class goes to NodePools without kubelet settings; if there are none, to the
            // first NodePool.
            pools.sort_by_key(|(index, _, kubelet)| (kubelet.is_some(), *index));
            let known = variants.entry(class.clone()).or_default();
            for (index, pool, kubelet) in pools {
                let name = match known.iter().find(|(_, other)| *other == kubelet) {
                    Some((name, _)) => name.clone(),
                    None if known.is_empty() => class.clone(),
                    None => names::unused(&format!("{class}-{pool}"), &taken),
                };
                if !known.iter().any(|(other, _)| *other == name) {
                    taken.insert(name.clone());
                    known.push((name.clone(), kubelet));
                }
                class_of_pool.insert(index, name);
            }
        }
        Self { class_of_pool, variants, present }
    }

    pub(crate) fn pool(&self, index: usize, input: &Value, report: &mut Report) -> Vec<Value> {
        let empty = json!({});
        let spec = input.get("spec").unwrap_or(&empty);
        let Some(spec) = read::typed::<BetaNodePoolSpec>(spec, "spec", report) else { return Vec::new() };
        let claim = &spec.template.spec;
        let Some(reference) = &claim.node_class_ref else {
            report.never_valid(
                "spec.template.spec.nodeClassRef",
                "is missing",
                "the name of an EC2NodeClass",
            );
            return Vec::new();
        };
        if let Some(kubelet) = &claim.kubelet {
            rules::check_kubelet(kubelet, "spec.template.spec.kubelet", report);
        }
        if claim.resources.is_some() {
            report.never_valid("spec.template.spec.resources", "is for NodeClaims only", "remove the field");
        }
        self.report_class_split(index, reference, claim.kubelet.as_ref(), report);
        let (group, kind) = group_and_kind(reference);
        let name = self.class_of_pool.get(&index).unwrap_or(&reference.name);
        let mut template_spec = Map::new();
        template_spec.insert("nodeClassRef".to_owned(), json!({"group": group, "kind": kind, "name": name}));
        let expire_after = spec.disruption.expire_after.as_deref().unwrap_or("720h");
        template_spec.insert("expireAfter".to_owned(), json!(expire_after));
        template_spec
            .insert("requirements".to_owned(), claim.requirements.clone().unwrap_or_else(|| json!([])));
        for (field, value) in [
            ("taints", &claim.taints),
            ("startupTaints", &claim.startup_taints),
            ("terminationGracePeriod", &claim.termination_grace_period),
        ] {
            if let Some(value) = value {
                template_spec.insert(field.to_owned(), value.clone());
            }
        }
        let mut template = Map::new();
        if let Some(metadata) = &spec.template.metadata {
            template.insert("metadata".to_owned(), metadata.clone());
        }
        template.insert("spec".to_owned(), Value::Object(template_spec));
        let mut pool = Map::new();
        pool.insert("template".to_owned(), Value::Object(template));
        pool.insert("disruption".to_owned(), disruption(&spec, report));
        for (field, value) in [("limits", &spec.limits), ("weight", &spec.weight)] {
            if let Some(value) = value {
                pool.insert(field.to_owned(), value.clone());
            }
        }
        vec![json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": carried_over(input, name_of(input)),
            "spec": pool,
        })]
    }

    fn report_class_split(
        &self,
        index: usize,
        reference: &BetaNodeClassRef,
        kubelet: Option<&KubeletConfiguration>,
        report: &mut Report,
    ) {
        let has_settings = kubelet.is_some_and(|kubelet| *kubelet != KubeletConfiguration::default());
        let name = self.class_of_pool.get(&index).unwrap_or(&reference.name);
        if !self.present.contains(&reference.name) {
            if has_settings {
                report.add(
                    Code::KubeletWithoutClass,
                    "spec.template.spec.kubelet",
                    format!(
                        "is part of the node class in v1, and EC2NodeClass {} is not in the input",
                        reference.name
                    ),
                    "convert both together",
                );
            } else {
                report.add(
                    Code::ClassNotInInput,
                    "spec.template.spec.nodeClassRef.name",
                    format!("EC2NodeClass {} is not in the input", reference.name),
                    "convert the class as well",
                );
            }
        } else if *name != reference.name {
            report.add(
                Code::ClassSplit,
                "spec.template.spec.kubelet",
                format!(
                    "is part of the node class in v1; the NodePool gets EC2NodeClass {name}, a copy of {}",
                    reference.name
                ),
                "none needed",
            );
        }
    }

    /// Converts a class: the result has one class for each distinct kubelet settings of its NodePools.
    pub(crate) fn class(&self, input: &Value, options: &Options, report: &mut Report) -> Vec<Value> {
        let empty = json!({});
        let raw = input.get("spec").unwrap_or(&empty);
        let Some(typed) = read::typed::<BetaEC2NodeClassSpec>(raw, "spec", report) else { return Vec::new() };
        let mut spec = raw.as_object().cloned().unwrap_or_default();
        images(&mut spec, &typed, input, report);
        spec.remove("role");
        spec.remove("instanceProfile");
        match typed.role {
            Some(role) => drop(spec.insert("role".to_owned(), json!(role))),
            None => {
                let profile = typed.instance_profile.as_deref();
                class::identity(&mut spec, profile, "spec.instanceProfile", options, report);
            }
        }
        for key in typed.tags.iter().flat_map(Map::keys).filter(|key| class::is_reserved_tag(key)) {
            report.add(
                Code::ReservedTag,
                format!("spec.tags[{key}]"),
                "v1 sets this tag itself; it is left out",
                "none needed",
            );
        }
        if let Some(tags) = spec.get_mut("tags").and_then(Value::as_object_mut) {
            tags.retain(|key, _| !class::is_reserved_tag(key));
        }
        let metadata_options = typed.metadata_options.unwrap_or_default();
        spec.insert(
            "metadataOptions".to_owned(),
            class::filled(&metadata_options, "disabled", 2, "required"),
        );
        if typed.associate_public_ip_address.is_none() {
            report.add(
                Code::PublicAddress,
                "spec.associatePublicIPAddress",
                "was false in private subnets; v1 uses the setting of the subnet",
                "set it to false if instances must not have a public address",
            );
        }
        let name = name_of(input);
        let variants = self.variants.get(name).cloned().unwrap_or_else(|| vec![(name.to_owned(), None)]);
        let mut classes = Vec::new();
        for (variant, kubelet) in variants {
            let metadata = if variant == name { carried_over(input, name) } else { named_metadata(&variant) };
            let mut spec = spec.clone();
            if let Some(kubelet) = &kubelet {
                class::add_kubelet(&mut spec, kubelet, report);
            }
            classes.push(node_class(metadata, Value::Object(spec)));
        }
        classes
    }
}

fn spec_without_findings(input: &Value) -> Option<BetaNodePoolSpec> {
    let mut unheard = Report::new(0, "");
    read::typed(input.get("spec")?, "spec", &mut unheard)
}

fn group_and_kind(reference: &BetaNodeClassRef) -> (&str, &str) {
    let group = reference.api_version.as_deref().and_then(|version| version.split('/').next());
    (
        group.filter(|group| !group.is_empty()).unwrap_or("karpenter.k8s.aws"),
        reference.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("EC2NodeClass"),
    )
}

/// The disruption settings, with missing values set to the defaults of the v1beta1 schema.
fn disruption(spec: &BetaNodePoolSpec, report: &mut Report) -> Value {
    let given = &spec.disruption;
    let after = given.consolidate_after.as_deref();
    let policy = given.consolidation_policy.as_deref().unwrap_or("WhenUnderutilized");
    let (policy, after) = match policy {
        "WhenEmpty" => ("WhenEmpty", after.unwrap_or("Never")),
        "WhenUnderutilized" => {
            if let Some(after) = after.filter(|after| *after != "Never") {
                report.never_valid(
                    "spec.disruption.consolidateAfter",
                    format!("{after:?} cannot be combined with consolidationPolicy WhenUnderutilized"),
                    "remove the field, or set WhenEmpty",
                );
            }
            ("WhenEmptyOrUnderutilized", after.unwrap_or("0s"))
        }
        other => {
            report.never_valid(
                "spec.disruption.consolidationPolicy",
                format!("{other:?} is not a consolidation policy"),
                "WhenEmpty or WhenUnderutilized",
            );
            (other, "Never")
        }
    };
    let budgets = given.budgets.clone().unwrap_or_else(|| vec![json!({"nodes": "10%"})]);
    json!({"consolidationPolicy": policy, "consolidateAfter": after, "budgets": budgets})
}

fn images(spec: &mut Map<String, Value>, typed: &BetaEC2NodeClassSpec, input: &Value, report: &mut Report) {
    let has_terms = typed.ami_selector_terms.as_ref().is_some_and(|terms| !terms.is_empty());
    let field = "spec.amiFamily";
    spec.remove("amiFamily");
    match (typed.ami_family.as_deref(), has_terms) {
        (None, _) => report.never_valid(field, "is missing", "an AMI family such as AL2023"),
        (Some("Ubuntu"), false) => class::ubuntu_without_images(field, report),
        (Some("Ubuntu"), true) => {
            spec.insert("amiFamily".to_owned(), json!("AL2"));
            if typed.block_device_mappings.is_none() {
                spec.insert("blockDeviceMappings".to_owned(), class::ubuntu_devices());
            }
        }
        (Some(family), false) if ALIAS_FAMILIES.contains(&family) => {
            let annotations = input.pointer("/metadata/annotations").and_then(Value::as_object);
            let version = annotations.and_then(|all| all.get(ALIAS_VERSION)).and_then(Value::as_str);
            class::alias(spec, family, version.unwrap_or("latest"), field, report);
        }
        (Some("Custom"), false) => {
            report.never_valid("spec.amiSelectorTerms", "is missing", "the AMIs of family Custom");
        }
        (Some(family), true) if ALIAS_FAMILIES.contains(&family) => {
            spec.insert("amiFamily".to_owned(), json!(family));
        }
        (Some("Custom"), true) => {
            spec.insert("amiFamily".to_owned(), json!("Custom"));
            report.add(
                Code::CustomRegistration,
                "spec.userData",
                "in v1 a node must register with the taint karpenter.sh/unregistered:NoExecute; for family Custom your user \
                 data must set it",
                "add --register-with-taints=karpenter.sh/unregistered:NoExecute to the kubelet's arguments",
            );
        }
        (Some(family), _) => report.never_valid(
            field,
            format!("{family:?} is not an AMI family"),
            "AL2, AL2023, Bottlerocket, Ubuntu, Windows2019, Windows2022 or Custom",
        ),
    }
}
