//! The input of a planning run: NodePools, catalogs, nodes and pods at one time, and options.
//!
//! A `Problem` is a plain value without references to live state.

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
    /// Pending pods in groups. All pods of a group have the same spec.
    pub pods: Vec<PodGroup>,
    /// One spec per DaemonSet; every node that it fits runs its pod.
    pub daemons: Vec<Daemon>,
    /// Label keys that a NodePool need not define (well-known keys of the core and the provider).
    pub well_known: BTreeSet<Arc<str>>,
    pub options: Options,
}

#[derive(Debug, Clone)]
pub struct NodePool {
    pub name: Arc<str>,
    pub weight: i32,
    /// The requirements of the template (`spec.template.spec.requirements`), with `minValues`.
    pub requirements: Requirements,
    /// Labels of the template, the label of the NodePool and that of the node class.
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    /// Limits per resource; the pseudo resource `nodes` limits the number of nodes.
    pub limits: ResourceList,
    /// The usage of the limits by the existing nodes of the NodePool: their capacity, and their number as `nodes`.
    pub usage: ResourceList,
    /// Index into [`Problem::catalogs`].
    pub catalog: usize,
    /// The limit of pods of a hard hostname spread per node of this NodePool; if `None`,
    /// [`Options::hostname_spread_share`] applies.
    pub hostname_spread_share: Option<SpreadShare>,
}

/// An existing or in-flight node, with the taints that it has once initialized.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: Arc<str>,
    pub labels: Labels,
    /// The taints, without startup taints and ephemeral taints of nodes that are not initialized.
    pub taints: Vec<Taint>,
    pub initialized: bool,
    pub pool: Option<Arc<str>>,
    pub allocatable: ResourceList,
    pub pods: Vec<BoundPod>,
    /// Volume attachment limits per CSI driver; a missing driver is unlimited.
    pub volume_limits: BTreeMap<Arc<str>, u32>,
    pub price_per_hour: Option<f64>,
    /// Whether only pending pods may be planned onto the node, and no pods of other nodes: the node is in a cool-down
    /// or about to be disrupted.
    pub is_settling: bool,
}

impl Node {
    /// The hostname label, or the node's name.
    pub fn hostname(&self) -> &Arc<str> {
        self.labels.get(crate::labels::HOSTNAME).unwrap_or(&self.name)
    }
}

/// A pod that is bound to a node and is not planned.
#[derive(Debug, Clone)]
pub struct BoundPod {
    pub spec: Arc<PodSpec>,
    pub is_daemon: bool,
    /// Terminating pods use resources, but topology constraints do not count them.
    pub is_terminating: bool,
    /// Whether the pod must be rescheduled if its node is disrupted.
    pub mobility: Mobility,
}

/// Whether a bound pod must be rescheduled when its node is disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Mobility {
    /// The pod is not rescheduled, but deleted with its node: DaemonSet pods, mirror pods, terminating and finished
    /// pods.
    #[default]
    Stays,
    /// The pod must be rescheduled, but may not be evicted at present.
    Blocked,
    /// The pod must be rescheduled and may be evicted.
    Moves,
}

#[derive(Debug, Clone)]
pub struct Daemon {
    pub name: Arc<str>,
    pub spec: Arc<PodSpec>,
}

impl Daemon {
    /// Whether nodes reserve capacity for the pods of the DaemonSet. Upstream omits DaemonSets that use resource claims
    /// while it ignores dynamic resource requests; this planner always ignores them.
    pub fn reserves_capacity(&self) -> bool {
        self.spec.refusal != Some(Reason::DynamicResources)
    }
}

#[derive(Debug, Clone)]
pub struct PodGroup {
    pub spec: Arc<PodSpec>,
    pub names: PodNames,
    /// The creation time in seconds since 1970, or 0 if unknown. Of otherwise equal pods, older ones are planned first.
    pub created_at_secs: i64,
}

/// Names of a group's pods; generated names are not stored.
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

    /// The key by which groups that are otherwise equal are sorted.
    pub fn order_name(&self) -> (Arc<str>, String) {
        (self.spec.namespace.clone(), self.names.first())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Cost mode: the cheapest valid fleet found within the effort.
    #[default]
    Cost,
    /// Compat mode: upstream's order and choices.
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

/// What happens if reserved capacity is exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReservedMode {
    /// The pod stays pending until the reservation has capacity (provisioning).
    #[default]
    Strict,
    /// The pod is placed on other offerings instead. Used by simulations.
    Fallback,
    /// Pods wait for reservations first and use other offerings at the end, which is the result of repeated
    /// provisioning. Used for plans.
    Exhaust,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub mode: Mode,
    pub preference_policy: PreferencePolicy,
    pub min_values_policy: MinValuesPolicy,
    pub reserved_mode: ReservedMode,
    /// Work units that the search in cost mode may use; independent of the speed of the machine.
    pub effort: u64,
    /// The minimum number of instance type options of a spot node, as far as its NodePool allows.
    pub min_spot_types: usize,
    /// A charge per node during the search, so that fewer, larger nodes are preferred. It is not part of the price of
    /// the plan.
    pub node_overhead_price_per_hour: f64,
    /// How much more than the cheapest fleet found a fleet with fewer nodes may cost (cost mode, from the default effort on).
    pub node_count_tolerance: NodeCountTolerance,
    /// The minimum and maximum size of new nodes in cost mode, in millicores.
    pub min_node_cpu_millis: i64,
    pub max_node_cpu_millis: i64,
    /// The maximum price of an instance type option, as a factor of the price of the chosen one.
    pub max_option_price_factor: f64,
    /// The limit of pods of a hard hostname spread per node, for NodePools without a limit of their own.
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
