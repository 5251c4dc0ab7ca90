//! An independent implementation of upstream's rules for one evaluation, with the planner in place of the simulator: the
//! candidates, their order, the binary search, and the resulting command.
//!
//! The implementation supports only clusters without repair, static drift and settings that upstream does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, Reason, StateNode};
use karpenter_disruption::command::{Command, Method};
use karpenter_disruption::evaluate::Evaluation;
use karpenter_disruption::settings::Settings;
use karpenter_model::plan::PlannedNode;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Mode, PodGroup, PodNames, Problem, ReservedMode};
use karpenter_scheduling::schedule;

use crate::replacement::{Launch, cheaper, disruption_cost, is_balanced};

/// Whether the node and its pods may be disrupted, in clusters without termination grace periods.
fn is_free(cluster: &Cluster, state_node: &StateNode) -> bool {
    let is_blocked = |budgets: &[u32]| {
        budgets.iter().any(|budget| cluster.pod_budgets[*budget as usize].disruptions_allowed == 0)
    };
    state_node.is_initialized
        && !state_node.is_marked_for_deletion
        && !state_node.is_nominated
        && !state_node.is_do_not_disrupt
        && !state_node.pods.iter().any(|one| one.is_do_not_disrupt || is_blocked(&one.budgets))
}

/// What is left of the budgets for a reason, without nodes that are not ready.
fn left(cluster: &Cluster, reason: Reason) -> BTreeMap<&str, i64> {
    let mut left: BTreeMap<&str, i64> =
        cluster.pools.iter().map(|(name, pool)| (&**name, i64::from(pool.allowed[&reason]))).collect();
    for state_node in cluster.state_nodes.iter().filter(|one| one.is_initialized && !one.is_ready) {
        if let Some(left) = state_node.pool.as_deref().and_then(|pool| left.get_mut(pool)) {
            *left -= 1;
        }
    }
    left
}

fn pool_of(state_node: &StateNode) -> &str {
    state_node.pool.as_deref().unwrap_or_default()
}

fn take(left: &mut BTreeMap<&str, i64>, cluster: &Cluster, index: usize) -> bool {
    let Some(left) = left.get_mut(pool_of(&cluster.state_nodes[index])) else { return false };
    *left -= 1;
    *left >= 0
}

/// The nodes to launch if these were deleted; `None` if a pod cannot be scheduled, or only on an uninitialized node.
fn launches_without(cluster: &Cluster, state_nodes: &[usize]) -> Option<Vec<PlannedNode>> {
    let gone: BTreeSet<usize> =
        state_nodes.iter().filter_map(|index| cluster.state_nodes[*index].at).collect();
    let mut problem = Problem { nodes: Vec::new(), ..cluster.problem.clone() };
    problem.options.mode = Mode::Compat;
    problem.options.reserved_mode = ReservedMode::Fallback;
    // Upstream sorts pods of equal requests by age, then by uid. The pods of these clusters have neither, so any order
    // of equal pods is valid; this one keeps equal pods of one group together. Another order may give another result.
    let mut moving: Vec<(Arc<PodSpec>, u32)> = Vec::new();
    for (index, node) in cluster.problem.nodes.iter().enumerate() {
        if !gone.contains(&index) {
            problem.nodes.push(node.clone());
            continue;
        }
        for pod in node.pods.iter().filter(|pod| pod.mobility == Mobility::Moves) {
            match moving.iter_mut().find(|(spec, _)| *spec == pod.spec) {
                Some((_, count)) => *count += 1,
                None => moving.push((pod.spec.clone(), 1)),
            }
        }
    }
    problem.pods.extend(moving.into_iter().enumerate().map(|(number, (spec, count))| PodGroup {
        spec,
        names: PodNames::Numbered { prefix: format!("moved-{number}").into(), count },
        created_at_secs: 0,
    }));
    let plan = schedule(&problem);
    let is_coming = |node: usize| !problem.nodes[node].initialized;
    let has_place = plan.unschedulable.is_empty()
        && !plan.existing.iter().any(|one| is_coming(one.node) && !one.pods.is_empty());
    has_place.then_some(plan.new_nodes)
}

/// A command: method, claims, and launches.
type Done = (Method, Vec<String>, Vec<Launch>);

/// The launches if these nodes can be deleted or replaced by one cheaper node, and their NodePools approve.
fn consolidated(cluster: &Cluster, settings: &Settings, state_nodes: &[usize]) -> Option<Vec<Launch>> {
    let going: Vec<&StateNode> = state_nodes.iter().map(|index| &cluster.state_nodes[*index]).collect();
    let launches = launches_without(cluster, state_nodes)?;
    let launches = match launches.as_slice() {
        [] => Vec::new(),
        [only] => vec![cheaper(cluster, settings, &going, only)?],
        _ => return None,
    };
    let price: f64 = launches.iter().map(|(_, price)| price).sum();
    is_balanced(cluster, &going, price).then_some(launches)
}

/// The longest prefix that the binary search finds, of at least two nodes.
fn several(cluster: &Cluster, settings: &Settings, list: &[usize]) -> Option<(Vec<usize>, Vec<Launch>)> {
    let mut found = None;
    // The lower and the upper bound of the number of nodes.
    let (mut fewest, mut most) = (2, list.len().min(101));
    while fewest <= most {
        // The midpoint of upstream's binary search, whose bounds count from zero.
        let count = (fewest + most) / 2;
        match consolidated(cluster, settings, &list[..count]) {
            Some(launches) => {
                found = Some((list[..count].to_vec(), launches));
                fewest = count + 1;
            }
            None => most = count - 1,
        }
    }
    found
}

/// Upstream's command in one evaluation.
fn expected(cluster: &Cluster, settings: &Settings) -> Option<Done> {
    let claim = |index: usize| cluster.state_nodes[index].claim.to_string();
    let claims = |list: &[usize]| list.iter().map(|index| claim(*index)).collect::<Vec<_>>();
    let pool = |index: usize| &cluster.pools[pool_of(&cluster.state_nodes[index])];
    let free = (0..cluster.state_nodes.len()).filter(|index| is_free(cluster, &cluster.state_nodes[*index]));
    let mut by_ratio: Vec<usize> = free.filter(|index| pool(*index).replicas.is_none()).collect();
    by_ratio.sort_by(|one, other| {
        let ratio = |index: usize| {
            cluster.state_nodes[index].price_per_hour / disruption_cost(&cluster.state_nodes[index])
        };
        ratio(*other).total_cmp(&ratio(*one)).then_with(|| claim(*one).cmp(&claim(*other)))
    });
    let mut drifted = by_ratio.clone();
    let (empty, mut used): (Vec<usize>, Vec<usize>) =
        by_ratio.into_iter().partition(|index| disruption_cost(&cluster.state_nodes[*index]) <= 1.0);
    used.retain(|index| pool(*index).policy != ConsolidationPolicy::WhenEmpty);

    let mut allowed = left(cluster, Reason::Empty);
    let empty: Vec<usize> = empty.into_iter().filter(|index| take(&mut allowed, cluster, *index)).collect();
    if !empty.is_empty() {
        return Some((Method::Emptiness, claims(&empty), Vec::new()));
    }

    let allowed = left(cluster, Reason::Drifted);
    drifted.retain(|index| {
        let state_node = &cluster.state_nodes[*index];
        state_node.drifted_since_secs.is_some() && allowed[pool_of(state_node)] > 0
    });
    drifted.sort_by_key(|index| {
        let state_node = &cluster.state_nodes[*index];
        (!state_node.pods.is_empty(), state_node.drifted_since_secs, claim(*index))
    });
    if let Some(first) = drifted.into_iter().find(|index| launches_without(cluster, &[*index]).is_some()) {
        return Some((Method::Drift, vec![claim(first)], Vec::new()));
    }

    let allowed = left(cluster, Reason::Underutilized);
    let mut taken = allowed.clone();
    let within: Vec<usize> = used.iter().copied().filter(|index| take(&mut taken, cluster, *index)).collect();
    if let Some((nodes, launches)) = several(cluster, settings, &within) {
        return Some((Method::MultiNodeConsolidation, claims(&nodes), launches));
    }
    let open = in_turns(cluster, &used)
        .into_iter()
        .filter(|index| allowed[pool_of(&cluster.state_nodes[*index])] > 0);
    open.into_iter().find_map(|index| {
        let launches = consolidated(cluster, settings, &[index])?;
        Some((Method::SingleNodeConsolidation, vec![claim(index)], launches))
    })
}

/// A command in comparable form.
fn said(cluster: &Cluster, command: &Command) -> Done {
    let claims = command.candidates.iter().map(|candidate| candidate.claim.to_string()).collect();
    let launch = |node: &PlannedNode| -> Launch {
        let catalog = &cluster.problem.catalogs[cluster.problem.pools[node.pool].catalog];
        let names = node.instance_type_options.iter().map(|option| catalog[*option].name.clone());
        (names.collect(), node.price_per_hour)
    };
    // The price does not matter for how a drifted node is replaced.
    let is_saving = command.method.reason() == Reason::Underutilized;
    let launches = command.replacements.iter().filter(|_| is_saving).map(launch).collect();
    (command.method, claims, launches)
}

/// Compares an evaluation with upstream's command.
pub(crate) fn check(cluster: &Cluster, settings: &Settings, evaluation: &Evaluation) {
    let said: Vec<Done> = evaluation.commands.iter().map(|command| said(cluster, command)).collect();
    let expected: Vec<Done> = expected(cluster, settings).into_iter().collect();
    assert_eq!(said, expected);
}

/// Interleaves NodePools.
fn in_turns(cluster: &Cluster, state_nodes: &[usize]) -> Vec<usize> {
    let mut by_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in state_nodes {
        by_pool.entry(pool_of(&cluster.state_nodes[*index])).or_default().push(*index);
    }
    let most = by_pool.values().map(Vec::len).max().unwrap_or(0);
    let turns = (0..most).flat_map(|turn| by_pool.values().filter_map(move |list| list.get(turn).copied()));
    turns.collect()
}
