//! Checks the guarantees of the commands of an evaluation, for each command and for all together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::balanced::{scores, totals};
use karpenter_disruption::budgets::remaining;
use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, Reason};
use karpenter_disruption::command::{Candidate, Command, Destination, Method};
use karpenter_disruption::prices::{catalog_of, worst_launch_price};
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_model::labels;
use karpenter_model::plan::{ExistingPlacement, Plan, PlannedNode, PodRun};
use karpenter_model::problem::{Mobility, PodGroup, PodNames, Problem};
use karpenter_scheduling::simulate::BoundAt;
use karpenter_scheduling::validate::validate;

use crate::builders::claims_of;

/// Checks everything that the commands of an evaluation guarantee together.
pub(crate) fn check_commands(cluster: &Cluster, settings: &Settings, commands: &[Command]) {
    let mut seen = BTreeSet::new();
    let mut taken: BTreeMap<(Arc<str>, Reason), u32> = BTreeMap::new();
    for command in commands {
        assert_eq!(command.method, commands[0].method, "one method per evaluation");
        for candidate in &command.candidates {
            assert!(seen.insert(candidate.state_node), "{} twice", candidate.claim);
            if cluster.state_nodes[candidate.state_node].is_initialized {
                *taken.entry((candidate.pool.clone(), command.method.reason())).or_default() += 1;
            }
        }
    }
    for ((pool, reason), count) in taken {
        let left = remaining(cluster, reason)[&pool].left();
        assert!(count <= left, "{count} of {left} {reason:?} in {pool}");
    }
    if let Some(first) = commands.first()
        && first.method.reason() == Reason::Underutilized
    {
        check_savings(cluster, commands);
        check_controls(cluster, settings, commands);
        if settings.mode == Mode::Cost {
            check_pod_budgets(cluster, commands);
        }
    }
    // The pods of empty nodes and of static NodePools are not planned, so their targets are not checked.
    if !commands.iter().any(|one| matches!(one.method, Method::Emptiness | Method::StaticDrift)) {
        check_places(cluster, commands);
    }
}

fn check_savings(cluster: &Cluster, commands: &[Command]) {
    for command in commands {
        assert!(command.saving_per_hour() > 0.0, "{:?} saves nothing", claims_of(command));
        let worst = |node| {
            let catalog = catalog_of(&cluster.problem, node);
            let options = node.instance_type_options.iter().map(|option| &catalog[*option]);
            let prices = options
                .map(|one| worst_launch_price(one, &node.requirements, &cluster.problem.well_known).unwrap());
            prices.fold(0.0, f64::max)
        };
        let worst: f64 = command.replacements.iter().map(worst).sum();
        assert!(worst < command.price_before_per_hour, "{worst} may be the launch price");
    }
}

/// Checks the settings of NodePools as documented.
fn check_controls(cluster: &Cluster, settings: &Settings, commands: &[Command]) {
    let mut moved: BTreeMap<&str, u32> = BTreeMap::new();
    for command in commands {
        let pools = command.candidates.iter().map(|one| &cluster.pools[&one.pool]);
        for pool in pools {
            let pool_policy = &pool.pool_policy;
            assert!(!pool_policy.is_dry_run, "{} is on a dry run", pool.name);
            assert_ne!(pool.policy, ConsolidationPolicy::WhenEmpty, "{}", pool.name);
            assert!(pool.replicas.is_none() && pool.consolidate_after_secs.is_some(), "{}", pool.name);
            let least = (pool_policy.min_saving_ratio * command.price_before_per_hour)
                .max(pool_policy.min_saving_per_hour);
            assert!(command.saving_per_hour() + 1e-9 >= least, "{}", pool.name);
            assert!(pool_policy.is_many_to_many_enabled || command.replacements.len() <= 1, "{}", pool.name);
        }
        for candidate in &command.candidates {
            let state_node = &cluster.state_nodes[candidate.state_node];
            let pods = state_node.pods.iter().filter(|one| one.is_reschedulable).count();
            *moved.entry(&*candidate.pool).or_default() += pods as u32;
        }
        for (pool, score) in scores(cluster, &totals(cluster), command) {
            assert!(score.is_approved(), "{pool}: {} < {}", score.value(), score.threshold());
        }
        let kind = |one: &Candidate| cluster.state_nodes[one.state_node].capacity_type.as_deref();
        let is_all_spot = command.candidates.iter().all(|one| kind(one) == Some(labels::CAPACITY_TYPE_SPOT));
        let may_be_spot = |node: &PlannedNode| {
            let kinds = node.requirements.get(labels::CAPACITY_TYPE);
            kinds.is_none_or(|kinds| kinds.has(labels::CAPACITY_TYPE_SPOT))
        };
        assert!(settings.spot_to_spot || !is_all_spot || !command.replacements.iter().any(may_be_spot));
    }
    for (pool, pods) in moved {
        let pool_policy = &cluster.pools[pool].pool_policy;
        let left =
            pool_policy.max_moves_per_hour.map(|most| most.saturating_sub(pool_policy.moved_last_hour));
        assert!(left.is_none_or(|left| pods <= left), "{pool}: {pods} of {left:?}");
    }
}

fn check_pod_budgets(cluster: &Cluster, commands: &[Command]) {
    let mut evictions = vec![0; cluster.pod_budgets.len()];
    for candidate in commands.iter().flat_map(|command| &command.candidates) {
        for node_pod in &cluster.state_nodes[candidate.state_node].pods {
            node_pod.budgets.iter().for_each(|budget| evictions[*budget as usize] += 1);
        }
    }
    for (budget, count) in cluster.pod_budgets.iter().zip(evictions) {
        assert!(count <= budget.disruptions_allowed, "{count} evictions of {}", budget.name);
    }
}

/// Every pod that is rescheduled has one target, and the validator accepts all of them together.
pub(crate) fn check_places(cluster: &Cluster, commands: &[Command]) {
    let gone: BTreeSet<usize> = commands
        .iter()
        .flat_map(|command| &command.candidates)
        .filter_map(|candidate| cluster.state_nodes[candidate.state_node].at)
        .collect();
    let least = |command: &Command| match command.method {
        Method::Repair => Mobility::Blocked,
        _ => Mobility::Moves,
    };
    let mut position = BTreeMap::new();
    let mut problem = Problem { nodes: Vec::new(), ..cluster.problem.clone() };
    for (index, node) in cluster.problem.nodes.iter().enumerate().filter(|(index, _)| !gone.contains(index)) {
        position.insert(index, problem.nodes.len());
        problem.nodes.push(node.clone());
    }
    let mut plan = Plan::default();
    let mut existing: BTreeMap<usize, Vec<PodRun>> = BTreeMap::new();
    for command in commands {
        let mut expected = BTreeSet::new();
        for candidate in &command.candidates {
            let node = cluster.state_nodes[candidate.state_node].at.expect("candidates have nodes");
            let pods = cluster.problem.nodes[node].pods.iter().enumerate();
            let moving = pods.filter(|(_, pod)| pod.mobility >= least(command));
            expected.extend(moving.map(|(pod, _)| BoundAt { node: node as u32, pod: pod as u32 }));
        }
        let moved: Vec<BoundAt> = command.moves.iter().map(|(pod, _)| *pod).collect();
        assert_eq!(moved, expected.into_iter().collect::<Vec<_>>(), "each pod once");
        let first = plan.new_nodes.len();
        plan.new_nodes.extend(command.replacements.iter().cloned());
        for (pod, to) in &command.moves {
            let run = PodRun { group: problem.pods.len() as u32, start: 0, count: 1 };
            problem.pods.push(PodGroup {
                spec: cluster.problem.nodes[pod.node as usize].pods[pod.pod as usize].spec.clone(),
                names: PodNames::Numbered { prefix: format!("pod-{}", problem.pods.len()).into(), count: 1 },
                created_at_secs: 0,
            });
            match to {
                Destination::New(number) => plan.new_nodes[first + number].pods.push(run),
                Destination::Existing(node) => {
                    assert!(cluster.problem.nodes[*node].initialized, "an uninitialized node is no target");
                    existing.entry(position[node]).or_default().push(run);
                }
            }
        }
    }
    plan.existing = existing.into_iter().map(|(node, pods)| ExistingPlacement { node, pods }).collect();
    plan.price_per_hour = plan.new_nodes.iter().map(|node| node.price_per_hour).sum();
    plan.compat_price_per_hour = plan.price_per_hour;
    let violations = validate(&problem, &plan);
    let what: Vec<_> = commands.iter().map(|one| (one.method, claims_of(one), &one.moves)).collect();
    assert!(violations.is_empty(), "{violations:?} by {what:?}");
}
