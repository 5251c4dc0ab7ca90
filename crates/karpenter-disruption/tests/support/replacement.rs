//! An independent implementation of upstream's rules for nodes that are deleted or replaced by one: which instance
//! types are cheap enough, what is saved, and whether NodePools with policy Balanced approve. It supports only catalogs
//! whose offerings differ by zone and capacity type, and NodePools without minValues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karpenter_disruption::cluster::{Cluster, ConsolidationPolicy, StateNode};
use karpenter_disruption::settings::Settings;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels;
use karpenter_model::plan::PlannedNode;

/// Tolerance for sums of decimal fractions.
const NOTHING: f64 = 1e-9;
/// Single-node spot-to-spot consolidation needs at least this many cheaper instance types.
const CHOICE: usize = 15;

/// Names of the launchable instance types, and the lowest price of any of them.
pub(crate) type Launch = (BTreeSet<Arc<str>>, f64);

pub(crate) fn disruption_cost(state_node: &StateNode) -> f64 {
    1.0 + state_node.pods.iter().map(|one| one.eviction_cost.max(0.0)).sum::<f64>()
}

fn allows(node: &PlannedNode, key: &str, value: &str) -> bool {
    node.requirements.get(key).is_none_or(|wanted| wanted.has(value))
}

/// Prices of the instance type for the first of these capacity types that is available in the zones that the node may
/// use.
fn prices(node: &PlannedNode, one: &InstanceType, kinds: &[&str]) -> Vec<f64> {
    let of_kind = |kind: &&str| -> Vec<f64> {
        let offerings = one.offerings.iter().filter(|offering| {
            assert_eq!(offering.requirements.iter().count(), 2, "zone and capacity type");
            let zone = offering.zone().expect("a zone");
            offering.capacity_type().is_some_and(|of| &**of == *kind)
                && allows(node, labels::ZONE, zone)
                && offering.available
        });
        offerings.map(|offering| offering.price_per_hour).collect()
    };
    kinds.iter().map(of_kind).find(|prices| !prices.is_empty()).unwrap_or_default()
}

/// The price of the instance type if its launch uses the most expensive offering; infinite if there is no offering.
fn at_worst(node: &PlannedNode, one: &InstanceType, kinds: &[&str]) -> f64 {
    prices(node, one, kinds).into_iter().max_by(f64::total_cmp).unwrap_or(f64::INFINITY)
}

/// The replacement of these nodes, if it is cheaper with each of its instance type options.
pub(crate) fn cheaper(
    cluster: &Cluster,
    settings: &Settings,
    going: &[&StateNode],
    node: &PlannedNode,
) -> Option<Launch> {
    let catalog = &cluster.problem.catalogs[cluster.problem.pools[node.pool].catalog];
    let order = [labels::CAPACITY_TYPE_RESERVED, labels::CAPACITY_TYPE_SPOT, labels::CAPACITY_TYPE_ON_DEMAND];
    let mut kinds: Vec<&str> =
        order.into_iter().filter(|kind| allows(node, labels::CAPACITY_TYPE, kind)).collect();
    let is_spot = |one: &&StateNode| one.capacity_type.as_deref() == Some(labels::CAPACITY_TYPE_SPOT);
    let is_spot_to_spot = going.iter().all(is_spot) && kinds.contains(&labels::CAPACITY_TYPE_SPOT);
    if is_spot_to_spot {
        if !settings.spot_to_spot {
            return None;
        }
        kinds = vec![labels::CAPACITY_TYPE_SPOT];
    }
    let now: f64 = going.iter().map(|one| one.price_per_hour).sum();
    let mut options: Vec<&InstanceType> = node.instance_type_options.iter().map(|at| &catalog[*at]).collect();
    options.retain(|one| at_worst(node, one, &kinds) < now - NOTHING);
    if is_spot_to_spot && going.len() == 1 {
        if options.len() < CHOICE {
            return None;
        }
        options.sort_by(|one, other| at_worst(node, one, &kinds).total_cmp(&at_worst(node, other, &kinds)));
        options.truncate(CHOICE);
    }
    // The replacement was compared by its spot price, so it must be launched as spot.
    if kinds.contains(&labels::CAPACITY_TYPE_SPOT) && kinds.contains(&labels::CAPACITY_TYPE_ON_DEMAND) {
        kinds = vec![labels::CAPACITY_TYPE_SPOT];
    }
    if going.len() > 1 {
        // An instance type of a candidate is an option only if it is cheaper than that candidate; otherwise the
        // candidate could have stayed.
        let is_option = |state_node: &&&StateNode| {
            options.iter().any(|one| state_node.instance_type.as_ref() == Some(&one.name))
        };
        let again = going.iter().filter(is_option).map(|state_node| state_node.price_per_hour);
        let limit = again.min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
        options.retain(|one| at_worst(node, one, &kinds) < limit - NOTHING);
    }
    let price = options.iter().flat_map(|one| prices(node, one, &kinds)).min_by(f64::total_cmp)?;
    Some((options.into_iter().map(|one| one.name.clone()).collect(), price))
}

/// Whether the score reaches the threshold in each NodePool with policy Balanced.
pub(crate) fn is_balanced(cluster: &Cluster, going: &[&StateNode], price_after: f64) -> bool {
    let mut by_pool: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for state_node in going {
        let (price, cost) = by_pool.entry(state_node.pool.as_deref().expect("a pool")).or_default();
        *price += state_node.price_per_hour;
        *cost += disruption_cost(state_node);
    }
    let now: f64 = going.iter().map(|one| one.price_per_hour).sum();
    let is_alone = by_pool.len() == 1;
    by_pool.into_iter().all(|(name, (price, cost))| {
        let pool = &cluster.pools[name];
        if pool.policy != ConsolidationPolicy::Balanced {
            return true;
        }
        let all = || cluster.state_nodes.iter().filter(|one| one.pool.as_deref() == Some(name));
        let (whole_price, whole_cost): (f64, f64) =
            (all().map(|one| one.price_per_hour).sum(), all().map(disruption_cost).sum());
        let saved = (now - price_after) * if is_alone { 1.0 } else { price / now };
        (saved / whole_price) / (cost / whole_cost) >= 1.0 / pool.pool_policy.balanced_k
    })
}
