//! Finds manifests that the API server accepts but that do not work as intended: overlapping NodePools, workloads that
//! no NodePool can run, contradicting disruption settings. Every finding states the object, the field, the reason and a
//! fix.
//!
//! The functions are pure; their input is manifests as JSON, and the instance types of each NodePool. Objects are not
//! validated: of a malformed object, the parts that can be read are checked.

mod finding;
mod pool;
mod rules;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use serde_json::Value;

pub use finding::{Code, Finding, Severity};

use finding::Report;
use pool::Pool;
use workload::Workload;

/// One object in the input, and what is known about its origin.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub value: &'a Value,
    /// The Provisioner from which a NodePool was converted. Nodes of that NodePool name the Provisioner in a label.
    pub provisioner: Option<&'a str>,
}

/// Input of [`lint`].
#[derive(Debug, Clone, Default)]
pub struct Input<'a> {
    pub objects: Vec<Subject<'a>>,
    /// The instance types of each NodePool, by name. If a NodePool is missing here, rules about instance types do not
    /// check it.
    pub catalogs: BTreeMap<String, Arc<Vec<InstanceType>>>,
    /// Label keys that a NodePool need not define.
    pub well_known: BTreeSet<Arc<str>>,
}

/// All findings, sorted by object and then by code.
pub fn lint(input: &Input<'_>) -> Vec<Finding> {
    let context = Context::new(input);
    let mut report = Report::default();
    rules::pools::check(&context, &mut report);
    rules::workloads::check(&context, &mut report);
    rules::disruption::check(&context, &mut report);
    rules::unmanaged_nodes::check(&context, &mut report);
    report.into_sorted()
}

/// The objects in the input, in the form that the rules need.
struct Context<'a> {
    pools: Vec<Pool<'a>>,
    workloads: Vec<Workload<'a>>,
    /// The nodes that Karpenter does not manage, with their index in the input.
    unmanaged_nodes: Vec<(usize, &'a Value)>,
    /// The kind and name of every node class in the input.
    classes: BTreeSet<(&'a str, &'a str)>,
    open_keys: &'a BTreeSet<Arc<str>>,
}

impl<'a> Context<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let mut context = Self {
            pools: Vec::new(),
            workloads: Vec::new(),
            unmanaged_nodes: Vec::new(),
            classes: BTreeSet::new(),
            open_keys: &input.well_known,
        };
        for (index, subject) in input.objects.iter().enumerate() {
            let value = subject.value;
            match text(value, "/kind") {
                "NodePool" => {
                    let catalog = input.catalogs.get(text(value, "/metadata/name"));
                    context.pools.push(Pool::read(index, subject, catalog.map(|types| types.as_slice())));
                }
                "Node" if pool_of_node(value).is_none() => context.unmanaged_nodes.push((index, value)),
                kind if kind.ends_with("NodeClass") => {
                    context.classes.insert((kind, text(value, "/metadata/name")));
                }
                _ => context.workloads.extend(Workload::read(index, value)),
            }
        }
        if context.has_provisioners() {
            let workloads = std::mem::take(&mut context.workloads);
            context.workloads = workloads.into_iter().map(Workload::with_dotted_labels).collect();
        }
        context
    }

    /// Whether some NodePool was converted from a Provisioner, so that labels and annotations of v1alpha5 have an
    /// effect.
    fn has_provisioners(&self) -> bool {
        self.pools.iter().any(|pool| pool.provisioner.is_some())
    }

    /// The workloads for which Karpenter launches nodes: all except DaemonSets.
    fn schedulable(&self) -> impl Iterator<Item = &Workload<'a>> {
        self.workloads.iter().filter(|workload| !workload.is_daemon)
    }
}

fn pool_of_node(node: &Value) -> Option<&Value> {
    let labels = node.pointer("/metadata/labels")?;
    labels.get("karpenter.sh/nodepool").or_else(|| labels.get("karpenter.sh/provisioner-name"))
}

/// The string at a JSON pointer; empty if there is none.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The string values in the object at a JSON pointer, with their keys.
fn pairs<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let fields = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// The title of an object, `Kind namespace/name`, as other commands print it.
fn title(value: &Value) -> String {
    let (kind, name) = (text(value, "/kind"), text(value, "/metadata/name"));
    let is_namespaced = !kind.ends_with("NodeClass") && !["NodePool", "Node"].contains(&kind);
    match text(value, "/metadata/namespace") {
        _ if !is_namespaced => format!("{kind} {name}"),
        "" => format!("{kind} default/{name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
