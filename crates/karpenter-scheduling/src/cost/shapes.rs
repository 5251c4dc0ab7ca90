//! The numeric form of a packing problem: rows (groups of equal pods), node kinds (instance types with offerings of one
//! price), and which node kind satisfies the demands of which row.

use std::collections::BTreeMap;

use crate::bits::Bits;

/// The maximum number of distinct resources in the search. If pods request more, the placement of compat mode is kept.
pub(crate) const DIMENSIONS_MAX: usize = 6;

pub(crate) type Vector = [i64; DIMENSIONS_MAX];

/// A row of the linear program: a group of equal pods that must be placed.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) requests: Vector,
    /// The constraints of these pods on labels and taints: an index into the list of demands.
    pub(crate) demand: usize,
    pub(crate) count: u32,
    /// The maximum number of these pods on one node.
    pub(crate) cap: u32,
    /// Rows (groups of equal pods) with the same first number exclude each other's pods; the second number is the
    /// maximum of their pods together on one node.
    pub(crate) exclusion: Option<(u16, u32)>,
}

/// A kind of node that can be launched: an instance type of a NodePool template, with offerings that satisfy the same
/// demands at one price.
#[derive(Debug, Clone)]
pub(crate) struct NodeKind {
    pub(crate) template: usize,
    /// Index into `Template::types`.
    pub(crate) instance_type: usize,
    pub(crate) free: Vector,
    pub(crate) price: f64,
    /// Indexes of the demands (constraints on labels and taints) that the instance type satisfies.
    pub(crate) demands: Bits,
    /// Whether the kind is launched as spot. Its capacity may be reduced to that of alternative instance types.
    pub(crate) is_spot: bool,
}

impl NodeKind {
    #[inline]
    pub(crate) fn takes(&self, row: &Row) -> bool {
        self.demands.contains(row.demand)
    }
}

/// Drops each instance type for which another instance type satisfies at least the same demands (constraints on labels
/// and taints) and has at least the same capacity at no higher price.
pub(crate) fn drop_dominated(mut kinds: Vec<NodeKind>) -> Vec<NodeKind> {
    kinds.sort_by(|a, b| {
        a.price
            .total_cmp(&b.price)
            .then_with(|| b.free.cmp(&a.free))
            .then_with(|| b.demands.len().cmp(&a.demands.len()))
            .then_with(|| {
                (a.template, a.instance_type, &a.demands).cmp(&(b.template, b.instance_type, &b.demands))
            })
    });
    // Instance types are first compared with instance types of equal demands (constraints on labels and taints), which
    // is fast and drops most of them, then with all others.
    let mut by_demands: Vec<(Bits, Vec<NodeKind>)> = Vec::new();
    for kind in kinds {
        let group = match by_demands.iter().position(|(demands, _)| *demands == kind.demands) {
            Some(position) => position,
            None => {
                by_demands.push((kind.demands.clone(), Vec::new()));
                by_demands.len() - 1
            }
        };
        let kept = &mut by_demands[group].1;
        if !kept.iter().any(|other| covers(&other.free, &kind.free)) {
            kept.push(kind);
        }
    }
    let mut all: Vec<NodeKind> = by_demands.into_iter().flat_map(|(_, kinds)| kinds).collect();
    all.sort_by(|a, b| {
        a.price.total_cmp(&b.price).then_with(|| b.demands.len().cmp(&a.demands.len())).then_with(|| {
            (a.template, a.instance_type, &a.demands).cmp(&(b.template, b.instance_type, &b.demands))
        })
    });
    let mut kept: Vec<NodeKind> = Vec::new();
    for kind in all {
        let dominated = kept
            .iter()
            .any(|other| covers(&other.free, &kind.free) && other.demands.is_superset(&kind.demands));
        if !dominated {
            kept.push(kind);
        }
    }
    kept
}

/// Selects instance types that represent all others: among instance types with the same demands and the same ratio of
/// resources, the prices of selected instance types differ by at least 5 %. If a catalog's prices are linear in size,
/// no instance type dominates another, and instance types of similar size are nearly equal.
pub(crate) fn representatives(kinds: &[NodeKind]) -> Vec<u32> {
    const FEW: usize = 128;
    const PRICE_RATIO: f64 = 1.05;
    if kinds.len() <= FEW {
        return (0..kinds.len() as u32).collect();
    }
    let proportions =
        |kind: &NodeKind| -> Vec<i64> {
            let cpu = kind.free[0].max(1) as f64;
            kind.free[1..]
                .iter()
                .map(|amount| {
                    if *amount > 0 { (4.0 * (*amount as f64 / cpu).log2()).round() as i64 } else { i64::MIN }
                })
                .collect()
        };
    let mut order: Vec<u32> = (0..kinds.len() as u32).collect();
    // Larger instance types come first, because the largest instance type of each ratio of resources must be selected.
    order.sort_by(|a, b| kinds[*b as usize].price.total_cmp(&kinds[*a as usize].price).then(a.cmp(b)));
    let mut last: BTreeMap<(&Bits, Vec<i64>), f64> = BTreeMap::new();
    let mut chosen: Vec<u32> = Vec::new();
    for index in order {
        let kind = &kinds[index as usize];
        let price = last.entry((&kind.demands, proportions(kind))).or_insert(f64::MAX);
        if kind.price * PRICE_RATIO <= *price {
            *price = kind.price;
            chosen.push(index);
        }
    }
    chosen.sort_unstable();
    chosen
}

pub(crate) fn covers(a: &Vector, b: &Vector) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(price: f64, free: Vector, demands: &[usize]) -> NodeKind {
        let mut bits = Bits::empty(4);
        demands.iter().for_each(|demand| bits.insert(*demand));
        NodeKind { template: 0, instance_type: 0, free, price, demands: bits, is_spot: false }
    }

    #[test]
    fn only_dominated_kinds_are_dropped() {
        let kept = drop_dominated(vec![
            kind(1.0, [4, 4, 0, 0, 0, 0], &[0]),
            kind(1.5, [4, 4, 0, 0, 0, 0], &[0]),
            kind(1.5, [4, 4, 0, 0, 0, 0], &[0, 1]),
            kind(2.0, [2, 8, 0, 0, 0, 0], &[0]),
            kind(2.5, [2, 8, 0, 0, 0, 0], &[1]),
        ]);
        let prices: Vec<f64> = kept.iter().map(|kind| kind.price).collect();
        assert_eq!(prices, [1.0, 1.5, 2.0, 2.5]);
        assert_eq!(kept[1].demands.len(), 2);
    }
}
