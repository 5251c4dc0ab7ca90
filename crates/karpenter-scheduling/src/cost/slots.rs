//! Fills the slots of capacity reservations (instances that are reserved and paid for already) before other nodes are
//! packed, with the pods that would cost most elsewhere.
//!
//! There are two attempts: one keeps the reserved nodes of compat mode and fills the remaining slots, the other repacks
//! these nodes as well. Each attempt is a complete repacking; the caller uses the cheaper one.

use std::collections::BTreeMap;

use karpenter_model::resources::CPU;

use super::items::{self, Demand, Demands, Item, Repacking};
use super::knapsack::{self, PodCounts, Scratch};
use super::orders::shared_orders_of;
use super::pack::Bin;
use super::realize;
use super::resources::resource_prices;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, covers};
use crate::bits::Bits;
use crate::ledger::{Claim, Ledger};
use crate::reservations::ReservationId;

/// Pods that fit only on reserved capacity get their value multiplied by this, so that they are placed first.
const RESERVATION_ONLY_FACTOR: f64 = 1_000.0;

/// Whether a repacking keeps the reserved nodes of compat mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReservedNodes {
    Keep,
    Repack,
}

/// A node kind, and the reservations whose slots it can be launched into.
struct SlotKind {
    kind: NodeKind,
    reservations: Vec<ReservationId>,
}

/// The input for a repacking after slots of reservations were filled. The nodes in these slots are among its frozen
/// nodes, which are not repacked. `others` are planned nodes of NodePools of other weights. `None` if no slot can be
/// filled.
pub(super) fn fill(
    ledger: &mut Ledger,
    tier: &Bits,
    reserved: ReservedNodes,
    others: &[Claim],
    scratch: &mut Scratch,
) -> Option<Repacking> {
    if ledger.prepared.dimensions.len() > DIMENSIONS_MAX {
        return None;
    }
    let mut repacking = items::extract(ledger, tier, reserved);
    let taken: Vec<Claim> = repacking.frozen.iter().chain(others).cloned().collect();
    let mut spare = ledger.spare_slots(&taken)?;
    if spare.iter().all(|slots| *slots == 0) {
        return None;
    }
    let mut demands = Demands::default();
    let rows = items::rows(ledger, &repacking.items, &mut demands, tier, items::Purpose::Packing);
    let slots = slot_kinds(ledger, tier, &demands.list, &spare);
    let market = items::kinds(ledger, tier, &demands.list, false);
    let (weights, values) = resource_prices_and_values(&rows.rows, &market, &slots);
    let bins = fill_slots(&rows.rows, &values, &weights, &slots, &mut spare, scratch);
    if bins.is_empty() {
        return None;
    }
    let kinds: Vec<NodeKind> = slots.into_iter().map(|slot| slot.kind).collect();
    let (mut filled, left) = realize::fill(ledger, &repacking.items, &rows, &kinds, &bins)?;
    filled.iter_mut().for_each(|claim| ledger.set_compatible_reservations(claim));
    for (item, left) in repacking.items.iter_mut().zip(left) {
        item.count = left;
    }
    repacking.items.retain(|item: &Item| item.count > 0);
    // The nodes of compat mode that are not repacked (frozen) go to the end of the list, as `Repacked` requires.
    filled.append(&mut repacking.frozen);
    repacking.frozen = filled;
    Some(repacking)
}

/// The node kinds that fit into unused slots; kinds that differ only in the reservation are merged.
fn slot_kinds(ledger: &mut Ledger, tier: &Bits, demands: &[Demand], spare: &[u32]) -> Vec<SlotKind> {
    let mut serves: BTreeMap<(usize, usize, ReservationId), (f64, Bits)> = BTreeMap::new();
    for template in tier.iter().filter(|one| !ledger.prepared.templates[*one].has_min_values) {
        let Some(base) = ledger.states.base(template) else { continue };
        for (number, demand) in demands.iter().enumerate() {
            if !demand.tolerated.contains(template) {
                continue;
            }
            let Some(state) = ledger.states.add(base, demand.added) else { continue };
            for offer in &ledger.states.get(state).reserved {
                if spare[offer.reservation as usize] == 0 || !ledger.slots.has_capacity(offer) {
                    continue;
                }
                let (price, serves) = serves
                    .entry((template, offer.index, offer.reservation))
                    .or_insert_with(|| (offer.price, Bits::empty(demands.len())));
                *price = price.min(offer.price);
                serves.insert(number);
            }
        }
    }
    let mut kinds: Vec<SlotKind> = Vec::new();
    let mut known: BTreeMap<(usize, usize, Bits), usize> = BTreeMap::new();
    for ((template, instance_type, reservation), (price, demands)) in serves {
        let cpu = ledger.states.instance_type(template, instance_type).capacity.get(CPU);
        if cpu < ledger.options.min_node_cpu_millis || cpu > ledger.options.max_node_cpu_millis {
            continue;
        }
        let position = *known.entry((template, instance_type, demands)).or_insert_with_key(|key| {
            let free = items::vector(&ledger.prepared.templates[template].types[instance_type].free);
            let demands = key.2.clone();
            let kind = NodeKind { template, instance_type, free, price, demands, is_spot: false };
            kinds.push(SlotKind { kind, reservations: Vec::new() });
            kinds.len() - 1
        });
        kinds[position].kind.price = kinds[position].kind.price.min(price);
        kinds[position].reservations.push(reservation);
    }
    kinds
}

/// The price of one unit of each resource, and the value of one pod of each group of equal pods: what it costs on
/// capacity that is not reserved.
fn resource_prices_and_values(
    rows: &[Row],
    market: &[NodeKind],
    slots: &[SlotKind],
) -> ([f64; DIMENSIONS_MAX], Vec<f64>) {
    let mut weights = resource_prices(rows, market);
    if weights.iter().all(|weight| *weight <= 0.0) {
        for (dimension, weight) in weights.iter_mut().enumerate() {
            let most = slots.iter().map(|slot| slot.kind.free[dimension]).max().unwrap_or(0);
            *weight = if most > 0 { 1.0 / most as f64 } else { 0.0 };
        }
    }
    let is_sold = |row: &Row| market.iter().any(|kind| kind.takes(row) && covers(&kind.free, &row.requests));
    let values = rows.iter().map(|row| {
        let factor = if is_sold(row) { 1.0 } else { RESERVATION_ONLY_FACTOR };
        (knapsack::weigh(&weights, &row.requests) * factor).max(f64::MIN_POSITIVE)
    });
    (weights, values.collect())
}

/// Fills reservation slots one by one, each time with the instance type whose pods have the highest total value, until
/// no pod fits.
fn fill_slots(
    rows: &[Row],
    values: &[f64],
    weights: &[f64; DIMENSIONS_MAX],
    slots: &[SlotKind],
    spare: &mut [u32],
    scratch: &mut Scratch,
) -> Vec<Bin> {
    let mut remaining: Vec<u32> = rows.iter().map(|row| row.count).collect();
    // As pods are placed, the value that an instance type can reach only decreases, so an earlier value is an upper
    // bound.
    let mut most: Vec<(f64, usize)> = (0..slots.len()).map(|kind| (f64::MAX, kind)).collect();
    let mut bins = Vec::new();
    let left = |spare: &[u32], kind: usize| -> u32 {
        slots[kind].reservations.iter().fold(0, |sum: u32, one| sum.saturating_add(spare[*one as usize]))
    };
    loop {
        let orders = shared_orders_of(rows, values, weights, |row| remaining[row] > 0);
        most.retain(|(_, kind)| left(spare, *kind) > 0);
        most.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best: (f64, usize, PodCounts) = (0.0, 0, PodCounts::new());
        for (known, index) in &mut most {
            if *known <= best.0 {
                break;
            }
            *known = 0.0;
            for order in &orders {
                let mut pod_counts = PodCounts::new();
                let kind = &slots[*index].kind;
                let value =
                    knapsack::greedy(rows, values, &order.rows, kind, &remaining, scratch, &mut pod_counts);
                *known = known.max(value);
                if value > best.0 * (1.0 + 1e-12) {
                    best = (value, *index, pod_counts);
                }
            }
        }
        let (_, mut kind, pod_counts) = best;
        if pod_counts.is_empty() {
            return bins;
        }
        // If a smaller reservation slot holds the same pods, it is used, and the larger slot remains for others.
        let holds = |kind: &NodeKind| {
            let mut free = kind.free;
            pod_counts.iter().all(|(row, count)| {
                let row = &rows[*row as usize];
                knapsack::take(&mut free, &row.requests, *count);
                kind.takes(row)
            }) && free.iter().all(|left| *left >= 0)
        };
        for other in 0..slots.len() {
            if slots[other].kind.price < slots[kind].kind.price
                && left(spare, other) > 0
                && holds(&slots[other].kind)
            {
                kind = other;
            }
        }
        let whole = pod_counts.iter().map(|(row, count)| remaining[*row as usize] / count).min();
        let copies = whole.unwrap_or(0).min(left(spare, kind));
        let mut wanted = copies;
        for one in &slots[kind].reservations {
            let taken = wanted.min(spare[*one as usize]);
            spare[*one as usize] -= taken;
            wanted -= taken;
        }
        for (row, count) in &pod_counts {
            remaining[*row as usize] -= count * copies;
        }
        bins.push(Bin { kind, pod_counts, copies });
    }
}
