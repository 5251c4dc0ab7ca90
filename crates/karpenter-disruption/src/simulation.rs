//! Scheduling simulation: where the pods of some nodes would be scheduled if these nodes were deleted.
//!
//! Pending pods are simulated as well, but a pending pod that cannot be scheduled is no reason to reject a command, and
//! the command does not launch nodes that only pending pods need: provisioning launches those nodes.
//!
//! Upstream: pkg/controllers/disruption/helpers.go (SimulateScheduling).

use std::collections::BTreeMap;
use std::sync::Arc;

use karpenter_model::labels::CAPACITY_TYPE_RESERVED;
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::{Mode as EngineMode, Node, ReservedMode};
use karpenter_scheduling::simulate::{BoundAt, Outcome, SimulationRequest, Simulator};

use crate::command::{Candidate, Destination};
use crate::context::EvaluationContext;
use crate::prices::total_per_hour;
use crate::settings::Mode;
use crate::verdict::{UninitializedNode, UnschedulablePod};

/// The target of every pod that is rescheduled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    pub(crate) moves: Vec<(BoundAt, Destination)>,
    pub(crate) replacements: Vec<PlannedNode>,
}

impl Placement {
    pub(crate) fn price_per_hour(&self) -> f64 {
        total_per_hour(self.replacements.iter().map(|node| node.price_per_hour))
    }
}

/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SimulationOptions {
    /// Whether targets are found for pods that cannot be evicted at present.
    pub(crate) moves_blocked_pods: bool,
    pub(crate) reserved_mode: ReservedMode,
}

impl SimulationOptions {
    pub(crate) const ORDINARY: Self =
        Self { moves_blocked_pods: false, reserved_mode: ReservedMode::Fallback };
}

/// Each replacement beyond the first must save at least this share of the candidate's price.
const SAVING_SHARE_PER_NODE_MORE: f64 = 0.06;

static NO_CREDITS: BTreeMap<Arc<str>, u32> = BTreeMap::new();

pub(crate) fn simulation_request<'q>(
    context: &EvaluationContext<'_>,
    removed_nodes: &'q [usize],
    simulation_options: SimulationOptions,
    reservation_credits: Option<&'q BTreeMap<Arc<str>, u32>>,
) -> SimulationRequest<'q> {
    SimulationRequest {
        removed_nodes,
        moves_blocked_pods: simulation_options.moves_blocked_pods,
        mode: context.engine_mode(),
        effort: context.settings.effort,
        prefers_vacated_domains: false,
        reserved_mode: simulation_options.reserved_mode,
        reservation_credits: reservation_credits.unwrap_or(&NO_CREDITS),
    }
}

/// The targets of all pods, or the pods that cannot be scheduled. `simulator` must be the one that computed the
/// outcome.
pub(crate) fn read(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    outcome: &Outcome,
) -> Result<Placement, Vec<UnschedulablePod>> {
    let (placement, unschedulable) = partial_placement(context, simulator, outcome);
    if unschedulable.is_empty() { Ok(placement) } else { Err(unschedulable) }
}

/// The targets of pods that can be scheduled, and the pods that cannot.
pub(crate) fn partial_placement(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    outcome: &Outcome,
) -> (Placement, Vec<UnschedulablePod>) {
    let waiting = simulator.problem().pods.len();
    let movers = |group: u32, start: u32, count: u32| -> &[BoundAt] {
        let group = (group as usize).checked_sub(waiting).and_then(|group| outcome.movers.get(group));
        let (start, end) = (start as usize, start as usize + count as usize);
        group.and_then(|pods| pods.get(start..end)).unwrap_or(&[])
    };
    let mut unschedulable = Vec::new();
    for one in &outcome.plan.unschedulable {
        for pod in movers(one.pods.group, one.pods.start, one.pods.count) {
            let pod = name_of(context, *pod);
            unschedulable.push(UnschedulablePod { pod, reasons: one.reasons.clone(), uninitialized: None });
        }
    }
    let mut placement = Placement::default();
    for existing in &outcome.plan.existing {
        // An index beyond the cluster's nodes is a replacement that another command launches.
        let node = simulator.node(existing.node);
        let is_there =
            node.is_some_and(|node| node.initialized) && existing.node < context.state_node_of.len();
        for run in &existing.pods {
            for pod in movers(run.group, run.start, run.count) {
                if is_there {
                    placement.moves.push((*pod, Destination::Existing(existing.node)));
                } else {
                    let uninitialized = Some(uninitialized(context, existing.node, node));
                    unschedulable.push(UnschedulablePod {
                        pod: name_of(context, *pod),
                        reasons: Vec::new(),
                        uninitialized,
                    });
                }
            }
        }
    }
    unschedulable.sort_by(|one, other| one.pod.cmp(&other.pod));
    for planned in &outcome.plan.new_nodes {
        let pods: Vec<BoundAt> =
            planned.pods.iter().flat_map(|run| movers(run.group, run.start, run.count)).copied().collect();
        if pods.is_empty() {
            continue;
        }
        let new = Destination::New(placement.replacements.len());
        placement.moves.extend(pods.into_iter().map(|pod| (pod, new)));
        placement.replacements.push(PlannedNode { pods: Vec::new(), ..planned.clone() });
    }
    placement.moves.sort_unstable();
    (placement, unschedulable)
}

/// The description of a node that is not initialized. A replacement of another command has only a name.
fn uninitialized(context: &EvaluationContext<'_>, at: usize, node: Option<&Node>) -> UninitializedNode {
    let state_node =
        context.state_node_of.get(at).copied().flatten().map(|index| &context.cluster.state_nodes[index]);
    match state_node {
        Some(state_node) => {
            UninitializedNode { claim: Some(state_node.claim.clone()), node: state_node.node.clone() }
        }
        None => UninitializedNode { claim: None, node: node.map(|node| node.name.clone()) },
    }
}

fn name_of(context: &EvaluationContext<'_>, pod: BoundAt) -> Arc<str> {
    let state_node = context.state_node_of.get(pod.node as usize).copied().flatten();
    let node_pod = state_node.and_then(|index| context.cluster.state_nodes[index].pods.get(pod.pod as usize));
    node_pod.map(|node_pod| node_pod.name.clone()).unwrap_or_default()
}

/// Another placement with fewer replacements, if the additional replacements do not save enough.
fn with_fewer(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    candidate: &Candidate,
    simulation_options: SimulationOptions,
    many: &Placement,
) -> Option<(Placement, Outcome)> {
    if many.replacements.len() < 2 || context.settings.mode != Mode::Cost {
        return None;
    }
    let removed_nodes = context.nodes_of([candidate]);
    let plain = SimulationRequest {
        mode: EngineMode::Compat,
        ..simulation_request(context, &removed_nodes, simulation_options, None)
    };
    let outcome = context.ask(simulator, &plain);
    let few = read(context, simulator, &outcome).ok()?;
    let price = |placement: &Placement| {
        let share = SAVING_SHARE_PER_NODE_MORE * placement.replacements.len() as f64;
        placement.price_per_hour() + share * candidate.price_per_hour
    };
    (price(&few) < price(many)).then_some((few, outcome))
}

/// How a single node can be replaced.
pub(crate) enum NodeReplacement {
    /// The replacement is launched first.
    Ordinary(Placement),
    /// The node is deleted first, which frees its slot in a capacity reservation for the replacement.
    TerminateFirst(Placement),
    Not(Vec<UnschedulablePod>),
}

/// Simulates the replacement of one node. If pods cannot be scheduled and terminate-first is allowed, the replacement
/// is simulated again as if the node's slot in its capacity reservation were free.
///
/// The outcome of the simulation is returned as well, so that the caller can commit it to a simulator.
pub(crate) fn replace(
    context: &EvaluationContext<'_>,
    simulator: &Simulator<'_>,
    candidate: &Candidate,
    moves_blocked_pods: bool,
    may_terminate_first: bool,
) -> (NodeReplacement, Option<Outcome>) {
    let removed_nodes = context.nodes_of([candidate]);
    let simulation_options = SimulationOptions { moves_blocked_pods, reserved_mode: ReservedMode::Fallback };
    let outcome =
        context.ask(simulator, &simulation_request(context, &removed_nodes, simulation_options, None));
    let unschedulable = match read(context, simulator, &outcome) {
        Ok(placement) => {
            let (placement, outcome) =
                with_fewer(context, simulator, candidate, simulation_options, &placement)
                    .unwrap_or((placement, outcome));
            return (NodeReplacement::Ordinary(placement), Some(outcome));
        }
        Err(unschedulable) => unschedulable,
    };
    let state_node = context.state_node(candidate);
    let is_reserved = state_node.capacity_type.as_deref() == Some(CAPACITY_TYPE_RESERVED);
    let reservation = state_node.reservation_id.clone().filter(|_| may_terminate_first && is_reserved);
    let Some(reservation) = reservation else { return (NodeReplacement::Not(unschedulable), None) };
    let reservation_credits = BTreeMap::from([(reservation, 1)]);
    // Pods that do not fit into the freed slot must count as unschedulable, because the command launches no other node
    // for them.
    let simulation_options = SimulationOptions { moves_blocked_pods, reserved_mode: ReservedMode::Strict };
    let outcome = context.ask(
        simulator,
        &simulation_request(context, &removed_nodes, simulation_options, Some(&reservation_credits)),
    );
    match read(context, simulator, &outcome) {
        Ok(placement) => (NodeReplacement::TerminateFirst(placement), Some(outcome)),
        Err(_) => (NodeReplacement::Not(unschedulable), None),
    }
}
