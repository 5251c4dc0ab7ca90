//! The result of planning a [`crate::problem::Problem`]: new nodes, pods on existing nodes, and unschedulable pods with
//! reasons.
//!
//! Pods are identified by their group and a range of positions in it, so the size of a plan depends on the number of
//! nodes and groups, not on the number of pods.

use crate::reason::Refusal;
use crate::requirements::Requirements;
use crate::resources::ResourceList;

/// The pods at positions `start .. start + count` of one [`crate::problem::PodGroup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRun {
    pub group: u32,
    pub start: u32,
    pub count: u32,
}

/// The node on which a run of pods is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Index into [`Plan::new_nodes`].
    New(usize),
    /// Index into `Problem::nodes`.
    Existing(usize),
}

#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub new_nodes: Vec<PlannedNode>,
    pub existing: Vec<ExistingPlacement>,
    pub unschedulable: Vec<Unschedulable>,
    /// An order in which the pods can be bound such that every constraint holds after each binding. It contains every
    /// placed pod.
    pub order: Vec<(PodRun, Place)>,
    /// The sum of the hourly prices of new nodes.
    pub price_per_hour: f64,
    /// An hourly price that no valid fleet for the planned pods can go below.
    pub lower_bound_per_hour: f64,
    /// The hourly price of the plan that compat mode makes for the same problem.
    pub compat_price_per_hour: f64,
    pub stats: PlanStats,
}

/// A node that the plan launches.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Index into `Problem::pools`.
    pub pool: usize,
    /// The cheapest instance type option, as an index into the NodePool's catalog; `offering` is the index of its
    /// offering.
    pub instance_type: usize,
    pub offering: usize,
    pub price_per_hour: f64,
    /// Instance type options, cheapest first, as indexes into the NodePool's catalog.
    pub instance_type_options: Vec<usize>,
    /// The NodeClaim's requirements, without the one on instance types.
    pub requirements: Requirements,
    /// The requests of the pods plus those of DaemonSet pods, for the option where the latter are smallest.
    pub requests: ResourceList,
    pub pods: Vec<PodRun>,
    /// Whether `minValues` could not be met and were lowered, which the policy BestEffort allows.
    pub min_values_relaxed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingPlacement {
    /// Index into `Problem::nodes`.
    pub node: usize,
    pub pods: Vec<PodRun>,
}

#[derive(Debug, Clone)]
pub struct Unschedulable {
    pub pods: PodRun,
    pub reasons: Vec<Refusal>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanStats {
    pub pods: u64,
    pub classes: u32,
    /// The number of work units that the search in cost mode used.
    pub work: u64,
}
