//! The part of the lower bound that is due to hostname topology spreads.
//!
//! A node accepts a pod of such a spread only if it then holds at most `maxSkew` more of these pods than the eligible
//! node with the fewest. So at the end there is a number m such that every eligible new node holds between m and m +
//! `maxSkew` of these pods. No node holds more than the limit of its NodePool (`limits`). The relaxation is solved for
//! every possible m; the lowest of the resulting bounds holds for every fleet.
//!
//! On nodes that may not be eligible, the relaxation allows any number of these pods. A spread that counts pods which
//! do not state it is ignored, because such pods may be placed on any node.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::instance_type::Offering;
use karpenter_model::requirements::{Requirement, Requirements};

use super::farley;
use super::items::{self, Demands, Item};
use super::knapsack::{self, Order, PodCounts, Scratch, Search};
use super::limits::{self, Counted};
use super::orders::{inverse_weights, shared_orders};
use super::relaxation::Effort;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, representatives};
use super::simplex::{Column, Master};
use crate::bits::Bits;
use crate::ledger::Ledger;
use crate::topology::{GroupId, Kind as GroupKind, NodeFilter, keeps_away};

/// The bound is computed for at most this many spreads, those that need the most nodes first.
const LEADERS_MAX: usize = 3;
/// A new bound must be at least this multiple of the known bound to count as an improvement.
const MIN_IMPROVEMENT_RATIO: f64 = 1.0005;
/// The maximum number of column generation rounds for one value of m (the minimum pods per node).
const ROUNDS: usize = 80;
/// The maximum number of columns (sets of pods for one node) that enter in one round.
const COLUMNS_PER_ROUND_MAX: usize = 24;
/// The work units for all spreads are those of the relaxation without spreads, divided by this number.
const WORK_SHARE: u64 = 5;
/// Up to this value, the relaxation is solved for each m (minimum pods per node) separately; above it, for ranges of m.
const SINGLE_MINIMUM_MAX: u32 = 4;

/// The result of the relaxation without hostname spreads.
pub(crate) struct KnownBound<'a> {
    pub(crate) bound: f64,
    /// The number of nodes in the relaxation without spreads; 0 if unknown.
    pub(crate) nodes: f64,
    pub(crate) weights: &'a [f64; DIMENSIONS_MAX],
}

/// The lower bound for new nodes for the items (groups of interchangeable pods); at least `known.bound`. `present`
/// returns the existing nodes with free capacity as instance types, given the number of demands (constraints on labels
/// and taints).
#[expect(clippy::too_many_arguments, reason = "two call sites; the pods, the nodes and the bound so far")]
pub(crate) fn lower_bound(
    ledger: &mut Ledger,
    items: &[Item],
    counted: &Counted,
    everywhere: &Bits,
    present: &dyn Fn(&Ledger, usize) -> Vec<NodeKind>,
    known: &KnownBound<'_>,
    effort: Effort,
    scratch: &mut Scratch,
) -> f64 {
    let mut spreads = spreads(ledger, items);
    if spreads.is_empty() {
        return known.bound;
    }
    let mut demands = Demands::default();
    let (rows, of_spread) = rows(ledger, items, counted, &spreads, everywhere, &mut demands);
    if rows.len() > effort.rows_max {
        return known.bound;
    }
    for (spread, rows) in spreads.iter_mut().zip(of_spread) {
        spread.rows = rows;
    }
    let present = present(ledger, demands.list.len());
    let mut leaders: Vec<usize> =
        (0..spreads.len()).filter(|spread| spreads[*spread].rows.len() == 1).collect();
    leaders.sort_by_key(|leader| {
        let spread = &spreads[*leader];
        (std::cmp::Reverse(spread.count.div_ceil(spread.max_skew)), *leader)
    });
    leaders.truncate(LEADERS_MAX);
    let work_end = scratch.work + effort.work_max / WORK_SHARE;
    let mut best = known.bound;
    for leader in leaders {
        let needs = &spreads[leader].needs;
        let counts = |ledger: &Ledger, template: usize, index: usize, of: &Offering| {
            needs.are_met(ledger, template, index, of)
        };
        let counting = items::all_kinds_of(ledger, everywhere, &demands.list, &counts);
        let counting = by_limits(ledger, &spreads, counted, counting);
        let others = if needs.are_none() {
            Vec::new()
        } else {
            items::all_kinds_of(ledger, everywhere, &demands.list, &|ledger, template, index, of| {
                !counts(ledger, template, index, of)
            })
        };
        let spread_bound = SpreadBound {
            rows: &rows,
            spreads: &spreads,
            leader,
            counting,
            others,
            present: &present,
            weights: known.weights,
            effort,
            work_end,
        };
        best = best.max(spread_bound.lower_bound(best, known.nodes, scratch));
    }
    best
}

/// Instance types whose nodes have the same limit for every spread.
struct CountedKinds {
    kinds: Vec<NodeKind>,
    /// For each spread: the maximum number of its pods on one node.
    limits: Vec<u32>,
}

/// Groups the eligible instance types by their limits.
fn by_limits(
    ledger: &Ledger,
    spreads: &[Spread],
    counted: &Counted,
    kinds: Vec<NodeKind>,
) -> Vec<CountedKinds> {
    let mut all: Vec<CountedKinds> = Vec::new();
    for kind in kinds {
        let share = limits::share(ledger, kind.template);
        let of = |spread: &Spread| counted.limit(spread.group, spread.max_skew, share);
        let limits: Vec<u32> = spreads.iter().map(of).collect();
        match all.iter_mut().find(|known| known.limits == limits) {
            Some(known) => known.kinds.push(kind),
            None => all.push(CountedKinds { kinds: vec![kind], limits }),
        }
    }
    all
}

/// Pods that state a hostname spread, where the spread counts exactly these pods.
struct Spread {
    group: GroupId,
    members: Vec<usize>,
    rows: Vec<u32>,
    count: u32,
    max_skew: u32,
    needs: Needs,
}

/// The conditions under which a spread counts a node.
#[derive(PartialEq)]
struct Needs {
    filter: NodeFilter,
    /// Label keys that a node must have, with any value, for the spread to count it.
    keys: BTreeSet<usize>,
}

impl Needs {
    fn are_none(&self) -> bool {
        self.filter.is_all() && self.keys.is_empty()
    }

    /// Whether every node of this NodePool template, instance type and offering meets the conditions, whatever pods it
    /// holds.
    fn are_met(&self, ledger: &Ledger, template: usize, index: usize, offering: &Offering) -> bool {
        if self.are_none() {
            return true;
        }
        let Some(base) = ledger.states.base(template) else { return false };
        let pool = &ledger.problem.pools[ledger.prepared.templates[template].pool];
        let of_node: [&Requirements; 3] = [
            &ledger.states.get(base).requirements,
            &ledger.states.instance_type(template, index).requirements,
            &offering.requirements,
        ];
        let has = |key: &str, accepts: &dyn Fn(&str) -> bool| {
            of_node.iter().filter_map(|of| of.get(key)).any(|of: &Requirement| {
                !of.complement && !of.values.is_empty() && of.values.iter().all(|value| accepts(value))
            })
        };
        let tolerates = self.filter.tolerations.as_ref().is_none_or(|tolerations| {
            !keeps_away(&pool.taints, tolerations) && !keeps_away(&pool.startup_taints, tolerations)
        });
        tolerates
            && self.keys.iter().all(|key| has(&ledger.topology.keys[*key], &|_| true))
            && self.filter.terms.as_ref().is_none_or(|terms| {
                terms
                    .iter()
                    .any(|term| term.iter().all(|wanted| has(&wanted.key, &|value| wanted.has(value))))
            })
    }
}

/// Spreads that count only pods which state them. No pod belongs to two of the returned spreads.
fn spreads(ledger: &Ledger, items: &[Item]) -> Vec<Spread> {
    let mut by_group: BTreeMap<GroupId, Spread> = BTreeMap::new();
    for (position, item) in items.iter().enumerate() {
        let variant = &ledger.classes.variants[item.variant];
        for owned in variant
            .owned
            .iter()
            .filter(|owned| owned.is_hostname && owned.selects_itself && owned.is_required)
        {
            let GroupKind::Spread { max_skew, .. } = owned.kind else { continue };
            let spread = by_group.entry(owned.group).or_insert_with(|| Spread {
                group: owned.group,
                members: Vec::new(),
                rows: Vec::new(),
                count: 0,
                max_skew,
                needs: Needs {
                    filter: ledger.topology.group(owned.group).id.filter.clone(),
                    keys: BTreeSet::new(),
                },
            });
            spread.members.push(position);
            spread.count += item.count;
            // If the pod has another hard spread, nodes without the label of that spread do not count.
            let hard = variant.owned.iter().filter(|other| other.is_required && !other.is_hostname);
            let keys =
                hard.filter(|other| matches!(other.kind, GroupKind::Spread { .. })).map(|other| other.key);
            spread.needs.keys.extend(keys);
        }
    }
    if by_group.is_empty() {
        return Vec::new();
    }
    for (position, item) in items.iter().enumerate() {
        let class = &ledger.classes.classes[ledger.classes.variants[item.variant].class];
        for group in &class.matched {
            if by_group.get(group).is_some_and(|spread| spread.members.binary_search(&position).is_err()) {
                by_group.remove(group);
            }
        }
    }
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    by_group.retain(|_, spread| {
        let is_free = spread.members.iter().all(|member| !taken.contains(member));
        if is_free {
            taken.extend(&spread.members);
        }
        is_free
    });
    by_group.into_values().collect()
}

/// Splits all items into rows (groups of equal pods) such that no row mixes two spreads; the second result lists the
/// rows of each spread.
fn rows(
    ledger: &Ledger,
    items: &[Item],
    counted: &Counted,
    spreads: &[Spread],
    everywhere: &Bits,
    demands: &mut Demands,
) -> (Vec<Row>, Vec<Vec<u32>>) {
    let purpose = items::Purpose::Bound(counted);
    let mut is_spread = vec![false; items.len()];
    spreads.iter().flat_map(|spread| &spread.members).for_each(|member| is_spread[*member] = true);
    let others: Vec<Item> = items
        .iter()
        .zip(&is_spread)
        .filter(|(_, is_spread)| !**is_spread)
        .map(|(item, _)| item.clone())
        .collect();
    let mut all = items::rows(ledger, &others, demands, everywhere, purpose).rows;
    let mut exclusions =
        all.iter().filter_map(|row| row.exclusion).map(|(number, _)| number + 1).max().unwrap_or(0);
    let of_spread = spreads
        .iter()
        .map(|spread| {
            let members: Vec<Item> = spread.members.iter().map(|member| items[*member].clone()).collect();
            let first = all.len() as u32;
            let mut own = items::rows(ledger, &members, demands, everywhere, purpose).rows;
            let numbers =
                own.iter().filter_map(|row| row.exclusion).map(|(number, _)| number + 1).max().unwrap_or(0);
            own.iter_mut()
                .filter_map(|row| row.exclusion.as_mut())
                .for_each(|(number, _)| *number += exclusions);
            exclusions += numbers;
            all.extend(own);
            (first..all.len() as u32).collect()
        })
        .collect();
    (all, of_spread)
}

/// The inputs of the bound for one spread, called the leader.
struct SpreadBound<'a> {
    rows: &'a [Row],
    spreads: &'a [Spread],
    leader: usize,
    /// Instance types whose nodes the leader spread counts.
    counting: Vec<CountedKinds>,
    /// Instance types whose nodes the leader spread may not count.
    others: Vec<NodeKind>,
    present: &'a [NodeKind],
    weights: &'a [f64; DIMENSIONS_MAX],
    effort: Effort,
    work_end: u64,
}

/// Instance types after the pods that every node holds at least were deducted from their capacity.
struct KindSet {
    rows: Vec<Row>,
    kinds: Vec<NodeKind>,
    estimate: Vec<u32>,
    /// The pods that every node holds at least, as (group of equal pods, count).
    held: PodCounts,
}

impl SpreadBound<'_> {
    /// The minimum of the bounds over all values of m (minimum pods per node), or `known` if that is higher.
    fn lower_bound(&self, known: f64, nodes: f64, scratch: &mut Scratch) -> f64 {
        let leader = &self.spreads[self.leader];
        let row = &self.rows[leader.rows[0] as usize];
        let most = self
            .counting
            .iter()
            .flat_map(|counting| counting.kinds.iter().map(|kind| (kind, counting.limits[self.leader])))
            .filter(|(kind, _)| kind.takes(row))
            .map(|(kind, limit)| {
                knapsack::copies(&kind.free, &row.requests, row.count.min(row.cap).min(limit))
            })
            .max()
            .unwrap_or(0);
        let mut least = f64::MAX;
        // The search starts at the m (pods per node) that the relaxation without spreads has on average. If the spread
        // does not raise the bound there, it does not raise it at all, and the search ends early.
        let usual = if nodes >= 1.0 { (f64::from(leader.count) / nodes) as u32 } else { 0 };
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut from = SINGLE_MINIMUM_MAX + 1;
        while from <= most {
            let to = (from + from / 2).min(most);
            open.push((from, to));
            from = to + 1;
        }
        open.reverse();
        open.extend((0..=SINGLE_MINIMUM_MAX.min(most)).rev().map(|m| (m, m)));
        if usual <= most {
            open.push((usual, usual));
        }
        if !self.others.is_empty() {
            // This is the case that no node is eligible.
            least = least.min(self.solve(None, known, least, scratch));
        }
        while let Some((from, to)) = open.pop() {
            if least <= known * MIN_IMPROVEMENT_RATIO || scratch.work > self.work_end {
                return known;
            }
            let bound = self.solve(Some((from, to)), known, least, scratch);
            if bound < least && from < to && scratch.work <= self.work_end {
                let middle = from + (to - from) / 2;
                open.extend([(middle + 1, to), (from, middle)]);
            } else {
                least = least.min(bound);
            }
        }
        if least == f64::MAX { known } else { least.max(known) }
    }

    /// The minimum and maximum number of nodes if every node holds between `m.0` and `m.1` + `maxSkew` pods of the
    /// leader spread; `None` if no number of nodes is possible. The result is the full range if some nodes are not
    /// eligible, or if some of the pods may be on existing nodes.
    fn nodes(&self, m: (u32, u32)) -> Option<(u32, u32)> {
        if !self.others.is_empty() || !self.present.is_empty() {
            return Some((0, u32::MAX));
        }
        let leader = &self.spreads[self.leader];
        let limit = self.counting.iter().map(|counting| counting.limits[self.leader]).max().unwrap_or(0);
        let least = leader.count.div_ceil((m.1 + leader.max_skew).min(limit.max(1)));
        let most = leader.count.checked_div(m.0).unwrap_or(u32::MAX);
        (least <= most).then_some((least, most))
    }

    /// For each spread: the minimum and maximum number of its pods on one node, if every node holds between `m.0` and
    /// `m.1` + `maxSkew` pods of the leader spread. `None` if no number of nodes is possible.
    fn ranges(&self, m: (u32, u32)) -> Option<Vec<(u32, u32)>> {
        let (fewest, most) = self.nodes(m)?;
        let leader = &self.spreads[self.leader];
        let of_spread = |(position, spread): (usize, &Spread)| {
            if position == self.leader {
                (m.0, m.1 + spread.max_skew)
            } else if fewest == 0 || spread.needs != leader.needs {
                (0, u32::MAX)
            } else {
                // The mean number of this spread's pods per node lies between its own minimum and that minimum +
                // `maxSkew`.
                (
                    spread.count.div_ceil(most).saturating_sub(spread.max_skew),
                    spread.count / fewest + spread.max_skew,
                )
            }
        };
        Some(self.spreads.iter().enumerate().map(of_spread).collect())
    }

    fn kind_sets(&self, m: Option<(u32, u32)>) -> Vec<KindSet> {
        let mut kind_sets = Vec::new();
        if !self.others.is_empty() {
            kind_sets.push(KindSet {
                rows: self.rows.to_vec(),
                estimate: representatives(&self.others),
                kinds: self.others.clone(),
                held: PodCounts::new(),
            });
        }
        let Some(ranges) = m.and_then(|m| self.ranges(m)) else { return kind_sets };
        kind_sets.extend(self.counting.iter().filter_map(|counting| self.counting_side(counting, &ranges)));
        kind_sets
    }

    /// The eligible instance types with capacity for the minimum pods of every spread already deducted, and groups of
    /// equal pods limited to the maximum; `None` if no instance type can hold the minimum.
    fn counting_side(&self, counting: &CountedKinds, ranges: &[(u32, u32)]) -> Option<KindSet> {
        let mut rows = self.rows.to_vec();
        let mut held = PodCounts::new();
        for (number, (spread, (least, most))) in self.spreads.iter().zip(ranges).enumerate() {
            let most = (*most).min(counting.limits[number]);
            if *least > most {
                return None;
            }
            let least = if spread.rows.len() == 1 { *least } else { 0 };
            if least > 0 {
                held.push((spread.rows[0], least));
            }
            for row in &spread.rows {
                let row = &mut rows[*row as usize];
                row.cap = row.cap.saturating_sub(least).min(most - least);
            }
        }
        let holds = |kind: &NodeKind| {
            let mut rest = kind.clone();
            for (row, count) in &held {
                let row = &self.rows[*row as usize];
                if !kind.takes(row) || knapsack::copies(&rest.free, &row.requests, *count) < *count {
                    return None;
                }
                knapsack::take(&mut rest.free, &row.requests, *count);
            }
            Some(rest)
        };
        let kinds: Vec<NodeKind> = counting.kinds.iter().filter_map(holds).collect();
        (!kinds.is_empty()).then(|| KindSet { rows, estimate: representatives(&kinds), kinds, held })
    }

    /// A lower bound for fleets in which every node holds between `m.0` and `m.1` + `maxSkew` pods of the leader
    /// spread; with `None`, for fleets without eligible nodes. The search stops when the bound reaches `enough`, or
    /// when the objective falls to about `known`.
    fn solve(&self, m: Option<(u32, u32)>, known: f64, enough: f64, scratch: &mut Scratch) -> f64 {
        let kind_sets = self.kind_sets(m);
        let Some(fallback_prices) = self.fallback_prices(&kind_sets) else {
            // The pods fit on no new node, but existing nodes may hold all of them.
            return if self.present.is_empty() { f64::MAX } else { known };
        };
        let demand: Vec<f64> = self.rows.iter().map(|row| f64::from(row.count)).collect();
        let start = fallback_prices
            .iter()
            .enumerate()
            .map(|(row, price)| Column { price: *price, entries: vec![(row as u32, 1.0)], tag: 0 })
            .collect();
        let mut master = Master::new(demand, start);
        let mut pool: Vec<Column> = Vec::new();
        let mut seen: BTreeSet<(usize, usize, PodCounts)> = BTreeSet::new();
        let mut best: f64 = 0.0;
        for round in 0..ROUNDS {
            let values: Vec<f64> = master.duals.iter().map(|dual| dual.max(0.0)).collect();
            if round % 8 == 7 {
                best = best.max(self.proven_bound(&kind_sets, &values, 0, scratch));
                if best >= enough {
                    return best;
                }
            }
            let mut found = self.columns(&kind_sets, &values, scratch);
            found.truncate(COLUMNS_PER_ROUND_MAX);
            let mut any = false;
            for (_, kind_set, kind, pod_counts) in found {
                let mut entries: BTreeMap<u32, f64> = BTreeMap::new();
                for (row, count) in pod_counts.iter().chain(&kind_sets[kind_set].held) {
                    *entries.entry(*row).or_insert(0.0) += f64::from(*count);
                }
                if seen.insert((kind_set, kind, pod_counts)) {
                    any = true;
                    let price = kind_sets[kind_set].kinds[kind].price;
                    pool.push(Column { price, entries: entries.into_iter().collect(), tag: 0 });
                }
            }
            if !any || master.optimise(&pool, &mut scratch.work) == 0 {
                break;
            }
            if master.objective() <= known * MIN_IMPROVEMENT_RATIO || scratch.work > self.work_end {
                break;
            }
        }
        let values: Vec<f64> = master.duals.iter().map(|dual| dual.max(0.0)).collect();
        best.max(self.proven_bound(&kind_sets, &values, self.effort.search_nodes * 4, scratch))
    }

    /// For each group of equal pods (row): twice the price per pod of nodes that hold only pods of this row, in
    /// addition to the minimum that every node holds. `None` if some row fits on no instance type.
    fn fallback_prices(&self, kind_sets: &[KindSet]) -> Option<Vec<f64>> {
        (0..self.rows.len())
            .map(|index| {
                let of_side = |kind_set: &KindSet| {
                    let row = &kind_set.rows[index];
                    let held = kind_set
                        .held
                        .iter()
                        .find(|(held, _)| *held as usize == index)
                        .map_or(0, |(_, count)| *count);
                    let room = row.exclusion.map_or(u32::MAX, |(_, cap)| cap).min(row.cap).min(row.count);
                    let unit = |kind: &NodeKind| {
                        let count = held + knapsack::copies(&kind.free, &row.requests, room);
                        (count > 0).then(|| kind.price / f64::from(count))
                    };
                    let takes = kind_set.kinds.iter().filter(|kind| kind.takes(row));
                    takes.filter_map(unit).fold(f64::MAX, f64::min)
                };
                let least = kind_sets.iter().map(of_side).fold(f64::MAX, f64::min);
                (least < f64::MAX).then_some(2.0 * least)
            })
            .collect()
    }

    /// Columns (the pods of one node) whose value at these dual prices exceeds the price of their node, highest ratio
    /// first.
    fn columns(
        &self,
        kind_sets: &[KindSet],
        values: &[f64],
        scratch: &mut Scratch,
    ) -> Vec<(f64, usize, usize, PodCounts)> {
        let mut found = Vec::new();
        for (number, kind_set) in kind_sets.iter().enumerate() {
            let rows = &kind_set.rows;
            let held = value_of(&kind_set.held, values);
            let remaining: Vec<u32> = rows.iter().map(|row| row.count).collect();
            let shared = shared_orders(rows, values, self.weights);
            let by_value = knapsack::by_value(rows, values);
            for index in &kind_set.estimate {
                let kind = &kind_set.kinds[*index as usize];
                let most = shared.iter().map(|order| knapsack::upper_bound(rows, values, order, kind));
                if held + most.fold(f64::MAX, f64::min) <= kind.price * 1.0001 {
                    continue;
                }
                let own = Order::new(rows, values, inverse_weights(kind, self.weights), |_| true);
                let mut best = (0.0, PodCounts::new());
                let mut pod_counts = PodCounts::new();
                for order in shared.iter().chain([&own]).map(|order| &order.rows).chain([&by_value]) {
                    let value =
                        knapsack::greedy(rows, values, order, kind, &remaining, scratch, &mut pod_counts);
                    if value > best.0 {
                        best = (value, pod_counts.clone());
                    }
                }
                let bounds: Vec<_> = [own.weights, shared[0].weights]
                    .into_iter()
                    .map(|weights| (weights, knapsack::suffix_density(rows, values, &own.rows, &weights)))
                    .collect();
                let search = Search {
                    rows,
                    values,
                    remaining: &remaining,
                    kind,
                    order: &own.rows,
                    bounds: &bounds,
                    complete: std::cell::Cell::new(false),
                };
                let value = search.run(scratch, self.effort.search_nodes, &mut best.1, best.0);
                let ratio = (held + value) / kind.price;
                if ratio > 1.0 + 1e-6 {
                    best.1.sort_unstable();
                    found.push((ratio, number, *index as usize, best.1));
                }
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        found
    }

    /// Farley's bound for the pods on new nodes: their value at these dual prices, divided by the highest ratio of
    /// value to price that any node reaches.
    fn proven_bound(
        &self,
        kind_sets: &[KindSet],
        values: &[f64],
        exact_nodes: u64,
        scratch: &mut Scratch,
    ) -> f64 {
        let worst = kind_sets
            .iter()
            .map(|kind_set| {
                let held = value_of(&kind_set.held, values);
                let (rows, kinds) = (&kind_set.rows, &kind_set.kinds);
                farley::max_value_ratio_with(held, rows, kinds, values, self.weights, exact_nodes, scratch)
            })
            .fold(0.0, f64::max);
        let total: f64 = self.rows.iter().zip(values).map(|(row, value)| value * f64::from(row.count)).sum();
        let order = Order::new(self.rows, values, *self.weights, |_| true);
        let present_domains =
            self.present.iter().map(|node| knapsack::upper_bound(self.rows, values, &order, node));
        let present_domains: f64 = present_domains.sum();
        if worst > 0.0 { ((total - present_domains) / worst).max(0.0) } else { 0.0 }
    }
}

fn value_of(pod_counts: &PodCounts, values: &[f64]) -> f64 {
    pod_counts.iter().map(|(row, count)| values[*row as usize] * f64::from(*count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort =
        Effort { rounds: 40, search_nodes: 300, rows_max: 100, work_max: 10_000_000, box_work: 0, proofs: 0 };

    fn amounts(cpu: i64) -> [i64; DIMENSIONS_MAX] {
        let mut amounts = [0; DIMENSIONS_MAX];
        amounts[0] = cpu;
        amounts
    }

    fn row(cpu: i64, count: u32) -> Row {
        Row { requests: amounts(cpu), demand: 0, count, cap: u32::MAX, exclusion: None }
    }

    fn kind(cpu: i64, price: f64) -> NodeKind {
        let mut demands = Bits::empty(1);
        demands.insert(0);
        NodeKind { template: 0, instance_type: 0, free: amounts(cpu), price, demands, is_spot: false }
    }

    fn spread(row: u32, count: u32, max_skew: u32) -> Spread {
        let needs = Needs { filter: NodeFilter::ALL, keys: BTreeSet::new() };
        Spread { group: GroupId(row), members: vec![], rows: vec![row], count, max_skew, needs }
    }

    fn weights() -> [f64; DIMENSIONS_MAX] {
        let mut weights = [0.0; DIMENSIONS_MAX];
        weights[0] = 1.0;
        weights
    }

    /// Instance types with the same limit for every spread: at most `limit` of its pods per node.
    fn counting(kinds: &[NodeKind], spreads: usize, limit: u32) -> CountedKinds {
        CountedKinds { kinds: kinds.to_vec(), limits: vec![limit; spreads] }
    }

    /// Computes the bound without a known bound from an earlier relaxation.
    fn bound(
        rows: &[Row],
        spreads: &[Spread],
        leader: usize,
        kinds: &[NodeKind],
        others: &[NodeKind],
    ) -> f64 {
        bound_within(rows, spreads, leader, vec![counting(kinds, spreads.len(), u32::MAX)], others)
    }

    fn bound_within(
        rows: &[Row],
        spreads: &[Spread],
        leader: usize,
        counting: Vec<CountedKinds>,
        others: &[NodeKind],
    ) -> f64 {
        let spread_bound = SpreadBound {
            rows,
            spreads,
            leader,
            counting,
            others: others.to_vec(),
            present: &[],
            weights: &weights(),
            effort: EFFORT,
            work_end: u64::MAX,
        };
        spread_bound.lower_bound(0.0, 0.0, &mut Scratch::default())
    }

    /// The price of the cheapest fleet for the pods of two groups of equal pods (rows), if every eligible node holds
    /// between `m` and `m + skew` pods of the first row and at most its limit. Tries every possible set of pods per
    /// node.
    fn cheapest(rows: &[Row; 2], m: u32, skew: u32, counting: &[CountedKinds], others: &[NodeKind]) -> f64 {
        let (first, second) = (rows[0].count as usize, rows[1].count as usize);
        let mut columns: Vec<(usize, usize, f64)> = Vec::new();
        let limited =
            counting.iter().flat_map(|all| all.kinds.iter().map(|kind| (kind, Some(all.limits[0]))));
        for (kind, limit) in limited.chain(others.iter().map(|kind| (kind, None))) {
            let range = limit.map_or(0..=rows[0].count, |limit| m..=(m + skew).min(limit));
            for a in range {
                for b in 0..=rows[1].count {
                    let used = i64::from(a) * rows[0].requests[0] + i64::from(b) * rows[1].requests[0];
                    if a + b > 0 && used <= kind.free[0] {
                        columns.push((a as usize, b as usize, kind.price));
                    }
                }
            }
        }
        let mut least = vec![vec![f64::MAX; second + 1]; first + 1];
        least[0][0] = 0.0;
        for a in 0..=first {
            for b in 0..=second {
                for (x, y, price) in &columns {
                    if *x <= a && *y <= b && least[a - x][b - y] < f64::MAX {
                        least[a][b] = least[a][b].min(least[a - x][b - y] + price);
                    }
                }
            }
        }
        least[first][second]
    }

    fn cheapest_of_all(rows: &[Row; 2], skew: u32, counting: &[CountedKinds], others: &[NodeKind]) -> f64 {
        (0..=rows[0].count).map(|m| cheapest(rows, m, skew, counting, others)).fold(f64::MAX, f64::min)
    }

    #[test]
    fn spread_pods_follow_the_number_of_nodes() {
        // Without the spread, eight small pods would fit on one large node, at half the price.
        let rows = [row(1, 8), row(8, 1)];
        let kinds = [kind(2, 2.0), kind(16, 8.0)];
        let spreads = [spread(0, 8, 1)];
        // One node holds all pods, so the spread has no other node to compare with.
        assert_eq!(cheapest_of_all(&rows, 1, &[counting(&kinds, 1, u32::MAX)], &[]), 8.0);
        assert!((bound(&rows, &spreads, 0, &kinds, &[]) - 8.0).abs() < 0.01);
        // Each node holds at most two large pods, so four of them need two nodes, each with four small pods.
        let rows = [row(1, 8), row(8, 4)];
        let kinds = [kind(2, 2.0), kind(8, 4.0), kind(9, 4.1)];
        let exact = cheapest_of_all(&rows, 1, &[counting(&kinds, 1, u32::MAX)], &[]);
        let found = bound(&rows, &spreads, 0, &kinds, &[]);
        assert!(found <= exact + 1e-6 && found > exact * 0.97, "{found} {exact}");
    }

    #[test]
    fn limit_per_node_raises_the_bound() {
        // Twenty small pods fit on one node; with two of them on each node there are ten nodes.
        let rows = [row(1, 20), row(1, 1)];
        let kinds = [kind(4, 1.0), kind(32, 4.0)];
        let spreads = [spread(0, 20, 1)];
        let within = |limit: u32| bound_within(&rows, &spreads, 0, vec![counting(&kinds, 1, limit)], &[]);
        for (limit, price) in [(2, 10.0), (u32::MAX, 4.0)] {
            assert_eq!(cheapest_of_all(&rows, 1, &[counting(&kinds, 1, limit)], &[]), price);
            assert!(within(limit) <= price && within(limit) > price * 0.65, "{} {price}", within(limit));
        }
        // All pods go to the NodePool with the higher limit.
        let pools = || vec![counting(&kinds, 1, 2), counting(&[kind(32, 5.0)], 1, u32::MAX)];
        assert_eq!(cheapest_of_all(&rows, 1, &pools(), &[]), 5.0);
        assert!(bound_within(&rows, &spreads, 0, pools(), &[]) <= 5.0);
    }

    #[test]
    fn bound_never_exceeds_the_cheapest_fleet() {
        let mut seed = 11u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let (mut close, mut higher) = (0, 0);
        for _ in 0..300 {
            let rows =
                [row(1 + next(4) as i64, 1 + next(14) as u32), row(1 + next(9) as i64, 1 + next(9) as u32)];
            let skew = 1 + next(3) as u32;
            let mut all: Vec<NodeKind> = (0..1 + next(3))
                .map(|_| {
                    let cpu = 9 + next(16) as i64;
                    kind(cpu, cpu as f64 * (0.8 + 0.1 * next(5) as f64))
                })
                .collect();
            let others = if next(3) == 0 { all.split_off(all.len() - 1) } else { Vec::new() };
            // The spread share is 0 %, a value in between, or 100 %, in one NodePool or two.
            let mut limit = || match next(3) {
                0 => skew,
                1 => skew + next(4) as u32,
                _ => u32::MAX,
            };
            let limits = (limit(), limit());
            let (one, two) = all.split_at(all.len() / 2);
            let pools = || vec![counting(one, 1, limits.0), counting(two, 1, limits.1)];
            let exact = cheapest_of_all(&rows, skew, &pools(), &others);
            let spreads = [spread(0, rows[0].count, skew)];
            let found = bound_within(&rows, &spreads, 0, pools(), &others);
            assert!(
                found <= exact * (1.0 + 1e-9),
                "{found} above {exact}: {rows:?} {skew} {limits:?} {all:?} {others:?}"
            );
            let without = super::super::relaxation::relax(
                &rows,
                &[all, others].concat(),
                EFFORT,
                &mut Scratch::default(),
            );
            let without = without.map_or(0.0, |relaxed| relaxed.lower_bound);
            close += usize::from(found > exact * 0.8);
            higher += usize::from(found > without * 1.01);
        }
        assert!(close > 150 && higher > 50, "{close} close, {higher} higher");
    }

    #[test]
    fn number_of_nodes_limits_other_spreads() {
        // There are twelve pods of each spread, and a node can hold pods of both. If one spread determines the number
        // of nodes, a node has at most two pods of the other.
        let rows = [row(1, 12), row(1, 12)];
        let kinds = [kind(1, 1.0), kind(24, 12.0)];
        let spreads = [spread(0, 12, 1), spread(1, 12, 1)];
        let spread_bound = SpreadBound {
            rows: &rows,
            spreads: &spreads,
            leader: 0,
            counting: vec![counting(&kinds, 2, u32::MAX)],
            others: Vec::new(),
            present: &[],
            weights: &weights(),
            effort: EFFORT,
            work_end: u64::MAX,
        };
        assert_eq!(spread_bound.ranges((0, 0)).unwrap(), [(0, 1), (0, 2)]);
        assert_eq!(spread_bound.ranges((1, 1)).unwrap(), [(1, 2), (0, 3)]);
        assert_eq!(spread_bound.ranges((3, 4)).unwrap(), [(3, 5), (2, 5)]);
        assert_eq!(spread_bound.ranges((12, 12)).unwrap(), [(12, 13), (11, 13)]);
        // Seven to eight pods per node are possible neither with one node nor with two.
        assert_eq!(spread_bound.ranges((7, 7)), None);
    }
}
