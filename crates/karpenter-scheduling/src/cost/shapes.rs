//! The numeric form of a packing problem: rows (pods of one shape), kinds (nodes that can be bought), and which kind
//! takes which row.

use std::collections::BTreeMap;

use crate::bits::Bits;

/// Resource dimensions the search handles; problems with more are left to the plain order.
pub(crate) const DIMENSIONS_MAX: usize = 6;

pub(crate) type Vector = [i64; DIMENSIONS_MAX];

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) requests: Vector,
    /// What the row asks of a node's labels and taints: index into the demands.
    pub(crate) demand: usize,
    pub(crate) count: u32,
    /// At most this many per node.
    pub(crate) cap: u32,
    /// Rows of one exclusion share a per-node cap: (exclusion, cap).
    pub(crate) exclusion: Option<(u16, u32)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) template: usize,
    /// Index into `Template::types`.
    pub(crate) instance_type: usize,
    pub(crate) free: Vector,
    pub(crate) price: f64,
    /// Demands the kind satisfies.
    pub(crate) demands: Bits,
    /// Bought as spot; its room may be cut down so that other types can stand in.
    pub(crate) is_spot: bool,
}

impl Kind {
    #[inline]
    pub(crate) fn takes(&self, row: &Row) -> bool {
        self.demands.contains(row.demand)
    }
}

/// Drops kinds that another one replaces at no higher price for at least the same demands and room.
pub(crate) fn drop_dominated(mut kinds: Vec<Kind>) -> Vec<Kind> {
    kinds.sort_by(|a, b| {
        a.price
            .total_cmp(&b.price)
            .then_with(|| b.free.cmp(&a.free))
            .then_with(|| b.demands.len().cmp(&a.demands.len()))
            .then_with(|| {
                (a.template, a.instance_type, &a.demands).cmp(&(b.template, b.instance_type, &b.demands))
            })
    });
    // First within equal demands, which is cheap and removes most, then across.
    let mut by_demands: Vec<(Bits, Vec<Kind>)> = Vec::new();
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
    let mut all: Vec<Kind> = by_demands.into_iter().flat_map(|(_, kinds)| kinds).collect();
    all.sort_by(|a, b| {
        a.price.total_cmp(&b.price).then_with(|| b.demands.len().cmp(&a.demands.len())).then_with(|| {
            (a.template, a.instance_type, &a.demands).cmp(&(b.template, b.instance_type, &b.demands))
        })
    });
    let mut kept: Vec<Kind> = Vec::new();
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

/// Kinds that stand for all: of those that serve the same demands in the same proportions, no two within a few percent
/// of each other's price. Catalogs whose prices are linear in size have nothing to dominate, and neighbours differ by
/// next to nothing there.
pub(crate) fn representatives(kinds: &[Kind]) -> Vec<u32> {
    const FEW: usize = 128;
    const PRICE_RATIO: f64 = 1.05;
    if kinds.len() <= FEW {
        return (0..kinds.len() as u32).collect();
    }
    let proportions =
        |kind: &Kind| -> Vec<i64> {
            let cpu = kind.free[0].max(1) as f64;
            kind.free[1..]
                .iter()
                .map(|amount| {
                    if *amount > 0 { (4.0 * (*amount as f64 / cpu).log2()).round() as i64 } else { i64::MIN }
                })
                .collect()
        };
    let mut order: Vec<u32> = (0..kinds.len() as u32).collect();
    // Large first: the largest of a kind must stay, whatever is left out below it.
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

    fn kind(price: f64, free: Vector, demands: &[usize]) -> Kind {
        let mut bits = Bits::empty(4);
        demands.iter().for_each(|demand| bits.insert(*demand));
        Kind { template: 0, instance_type: 0, free, price, demands: bits, is_spot: false }
    }

    #[test]
    fn only_dominated_kinds_go() {
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
