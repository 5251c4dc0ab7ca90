//! Blockers of a pod that a simulation can remove: each is a change of a copy of the problem.

use std::sync::Arc;

use karpenter_model::instance_type::InstanceType;
use karpenter_model::pod::PodSpec;
use karpenter_model::problem::{NodePool, Problem};
use karpenter_model::reason::Reason as Cause;
use karpenter_model::requirements::{Requirement, Requirements};
use karpenter_model::resources::{NODES, ResourceList};
use karpenter_model::taints::{Taint, Toleration, TolerationOperator};

use crate::input::{ExplainInput, add_pool};

/// A removable blocker. The functions below identify the pods by the index of their group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Lift {
    /// The NodePool becomes ready.
    NodePoolReady { pool: Arc<str> },
    /// The pod tolerates the taint.
    Toleration { taint: Taint },
    /// The node selector of the pod has another value for the key, or no longer has the key.
    Label { key: Arc<str>, value: Option<Arc<str>> },
    /// The node selector of the pod has another key with the same value.
    RenamedLabel { key: Arc<str>, to: Arc<str> },
    /// The requirements of the NodePool allow more values.
    Widen { pool: Arc<str>, additions: Vec<Addition>, instance_type: Option<Arc<str>> },
    /// The pod requests less.
    Requests { amounts: Vec<(Arc<str>, i64)> },
    /// The limit of the NodePool is raised, or, without an amount, removed.
    Limit { pool: Arc<str>, resource: Arc<str>, amount: Option<i64> },
    /// The topology spread constraint becomes a preference.
    Spread { key: Arc<str> },
}

/// Values that a requirement of a NodePool additionally allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addition {
    pub(crate) key: Arc<str>,
    pub(crate) values: Vec<Arc<str>>,
}

impl Lift {
    /// How much a user has to decide before making the change. Chains with a smaller sum of weights are preferred.
    pub(crate) fn weight(&self) -> u32 {
        match self {
            Self::Limit { .. } | Self::RenamedLabel { .. } => 1,
            Self::Toleration { .. } => 2,
            Self::Widen { .. } | Self::Spread { .. } => 3,
            Self::NodePoolReady { .. } => 4,
            Self::Label { .. } => 5,
            Self::Requests { .. } => 6,
        }
    }

    /// Makes the change in the problem; returns false if it does not apply there.
    pub(crate) fn apply(&self, input: &ExplainInput, problem: &mut Problem, group: usize) -> bool {
        match self {
            Self::NodePoolReady { pool } => match input.excluded(pool) {
                Some(excluded) => {
                    add_pool(problem, excluded);
                    true
                }
                None => false,
            },
            Self::Widen { pool, additions, .. } => change_pool(problem, pool, |pool| {
                for addition in additions {
                    widen(&mut pool.requirements, addition);
                }
            }),
            Self::Limit { pool, resource, amount } => change_pool(problem, pool, |pool| match amount {
                Some(amount) => pool.limits.set(resource.clone(), *amount),
                None => pool.limits.remove(resource),
            }),
            Self::Toleration { taint } => change_spec(problem, group, |spec| {
                let operator = match taint.value.is_empty() {
                    true => TolerationOperator::Exists,
                    false => TolerationOperator::Equal(taint.value.clone()),
                };
                let effect = Some(taint.effect);
                spec.tolerations.push(Toleration { key: taint.key.clone(), operator, effect });
            }),
            Self::Label { key, value } => change_spec(problem, group, |spec| {
                spec.node_selector.remove(key);
                if let Some(value) = value {
                    spec.node_selector.add(Requirement::in_values(key.clone(), [value.clone()]));
                }
            }),
            Self::RenamedLabel { key, to } => change_spec(problem, group, |spec| {
                if let Some(requirement) = spec.node_selector.remove(key) {
                    spec.node_selector.add(Requirement { key: to.clone(), ..requirement });
                }
            }),
            Self::Requests { amounts } => change_spec(problem, group, |spec| {
                for (name, amount) in amounts {
                    spec.requests.set(name.clone(), *amount);
                }
            }),
            Self::Spread { key } => change_spec(problem, group, |spec| {
                spec.spread.iter_mut().filter(|one| one.key == *key).for_each(|one| one.hard = false);
            }),
        }
    }
}

fn change_pool(problem: &mut Problem, name: &str, change: impl FnOnce(&mut NodePool)) -> bool {
    let found = problem.pools.iter_mut().find(|pool| &*pool.name == name);
    found.map(change).is_some()
}

fn change_spec(problem: &mut Problem, group: usize, change: impl FnOnce(&mut PodSpec)) -> bool {
    let found = problem.pods.get_mut(group);
    found.map(|group| change(Arc::make_mut(&mut group.spec))).is_some()
}

fn widen(requirements: &mut Requirements, addition: &Addition) {
    let Some(mut requirement) = requirements.get(&addition.key).cloned() else { return };
    for value in &addition.values {
        if requirement.complement {
            requirement.values.remove(value);
        } else {
            requirement.values.insert(value.clone());
        }
    }
    requirements.replace(requirement);
}

/// The change that removes a reason why a NodePool does not accept the pods of a group.
pub(crate) fn lift_for(problem: &Problem, group: usize, pool: &NodePool, cause: &Cause) -> Option<Lift> {
    let spec = &problem.pods.get(group)?.spec;
    let name = pool.name.clone();
    match cause {
        Cause::Taint(taint) => Some(Lift::Toleration { taint: taint.clone() }),
        Cause::UndefinedLabel { wanted, hint } => {
            let key = wanted.key.clone();
            let is_selected = spec.node_selector.has_key(&key);
            is_selected.then_some(match hint {
                Some(to) => Lift::RenamedLabel { key, to: to.clone() },
                None => Lift::Label { key, value: None },
            })
        }
        Cause::Requirement { offered, wanted } => {
            let is_of_pool =
                pool.requirements.get(&wanted.key).is_some_and(|one| one.gte.is_none() && one.lte.is_none());
            if is_of_pool && !wanted.complement && !wanted.values.is_empty() {
                let values = wanted.values.iter().cloned().collect();
                let additions = vec![Addition { key: wanted.key.clone(), values }];
                return Some(Lift::Widen { pool: name, additions, instance_type: None });
            }
            let is_selected = spec.node_selector.has_key(&wanted.key);
            let value = offered.single_value().cloned();
            is_selected.then(|| Lift::Label { key: wanted.key.clone(), value })
        }
        Cause::LimitExceeded { resource, .. } => {
            Some(Lift::Limit { pool: name, resource: resource.clone(), amount: None })
        }
        Cause::NodeLimitReached { .. } => {
            Some(Lift::Limit { pool: name, resource: NODES.into(), amount: None })
        }
        Cause::Spread { key, .. } => Some(Lift::Spread { key: key.clone() }),
        Cause::TooLarge { largest, short_of, .. } => {
            other_instance_type(problem, spec, pool).or_else(|| smaller_requests(largest, short_of))
        }
        Cause::PoolMatchesNoInstanceType { .. }
        | Cause::NoInstanceTypeMatches { .. }
        | Cause::NoOffering { .. } => other_instance_type(problem, spec, pool),
        Cause::NoNodePools
        | Cause::OptedOut
        | Cause::InvalidPod { .. }
        | Cause::Volume { .. }
        | Cause::DynamicResources
        | Cause::HostPortTaken { .. }
        | Cause::Affinity { .. }
        | Cause::AntiAffinity { .. }
        | Cause::MinValues { .. }
        | Cause::VolumeLimit { .. }
        | Cause::ReservationFull
        | Cause::NotEnoughRoom
        | Cause::PlannerFault => None,
    }
}

fn smaller_requests(largest: &ResourceList, short_of: &[Arc<str>]) -> Option<Lift> {
    let amounts: Vec<(Arc<str>, i64)> =
        short_of.iter().map(|name| (name.clone(), largest.get(name))).collect();
    // The request of a device, such as a GPU, cannot be lowered: the pod does not run without the device.
    let is_possible = !amounts.is_empty() && amounts.iter().all(|(_, amount)| *amount > 0);
    is_possible.then_some(Lift::Requests { amounts })
}

/// The instance type for which the requirements of the NodePool need the fewest additional values; among several, the
/// cheapest.
fn other_instance_type(problem: &Problem, spec: &PodSpec, pool: &NodePool) -> Option<Lift> {
    let mut requests = spec.requests.clone();
    for daemon in problem.daemons.iter().filter(|daemon| daemon.reserves_capacity()) {
        requests.add(&daemon.spec.requests);
    }
    let wanted = spec.strict_requirements();
    let types = problem.catalogs.get(pool.catalog)?;
    let possible = types.iter().filter(|one| one.allocatable().holds(&requests));
    let widened = possible.filter_map(|one| {
        let additions = additions_for(pool, one, &wanted)?;
        let price = cheapest_offering(pool, one, &wanted)?;
        Some((additions, price, one))
    });
    let best = widened.min_by(|one, other| {
        one.0
            .len()
            .cmp(&other.0.len())
            .then(one.1.total_cmp(&other.1))
            .then_with(|| one.2.name.cmp(&other.2.name))
    });
    let (additions, _, instance_type) = best?;
    let instance_type = Some(instance_type.name.clone());
    Some(Lift::Widen { pool: pool.name.clone(), additions, instance_type })
}

/// The values that the requirements of the NodePool must allow in addition for the instance type. `None` if no value is
/// missing, or if a bound (Gt, Lt) or the pod itself excludes the instance type.
fn additions_for(
    pool: &NodePool,
    instance_type: &InstanceType,
    wanted: &Requirements,
) -> Option<Vec<Addition>> {
    if !instance_type.requirements.intersects(wanted) {
        return None;
    }
    let mut additions = Vec::new();
    for requirement in pool.requirements.iter() {
        let Some(of_type) = instance_type.requirements.get(&requirement.key) else { continue };
        if requirement.has_intersection(of_type) {
            continue;
        }
        let is_bounded = requirement.gte.is_some() || requirement.lte.is_some();
        if is_bounded || of_type.complement || of_type.values.is_empty() {
            return None;
        }
        let values = of_type.values.iter().cloned().collect();
        additions.push(Addition { key: requirement.key.clone(), values });
    }
    (!additions.is_empty()).then_some(additions)
}

fn cheapest_offering(pool: &NodePool, instance_type: &InstanceType, wanted: &Requirements) -> Option<f64> {
    let offerings = instance_type.offerings.iter().filter(|one| {
        one.is_launchable()
            && one.requirements.intersects(wanted)
            && one.requirements.intersects(&pool.requirements)
    });
    offerings.map(|one| one.price_per_hour).min_by(f64::total_cmp)
}
