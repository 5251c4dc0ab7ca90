//! What is valid and still wrong: pools that get in each other's way, workloads that no pool can take, settings that
//! cancel each other out. Every finding says what, where, why it matters and how to mend it.
//!
//! Pure: manifests come in as JSON with the instance types of each pool, findings go out. Whether an object would be
//! admitted at all is not asked here; objects that are malformed are looked at as far as they can be read.

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

/// One object of the input.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub value: &'a Value,
    /// The Provisioner that a pool was converted from; its nodes carry that name in a label.
    pub provisioner: Option<&'a str>,
}

/// Everything that is looked at.
#[derive(Debug, Clone, Default)]
pub struct Input<'a> {
    pub objects: Vec<Subject<'a>>,
    /// Instance types by the name of the pool; a pool that is not here is not held against any.
    pub catalogs: BTreeMap<String, Arc<Vec<InstanceType>>>,
    /// Label keys that a pool may leave undefined.
    pub well_known: BTreeSet<Arc<str>>,
}

/// All findings, in the order of the objects and then of the codes.
pub fn lint(input: &Input<'_>) -> Vec<Finding> {
    let scene = Scene::new(input);
    let mut report = Report::default();
    rules::pools::check(&scene, &mut report);
    rules::workloads::check(&scene, &mut report);
    rules::disruption::check(&scene, &mut report);
    rules::neighbours::check(&scene, &mut report);
    report.into_sorted()
}

/// The input, read as far as rules need it.
struct Scene<'a> {
    pools: Vec<Pool<'a>>,
    workloads: Vec<Workload<'a>>,
    /// Nodes that are not Karpenter's.
    foreign_nodes: Vec<(usize, &'a Value)>,
    /// Kind and name of every node class.
    classes: BTreeSet<(&'a str, &'a str)>,
    open_keys: &'a BTreeSet<Arc<str>>,
}

impl<'a> Scene<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let mut scene = Self {
            pools: Vec::new(),
            workloads: Vec::new(),
            foreign_nodes: Vec::new(),
            classes: BTreeSet::new(),
            open_keys: &input.well_known,
        };
        for (index, subject) in input.objects.iter().enumerate() {
            let value = subject.value;
            match text(value, "/kind") {
                "NodePool" => {
                    let catalog = input.catalogs.get(text(value, "/metadata/name"));
                    scene.pools.push(Pool::read(index, subject, catalog.map(|types| types.as_slice())));
                }
                "Node" if pool_of_node(value).is_none() => scene.foreign_nodes.push((index, value)),
                kind if kind.ends_with("NodeClass") => {
                    scene.classes.insert((kind, text(value, "/metadata/name")));
                }
                _ => scene.workloads.extend(Workload::read(index, value)),
            }
        }
        if scene.serves_provisioners() {
            let workloads = std::mem::take(&mut scene.workloads);
            scene.workloads = workloads.into_iter().map(Workload::beside_provisioners).collect();
        }
        scene
    }

    /// Whether a pool comes from a Provisioner, so that what counted there may count again.
    fn serves_provisioners(&self) -> bool {
        self.pools.iter().any(|pool| pool.provisioner.is_some())
    }

    /// Workloads that Karpenter makes nodes for: everything but daemons.
    fn placeable(&self) -> impl Iterator<Item = &Workload<'a>> {
        self.workloads.iter().filter(|workload| !workload.is_daemon)
    }
}

fn pool_of_node(node: &Value) -> Option<&Value> {
    let labels = node.pointer("/metadata/labels")?;
    labels.get("karpenter.sh/nodepool").or_else(|| labels.get("karpenter.sh/provisioner-name"))
}

/// The text at a JSON pointer, or nothing.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer, or nothing.
fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The pairs of text in the object at a JSON pointer.
fn pairs<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let fields = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// `Kind namespace/name`, as the other commands write it.
fn title(value: &Value) -> String {
    let (kind, name) = (text(value, "/kind"), text(value, "/metadata/name"));
    let is_namespaced = !kind.ends_with("NodeClass") && !["NodePool", "Node"].contains(&kind);
    match text(value, "/metadata/namespace") {
        _ if !is_namespaced => format!("{kind} {name}"),
        "" => format!("{kind} default/{name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
