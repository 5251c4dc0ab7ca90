//! Turns the result of the packer into planned nodes: assigns pods to nodes and computes the requirements of each
//! NodeClaim.
//!
//! Some hostname constraints cannot be stated as a maximum per node (anti-affinity between different classes), so they
//! are checked here pod by pod. If a pod may not be on the node it was packed on, it goes to another node or to a new
//! one.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::items::{Item, Rows};
use super::pack::Bin;
use super::shapes::NodeKind;
use crate::classes::Variant;
use crate::ledger::fit::holds;
use crate::ledger::{Claim, Ledger};
use crate::states::StateId;
use crate::topology::{GroupId, Kind as GroupKind};

/// Builds planned nodes from the packer's bins (nodes with pod counts). `None` if some pod could not be placed.
pub(crate) fn claims(
    ledger: &mut Ledger,
    items: &[Item],
    rows: &Rows,
    kinds: &[NodeKind],
    bins: &[Bin],
) -> Option<Vec<Claim>> {
    let (mut nodes, mut left) = filled(ledger, items, rows, kinds, bins)?;
    // Pods that may not be on the node they were packed on go to free capacity of other nodes first, then to new nodes.
    for (position, item) in items.iter().enumerate() {
        for node in &mut nodes {
            if left[position] == 0 {
                break;
            }
            left[position] -= node.put(ledger, item, left[position]);
        }
        while left[position] > 0 {
            let mut node = cheapest_for(ledger, item, kinds)?;
            let placed = node.put(ledger, item, left[position]);
            if placed == 0 {
                return None;
            }
            left[position] -= placed;
            nodes.push(node);
        }
    }
    Some(nodes.into_iter().map(|node| node.into_claim()).collect())
}

/// Builds planned nodes from bins (nodes with pod counts) that do not cover all pods; the second result is the number
/// of pods left per item (group of interchangeable pods).
pub(crate) fn fill(
    ledger: &mut Ledger,
    items: &[Item],
    rows: &Rows,
    kinds: &[NodeKind],
    bins: &[Bin],
) -> Option<(Vec<Claim>, Vec<u32>)> {
    let (nodes, left) = filled(ledger, items, rows, kinds, bins)?;
    Some((nodes.into_iter().map(|node| node.into_claim()).collect(), left))
}

fn filled(
    ledger: &mut Ledger,
    items: &[Item],
    rows: &Rows,
    kinds: &[NodeKind],
    bins: &[Bin],
) -> Option<(Vec<Node>, Vec<u32>)> {
    let mut left: Vec<u32> = items.iter().map(|item| item.count).collect();
    let mut nodes: Vec<Node> = Vec::new();
    for bin in bins {
        for _ in 0..bin.copies {
            let mut node = Node::open(ledger, kinds[bin.kind].template, Some(kinds[bin.kind].instance_type))?;
            for (row, count) in &bin.pod_counts {
                distribute(ledger, items, &rows.items[*row as usize], &mut left, *count, &mut node);
            }
            if node.pods > 0 {
                nodes.push(node);
            }
        }
    }
    Some((nodes, left))
}

/// Like [`claims`], for bins in which capacity was set aside for pods with a hostname spread: first, every node gets an
/// even share of these pods.
pub(crate) fn with_shares(
    ledger: &mut Ledger,
    items: &[Item],
    others: &[Item],
    rows: &Rows,
    packed_kinds: &[NodeKind],
    bins: &[Bin],
    shares: &[(GroupId, u32, &[usize])],
) -> Option<Vec<Claim>> {
    let mut left_of_others: Vec<u32> = others.iter().map(|item| item.count).collect();
    let mut left: Vec<u32> = items.iter().map(|item| item.count).collect();
    let mut nodes: Vec<Node> = Vec::new();
    for bin in bins {
        for _ in 0..bin.copies {
            let kind = &packed_kinds[bin.kind];
            let mut node = Node::open(ledger, kind.template, Some(kind.instance_type))?;
            node.spread_caps = shares.iter().map(|(group, share, _)| (*group, *share)).collect();
            for (row, count) in &bin.pod_counts {
                distribute(
                    ledger,
                    others,
                    &rows.items[*row as usize],
                    &mut left_of_others,
                    *count,
                    &mut node,
                );
            }
            nodes.push(node);
        }
    }
    for (_, share, members) in shares {
        let total: u32 = members.iter().map(|member| left[*member]).sum();
        // If the pods cannot be divided evenly, the first nodes get one pod more.
        let (base, more) = (total / nodes.len() as u32, total % nodes.len() as u32);
        debug_assert!(base + u32::from(more > 0) <= *share);
        for (position, node) in nodes.iter_mut().enumerate() {
            let mut wanted = base + u32::from((position as u32) < more);
            for member in *members {
                let placed = node.put(ledger, &items[*member], wanted.min(left[*member]));
                left[*member] -= placed;
                wanted -= placed;
            }
        }
        if members.iter().any(|member| left[*member] > 0) {
            return None;
        }
    }
    if left_of_others.iter().any(|left| *left > 0) {
        return None;
    }
    Some(nodes.into_iter().filter(|node| node.pods > 0).map(|node| node.into_claim()).collect())
}

/// Assigns `count` pods of a group of equal pods to a node. Items with the most remaining pods come first, because
/// items with a limit per node would otherwise be left over.
fn distribute(
    ledger: &mut Ledger,
    items: &[Item],
    of_row: &[usize],
    left: &mut [u32],
    count: u32,
    node: &mut Node,
) {
    let mut wanted = count;
    if of_row.len() == 1 {
        let position = of_row[0];
        left[position] -= node.put(ledger, &items[position], wanted.min(left[position]));
        return;
    }
    let constrained = of_row.iter().any(|item| is_host_bound(ledger, &items[*item]));
    if !constrained {
        for position in of_row {
            let placed = node.put(ledger, &items[*position], wanted.min(left[*position]));
            left[*position] -= placed;
            wanted -= placed;
            if wanted == 0 {
                return;
            }
        }
        return;
    }
    let mut order: SmallVec<[usize; 16]> = of_row.iter().copied().filter(|item| left[*item] > 0).collect();
    order.sort_by_key(|item| (std::cmp::Reverse(left[*item]), *item));
    for position in order {
        if wanted == 0 {
            return;
        }
        let placed = node.put(ledger, &items[position], wanted.min(left[position]));
        left[position] -= placed;
        wanted -= placed;
    }
}

fn is_host_bound(ledger: &Ledger, item: &Item) -> bool {
    let variant = &ledger.classes.variants[item.variant];
    variant.owned.iter().any(|owned| owned.is_hostname)
        || ledger.classes.classes[variant.class]
            .matched
            .iter()
            .any(|group| ledger.topology.group(*group).is_hostname)
}

fn cheapest_for(ledger: &mut Ledger, item: &Item, kinds: &[NodeKind]) -> Option<Node> {
    let requests = ledger.classes.variants[item.variant].requests.clone();
    let mut order: Vec<&NodeKind> = kinds.iter().collect();
    order.sort_by(|a, b| a.price.total_cmp(&b.price));
    for kind in order {
        let free = &ledger.prepared.templates[kind.template].types[kind.instance_type].free;
        if !holds(free, &requests) || !ledger.classes.variants[item.variant].tolerated.contains(kind.template)
        {
            continue;
        }
        let Some(mut node) = Node::open(ledger, kind.template, Some(kind.instance_type)) else { continue };
        if node.clone().put(ledger, item, 1) > 0 {
            node.pods = 0;
            return Some(node);
        }
    }
    None
}

/// A planned node to which pods are being assigned.
#[derive(Clone)]
struct Node {
    template: usize,
    state: StateId,
    /// The allocatable resources of the instance type that the node was packed for.
    free: SmallVec<[i64; 6]>,
    used: SmallVec<[i64; 6]>,
    pods: u32,
    content: Vec<(usize, u8, u32)>,
    matched: FxHashMap<GroupId, u32>,
    owners: FxHashMap<GroupId, u32>,
    /// Spreads for which every node was planned to hold more than `maxSkew` pods, with that number.
    spread_caps: Vec<(GroupId, u32)>,
    /// For each spread that a pod on this node states: how many pods selected by the spread the node may hold in the
    /// end. With more of them, that pod would have to be bound before the others, and the plan cannot control the
    /// order.
    spread_limits: FxHashMap<GroupId, u32>,
    planned_type: usize,
}

impl Node {
    fn open(ledger: &Ledger, template: usize, instance_type: Option<usize>) -> Option<Self> {
        let state = ledger.states.base(template)?;
        let planned_type = instance_type?;
        let free = ledger.prepared.templates[template].types[planned_type].free.clone();
        Some(Self {
            template,
            state,
            used: SmallVec::from_elem(0, free.len()),
            free,
            pods: 0,
            content: Vec::new(),
            matched: FxHashMap::default(),
            owners: FxHashMap::default(),
            spread_caps: Vec::new(),
            spread_limits: FxHashMap::default(),
            planned_type,
        })
    }

    /// Adds up to `count` pods of an item (group of interchangeable pods); returns how many fit.
    fn put(&mut self, ledger: &mut Ledger, item: &Item, count: u32) -> u32 {
        if count == 0 || !ledger.classes.variants[item.variant].tolerated.contains(self.template) {
            return 0;
        }
        let variant = &ledger.classes.variants[item.variant];
        let room = crate::ledger::fit::copies(&self.free, &self.used, &variant.requests).min(count);
        let placed = room.min(self.host_room(variant, &ledger.classes.classes[variant.class].matched));
        if placed == 0 {
            return 0;
        }
        let Some(state) = ledger.states.add(self.state, item.added) else { return 0 };
        if state != self.state
            && !ledger.states.get(state).types.iter().any(|entry| entry.index == self.planned_type)
        {
            return 0;
        }
        self.state = state;
        let variant = &ledger.classes.variants[item.variant];
        for (used, request) in self.used.iter_mut().zip(&variant.requests) {
            *used += request * i64::from(placed);
        }
        self.pods += placed;
        match self.content.iter_mut().find(|(v, a, _)| *v == item.variant && *a == item.alternative) {
            Some((_, _, present)) => *present += placed,
            None => self.content.push((item.variant, item.alternative, placed)),
        }
        for group in &ledger.classes.classes[variant.class].matched {
            if ledger.topology.group(*group).is_hostname {
                *self.matched.entry(*group).or_insert(0) += placed;
            }
        }
        for owned in variant.owned.iter().filter(|owned| owned.is_hostname) {
            match owned.kind {
                GroupKind::AntiAffinity if owned.is_required => {
                    *self.owners.entry(owned.group).or_insert(0) += placed;
                }
                GroupKind::Spread { max_skew, .. } => {
                    let limit = self.spread_limit(owned.group, max_skew);
                    self.spread_limits.insert(owned.group, limit);
                }
                GroupKind::AntiAffinity | GroupKind::Affinity => {}
            }
        }
        placed
    }

    fn spread_limit(&self, group: GroupId, max_skew: u32) -> u32 {
        let planned = self.spread_caps.iter().find(|(planned, _)| *planned == group);
        planned.map_or(max_skew, |(_, cap)| *cap)
    }

    /// How many further pods of a variant of a pod class the hostname constraints allow on this node.
    fn host_room(&self, variant: &Variant, matched: &[GroupId]) -> u32 {
        if variant
            .repelled_by_on_host
            .iter()
            .any(|group| self.owners.get(group).is_some_and(|count| *count > 0))
        {
            return 0;
        }
        let mut room = u32::MAX;
        for group in matched {
            if let Some(limit) = self.spread_limits.get(group) {
                let present = self.matched.get(group).copied().unwrap_or(0);
                room = room.min(limit.saturating_sub(present));
            }
        }
        for owned in variant.owned.iter().filter(|owned| owned.is_hostname) {
            let present = self.matched.get(&owned.group).copied().unwrap_or(0);
            let here = match (owned.kind, owned.selects_itself) {
                (GroupKind::Spread { max_skew, .. }, true) => {
                    self.spread_limit(owned.group, max_skew).saturating_sub(present)
                }
                (GroupKind::Spread { max_skew, .. }, false) if present <= max_skew => u32::MAX,
                (GroupKind::AntiAffinity, true) if present == 0 => 1,
                (GroupKind::AntiAffinity, false) if present == 0 => u32::MAX,
                _ => 0,
            };
            room = room.min(here);
        }
        room
    }

    fn into_claim(self) -> Claim {
        Claim::packed(self.state, self.used, self.pods, self.content, self.planned_type)
    }
}
