//! Upstream's rules for one pass once more, in their own words and with the plain engine in place of the simulator: who is
//! a candidate, in which order they are tried, and which of them upstream would have acted on.
//!
//! Prices of replacements are not judged here; that a node could simply be deleted is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::command::Method;
use karpenter_disruption::fleet::{Fleet, Machine, Reason};
use karpenter_disruption::propose::Proposal;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{Mobility, Mode, PodGroup, PodNames, Problem, ReservedMode};
use karpenter_scheduling::schedule;

/// May be disrupted as far as itself and its pods are concerned, for fleets in which no drain is bounded.
fn is_free(fleet: &Fleet, machine: &Machine) -> bool {
    let is_blocked = |budgets: &[u32]| {
        budgets.iter().any(|budget| fleet.pod_budgets[*budget as usize].disruptions_allowed == 0)
    };
    machine.is_initialized
        && !machine.is_leaving
        && !machine.is_nominated
        && !machine.is_kept
        && !machine.occupants.iter().any(|one| one.is_kept || is_blocked(&one.budgets))
}

fn trouble(machine: &Machine) -> f64 {
    1.0 + machine.occupants.iter().map(|one| one.eviction_cost.max(0.0)).sum::<f64>()
}

/// What budgets leave for a reason: not what is allowed, but what of it is not used up by nodes that do not work.
fn left(fleet: &Fleet, reason: Reason) -> BTreeMap<&str, i64> {
    let mut left: BTreeMap<&str, i64> =
        fleet.pools.iter().map(|(name, pool)| (&**name, i64::from(pool.allowed[&reason]))).collect();
    for machine in fleet.machines.iter().filter(|one| one.is_initialized && !one.is_ready) {
        if let Some(left) = machine.pool.as_deref().and_then(|pool| left.get_mut(pool)) {
            *left -= 1;
        }
    }
    left
}

fn pool_of(machine: &Machine) -> &str {
    machine.pool.as_deref().unwrap_or_default()
}

fn take(left: &mut BTreeMap<&str, i64>, fleet: &Fleet, index: usize) -> bool {
    let Some(left) = left.get_mut(pool_of(&fleet.machines[index])) else { return false };
    *left -= 1;
    *left >= 0
}

/// How many nodes would have to be launched if these went; `None` if some pod had no place, or only on a node that is
/// coming up.
fn launches_without(fleet: &Fleet, machines: &[usize]) -> Option<usize> {
    let gone: BTreeSet<usize> = machines.iter().filter_map(|index| fleet.machines[*index].at).collect();
    let mut problem = Problem { nodes: Vec::new(), ..fleet.problem.clone() };
    problem.options.mode = Mode::Compat;
    problem.options.reserved_mode = ReservedMode::Fallback;
    // Of pods that ask for equally much upstream takes the older one first, then by uid; the fleets here know neither. Like
    // pods in a row are one such order, and another one may end differently.
    let mut moving: Vec<(Arc<PodSpec>, u32)> = Vec::new();
    for (index, node) in fleet.problem.nodes.iter().enumerate() {
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
    has_place.then_some(plan.new_nodes.len())
}

/// Compares what was proposed with what upstream would have done.
pub(crate) fn check(fleet: &Fleet, proposal: &Proposal) {
    let claim = |index: usize| fleet.machines[index].claim.to_string();
    let said: Vec<(Method, Vec<String>)> = proposal
        .commands
        .iter()
        .map(|one| (one.method, one.candidates.iter().map(|candidate| candidate.claim.to_string()).collect()))
        .collect();
    assert!(said.len() <= 1, "one command per pass: {said:?}");
    let said = said.into_iter().next();

    let mut by_ratio: Vec<usize> =
        (0..fleet.machines.len()).filter(|index| is_free(fleet, &fleet.machines[*index])).collect();
    by_ratio.sort_by(|one, other| {
        let ratio = |index: usize| fleet.machines[index].price_per_hour / trouble(&fleet.machines[index]);
        ratio(*other).total_cmp(&ratio(*one)).then_with(|| claim(*one).cmp(&claim(*other)))
    });
    let (empty, used): (Vec<usize>, Vec<usize>) =
        by_ratio.into_iter().partition(|index| trouble(&fleet.machines[*index]) <= 1.0);

    let mut allowed = left(fleet, Reason::Empty);
    let empty: Vec<String> =
        empty.into_iter().filter(|index| take(&mut allowed, fleet, *index)).map(claim).collect();
    if !empty.is_empty() {
        assert_eq!(said, Some((Method::Emptiness, empty)));
        return;
    }

    let allowed = left(fleet, Reason::Drifted);
    let mut drifted: Vec<usize> = (0..fleet.machines.len())
        .filter(|index| {
            let machine = &fleet.machines[*index];
            let is_allowed = allowed[pool_of(machine)] > 0;
            machine.drifted_since_secs.is_some() && is_free(fleet, machine) && is_allowed
        })
        .collect();
    drifted.sort_by_key(|index| {
        let machine = &fleet.machines[*index];
        (!machine.occupants.is_empty(), machine.drifted_since_secs, claim(*index))
    });
    if let Some(first) = drifted.into_iter().find(|index| launches_without(fleet, &[*index]).is_some()) {
        assert_eq!(said, Some((Method::Drift, vec![claim(first)])));
        return;
    }

    let allowed = left(fleet, Reason::Underutilized);
    let mut taken = allowed.clone();
    let prefix: Vec<usize> = used.iter().copied().filter(|index| take(&mut taken, fleet, *index)).collect();
    match said {
        Some((Method::MultiNodeConsolidation, claims)) => {
            assert!(claims.len() >= 2, "{claims:?}");
            let first: Vec<usize> = prefix.into_iter().take(claims.len()).collect();
            assert_eq!(claims, first.iter().map(|index| claim(*index)).collect::<Vec<_>>(), "a beginning");
            let launches = launches_without(fleet, &first);
            assert!(launches.is_some_and(|count| count <= 1), "{launches:?} launches for {claims:?}");
        }
        Some((Method::SingleNodeConsolidation, claims)) => {
            let chosen = in_turns(fleet, &used).into_iter().find(|index| claim(*index) == claims[0]);
            let chosen = chosen.expect("a candidate");
            assert!(launches_without(fleet, &[chosen]).is_some_and(|count| count <= 1), "{claims:?}");
            let before = in_turns(fleet, &used).into_iter().take_while(|index| *index != chosen);
            for index in before.filter(|index| allowed[pool_of(&fleet.machines[*index])] > 0) {
                assert_ne!(launches_without(fleet, &[index]), Some(0), "{} before {claims:?}", claim(index));
            }
        }
        None => {
            for index in used.into_iter().filter(|index| allowed[pool_of(&fleet.machines[*index])] > 0) {
                assert_ne!(launches_without(fleet, &[index]), Some(0), "{} could just go", claim(index));
            }
        }
        other => panic!("{other:?}"),
    }
}

/// The first of each pool, then the second of each.
fn in_turns(fleet: &Fleet, machines: &[usize]) -> Vec<usize> {
    let mut by_pool: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for index in machines {
        by_pool.entry(pool_of(&fleet.machines[*index])).or_default().push(*index);
    }
    let most = by_pool.values().map(Vec::len).max().unwrap_or(0);
    let turns = (0..most).flat_map(|turn| by_pool.values().filter_map(move |list| list.get(turn).copied()));
    turns.collect()
}
