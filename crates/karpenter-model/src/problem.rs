//! The whole input of a plan: pools, catalogs, nodes and pods at one moment, plus the knobs.
//!
//! A `Problem` is a value. It holds no handles, and nothing in it changes while it is being solved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::instance_type::InstanceType;
use crate::pod::PodSpec;
use crate::reason::Reason;
use crate::requirements::Requirements;
use crate::resources::ResourceList;
use crate::selector::Labels;
use crate::taints::Taint;

#[derive(Debug, Clone, Default)]
pub struct Problem {
    pub catalogs: Vec<Arc<Vec<InstanceType>>>,
    pub pools: Vec<NodePool>,
    pub nodes: Vec<Node>,
    /// Pods that need a place, grouped; each group's pods are identical for scheduling.
    pub pods: Vec<PodGroup>,
    /// One spec per DaemonSet whose pod every fitting node will run.
    pub daemons: Vec<Daemon>,
    /// Label keys that a pool may leave undefined (well-known to core and to the provider).
    pub well_known: BTreeSet<Arc<str>>,
    pub options: Options,
}

#[derive(Debug, Clone)]
pub struct NodePool {
    pub name: Arc<str>,
    pub weight: i32,
    /// spec.template.spec.requirements, with minValues.
    pub requirements: Requirements,
    /// Template labels plus the pool label and the NodeClass label.
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// Limits per resource; the pseudo resource `nodes` limits the number of nodes.
    pub limits: ResourceList,
    /// What the pool's present nodes already use of the limits (capacity, plus `nodes`).
    pub usage: ResourceList,
    /// Index into [`Problem::catalogs`].
    pub catalog: usize,
}

/// An existing or in-flight node, with taints as the scheduler will see them once it is initialised.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: Arc<str>,
    pub labels: Labels,
    /// Start-up and ephemeral taints of nodes still coming up are already left out.
    pub taints: Vec<Taint>,
    pub initialized: bool,
    pub pool: Option<Arc<str>>,
    pub allocatable: ResourceList,
    pub pods: Vec<BoundPod>,
    /// Volume attachment limits per CSI driver; a missing driver is unlimited.
    pub volume_limits: BTreeMap<Arc<str>, u32>,
    pub price_per_hour: Option<f64>,
    /// Closed to pods that run elsewhere now, though open to waiting ones: its pool wants it left alone for a while.
    pub is_settling: bool,
}

impl Node {
    /// The hostname label, or the node's name.
    pub fn hostname(&self) -> &Arc<str> {
        self.labels.get(crate::labels::HOSTNAME).unwrap_or(&self.name)
    }
}

/// A pod that sits on a node and stays there.
#[derive(Debug, Clone)]
pub struct BoundPod {
    pub spec: Arc<PodSpec>,
    pub is_daemon: bool,
    /// Terminating pods hold resources but are not counted by topology constraints.
    pub is_terminating: bool,
    /// What becomes of it if its node is taken away.
    pub mobility: Mobility,
}

/// Whether a bound pod needs another place when its node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Mobility {
    /// It ends with its node, or is not worth a place: daemons, mirror pods, terminating and finished pods.
    #[default]
    Stays,
    /// It would need a place, but may not be evicted at present.
    Blocked,
    /// It needs a place and may be evicted.
    Moves,
}

#[derive(Debug, Clone)]
pub struct Daemon {
    pub name: Arc<str>,
    pub spec: Arc<PodSpec>,
}

impl Daemon {
    /// Whether nodes reserve capacity for its pods. Upstream leaves out daemons that use resource claims while requests
    /// for dynamic resources are ignored, and they always are here.
    pub fn reserves_capacity(&self) -> bool {
        self.spec.refusal != Some(Reason::DynamicResources)
    }
}

#[derive(Debug, Clone)]
pub struct PodGroup {
    pub spec: Arc<PodSpec>,
    pub names: PodNames,
    /// Seconds since the epoch; older pods are placed first among equals. 0 if unknown.
    pub created_at_secs: i64,
}

/// Names of a group's pods without writing each of them down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodNames {
    Listed(Vec<Arc<str>>),
    /// `<prefix>-0`, `<prefix>-1`, …
    Numbered {
        prefix: Arc<str>,
        count: u32,
    },
}

impl PodNames {
    pub fn len(&self) -> u32 {
        match self {
            Self::Listed(names) => names.len() as u32,
            Self::Numbered { count, .. } => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the pod at a position below `len`.
    pub fn name(&self, position: u32) -> String {
        match self {
            Self::Listed(names) => {
                names.get(position as usize).map(|name| name.to_string()).unwrap_or_default()
            }
            Self::Numbered { prefix, .. } => format!("{prefix}-{position}"),
        }
    }

    pub(crate) fn first(&self) -> String {
        self.name(0)
    }
}

impl PodGroup {
    pub fn count(&self) -> u32 {
        self.names.len()
    }

    /// Order key among groups that are otherwise equal.
    pub fn order_name(&self) -> (Arc<str>, String) {
        (self.spec.namespace.clone(), self.names.first())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The cheapest valid fleet found within the effort.
    #[default]
    Cost,
    /// Upstream's order and choices.
    Compat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreferencePolicy {
    #[default]
    Respect,
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinValuesPolicy {
    #[default]
    Strict,
    BestEffort,
}

/// How reserved capacity is treated when it runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedMode {
    /// Wait for the reservation rather than fall back (provisioning).
    #[default]
    Strict,
    /// Fall back to other capacity (simulations).
    Fallback,
    /// Use reservations up, then fall back: where the rounds of provisioning end (plans).
    Exhaust,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mode: Mode,
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    pub reserved_mode: ReservedMode,
    /// Work units the cost search may spend; the same number gives the same plan on every machine.
    pub effort: u64,
    /// How many instance types a spot node keeps at least, where the pool allows it.
    pub min_spot_types: usize,
    /// Added to each node's price while searching, so that plans do not scatter tiny nodes; never part of the cost.
    pub node_overhead_price_per_hour: f64,
    /// New nodes below or above these sizes are not planned (cost mode; cpu in thousandths).
    pub min_node_cpu_millis: i64,
    pub max_node_cpu_millis: i64,
    /// Options of a planned node may cost up to this factor of its own price.
    pub max_option_price_factor: f64,
}

pub const EFFORT_DEFAULT: u64 = 1_000;
pub const EFFORT_MAX: u64 = 100_000;

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Cost,
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            reserved_mode: ReservedMode::Strict,
            effort: EFFORT_DEFAULT,
            min_spot_types: 10,
            node_overhead_price_per_hour: 0.0,
            min_node_cpu_millis: 0,
            max_node_cpu_millis: i64::MAX,
            max_option_price_factor: 1.25,
        }
    }
}
