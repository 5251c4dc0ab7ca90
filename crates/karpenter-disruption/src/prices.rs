//! The price of a planned node in the best and in the worst case, and which of its instance type options are cheap
//! enough.
//!
//! Upstream: pkg/cloudprovider/types.go (WorstLaunchPrice, OrderByPrice, SatisfiesMinValues),
//! pkg/controllers/provisioning/scheduling/nodeclaim.go (RemoveInstanceTypeOptionsByPriceAndMinValues).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels::{
    CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT,
};
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::{Operator, Requirement, Requirements};

/// A `minValues` requirement that the remaining instance types do not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinValuesUnmet {
    pub key: Arc<str>,
    pub wanted: u32,
    pub found: u32,
}

/// The sum of prices. The sum of no prices is 0.0, while `sum` returns -0.0.
pub fn total_per_hour(prices: impl IntoIterator<Item = f64>) -> f64 {
    prices.into_iter().fold(0.0, |total, price| total + price)
}

pub fn catalog_of<'p>(problem: &'p Problem, node: &PlannedNode) -> &'p [InstanceType] {
    let catalog = problem.pools.get(node.pool).and_then(|pool| problem.catalogs.get(pool.catalog));
    catalog.map_or(&[], |types| types.as_slice())
}

fn is_compatible(requirements: &Requirements, offering: &Offering, open: &BTreeSet<Arc<str>>) -> bool {
    let is_defined = |wanted: &Requirement| {
        requirements.has_key(&wanted.key)
            || open.contains(&wanted.key)
            || matches!(wanted.operator(), Operator::NotIn | Operator::DoesNotExist)
    };
    offering.requirements.iter().all(is_defined) && requirements.intersects(&offering.requirements)
}

/// Offerings that are launchable under these requirements, with their index.
fn launchable<'t>(
    instance_type: &'t InstanceType,
    requirements: &'t Requirements,
    open: &'t BTreeSet<Arc<str>>,
) -> impl Iterator<Item = (usize, &'t Offering)> {
    let offerings = instance_type.offerings.iter().enumerate();
    offerings.filter(move |(_, one)| one.is_launchable() && is_compatible(requirements, one, open))
}

/// The cheapest launchable offering of an instance type.
pub fn cheapest(
    instance_type: &InstanceType,
    requirements: &Requirements,
    open: &BTreeSet<Arc<str>>,
) -> Option<(usize, f64)> {
    let offerings = launchable(instance_type, requirements, open);
    offerings.map(|(index, one)| (index, one.price_per_hour)).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The most expensive offering of the capacity type that a launch would use; the order of preference is reserved, spot,
/// on-demand.
pub fn worst_launch_price(
    instance_type: &InstanceType,
    requirements: &Requirements,
    open: &BTreeSet<Arc<str>>,
) -> Option<f64> {
    let offerings: Vec<&Offering> =
        launchable(instance_type, requirements, open).map(|(_, offering)| offering).collect();
    [CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT, CAPACITY_TYPE_ON_DEMAND].into_iter().find_map(|wanted| {
        let of_type = offerings
            .iter()
            .filter(|offering| offering.capacity_type().is_some_and(|capacity| &**capacity == wanted));
        of_type.map(|offering| offering.price_per_hour).max_by(f64::total_cmp)
    })
}

/// Keeps the options whose [`worst_launch_price`] is below the limit.
pub fn keep_cheaper_than(
    problem: &Problem,
    node: &mut PlannedNode,
    limit_per_hour: f64,
) -> Result<(), MinValuesUnmet> {
    let catalog = catalog_of(problem, node);
    let requirements = &node.requirements;
    node.instance_type_options.retain(|option| {
        let instance_type = catalog.get(*option);
        let price = instance_type.and_then(|one| worst_launch_price(one, requirements, &problem.well_known));
        price.is_some_and(|price| price < limit_per_hour)
    });
    needed_for_min_values(problem, node).map(|_| ())
}

/// How many of the first options are needed to meet the `minValues` of the NodePool, or the lowered `minValues` if they
/// were relaxed. Zero without `minValues`.
pub fn needed_for_min_values(problem: &Problem, node: &PlannedNode) -> Result<usize, MinValuesUnmet> {
    let Some(pool) = problem.pools.get(node.pool) else { return Ok(0) };
    // The requirements of the node may be narrower than those of the NodePool. Values that they exclude cannot be
    // launched, so they are not counted.
    let asked: Vec<(&Requirement, u32)> = pool
        .requirements
        .iter()
        .filter_map(|of_pool| {
            let of_node = node.requirements.get(&of_pool.key).unwrap_or(of_pool);
            let wanted = if node.min_values_relaxed { of_node.min_values } else { of_pool.min_values };
            Some((of_node, wanted?))
        })
        .collect();
    if asked.is_empty() {
        return Ok(0);
    }
    let catalog = catalog_of(problem, node);
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (position, option) in node.instance_type_options.iter().enumerate() {
        let Some(instance_type) = catalog.get(*option) else { continue };
        for (requirement, _) in &asked {
            let values = instance_type.requirements.get(&requirement.key).into_iter();
            let values = values.flat_map(|of_type| of_type.values.iter());
            let allowed = values.filter(|value| requirement.has(value)).map(|value| &**value);
            seen.entry(&*requirement.key).or_default().extend(allowed);
        }
        let is_met = |(requirement, wanted): &(&Requirement, u32)| {
            seen.get(&*requirement.key).is_some_and(|values| values.len() >= *wanted as usize)
        };
        if asked.iter().all(is_met) {
            return Ok(position + 1);
        }
    }
    let short = asked.iter().find_map(|(requirement, wanted)| {
        let found = seen.get(&*requirement.key).map_or(0, BTreeSet::len) as u32;
        (found < *wanted).then(|| MinValuesUnmet { key: requirement.key.clone(), wanted: *wanted, found })
    });
    short.map_or(Ok(node.instance_type_options.len()), Err)
}

pub fn allows_capacity_type(node: &PlannedNode, capacity_type: &str) -> bool {
    node.requirements.get(CAPACITY_TYPE).is_none_or(|requirement| requirement.has(capacity_type))
}

pub fn force_capacity_type(node: &mut PlannedNode, capacity_type: &str) {
    node.requirements.add(Requirement::in_values(CAPACITY_TYPE, [capacity_type]));
}

/// Sorts the launchable options by price, and sets the node's type, offering and price to those of the first.
pub fn refresh(problem: &Problem, node: &mut PlannedNode) {
    let catalog = catalog_of(problem, node);
    let mut priced: Vec<(usize, usize, f64)> = node
        .instance_type_options
        .iter()
        .filter_map(|option| {
            let (offering, price) = cheapest(catalog.get(*option)?, &node.requirements, &problem.well_known)?;
            Some((*option, offering, price))
        })
        .collect();
    priced.sort_by(|a, b| {
        a.2.total_cmp(&b.2)
            .then_with(|| catalog[a.0].name.cmp(&catalog[b.0].name))
            .then_with(|| a.0.cmp(&b.0))
    });
    node.instance_type_options = priced.iter().map(|(option, _, _)| *option).collect();
    if let Some((option, offering, price)) = priced.first() {
        node.instance_type = *option;
        node.offering = *offering;
        node.price_per_hour = *price;
    }
}
