//! The result of planning a [`crate::problem::Problem`]: new nodes, pods on existing nodes, and unschedulable pods with
//! reasons.
//!
//! Pods are identified by group and range of positions, so the size of a plan depends on nodes and groups, not on pods.

use crate::reason::Refusal;
use crate::requirements::Requirements;
use crate::resources::ResourceList;

/// Pods `start .. start + count` of one [`crate::problem::PodGroup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodRun {
    pub group: u32,
    pub start: u32,
    pub count: u32,
}

/// The node of a run of pods.
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
    /// An order in which the pods can be bound so that every constraint holds after each binding. Contains every
    /// planned pod.
    pub order: Vec<(PodRun, Place)>,
    /// Sum of the prices of new nodes.
    pub price_per_hour: f64,
    /// A lower bound of the price of any valid fleet for the planned pods.
    pub lower_bound_per_hour: f64,
    /// The price of the plan in compat mode for the same input.
    pub compat_price_per_hour: f64,
    pub stats: PlanStats,
}

/// A node that the plan launches.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Index into `Problem::pools`.
    pub pool: usize,
    /// The cheapest option: its index in the NodePool's catalog, and the index of the offering.
    pub instance_type: usize,
    pub offering: usize,
    pub price_per_hour: f64,
    /// Instance type options, cheapest first; indexes into the NodePool's catalog.
    pub instance_type_options: Vec<usize>,
    /// Requirements of the NodeClaim, without instance types.
    pub requirements: Requirements,
    /// Requests of the pods plus the smallest DaemonSet overhead of the options.
    pub requests: ResourceList,
    pub pods: Vec<PodRun>,
    /// Whether `minValues` could not be met and were lowered (policy BestEffort).
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
    /// Work units that the search in cost mode used.
    pub work: u64,
}
