//! The items of a repacking: groups of interchangeable pods that compat mode put on new nodes. What the repacking must
//! not change (relaxation level, volume alternative, zone) becomes part of the requirements that an item adds to a
//! node.
//!
//! If a constraint counts pods by zone, the zone that compat mode chose is kept, so that repacking cannot violate the
//! constraint. Hostname constraints become a maximum number of pods per node (`cap`).

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::instance_type::Offering;
use karpenter_model::requirements::{Requirement, Requirements};

use super::limits::Counted;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector, drop_dominated};
use super::slots::ReservedNodes;
use crate::bits::Bits;
use crate::ledger::{Claim, Ledger};
use crate::states::{ReqId, StateId};
use crate::topology::{GroupId, Kind as GroupKind};

/// Pods that are interchangeable for the repacking.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) variant: usize,
    pub(crate) alternative: u8,
    /// All requirements that the pods add to a node, including the zone that compat mode chose.
    pub(crate) added: ReqId,
    /// Like `added`, but without the zone.
    pub(crate) added_without_zone: ReqId,
    pub(crate) count: u32,
}

/// The constraints of pods on a node: requirements on labels, and the NodePool templates whose taints the pods
/// tolerate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    pub(crate) added: ReqId,
    pub(crate) tolerated: Bits,
}

pub(crate) struct Repacking {
    pub(crate) items: Vec<Item>,
    /// Planned nodes that are not repacked; they keep their pods.
    pub(crate) frozen: Vec<Claim>,
    /// For each frozen node (one that is not repacked): its index in `ledger.claims`.
    pub(crate) frozen_from: Vec<usize>,
}

/// Splits the planned nodes of some NodePool templates. The pods of nodes that can be repacked become items (groups of
/// interchangeable pods); the other nodes are returned as frozen.
pub(crate) fn extract(ledger: &mut Ledger, in_tier: &Bits, reserved: ReservedNodes) -> Repacking {
    let mut merged: BTreeMap<(usize, u8, ReqId, ReqId), u32> = BTreeMap::new();
    let (mut frozen, mut frozen_from) = (Vec::new(), Vec::new());
    for position in 0..ledger.claims.len() {
        let state = ledger.claims[position].state;
        if !in_tier.contains(ledger.states.get(state).template) {
            continue;
        }
        if cannot_be_repacked(ledger, position, reserved) {
            frozen.push(ledger.claims[position].clone());
            frozen_from.push(position);
            continue;
        }
        for (variant, alternative, count) in ledger.claims[position].content.clone() {
            let data = &ledger.classes.variants[variant];
            let (added, volume) = (data.added, data.alternatives[alternative as usize]);
            let zone_free = ledger.states.join(added, volume);
            let pins = pins(ledger, variant, state);
            let pinned = ledger.states.join(zone_free, pins);
            *merged.entry((variant, alternative, pinned, zone_free)).or_insert(0) += count;
        }
    }
    let items = merged
        .into_iter()
        .map(|((variant, alternative, added, added_without_zone), count)| Item {
            variant,
            alternative,
            added,
            added_without_zone,
            count,
        })
        .collect();
    Repacking { items, frozen, frozen_from }
}

/// Whether the node must not be repacked, because its pods have host ports, volume attachments or hostname affinity, or
/// because the node must keep its reservation or `minValues`.
fn cannot_be_repacked(ledger: &Ledger, claim: usize, reserved: ReservedNodes) -> bool {
    let data = &ledger.claims[claim];
    let template = &ledger.prepared.templates[ledger.states.get(data.state).template];
    template.has_min_values
        || (reserved == ReservedNodes::Keep && !data.reservations.is_empty())
        || data.content.iter().any(|(variant, _, _)| {
            let variant = &ledger.classes.variants[*variant];
            let class = &ledger.classes.classes[variant.class];
            let host_affinity = |group: &GroupId| {
                let group = ledger.topology.group(*group);
                group.is_hostname && group.id.kind == GroupKind::Affinity
            };
            !variant.spec.host_ports.is_empty()
                || !variant.spec.volumes.attachments.is_empty()
                || variant.owned.iter().any(|owned| host_affinity(&owned.group))
                || class.matched.iter().any(host_affinity)
        })
}

/// The requirements that a pod must keep on another node because topology constraints count it: the values of zone-like
/// label keys, and the requirements that decide whether a spread counts the node. For a spread that the pod states, the
/// latter are omitted, because the pod's own requirements ensure them.
pub(crate) fn pins(ledger: &mut Ledger, variant: usize, state: StateId) -> ReqId {
    let data = &ledger.classes.variants[variant];
    let class = &ledger.classes.classes[data.class];
    let mut keys: Vec<(usize, bool)> = Vec::new();
    let mut counted_by: Vec<GroupId> = Vec::new();
    let stated = data.owned.iter().map(|owned| (owned.group, true));
    for (id, is_stated) in stated.chain(class.matched.iter().map(|group| (*group, false))) {
        let group = ledger.topology.group(id);
        if group.is_hostname {
            continue;
        }
        keys.push((group.id.key, is_stated || group.id.kind == GroupKind::AntiAffinity));
        if !group.id.filter.is_all() && !data.owned.iter().any(|owned| owned.group == id) {
            counted_by.push(id);
        }
    }
    if keys.is_empty() {
        return ReqId::NONE;
    }
    keys.sort_unstable();
    keys.dedup();
    let mut pins = Requirements::new();
    for (key, keeps_open_set) in keys {
        let domains = ledger.domains(state, key);
        if domains.single().is_some() || keeps_open_set {
            let values = domains.iter().map(|domain| ledger.topology.domains[key][domain].clone());
            pins.add(Requirement::in_values(ledger.topology.keys[key].clone(), values));
        }
    }
    counted_by.into_iter().for_each(|group| pins.extend(&ledger.filter_result(group, state).keeps));
    ledger.states.intern(&pins)
}

/// Numbers distinct demands (constraints of pods on labels and taints) in the order in which they are first seen.
#[derive(Default)]
pub(crate) struct Demands {
    pub(crate) list: Vec<Demand>,
}

impl Demands {
    pub(crate) fn number(&mut self, demand: Demand) -> usize {
        match self.list.iter().position(|known| *known == demand) {
            Some(position) => position,
            None => {
                self.list.push(demand);
                self.list.len() - 1
            }
        }
    }
}

pub(crate) fn vector(amounts: &[i64]) -> Vector {
    let mut vector = [0; DIMENSIONS_MAX];
    for (slot, amount) in vector.iter_mut().zip(amounts) {
        *slot = *amount;
    }
    vector
}

/// All node kinds (instance types with offerings of one price) that a repacking may use. NodePools with `minValues` and
/// instance sizes that the options exclude are left out. With `is_flexible`, the capacity of a spot kind is reduced to
/// what enough alternative instance types have as well.
pub(crate) fn kinds(
    ledger: &mut Ledger,
    in_tier: &Bits,
    demands: &[Demand],
    is_flexible: bool,
) -> Vec<NodeKind> {
    kinds_of(ledger, in_tier, demands, false, is_flexible, &|_, _, _, _| true)
}

/// All instance types that can be launched; the price is that of the offering alone.
pub(crate) fn all_kinds(ledger: &mut Ledger, in_tier: &Bits, demands: &[Demand]) -> Vec<NodeKind> {
    kinds_of(ledger, in_tier, demands, true, false, &|_, _, _, _| true)
}

/// Like [`all_kinds`], restricted to offerings for which `only` returns true; the arguments of `only` are NodePool
/// template, instance type and offering.
pub(crate) fn all_kinds_of(
    ledger: &mut Ledger,
    in_tier: &Bits,
    demands: &[Demand],
    only: &dyn Fn(&Ledger, usize, usize, &Offering) -> bool,
) -> Vec<NodeKind> {
    kinds_of(ledger, in_tier, demands, true, false, only)
}

fn kinds_of(
    ledger: &mut Ledger,
    in_tier: &Bits,
    demands: &[Demand],
    all: bool,
    is_flexible: bool,
    only: &dyn Fn(&Ledger, usize, usize, &Offering) -> bool,
) -> Vec<NodeKind> {
    let options = &ledger.options;
    let (overhead, cpu_min, cpu_max) = if all {
        (0.0, 0, i64::MAX)
    } else {
        (options.node_overhead_price_per_hour, options.min_node_cpu_millis, options.max_node_cpu_millis)
    };
    let min_spot_types = options.min_spot_types;
    let mut kinds = Vec::new();
    let mut spot: Vec<SpotType> = Vec::new();
    for template in in_tier.iter() {
        if ledger.prepared.templates[template].has_min_values && !all {
            continue;
        }
        let Some(base) = ledger.states.base(template) else { continue };
        let size = ledger.prepared.templates[template].types.len();
        // For each instance type: (offering, price, demands (constraints on labels and taints) that the offering
        // satisfies, whether it is spot).
        let mut offers: Vec<Vec<(u32, f64, Bits, bool)>> = vec![Vec::new(); size];
        for (number, demand) in demands.iter().enumerate() {
            if !demand.tolerated.contains(template) {
                continue;
            }
            let Some(state) = ledger.states.add(base, demand.added) else { continue };
            let types = &ledger.prepared.templates[template].types;
            for entry in &ledger.states.get(state).types {
                let known = &mut offers[entry.index];
                for offer in ledger.states.offers(state, entry) {
                    match known.iter_mut().find(|(index, _, _, _)| index == offer) {
                        Some((_, _, serves, _)) => serves.insert(number),
                        None => {
                            let flags = types[entry.index].offering_flags[*offer as usize];
                            // A reservation has few slots. A lower bound must consider its price; a repacking uses the
                            // slots in `slots` instead.
                            if !flags.is_launchable || !all && flags.is_reserved {
                                continue;
                            }
                            let offering = &ledger.states.instance_type(template, entry.index).offerings
                                [*offer as usize];
                            if only(ledger, template, entry.index, offering) {
                                let mut serves = Bits::empty(demands.len());
                                serves.insert(number);
                                known.push((*offer, offering.price_per_hour, serves, flags.is_spot));
                            }
                        }
                    }
                }
            }
        }
        for (index, known) in offers.iter_mut().enumerate() {
            let capacity =
                ledger.states.instance_type(template, index).capacity.get(karpenter_model::resources::CPU);
            if capacity < cpu_min || capacity > cpu_max {
                continue;
            }
            known.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.2.cmp(&b.2)));
            let mut kept: Vec<NodeKind> = Vec::new();
            for (_, price, serves, is_spot) in known.drain(..) {
                if is_spot {
                    let of_type = &ledger.prepared.templates[template].types[index];
                    let (free, instance_type) = (vector(&of_type.free), of_type.index);
                    spot.push(SpotType { template, instance_type, free, demands: serves.clone() });
                }
                if !kept.iter().any(|kind| kind.demands.is_superset(&serves)) {
                    kept.push(NodeKind {
                        template,
                        instance_type: index,
                        free: vector(&ledger.prepared.templates[template].types[index].free),
                        price: price + overhead,
                        demands: serves,
                        is_spot,
                    });
                }
            }
            kinds.append(&mut kept);
        }
    }
    // Instance types with a price of zero are left out, because the ratio of value to price would be infinite.
    kinds.retain(|kind| kind.price > 0.0 || overhead > 0.0);
    let kinds = drop_dominated(kinds);
    if !is_flexible || min_spot_types <= 1 || spot.is_empty() {
        return kinds;
    }
    drop_dominated(kinds.into_iter().filter_map(|kind| flexible(kind, &spot, min_spot_types)).collect())
}

/// An instance type with a spot offering that satisfies some demands (constraints on labels and taints).
struct SpotType {
    template: usize,
    /// Index into the catalog of instance types.
    instance_type: usize,
    free: Vector,
    demands: Bits,
}

/// A spot node kind with its capacity reduced to what enough other instance types have as well; `None` if too few
/// instance types have nearly as much capacity.
fn flexible(mut kind: NodeKind, spot: &[SpotType], least: usize) -> Option<NodeKind> {
    /// An instance type that has less than this share of the capacity of any one resource is no alternative.
    const NEAR: f64 = 0.85;
    if !kind.is_spot {
        return Some(kind);
    }
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut near: Vec<(f64, &SpotType)> = Vec::new();
    for other in spot
        .iter()
        .filter(|other| other.template == kind.template && other.demands.is_superset(&kind.demands))
    {
        if !seen.insert(other.instance_type) {
            continue;
        }
        let share = kind
            .free
            .iter()
            .zip(&other.free)
            .filter(|(own, _)| **own > 0)
            .fold(1.0f64, |least, (own, other)| least.min(*other as f64 / *own as f64));
        if share >= NEAR {
            near.push((share, other));
        }
    }
    // A NodePool may have fewer instance types than `least`; then all of them are required.
    let wanted = least.min(seen.len());
    if near.len() < wanted {
        return None;
    }
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.instance_type.cmp(&b.1.instance_type)));
    for (_, other) in near.iter().take(wanted) {
        for (own, other) in kind.free.iter_mut().zip(&other.free) {
            *own = (*own).min(*other);
        }
    }
    Some(kind)
}

/// For each item: the maximum number of its pods on one node, and, if other items share this maximum, the group that
/// they share it in.
///
/// A lower bound considers only required constraints. Of a spread, it considers only the limit; any lower maximum would
/// depend on the rest of the fleet.
pub(crate) fn host_caps(
    ledger: &Ledger,
    items: &[Item],
    purpose: Purpose<'_>,
) -> Vec<(u32, Option<(GroupId, u32)>)> {
    let mut owners: BTreeMap<GroupId, u32> = BTreeMap::new();
    let caps: Vec<Vec<(GroupId, u32)>> = items
        .iter()
        .map(|item| {
            let owned = ledger.classes.variants[item.variant].owned.iter();
            owned
                .filter(|owned| owned.is_hostname && owned.selects_itself)
                .filter_map(|owned| {
                    let cap = match (owned.kind, purpose) {
                        (_, Purpose::Bound(_)) if !owned.is_required => u32::MAX,
                        (GroupKind::Spread { max_skew, .. }, Purpose::Bound(counted)) => {
                            counted.widest_limit(owned.group, max_skew)
                        }
                        (GroupKind::Affinity, Purpose::Bound(_)) => u32::MAX,
                        (GroupKind::Spread { max_skew, .. }, _) => max_skew,
                        (GroupKind::AntiAffinity | GroupKind::Affinity, _) => 1,
                    };
                    (cap < u32::MAX).then_some((owned.group, cap))
                })
                .inspect(|(group, _)| *owners.entry(*group).or_insert(0) += 1)
                .collect()
        })
        .collect();
    caps.into_iter()
        .map(|caps| {
            let cap = caps.iter().map(|(_, cap)| *cap).min().unwrap_or(u32::MAX);
            let shared = caps.into_iter().find(|(group, _)| owners[group] > 1);
            (cap, shared)
        })
        .collect()
}

/// What a set of rows (groups of equal pods) is used for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Packing pods onto nodes in the zones that compat mode chose.
    Packing,
    /// Computing the dual prices that guide the packing. Zones are ignored, which gives fewer groups of equal pods.
    Values,
    /// Computing a lower bound. Zones are ignored, and only constraints that hold for every valid fleet are used;
    /// `Counted` has the number of pods that each spread counts.
    Bound(&'a Counted),
}

/// The groups of equal pods (rows) of a packing problem, and for each row the indexes of its items.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    pub(crate) items: Vec<Vec<usize>>,
}

/// Items with an equal key form one group of equal pods: requests, demand (constraints on labels and taints), index of
/// the item (if it must not be merged), maximum per node, exclusion group.
type RowKey = (Vector, usize, Option<usize>, u32, Option<(u16, u32)>);

/// Merges equal items into groups of equal pods.
pub(crate) fn rows(
    ledger: &Ledger,
    items: &[Item],
    demands: &mut Demands,
    in_tier: &Bits,
    purpose: Purpose<'_>,
) -> Rows {
    let zone_free = !matches!(purpose, Purpose::Packing);
    let caps = host_caps(ledger, items, purpose);
    let mut index: BTreeMap<RowKey, usize> = BTreeMap::new();
    let mut result = Rows { rows: Vec::new(), items: Vec::new() };
    let mut exclusions: Vec<GroupId> = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let variant = &ledger.classes.variants[item.variant];
        let mut tolerated = Bits::empty(ledger.prepared.templates.len());
        variant.tolerated.iter().filter(|t| in_tier.contains(*t)).for_each(|t| tolerated.insert(t));
        let added = if zone_free { item.added_without_zone } else { item.added };
        let demand = demands.number(Demand { added, tolerated });
        let requests = vector(&variant.requests);
        let (cap, shared) = &caps[position];
        let exclusion = shared.map(|(group, cap)| {
            let number = exclusions.iter().position(|known| *known == group).unwrap_or_else(|| {
                exclusions.push(group);
                exclusions.len() - 1
            });
            (number as u16, cap)
        });
        // A group of equal pods (row) with its own maximum per node is not merged with others, because each such row
        // needs a minimum number of nodes of its own. Without zones, the items of one class that differ in zone only
        // form one row.
        let own = (*cap != u32::MAX && exclusion.is_none()).then_some(if zone_free {
            items.iter().position(|other| other.variant == item.variant).unwrap_or(position)
        } else {
            position
        });
        let row = *index.entry((requests, demand, own, *cap, exclusion)).or_insert_with(|| {
            result.rows.push(Row { requests, demand, count: 0, cap: *cap, exclusion });
            result.items.push(Vec::new());
            result.rows.len() - 1
        });
        result.rows[row].count += item.count;
        result.items[row].push(position);
    }
    result
}
