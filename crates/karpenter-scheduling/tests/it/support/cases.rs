//! Problems in JSON files, each with upstream's result.
//!
//! Amounts are in the planner's units: cpu in millicores, everything else in whole units. Missing keys count as empty.
//! Only test data is read here, so malformed input panics with the file name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use karpenter_catalog::kwok;
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::pod::{HostPort, PodAffinityTerm, PodSpec, TopologySpread};
use karpenter_model::problem::{
    BoundPod, Daemon, MinValuesPolicy, Mode, Node, NodePool, Options, PodGroup, PodNames, PreferencePolicy,
    Problem,
};
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::selector::{LabelSelector, Labels, Match};
use karpenter_model::taints::{Effect, Taint, Toleration, TolerationOperator};
use serde::Deserialize;

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
const AWS_PREFIX: &str = "karpenter.k8s.aws/";
const NODE_CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Our result, if it differs from upstream's on purpose.
    #[serde(default)]
    pub(crate) deviation: Option<Deviation>,
    catalog: Catalog,
    preferences: String,
    min_values: String,
    pools: Vec<Pool>,
    #[serde(default)]
    nodes: Vec<NodeCase>,
    #[serde(default)]
    daemons: Vec<Pod>,
    pods: Vec<Pod>,
    pub(crate) expected: Expected,
}

/// Upstream's results over several runs; they differ where upstream breaks ties randomly.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expected {
    pub(crate) hourly_min: f64,
    pub(crate) hourly_max: f64,
    pub(crate) nodes_min: usize,
    pub(crate) nodes_max: usize,
    /// The smallest number of pods on existing nodes in any upstream run.
    pub(crate) existing_min: u32,
    pub(crate) existing_max: u32,
    /// Every set of unschedulable pods that occurred in some upstream run.
    pub(crate) unschedulable: Vec<BTreeSet<String>>,
    #[serde(rename = "runs")]
    _runs: u32,
}

/// `why` names a row of docs/deviations.md.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Deviation {
    #[serde(rename = "why")]
    _why: String,
    pub(crate) hourly: f64,
    pub(crate) nodes: usize,
    pub(crate) existing: u32,
    pub(crate) unschedulable: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Catalog {
    /// The built-in generic instance types, restricted to those that meet some requirements.
    Kwok {
        #[serde(default)]
        only: Vec<Req>,
    },
    /// One instance type per number of CPUs, starting at 1, with 2 GiB and ten pods per CPU.
    Linear {
        zones: Vec<Arc<str>>,
        prices: Vec<f64>,
        /// Every type whose number is divisible by this has GPUs; 0 means that none has.
        #[serde(default)]
        gpu_every: i64,
    },
    /// Instance types from a file in the folder `catalogs`, as they were when upstream's results were recorded.
    File { file: String },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListedType {
    name: Arc<str>,
    labels: Labels,
    capacity: BTreeMap<Arc<str>, i64>,
    overhead: BTreeMap<Arc<str>, i64>,
    zones: Vec<Arc<str>>,
    on_demand: f64,
    spot: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Req {
    key: String,
    op: String,
    #[serde(default)]
    values: Vec<Arc<str>>,
    min_values: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pool {
    name: Arc<str>,
    #[serde(default)]
    weight: i32,
    #[serde(default)]
    requirements: Vec<Req>,
    #[serde(default)]
    taints: Vec<TaintCase>,
    #[serde(default)]
    startup_taints: Vec<TaintCase>,
    #[serde(default)]
    limits: BTreeMap<Arc<str>, i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaintCase {
    key: Arc<str>,
    #[serde(default)]
    value: Arc<str>,
    effect: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TolerationCase {
    #[serde(default)]
    key: Arc<str>,
    op: String,
    #[serde(default)]
    value: Arc<str>,
    #[serde(default)]
    effect: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeCase {
    name: Arc<str>,
    labels: Labels,
    #[serde(default)]
    taints: Vec<TaintCase>,
    #[serde(default)]
    uninitialized: bool,
    pool: Option<Arc<str>>,
    allocatable: BTreeMap<Arc<str>, i64>,
    #[serde(default)]
    pods: Vec<Pod>,
}

/// Allowed values by label key; if a key starts with `!`, its values are excluded instead.
type Selector = BTreeMap<String, BTreeSet<Arc<str>>>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Term {
    #[serde(default)]
    weight: i32,
    key: Arc<str>,
    selector: Selector,
    #[serde(default)]
    namespaces: BTreeSet<Arc<str>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTerm {
    weight: i32,
    term: Vec<Req>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spread {
    key: Arc<str>,
    max_skew: u32,
    min_domains: Option<u32>,
    #[serde(default)]
    soft: bool,
    #[serde(default)]
    ignore_affinity: bool,
    #[serde(default)]
    honor_taints: bool,
    selector: Selector,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pod {
    name: Arc<str>,
    #[serde(default = "one")]
    count: u32,
    namespace: Option<Arc<str>>,
    #[serde(default)]
    labels: Labels,
    requests: BTreeMap<Arc<str>, i64>,
    #[serde(default)]
    node_selector: Labels,
    #[serde(default)]
    required_terms: Vec<Vec<Req>>,
    #[serde(default)]
    preferred_terms: Vec<NodeTerm>,
    #[serde(default)]
    tolerations: Vec<TolerationCase>,
    #[serde(default)]
    spread: Vec<Spread>,
    #[serde(default)]
    affinity: Vec<Term>,
    #[serde(default)]
    anti_affinity: Vec<Term>,
    #[serde(default)]
    preferred_affinity: Vec<Term>,
    #[serde(default)]
    preferred_anti_affinity: Vec<Term>,
    #[serde(default)]
    host_ports: Vec<u16>,
    #[serde(default)]
    daemon: bool,
}

fn one() -> u32 {
    1
}

/// Loads every case of a folder, in the order of file names.
pub(crate) fn load_all(folder: &Path) -> Vec<Case> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of cases exists")
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).expect("a case can be read");
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

impl Case {
    pub(crate) fn problem(&self, folder: &Path) -> Problem {
        let catalog = self.catalog.types(folder);
        let mut well_known: BTreeSet<Arc<str>> = kwok::well_known_labels(&catalog);
        let keys = catalog.iter().flat_map(|of_type| of_type.requirements.keys());
        well_known.extend(keys.filter(|key| key.starts_with(AWS_PREFIX)).cloned());
        well_known.extend(labels::WELL_KNOWN.map(Arc::from));
        Problem {
            well_known,
            catalogs: vec![Arc::new(catalog)],
            pools: self.pools.iter().map(|pool| pool.model(&self.nodes)).collect(),
            nodes: self.nodes.iter().map(NodeCase::model).collect(),
            pods: self
                .pods
                .iter()
                .map(|pod| PodGroup {
                    spec: Arc::new(pod.spec()),
                    names: PodNames::Numbered { prefix: pod.name.clone(), count: pod.count },
                    created_at_secs: 0,
                })
                .collect(),
            daemons: self
                .daemons
                .iter()
                .map(|pod| Daemon { name: pod.name.clone(), spec: Arc::new(pod.spec()) })
                .collect(),
            options: Options {
                mode: Mode::Compat,
                preference_policy: match &*self.preferences {
                    "Respect" => PreferencePolicy::Respect,
                    "Ignore" => PreferencePolicy::Ignore,
                    other => panic!("{}: preferences {other}", self.name),
                },
                min_values_policy: match &*self.min_values {
                    "Strict" => MinValuesPolicy::Strict,
                    "BestEffort" => MinValuesPolicy::BestEffort,
                    other => panic!("{}: minValues {other}", self.name),
                },
                ..Options::default()
            },
        }
    }
}

impl Catalog {
    fn types(&self, folder: &Path) -> Vec<InstanceType> {
        match self {
            Self::Kwok { only } => {
                let only = requirements(only);
                kwok::generic().into_iter().filter(|t| t.requirements.intersects(&only)).collect()
            }
            Self::Linear { zones, prices, gpu_every } => prices
                .iter()
                .zip(1..)
                .map(|(price, cpus)| linear_type(zones, *price, cpus, *gpu_every))
                .collect(),
            Self::File { file } => {
                let path = folder.join("catalogs").join(file).with_extension("json");
                let text = std::fs::read_to_string(&path).expect("the catalog can be read");
                let types: Vec<ListedType> =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                types.iter().map(ListedType::model).collect()
            }
        }
    }
}

fn single(key: &str, value: &str) -> Requirement {
    Requirement::in_values(key, [value])
}

fn offering(zone: &str, capacity_type: &str, price_per_hour: f64) -> Offering {
    Offering {
        requirements: [single(labels::ZONE, zone), single(labels::CAPACITY_TYPE, capacity_type)]
            .into_iter()
            .collect(),
        price_per_hour,
        available: true,
        ..Offering::default()
    }
}

impl ListedType {
    fn model(&self) -> InstanceType {
        let mut requirements = Requirements::from_labels(&self.labels);
        requirements.add(single(labels::INSTANCE_TYPE, &self.name));
        requirements.add(Requirement::in_values(labels::ZONE, self.zones.iter().cloned()));
        requirements.add(Requirement::in_values(labels::CAPACITY_TYPE, ["on-demand", "spot"]));
        let both = |zone: &Arc<str>| {
            [offering(zone, "on-demand", self.on_demand), offering(zone, "spot", self.spot)]
        };
        InstanceType {
            name: self.name.clone(),
            requirements,
            offerings: self.zones.iter().flat_map(both).collect(),
            capacity: resource_list(&self.capacity),
            overhead: resource_list(&self.overhead),
            volume_attachment_limits: BTreeMap::new(),
        }
    }
}

fn linear_type(zones: &[Arc<str>], price: f64, cpus: i64, gpu_every: i64) -> InstanceType {
    let name = format!("t{cpus:03}");
    let mut capacity: ResourceList = [("cpu", cpus * 1000), ("memory", cpus * 2 * GIB), ("pods", cpus * 10)]
        .map(|(name, amount)| (Arc::from(name), amount))
        .into_iter()
        .collect();
    let mut requirements: Requirements = [
        single(labels::INSTANCE_TYPE, &name),
        single(labels::ARCH, "amd64"),
        single(labels::OS, "linux"),
        single(kwok::INSTANCE_SIZE, if cpus <= 4 { "small" } else { "large" }),
        Requirement::in_values(labels::ZONE, zones.iter().cloned()),
        Requirement::in_values(labels::CAPACITY_TYPE, ["on-demand", "spot"]),
    ]
    .into_iter()
    .collect();
    if gpu_every > 0 && cpus % gpu_every == 0 {
        capacity.set("example.com/gpu", cpus / gpu_every);
        requirements.add(single("example.com/class", "fast"));
    }
    let on_demand = zones.iter().map(|zone| offering(zone, "on-demand", price));
    let spot = zones.iter().take(2).map(|zone| offering(zone, "spot", price * 0.6));
    InstanceType {
        name: name.into(),
        requirements,
        offerings: on_demand.chain(spot).collect(),
        capacity,
        overhead: [("cpu", 100), ("memory", 10 * MIB)]
            .map(|(name, amount)| (Arc::from(name), amount))
            .into_iter()
            .collect(),
        volume_attachment_limits: BTreeMap::new(),
    }
}

impl Pool {
    fn model(&self, nodes: &[NodeCase]) -> NodePool {
        let mut usage = ResourceList::new();
        for node in nodes.iter().filter(|node| node.pool.as_ref() == Some(&self.name)) {
            usage.add(&resource_list(&node.allocatable));
            usage.set(NODES, usage.get(NODES) + 1);
        }
        NodePool {
            name: self.name.clone(),
            weight: self.weight,
            requirements: requirements(&self.requirements),
            labels: [
                (Arc::from(labels::NODEPOOL), self.name.clone()),
                (Arc::from(NODE_CLASS), Arc::from("default")),
            ]
            .into(),
            taints: taints(&self.taints),
            startup_taints: taints(&self.startup_taints),
            limits: resource_list(&self.limits),
            usage,
            catalog: 0,
            hostname_spread_share: None,
        }
    }
}

impl NodeCase {
    fn model(&self) -> Node {
        let mut of_node = self.labels.clone();
        if let Some(pool) = &self.pool {
            of_node.insert(labels::NODEPOOL.into(), pool.clone());
            of_node.insert(labels::REGISTERED.into(), "true".into());
            if !self.uninitialized {
                of_node.insert(labels::INITIALIZED.into(), "true".into());
            }
        }
        Node {
            name: self.name.clone(),
            labels: of_node,
            taints: taints(&self.taints),
            // A node without a NodePool counts as initialized.
            initialized: !self.uninitialized || self.pool.is_none(),
            pool: self.pool.clone(),
            allocatable: resource_list(&self.allocatable),
            pods: self
                .pods
                .iter()
                .flat_map(|pod| {
                    let spec = Arc::new(pod.spec());
                    (0..pod.count).map(move |_| BoundPod {
                        spec: spec.clone(),
                        is_daemon: pod.daemon,
                        is_terminating: false,
                        mobility: Default::default(),
                    })
                })
                .collect(),
            volume_limits: BTreeMap::new(),
            price_per_hour: None,
            is_settling: false,
        }
    }
}

impl Pod {
    fn spec(&self) -> PodSpec {
        let namespace = self.namespace.clone().unwrap_or_else(|| "default".into());
        let mut requests = resource_list(&self.requests);
        requests.set("pods", 1);
        let term = |term: &Term| PodAffinityTerm {
            key: term.key.clone(),
            selector: Some(selector(&term.selector)),
            namespaces: if term.namespaces.is_empty() {
                [namespace.clone()].into()
            } else {
                term.namespaces.clone()
            },
        };
        let plain = |terms: &[Term]| terms.iter().map(term).collect();
        let weighted = |terms: &[Term]| {
            let mut all: Vec<_> = terms.iter().map(|t| (t.weight, term(t))).collect();
            all.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
            all
        };
        let mut preferred_terms: Vec<_> =
            self.preferred_terms.iter().map(|t| (t.weight, requirements(&t.term))).collect();
        preferred_terms.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        PodSpec {
            labels: self.labels.clone(),
            requests,
            node_selector: self
                .node_selector
                .iter()
                .map(|(key, value)| Requirement::in_values(labels::normalize(key), [value.clone()]))
                .collect(),
            required_terms: self.required_terms.iter().map(|term| requirements(term)).collect(),
            preferred_terms,
            tolerations: self.tolerations.iter().map(TolerationCase::model).collect(),
            spread: self.spread.iter().map(Spread::model).collect(),
            affinity: plain(&self.affinity),
            anti_affinity: plain(&self.anti_affinity),
            preferred_affinity: weighted(&self.preferred_affinity),
            preferred_anti_affinity: weighted(&self.preferred_anti_affinity),
            host_ports: self
                .host_ports
                .iter()
                .map(|port| HostPort { address: "".into(), port: *port, protocol: "TCP".into() })
                .collect(),
            namespace,
            ..PodSpec::default()
        }
    }
}

impl Spread {
    fn model(&self) -> TopologySpread {
        TopologySpread {
            key: self.key.clone(),
            max_skew: self.max_skew,
            min_domains: self.min_domains,
            hard: !self.soft,
            selector: Some(selector(&self.selector)),
            honor_affinity: !self.ignore_affinity,
            honor_taints: self.honor_taints,
        }
    }
}

impl TolerationCase {
    fn model(&self) -> Toleration {
        Toleration {
            key: self.key.clone(),
            operator: match &*self.op {
                "Exists" => TolerationOperator::Exists,
                "Equal" => TolerationOperator::Equal(self.value.clone()),
                other => panic!("toleration operator {other}"),
            },
            effect: (!self.effect.is_empty()).then(|| effect(&self.effect)),
        }
    }
}

fn effect(text: &str) -> Effect {
    Effect::parse(text).unwrap_or_else(|| panic!("taint effect {text}"))
}

fn taints(taints: &[TaintCase]) -> Vec<Taint> {
    taints
        .iter()
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: taint.value.clone(),
            effect: effect(&taint.effect),
        })
        .collect()
}

fn resource_list(amounts: &BTreeMap<Arc<str>, i64>) -> ResourceList {
    amounts.iter().map(|(name, amount)| (name.clone(), *amount)).collect()
}

fn requirements(list: &[Req]) -> Requirements {
    list.iter()
        .map(|req| {
            let operator = Operator::parse(&req.op).unwrap_or_else(|| panic!("operator {}", req.op));
            Requirement::new(labels::normalize(&req.key), operator, req.values.iter().cloned())
                .with_min_values(req.min_values)
        })
        .collect()
}

fn selector(by_key: &Selector) -> LabelSelector {
    let mut selector = LabelSelector::everything();
    for (key, values) in by_key {
        match key.strip_prefix('!') {
            Some(key) => selector.require(key.into(), Match::NotIn(values.clone())),
            None => selector.require(key.as_str().into(), Match::In(values.clone())),
        }
    }
    selector
}
