//! The conversion: maps input objects to v1 objects, chooses the names of new objects, and keeps the order of the
//! input.
//!
//! Objects that are v1 already are copied. Other kinds are counted and omitted, but annotations in their pod templates
//! that have no effect in v1 are reported. An object with an error gives no result; all other objects are converted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::finding::{Code, Finding, Report, Severity};
use crate::metadata::{carried_over, name_of, title};
use crate::options::{Expiration, Options, TTL_UNTIL_EXPIRED_ANNOTATION};
use crate::read;
use crate::rules::{self, SettingsLocation};
use crate::types::{AwsSettings, KubeletConfiguration, ProvisionerSpec};
use crate::{beta, class, names, pool, workloads};

pub(crate) const PROVISIONER: (&str, &str) = ("karpenter.sh/v1alpha5", "Provisioner");
pub(crate) const AWS_NODE_TEMPLATE: (&str, &str) = ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate");
pub(crate) const BETA_NODE_POOL: (&str, &str) = ("karpenter.sh/v1beta1", "NodePool");
pub(crate) const BETA_NODE_CLASS: (&str, &str) = ("karpenter.k8s.aws/v1beta1", "EC2NodeClass");
/// Kinds whose objects are created by controllers and therefore not converted.
const CONTROLLER_KINDS: [(&str, &str); 2] =
    [("karpenter.sh/v1alpha5", "Machine"), ("karpenter.sh/v1beta1", "NodeClaim")];
const CURRENT_GROUPS: [&str; 2] = ["karpenter.sh/v1", "karpenter.k8s.aws/v1"];

/// A v1 object, and the index of the input object from which it was converted.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvertedObject {
    pub input: usize,
    pub value: Value,
}

/// Result of [`convert`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Converted {
    /// The v1 objects in the order of the input. If a node class was created for a NodePool, it comes after the
    /// NodePool.
    pub objects: Vec<ConvertedObject>,
    /// The findings, in the order of the input.
    pub findings: Vec<Finding>,
    /// How many objects were omitted because their kind is not one of Karpenter's, by kind.
    pub skipped: BTreeMap<String, usize>,
}

impl Converted {
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.code.severity() == Severity::Warning)
    }

    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.code.severity() == Severity::Error)
    }
}

/// Whether the object's kind is of v1alpha5, v1alpha1 or v1beta1.
pub fn is_legacy(object: &Value) -> bool {
    let kind = kind_of(object);
    [PROVISIONER, AWS_NODE_TEMPLATE, BETA_NODE_POOL, BETA_NODE_CLASS].contains(&kind)
        || CONTROLLER_KINDS.contains(&kind)
}

/// Converts objects to v1. The conversion itself never fails: an error in an object becomes a finding about that
/// object.
pub fn convert(objects: &[Value], options: &Options) -> Converted {
    let inputs: Vec<Value> = objects.iter().map(read::without_nulls).collect();
    let mut conversion = Conversion {
        options,
        templates: named(&inputs, AWS_NODE_TEMPLATE),
        classes: class_names(&inputs),
        inputs: &inputs,
        converted: Converted::default(),
    };
    let beta = beta::Classes::new(&inputs);
    for (index, input) in inputs.iter().enumerate() {
        let mut report = Report::new(index, title(input));
        let results = match kind_of(input) {
            PROVISIONER => conversion.provisioner(input, &mut report),
            AWS_NODE_TEMPLATE => conversion.template(input, &mut report),
            BETA_NODE_POOL => beta.pool(index, input, &mut report),
            BETA_NODE_CLASS => beta.class(input, options, &mut report),
            kind if CONTROLLER_KINDS.contains(&kind) => {
                let message = "is created by the controller and is not converted";
                report.add(Code::ControllerKind, "", message, "none needed: the controller creates new ones");
                Vec::new()
            }
            // v1 objects are not changed, so the original object with its nulls is returned.
            (version, _) if CURRENT_GROUPS.contains(&version) => vec![objects[index].clone()],
            (_, kind) => {
                workloads::check(input, &mut report);
                *conversion.converted.skipped.entry(kind.to_owned()).or_default() += 1;
                Vec::new()
            }
        };
        conversion.conclude(index, results, report);
    }
    conversion.converted
}

struct Conversion<'a> {
    options: &'a Options,
    inputs: &'a [Value],
    /// The index of each AWSNodeTemplate in the input, by name.
    templates: BTreeMap<String, usize>,
    /// The names of the node classes in the input, and of those that the conversion added.
    classes: BTreeSet<String>,
    converted: Converted,
}

impl Conversion<'_> {
    fn conclude(&mut self, input: usize, results: Vec<Value>, mut report: Report) {
        for result in &results {
            let same = |other: &ConvertedObject| {
                kind_of(&other.value) == kind_of(result) && name_of(&other.value) == name_of(result)
            };
            if let Some(other) = self.converted.objects.iter().find(|other| same(other)) {
                report.add(
                    Code::NameTaken,
                    "metadata.name",
                    format!(
                        "{} is already the result of {}",
                        title(result),
                        title(&self.inputs[other.input])
                    ),
                    "rename one of the objects",
                );
            }
        }
        if !report.has_errors() {
            self.converted.objects.extend(results.into_iter().map(|value| ConvertedObject { input, value }));
        }
        self.converted.findings.append(&mut report.findings);
    }

    fn provisioner(&mut self, input: &Value, report: &mut Report) -> Vec<Value> {
        let Some(spec) = spec_of::<ProvisionerSpec>(input, report) else { return Vec::new() };
        rules::check_provisioner(&spec, report);
        if let Some(kubelet) = &spec.kubelet_configuration {
            rules::check_kubelet(kubelet, "spec.kubeletConfiguration", report);
        }
        let inline = spec.provider.as_ref().and_then(|provider| inline_settings(provider, report));
        if report.has_errors() {
            return Vec::new();
        }
        let name = name_of(input);
        let (class_name, class) = match (&inline, &spec.provider_ref) {
            (Some(settings), _) => {
                self.inline_class(name, settings, spec.kubelet_configuration.as_ref(), report)
            }
            (None, Some(reference)) => self.referenced_class(name, &reference.name, &spec, report),
            (None, None) => return Vec::new(),
        };
        let mut metadata = carried_over(input, &names::for_label(name));
        if let (Expiration::Graceful, Some(seconds)) =
            (self.options.expiration, spec.ttl_seconds_until_expired)
        {
            annotate(&mut metadata, TTL_UNTIL_EXPIRED_ANNOTATION, &seconds.to_string());
        }
        let pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": metadata,
            "spec": pool::spec(&spec, &class_name, self.options, report),
        });
        std::iter::once(pool).chain(class).collect()
    }

    fn template(&mut self, input: &Value, report: &mut Report) -> Vec<Value> {
        let Some(settings) = spec_of::<AwsSettings>(input, report) else { return Vec::new() };
        rules::check_provider(&settings, SettingsLocation::Template, report);
        if report.has_errors() {
            return Vec::new();
        }
        let class = class::class(&settings, SettingsLocation::Template, None, self.options, report);
        vec![annotated_class(carried_over(input, &names::for_label(name_of(input))), class)]
    }

    /// Converts a Provisioner's inline AWS settings to a class that has the name of the Provisioner.
    fn inline_class(
        &mut self,
        name: &str,
        settings: &AwsSettings,
        kubelet: Option<&KubeletConfiguration>,
        report: &mut Report,
    ) -> (String, Option<Value>) {
        let wanted = if self.classes.contains(&names::for_label(name)) {
            format!("{name}-provider")
        } else {
            name.to_owned()
        };
        let class_name = names::unused(&wanted, &self.classes);
        self.classes.insert(class_name.clone());
        let class = class::class(settings, SettingsLocation::Inline, kubelet, self.options, report);
        (class_name.clone(), Some(annotated_class(named_metadata(&class_name), class)))
    }

    /// The name of the class for the AWSNodeTemplate; if the Provisioner has kubelet settings, it is a copy of that
    /// class.
    fn referenced_class(
        &mut self,
        name: &str,
        template: &str,
        spec: &ProvisionerSpec,
        report: &mut Report,
    ) -> (String, Option<Value>) {
        let position = self.templates.get(template).copied();
        let kubelet = spec
            .kubelet_configuration
            .as_ref()
            .filter(|kubelet| **kubelet != KubeletConfiguration::default());
        match (kubelet, position) {
            (None, Some(_)) => (names::for_label(template), None),
            (None, None) => {
                report.add(
                    Code::ClassNotInInput,
                    "spec.providerRef.name",
                    format!("AWSNodeTemplate {template} is not in the input; the NodePool references an EC2NodeClass of that name"),
                    "convert the template as well",
                );
                (names::for_label(template), None)
            }
            (Some(_), None) => {
                report.add(
                    Code::KubeletWithoutClass,
                    "spec.kubeletConfiguration",
                    format!(
                        "is part of the node class in v1, and AWSNodeTemplate {template} is not in the input"
                    ),
                    "convert both together",
                );
                (template.to_owned(), None)
            }
            (Some(kubelet), Some(position)) => {
                // Findings about the AWSNodeTemplate itself are reported when the template is converted, so they are
                // dropped here.
                let mut template_report = Report::new(position, title(&self.inputs[position]));
                let settings = spec_of::<AwsSettings>(&self.inputs[position], &mut template_report);
                let class_name = names::unused(&format!("{template}-{name}"), &self.classes);
                self.classes.insert(class_name.clone());
                report.add(
                    Code::ClassSplit,
                    "spec.kubeletConfiguration",
                    format!("is part of the node class in v1; the NodePool gets EC2NodeClass {class_name}, a copy of {template}"),
                    "none needed",
                );
                let settings = settings.unwrap_or_default();
                rules::check_provider(&settings, SettingsLocation::Template, &mut template_report);
                let class = class::class(
                    &settings,
                    SettingsLocation::Template,
                    Some(kubelet),
                    self.options,
                    &mut template_report,
                );
                let runtime = template_report.findings.iter().find(|finding| finding.code == Code::Dockerd);
                if let Some(finding) = runtime {
                    report.add(finding.code, &finding.field, &finding.message, &finding.fix);
                }
                let class = (!template_report.has_errors())
                    .then(|| annotated_class(named_metadata(&class_name), class));
                if class.is_none() {
                    report.add(
                        Code::KubeletWithoutClass,
                        "spec.kubeletConfiguration",
                        format!("is part of the node class in v1, and AWSNodeTemplate {template} cannot be converted"),
                        "fix the template first",
                    );
                }
                (class_name, class)
            }
        }
    }
}

/// Deserializes the spec of an object. A missing spec counts as empty; the rules then report the missing fields.
fn spec_of<T: serde::de::DeserializeOwned>(input: &Value, report: &mut Report) -> Option<T> {
    if name_of(input).is_empty() {
        report.never_valid("metadata.name", "is missing", "a name");
    }
    let empty = json!({});
    read::typed(input.get("spec").unwrap_or(&empty), "spec", report)
}

fn inline_settings(provider: &Value, report: &mut Report) -> Option<AwsSettings> {
    let settings = read::typed::<AwsSettings>(provider, SettingsLocation::Inline.path(), report)?;
    rules::check_provider(&settings, SettingsLocation::Inline, report);
    Some(settings)
}

fn annotated_class(mut metadata: Map<String, Value>, class: Class) -> Value {
    for (key, value) in &class.annotations {
        annotate(&mut metadata, key, value);
    }
    node_class(metadata, class.spec)
}

pub(crate) fn node_class(metadata: Map<String, Value>, spec: Value) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": metadata,
        "spec": spec,
    })
}

pub(crate) fn named_metadata(name: &str) -> Map<String, Value> {
    Map::from_iter([("name".to_owned(), json!(name))])
}

fn annotate(metadata: &mut Map<String, Value>, key: &str, value: &str) {
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations[key] = json!(value);
}

pub(crate) fn kind_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// The indexes of the objects of one kind, by name.
pub(crate) fn named(inputs: &[Value], kind: (&str, &str)) -> BTreeMap<String, usize> {
    let of_kind = inputs.iter().enumerate().filter(|(_, input)| kind_of(input) == kind);
    of_kind.map(|(index, input)| (name_of(input).to_owned(), index)).collect()
}

/// The names of all node classes in the input.
fn class_names(inputs: &[Value]) -> BTreeSet<String> {
    let is_class = |input: &&Value| {
        let kind = kind_of(input);
        kind == AWS_NODE_TEMPLATE
            || kind == BETA_NODE_CLASS
            || kind == ("karpenter.k8s.aws/v1", "EC2NodeClass")
    };
    inputs.iter().filter(is_class).map(|input| names::for_label(name_of(input))).collect()
}
