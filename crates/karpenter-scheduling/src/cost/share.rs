//! Lets pods with a hostname spread share nodes where the spread allows it.
//!
//! Compat mode assumes that an empty host can always exist, so `maxSkew: 1` means one pod per node. kube-scheduler
//! compares existing hosts: if every eligible node holds seven of the pods, one node may hold eight. So this module
//! sets aside capacity for some number of spread pods on every node, packs the other pods around it, and distributes
//! the spread pods evenly. It tries several numbers. The result is used only if it is cheaper, every hostname
//! constraint holds by kube-scheduler's rule, and no node exceeds the limit of a hard spread (`limits`).

use std::collections::{BTreeMap, BTreeSet};

use super::items::{self, Demands, Item};
use super::knapsack::{self, Scratch};
use super::limits;
use super::pack::{self, Bin};
use super::realize;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};
use crate::bits::Bits;
use crate::ledger::{Claim, Ledger};
use crate::topology::{GroupId, Kind as GroupKind, Slot};

/// Pods that state the same hostname spread, which selects all of them.
struct Spread {
    group: GroupId,
    /// The indexes of the spread's pods in the list of items (groups of interchangeable pods).
    members: Vec<usize>,
    count: u32,
    /// For each resource: the largest request of any of the spread's pods.
    requests: super::shapes::Vector,
    max_skew: u32,
    /// Whether at least one of the pods states the spread as required (`DoNotSchedule`). A preferred spread has no
    /// limit per node.
    is_required: bool,
}

impl Spread {
    /// How many of the spread's pods one node of the NodePool template may hold, if the spread counts `counted` pods in
    /// total.
    fn limit(&self, ledger: &Ledger, template: usize, counted: u64) -> u32 {
        if self.is_required {
            limits::limit(limits::share(ledger, template), self.max_skew, counted)
        } else {
            u32::MAX
        }
    }
}

/// Packs the items (groups of interchangeable pods) with nodes shared by spread pods; returns the nodes if they cost
/// less than `price`.
pub(crate) fn repack(
    ledger: &mut Ledger,
    tier: &Bits,
    items: &[Item],
    frozen: &[Claim],
    price: f64,
    scratch: &mut Scratch,
) -> Option<Vec<Claim>> {
    let spreads = spreads(ledger, items)?;
    let spreading: Vec<usize> = spreads.iter().flat_map(|spread| spread.members.iter().copied()).collect();
    let others: Vec<Item> =
        (0..items.len()).filter(|item| !spreading.contains(item)).map(|item| items[item].clone()).collect();
    // Demands (constraints on labels and taints) are numbered once for all items (groups of interchangeable pods), so
    // that every attempt can use the same list of instance types.
    let mut demands = Demands::default();
    items::rows(ledger, items, &mut demands, tier, items::Purpose::Packing);
    let rows = items::rows(ledger, &others, &mut demands, tier, items::Purpose::Packing);
    let mut takes_all = Bits::empty(demands.list.len());
    (0..demands.list.len()).for_each(|demand| takes_all.insert(demand));
    let kinds: Vec<NodeKind> = items::kinds(ledger, tier, &demands.list, true)
        .into_iter()
        .filter(|kind| kind.demands.is_superset(&takes_all))
        .collect();
    let largest = spreads.iter().map(|spread| spread.count).max()?;
    // For each spread and NodePool template: the limit per node. All pods are placed at this point, so the counts are
    // those of the final plan.
    let limits: Vec<Vec<u32>> = spreads
        .iter()
        .map(|spread| {
            let counted = ledger.topology.group(spread.group).matched_total;
            let templates = 0..ledger.prepared.templates.len();
            templates.map(|template| spread.limit(ledger, template, counted)).collect()
        })
        .collect();
    let widest = |spread: usize| tier.iter().map(|template| limits[spread][template]).max().unwrap_or(1);
    let nodes_least = |(number, spread): (usize, &Spread)| spread.count.div_ceil(widest(number));
    let nodes_least = spreads.iter().enumerate().map(nodes_least).max()?;
    let mut tried: BTreeSet<u32> = BTreeSet::new();
    let mut best: Option<(f64, Vec<Claim>)> = None;
    let per_node = [2u32, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256];
    let some = per_node.into_iter().take_while(|per_node| per_node <= &largest);
    // The last attempt uses as few nodes as the limits per node allow.
    for nodes_wanted in some.map(|per_node| largest.div_ceil(per_node)).chain([1]) {
        let nodes_wanted = nodes_wanted.max(nodes_least);
        if nodes_wanted >= largest || !tried.insert(nodes_wanted) {
            continue;
        }
        let within_limits = |kind: &&NodeKind| {
            let mut shares = spreads.iter().zip(&limits);
            shares.all(|(spread, limit)| spread.count.div_ceil(nodes_wanted) <= limit[kind.template])
        };
        let kinds: Vec<NodeKind> = kinds.iter().filter(within_limits).cloned().collect();
        let Some(claims) = attempt(ledger, items, &others, &spreads, &rows, &kinds, nodes_wanted, scratch)
        else {
            continue;
        };
        let cost: f64 =
            claims.iter().chain(frozen).map(|claim| ledger.cheapest_price(claim).unwrap_or(f64::MAX)).sum();
        let least = best.as_ref().map_or(price, |(least, _)| *least);
        if cost < least - 1e-9 && host_spreads_hold(ledger, claims.iter().chain(frozen), &spreads) {
            best = Some((cost, claims));
        }
    }
    best.map(|(_, claims)| claims)
}

/// The spreads whose pods may share hosts; `None` if there are none, or if their pods have constraints that this module
/// does not support.
fn spreads(ledger: &Ledger, items: &[Item]) -> Option<Vec<Spread>> {
    let mut by_group: BTreeMap<GroupId, Spread> = BTreeMap::new();
    for (position, item) in items.iter().enumerate() {
        let variant = &ledger.classes.variants[item.variant];
        let mut hosts = variant.owned.iter().filter(|owned| owned.is_hostname && owned.selects_itself);
        let Some(first) = hosts.next() else { continue };
        let GroupKind::Spread { max_skew, .. } = first.kind else { return None };
        if hosts.next().is_some() || item.added != item.added_without_zone {
            return None;
        }
        let requests = items::vector(&variant.requests);
        let spread = by_group.entry(first.group).or_insert(Spread {
            group: first.group,
            members: Vec::new(),
            count: 0,
            requests: [0; DIMENSIONS_MAX],
            max_skew,
            is_required: false,
        });
        spread.is_required |= first.is_required;
        spread.members.push(position);
        spread.count += item.count;
        for (most, request) in spread.requests.iter_mut().zip(&requests) {
            *most = (*most).max(*request);
        }
    }
    (!by_group.is_empty()).then(|| by_group.into_values().collect())
}

/// Packs all items (groups of interchangeable pods) on about `nodes_wanted` nodes, each with an even share of every
/// spread.
#[expect(
    clippy::too_many_arguments,
    reason = "one call site; the arguments are prepared once for all attempts"
)]
fn attempt(
    ledger: &mut Ledger,
    items: &[Item],
    others: &[Item],
    spreads: &[Spread],
    rows: &items::Rows,
    kinds: &[NodeKind],
    nodes_wanted: u32,
    scratch: &mut Scratch,
) -> Option<Vec<Claim>> {
    let mut set_aside = [0i64; DIMENSIONS_MAX];
    for spread in spreads {
        let share = i64::from(spread.count.div_ceil(nodes_wanted));
        for (sum, request) in set_aside.iter_mut().zip(&spread.requests) {
            *sum += share * request;
        }
    }
    let reduced: Vec<NodeKind> = kinds
        .iter()
        .cloned()
        .filter_map(|mut kind| {
            for (free, reserved) in kind.free.iter_mut().zip(&set_aside) {
                *free -= reserved;
            }
            kind.free.iter().all(|free| *free >= 0).then_some(kind)
        })
        .collect();
    let mut bins = pack_others(&rows.rows, &reduced, scratch)?;
    let count: u32 = bins.iter().map(|bin| bin.copies).sum();
    if count < nodes_wanted {
        let kind = (0..reduced.len())
            .min_by(|a, b| reduced[*a].price.total_cmp(&reduced[*b].price).then(a.cmp(b)))?;
        bins.push(Bin { kind, pod_counts: Vec::new(), copies: nodes_wanted - count });
    }
    let nodes = count.max(nodes_wanted);
    let shares: Vec<(GroupId, u32, &[usize])> = spreads
        .iter()
        .map(|spread| (spread.group, spread.count.div_ceil(nodes), spread.members.as_slice()))
        .collect();
    realize::with_shares(ledger, items, others, rows, &reduced, &bins, &shares)
}

fn pack_others(rows: &[Row], kinds: &[NodeKind], scratch: &mut Scratch) -> Option<Vec<Bin>> {
    const ROUNDS: usize = 20;
    const WORK: u64 = 300_000;
    if rows.is_empty() {
        return Some(Vec::new());
    }
    let effort = super::relaxation::Effort {
        rounds: ROUNDS,
        search_nodes: 100,
        rows_max: 200,
        work_max: WORK,
        box_work: 0,
        proofs: 0,
    };
    let relaxed = super::relaxation::relax(rows, kinds, effort, scratch)?;
    let values = rows
        .iter()
        .zip(&relaxed.duals)
        .map(|(row, dual)| {
            dual.max(knapsack::weigh(&relaxed.resource_prices, &row.requests) * 0.02).max(1e-9)
        })
        .collect();
    let work_max = scratch.work + WORK;
    pack::Packer::new(rows, kinds, values, relaxed.resource_prices, scratch, work_max)
        .pack(&relaxed.columns, &[])
}

/// Whether every spread holds by kube-scheduler's rule (no host has more than `maxSkew` pods above the eligible host
/// with the fewest) and no new node exceeds the spread's limit.
fn host_spreads_hold<'a>(
    ledger: &mut Ledger,
    claims: impl Iterator<Item = &'a Claim> + Clone,
    spreads: &[Spread],
) -> bool {
    spreads.iter().all(|spread| {
        let GroupKind::Spread { max_skew, min_domains } = ledger.topology.group(spread.group).id.kind else {
            return false;
        };
        let mut counts: Vec<u32> = Vec::new();
        let mut templates: Vec<usize> = Vec::new();
        for claim in claims.clone() {
            if !ledger.filter_accepts(spread.group, claim.state) {
                continue;
            }
            let matched = |variant: usize| {
                let class = &ledger.classes.classes[ledger.classes.variants[variant].class];
                class.matched.binary_search(&spread.group).is_ok()
            };
            templates.push(ledger.states.get(claim.state).template);
            counts.push(
                claim.content.iter().filter(|(variant, _, _)| matched(*variant)).map(|(_, _, n)| *n).sum(),
            );
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        for node in ledger.present.iter() {
            if ledger.topology.is_eligible(spread.group, node) {
                counts.push(ledger.topology.on_host(spread.group, Slot(node as u32)));
            }
        }
        let enough = min_domains.is_none_or(|wanted| counts.len() as u32 >= wanted);
        let least = if enough { counts.iter().copied().min().unwrap_or(0) } else { 0 };
        let counted = counts.iter().map(|count| u64::from(*count)).sum();
        let is_within =
            |(template, count): (&usize, &u32)| *count <= spread.limit(ledger, *template, counted);
        most - least.min(most) <= max_skew && templates.iter().zip(&counts).all(is_within)
    })
}
