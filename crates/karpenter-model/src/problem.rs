//! The input of a planning run: options, and the NodePools, catalogs, nodes and pods as they were at one moment.
//!
//! A `Problem` is a plain value; later changes of the cluster do not affect it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::instance_type::InstanceType;
use crate::node_count_tolerance::NodeCountTolerance;
use crate::pod::PodSpec;
use crate::reason::Reason;
use crate::requirements::Requirements;
use crate::resources::ResourceList;
use crate::selector::Labels;
use crate::spread_share::SpreadShare;
use crate::taints::Taint;

#[derive(Debug, Clone, Default)]
pub struct Problem {
    pub catalogs: Vec<Arc<Vec<InstanceType>>>,
    pub pools: Vec<NodePool>,
    pub nodes: Vec<Node>,
    /// The pending pods in groups; all pods of a group have the same spec.
    pub pods: Vec<PodGroup>,
    /// One entry per DaemonSet; every node that matches its pod spec runs one such pod.
    pub daemons: Vec<Daemon>,
    /// Label keys that a NodePool need not define: the well-known keys of the core and of the provider.
    pub well_known: BTreeSet<Arc<str>>,
    pub options: Options,
}

#[derive(Debug, Clone)]
pub struct NodePool {
    pub name: Arc<str>,
    pub weight: i32,
    /// The requirements in the NodePool's template (`spec.template.spec.requirements`), with `minValues`.
    pub requirements: Requirements,
    /// The labels in the NodePool's template, and the labels that name the NodePool and the node class.
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// The NodePool's limit for each resource; the pseudo resource `nodes` limits the number of nodes.
    pub limits: ResourceList,
    /// What the NodePool's existing nodes count against the limits: their capacity, and their number as `nodes`.
    pub usage: ResourceList,
    /// Index into [`Problem::catalogs`].
    pub catalog: usize,
    /// The share of a hard hostname spread's pods that one node of this NodePool may hold; if `None`,
    /// [`Options::hostname_spread_share`] applies.
    pub hostname_spread_share: Option<SpreadShare>,
}

/// An existing or in-flight node. For an in-flight node, the taints are those that it will have after initialization.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: Arc<str>,
    pub labels: Labels,
    /// The node's taints; before initialization, without startup taints and ephemeral taints.
    pub taints: Vec<Taint>,
    pub initialized: bool,
    pub pool: Option<Arc<str>>,
    pub allocatable: ResourceList,
    pub pods: Vec<BoundPod>,
    /// For each CSI driver: how many volumes the node can attach. A driver that is missing has no limit.
    pub volume_limits: BTreeMap<Arc<str>, u32>,
    pub price_per_hour: Option<f64>,
    /// Whether only pending pods may be placed on the node, but no pods moved from other nodes, because the node is in
    /// a cool-down or about to be disrupted.
    pub is_settling: bool,
}

impl Node {
    /// The value of the hostname label, or the node's name if the label is missing.
    pub fn hostname(&self) -> &Arc<str> {
        self.labels.get(crate::labels::HOSTNAME).unwrap_or(&self.name)
    }
}

/// A pod that is bound to a node. The planner does not move it.
#[derive(Debug, Clone)]
pub struct BoundPod {
    pub spec: Arc<PodSpec>,
    pub is_daemon: bool,
    /// Whether the pod is terminating. Such pods use resources, but topology constraints do not count them.
    pub is_terminating: bool,
    /// Whether the pod must be rescheduled if its node is disrupted.
    pub mobility: Mobility,
}

/// Whether a bound pod must be rescheduled when its node is disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Mobility {
    /// The pod is not rescheduled: it is a DaemonSet pod, a mirror pod, terminating or finished, and is deleted with
    /// its node.
    #[default]
    Stays,
    /// The pod must be rescheduled if its node is disrupted, but it may not be evicted at present.
    Blocked,
    /// The pod must be rescheduled if its node is disrupted, and it may be evicted.
    Moves,
}

#[derive(Debug, Clone)]
pub struct Daemon {
    pub name: Arc<str>,
    pub spec: Arc<PodSpec>,
}

impl Daemon {
    /// Whether nodes reserve capacity for the DaemonSet's pods. DaemonSets with resource claims are left out. Upstream
    /// does this only while it is configured to ignore dynamic resource requests; this planner always does.
    pub fn reserves_capacity(&self) -> bool {
        self.spec.refusal != Some(Reason::DynamicResources)
    }
}

#[derive(Debug, Clone)]
pub struct PodGroup {
    pub spec: Arc<PodSpec>,
    pub names: PodNames,
    /// The creation time in seconds since 1970; 0 if unknown. Of pods that are otherwise equal, older ones are planned
    /// first.
    pub created_at_secs: i64,
}

/// The names of a group's pods. Names that follow a pattern are generated instead of stored.
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

    /// The name of the pod at `position`, which must be below `len`.
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

    /// The key by which groups are sorted if they are otherwise equal.
    pub fn order_name(&self) -> (Arc<str>, String) {
        (self.spec.namespace.clone(), self.names.first())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Cost mode: search for the cheapest valid fleet within `effort`.
    #[default]
    Cost,
    /// Compat mode: place pods in upstream's order with upstream's choices.
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

/// What happens to pods that could use reserved capacity when it is exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedMode {
    /// The pod stays pending until the reservation has capacity. Provisioning uses this mode.
    #[default]
    Strict,
    /// The pod is placed on other offerings instead. Simulations of disruption use this mode.
    Fallback,
    /// Pods wait for reservations first and use other offerings at the end, which is the result of provisioning
    /// repeatedly. Plans on the command line use this mode.
    Exhaust,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mode: Mode,
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    pub reserved_mode: ReservedMode,
    /// How many work units the search in cost mode may use. A work unit does not depend on the speed of the machine.
    pub effort: u64,
    /// The minimum number of instance type options of a spot node; fewer if its NodePool does not have as many.
    pub min_spot_types: usize,
    /// A price per hour that the search adds to every node, so that fewer, larger nodes are preferred. It is not part
    /// of the price of the plan.
    pub node_overhead_price_per_hour: f64,
    /// How much more than the cheapest fleet found a fleet with fewer nodes may cost. Only cost mode uses it, and only
    /// if `effort` is at least the default.
    pub node_count_tolerance: NodeCountTolerance,
    /// The minimum and maximum cpu of new nodes in cost mode, in millicores.
    pub min_node_cpu_millis: i64,
    pub max_node_cpu_millis: i64,
    /// The maximum price of an instance type option, as a multiple of the price of the chosen option.
    pub max_option_price_factor: f64,
    /// The share of a hard hostname spread's pods that one node may hold, for NodePools without a share of their own.
    pub hostname_spread_share: SpreadShare,
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
            node_count_tolerance: NodeCountTolerance::NONE,
            min_node_cpu_millis: 0,
            max_node_cpu_millis: i64::MAX,
            max_option_price_factor: 1.25,
            hostname_spread_share: SpreadShare::default(),
        }
    }
}
