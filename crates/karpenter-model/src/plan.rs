//! The answer to a [`crate::problem::Problem`]: nodes to launch, pods on existing nodes, pods left over and why.
//!
//! Pods are named by (group, position range), so an answer's size grows with nodes and groups, not with pods.

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

/// Where the plan puts a run of pods.
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
    /// An order in which the pods can be bound without breaking a constraint on the way. Covers every placed pod.
    pub order: Vec<(PodRun, Place)>,
    /// Sum of the planned nodes' prices.
    pub price_per_hour: f64,
    /// No valid fleet for the placed pods can cost less than this.
    pub lower_bound_per_hour: f64,
    /// What upstream's order and choices would cost for the same input.
    pub compat_price_per_hour: f64,
    pub stats: PlanStats,
}

/// A node that the plan launches.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Index into `Problem::pools`.
    pub pool: usize,
    /// The cheapest option: index into the pool's catalog, and of the offering within the type.
    pub instance_type: usize,
    pub offering: usize,
    pub price_per_hour: f64,
    /// Every type the claim may launch as, cheapest first; indexes into the pool's catalog.
    pub instance_type_options: Vec<usize>,
    /// What the NodeClaim asks for (instance types excluded).
    pub requirements: Requirements,
    /// Pods plus the smallest daemon overhead over the options.
    pub requests: ResourceList,
    pub pods: Vec<PodRun>,
    /// minValues could not be met and were lowered (BestEffort).
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
    /// Work units spent by the cost search.
    pub work: u64,
}
