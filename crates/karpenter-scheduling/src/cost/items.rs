//! What is to be packed: the pods that the plain order put on new nodes, with the decisions that must survive a
//! repacking (relaxation level, volume alternative, zone) turned into demands on the node.
//!
//! Zones are kept as the plain order chose them wherever a constraint looks at zones, so repacking within a zone
//! cannot break a zonal constraint. Hosts are what the repacking is about; their constraints become caps.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::instance_type::Offering;
use karpenter_model::requirements::{Requirement, Requirements};

use super::limits::Counted;
use super::shapes::{DIMENSIONS_MAX, Kind, Row, Vector, drop_dominated};
use super::slots::Reserved;
use crate::bits::Bits;
use crate::ledger::{Claim, Ledger};
use crate::states::{ReqId, StateId};
use crate::topology::{GroupId, Kind as GroupKind};

/// Pods that are interchangeable for the repacking.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) variant: usize,
    pub(crate) alternative: u8,
    /// Everything the pods add to a node, the zone included.
    pub(crate) added: ReqId,
    /// The same without the zone.
    pub(crate) added_anywhere: ReqId,
    pub(crate) count: u32,
}

/// Distinct demands: what a node must satisfy, and which templates' taints are tolerated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    pub(crate) added: ReqId,
    pub(crate) tolerated: Bits,
}

pub(crate) struct Repacking {
    pub(crate) items: Vec<Item>,
    /// Nodes that are left as the plain order made them.
    pub(crate) frozen: Vec<Claim>,
    /// Where they are among the ledger's planned nodes.
    pub(crate) frozen_from: Vec<usize>,
}

/// Splits the planned nodes of some templates into items to repack and nodes to leave alone.
pub(crate) fn extract(ledger: &mut Ledger, in_tier: &Bits, reserved: Reserved) -> Repacking {
    let mut merged: BTreeMap<(usize, u8, ReqId, ReqId), u32> = BTreeMap::new();
    let (mut frozen, mut frozen_from) = (Vec::new(), Vec::new());
    for position in 0..ledger.claims.len() {
        let state = ledger.claims[position].state;
        if !in_tier.contains(ledger.states.get(state).template) {
            continue;
        }
        if must_stay(ledger, position, reserved) {
            frozen.push(ledger.claims[position].clone());
            frozen_from.push(position);
            continue;
        }
        for (variant, alternative, count) in ledger.claims[position].content.clone() {
            let data = &ledger.classes.variants[variant];
            let (added, volume) = (data.added, data.alternatives[alternative as usize]);
            let anywhere = ledger.states.join(added, volume);
            let pins = pins(ledger, variant, state);
            let pinned = ledger.states.join(anywhere, pins);
            *merged.entry((variant, alternative, pinned, anywhere)).or_insert(0) += count;
        }
    }
    let items = merged
        .into_iter()
        .map(|((variant, alternative, added, added_anywhere), count)| Item {
            variant,
            alternative,
            added,
            added_anywhere,
            count,
        })
        .collect();
    Repacking { items, frozen, frozen_from }
}

/// Nodes whose content depends on each other in ways a cap cannot express.
fn must_stay(ledger: &Ledger, claim: usize, reserved: Reserved) -> bool {
    let data = &ledger.claims[claim];
    let template = &ledger.prepared.templates[ledger.states.get(data.state).template];
    template.has_min_values
        || (reserved == Reserved::Stay && !data.reservations.is_empty())
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

/// What a pod must keep because a constraint looks at it: zone-like values, and whether a spread that counts the pod looks
/// at its node. Where the pod states the spread itself, its own demands see to the latter.
pub(crate) fn pins(ledger: &mut Ledger, variant: usize, state: StateId) -> ReqId {
    let data = &ledger.classes.variants[variant];
    let class = &ledger.classes.classes[data.class];
    let mut keys: Vec<(usize, bool)> = Vec::new();
    let mut looked_at_by: Vec<GroupId> = Vec::new();
    let stated = data.owned.iter().map(|owned| (owned.group, true));
    for (id, is_stated) in stated.chain(class.matched.iter().map(|group| (*group, false))) {
        let group = ledger.topology.group(id);
        if group.is_hostname {
            continue;
        }
        keys.push((group.id.key, is_stated || group.id.kind == GroupKind::AntiAffinity));
        if !group.id.filter.is_all() && !data.owned.iter().any(|owned| owned.group == id) {
            looked_at_by.push(id);
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
    looked_at_by.into_iter().for_each(|group| pins.extend(&ledger.look(group, state).keeps));
    ledger.states.intern(&pins)
}

/// Numbers demands in order of appearance.
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

/// Every kind of node a repacking may use: pools with minValues and sizes the user does not want are left out. With
/// `is_flexible`, spot kinds leave room for other types to stand in.
pub(crate) fn kinds(ledger: &mut Ledger, in_tier: &Bits, demands: &[Demand], is_flexible: bool) -> Vec<Kind> {
    kinds_of(ledger, in_tier, demands, false, is_flexible, &|_, _, _, _| true)
}

/// Every kind of node that can be bought at all, at its plain price.
pub(crate) fn all_kinds(ledger: &mut Ledger, in_tier: &Bits, demands: &[Demand]) -> Vec<Kind> {
    kinds_of(ledger, in_tier, demands, true, false, &|_, _, _, _| true)
}

/// The same for offers that `only` accepts; it is asked with a template, a type of it, and an offering.
pub(crate) fn all_kinds_of(
    ledger: &mut Ledger,
    in_tier: &Bits,
    demands: &[Demand],
    only: &dyn Fn(&Ledger, usize, usize, &Offering) -> bool,
) -> Vec<Kind> {
    kinds_of(ledger, in_tier, demands, true, false, only)
}

fn kinds_of(
    ledger: &mut Ledger,
    in_tier: &Bits,
    demands: &[Demand],
    all: bool,
    is_flexible: bool,
    only: &dyn Fn(&Ledger, usize, usize, &Offering) -> bool,
) -> Vec<Kind> {
    let options = &ledger.options;
    let (overhead, cpu_min, cpu_max) = if all {
        (0.0, 0, i64::MAX)
    } else {
        (options.node_overhead_price_per_hour, options.min_node_cpu_millis, options.max_node_cpu_millis)
    };
    let least_spot_types = options.min_spot_types;
    let mut kinds = Vec::new();
    let mut spot: Vec<SpotType> = Vec::new();
    for template in in_tier.iter() {
        if ledger.prepared.templates[template].has_min_values && !all {
            continue;
        }
        let Some(base) = ledger.states.base(template) else { continue };
        let size = ledger.prepared.templates[template].types.len();
        // Per type: (offering, price, demands it serves, whether it is spot).
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
                            let sale = types[entry.index].sales[*offer as usize];
                            // Reservations have few slots; a bound must still know their price.
                            if !sale.is_launchable || !all && sale.is_reserved {
                                continue;
                            }
                            let offering = &ledger.states.instance_type(template, entry.index).offerings
                                [*offer as usize];
                            if only(ledger, template, entry.index, offering) {
                                let mut serves = Bits::empty(demands.len());
                                serves.insert(number);
                                known.push((*offer, offering.price_per_hour, serves, sale.is_spot));
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
            let mut kept: Vec<Kind> = Vec::new();
            for (_, price, serves, is_spot) in known.drain(..) {
                if is_spot {
                    let of_type = &ledger.prepared.templates[template].types[index];
                    let (free, instance_type) = (vector(&of_type.free), of_type.index);
                    spot.push(SpotType { template, instance_type, free, demands: serves.clone() });
                }
                if !kept.iter().any(|kind| kind.demands.is_superset(&serves)) {
                    kept.push(Kind {
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
    // A price of zero would make every filling infinitely good.
    kinds.retain(|kind| kind.price > 0.0 || overhead > 0.0);
    let kinds = drop_dominated(kinds);
    if !is_flexible || least_spot_types <= 1 || spot.is_empty() {
        return kinds;
    }
    drop_dominated(kinds.into_iter().filter_map(|kind| flexible(kind, &spot, least_spot_types)).collect())
}

/// A type that can be had as spot, for some demands.
struct SpotType {
    template: usize,
    /// Index into the catalog.
    instance_type: usize,
    free: Vector,
    demands: Bits,
}

/// A spot kind with its room cut down to what enough other types have as well; `None` if too few come near it.
fn flexible(mut kind: Kind, spot: &[SpotType], least: usize) -> Option<Kind> {
    /// Types with less room than this, in any resource, are not counted as alternatives.
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
    // A pool with few types is not asked for more than it has.
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

/// How many copies of an item one node may hold, and the exclusion it shares with other items.
///
/// For a bound only what is required counts, and of a spread only its limit: how many pods it allows below that depends on
/// the fleet.
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

/// What rows are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Packing within the zones already chosen.
    Packing,
    /// Values of pods for the packing: zones are forgotten, which leaves fewer rows.
    Values,
    /// As `Values`, and only what binds every valid fleet, for pods that spreads count so many of.
    Bound(&'a Counted),
}

/// Rows of the packing with the items behind each.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    pub(crate) items: Vec<Vec<usize>>,
}

/// Requests, demand, the item itself if it may not be merged, the cap, and the exclusion.
type RowKey = (Vector, usize, Option<usize>, u32, Option<(u16, u32)>);

/// Merges items into rows.
pub(crate) fn rows(
    ledger: &Ledger,
    items: &[Item],
    demands: &mut Demands,
    in_tier: &Bits,
    purpose: Purpose<'_>,
) -> Rows {
    let anywhere = !matches!(purpose, Purpose::Packing);
    let caps = host_caps(ledger, items, purpose);
    let mut index: BTreeMap<RowKey, usize> = BTreeMap::new();
    let mut result = Rows { rows: Vec::new(), items: Vec::new() };
    let mut exclusions: Vec<GroupId> = Vec::new();
    for (position, item) in items.iter().enumerate() {
        let variant = &ledger.classes.variants[item.variant];
        let mut tolerated = Bits::empty(ledger.prepared.templates.len());
        variant.tolerated.iter().filter(|t| in_tier.contains(*t)).for_each(|t| tolerated.insert(t));
        let added = if anywhere { item.added_anywhere } else { item.added };
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
        // Rows with a cap of their own are not merged: each of them needs that many different nodes. Without zones
        // the parts of one class are one row again.
        let own = (*cap != u32::MAX && exclusion.is_none()).then_some(if anywhere {
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
