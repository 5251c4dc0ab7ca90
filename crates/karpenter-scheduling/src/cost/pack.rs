//! Packs pods onto whole nodes: rounds the columns (sets of pods for one node) of the relaxation down, packs the
//! remaining pods greedily at the dual prices, then improves the packing by repacking a few nodes at a time.
//!
//! With good dual prices, what a node wastes is its price minus the value of its pods, so the search repacks nodes with
//! much waste first. All choices come from a seeded random generator and a budget of work units, so the result is
//! deterministic.

use super::knapsack::{self, Exclusions, Order, PodCounts, Scratch};
use super::orders::{inverse_weights, shared_orders, shared_orders_of};
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, Vector, covers, representatives};

/// A column of the relaxation: the node kind, the pods on one node, and how many such nodes the solution has.
pub(crate) type ColumnUse = (usize, PodCounts, f64);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bin {
    pub(crate) kind: usize,
    pub(crate) pod_counts: PodCounts,
    /// The number of identical nodes with these pods.
    pub(crate) copies: u32,
}

/// If the nodes distributed from merged groups of equal pods cost at least this share of the target price, they count
/// as most of the fleet.
const DISTRIBUTED_SHARE_MIN: f64 = 0.5;

/// One dive per value: columns (sets of pods for one node) whose fraction is at least this value are rounded up.
const DIVES: [f64; 3] = [0.95, 0.85, 0.6];

/// How a packing starts before the remaining pods are packed greedily.
enum Start<'c> {
    Nothing,
    /// Dive: round the columns (sets of pods for one node) of the relaxation step by step; a column whose fraction is
    /// at least the number is rounded up.
    Dive(&'c [ColumnUse], f64),
    /// Round all columns (sets of pods for one node) of the relaxation at once; a column whose fraction is at least the
    /// number is rounded up.
    Rounded(&'c [ColumnUse], f64),
    /// Use whole nodes that were distributed from merged groups of equal pods.
    AssignedSlots(&'c [ColumnUse]),
}

pub(crate) struct Packer<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) kinds: &'a [NodeKind],
    pub(crate) values: Vec<f64>,
    pub(crate) weights: [f64; DIMENSIONS_MAX],
    pub(crate) scratch: &'a mut Scratch,
    /// The packer stops improving the packing when `scratch.work` reaches this number.
    pub(crate) work_max: u64,
    /// The packer stops improving the packing when its total price falls to this price.
    pub(crate) target_price: f64,
    /// Whether the packer starts some attempts with a dive (rounding the relaxation step by step).
    pub(crate) is_diving: bool,
    random: SplitMix,
}

pub(crate) fn price(bins: &[Bin], kinds: &[NodeKind]) -> f64 {
    bins.iter().map(|bin| kinds[bin.kind].price * f64::from(bin.copies)).sum()
}

impl<'a> Packer<'a> {
    pub(crate) fn new(
        rows: &'a [Row],
        kinds: &'a [NodeKind],
        values: Vec<f64>,
        weights: [f64; DIMENSIONS_MAX],
        scratch: &'a mut Scratch,
        work_max: u64,
    ) -> Self {
        Self {
            rows,
            kinds,
            values,
            weights,
            scratch,
            work_max,
            target_price: 0.0,
            is_diving: false,
            random: SplitMix(0x5eed),
        }
    }

    /// Packs all groups of equal pods. Attempts start from the columns (sets of pods for one node) of the relaxation,
    /// from distributed nodes, or from no nodes.
    pub(crate) fn pack(&mut self, columns: &[ColumnUse], distributed: &[Vec<ColumnUse>]) -> Option<Vec<Bin>> {
        let mut best: Option<(f64, Vec<Bin>, Vec<f64>)> = None;
        // The attempts end with the first packing at the target price. If the relaxation is not solved to optimality,
        // its columns (sets of pods for one node) and dual prices may be poor; so one attempt uses only its dual
        // prices, and one uses neither.
        let resource_values: Vec<f64> =
            self.rows.iter().map(|row| knapsack::weigh(&self.weights, &row.requests).max(1e-9)).collect();
        let guided = self.values.clone();
        let mut attempts: Vec<(Start<'_>, &Vec<f64>)> = Vec::new();
        if self.is_diving && !columns.is_empty() {
            attempts.extend(DIVES.map(|nearly_whole| (Start::Dive(columns, nearly_whole), &guided)));
        }
        if !columns.is_empty() {
            attempts.extend([1.0, 0.7, 0.4].map(|threshold| (Start::Rounded(columns, threshold), &guided)));
        }
        attempts.extend(distributed.iter().map(|nodes| (Start::AssignedSlots(nodes), &guided)));
        // Distributed nodes come from a relaxation in which similar groups of equal pods were merged: the pods of each
        // node were then distributed over the original groups. If distributed nodes are most of the fleet, an attempt
        // without them at the same dual prices would be worse, so it is skipped.
        let priced =
            |nodes: &Vec<ColumnUse>| nodes.iter().map(|(kind, ..)| self.kinds[*kind].price).sum::<f64>();
        if distributed.iter().map(priced).fold(0.0, f64::max) < DISTRIBUTED_SHARE_MIN * self.target_price
            || distributed.is_empty()
        {
            attempts.push((Start::Nothing, &guided));
        }
        attempts.push((Start::Nothing, &resource_values));
        let work_before = self.scratch.work;
        for (start, values) in attempts {
            if best.as_ref().is_some_and(|(least, _, _)| *least <= self.target_price) {
                break;
            }
            self.values.clone_from(values);
            let mut remaining: Vec<u32> = self.rows.iter().map(|row| row.count).collect();
            let mut bins = match start {
                Start::Dive(columns, nearly_whole) => {
                    let started = self.scratch.work;
                    let dived = self.dive(columns, nearly_whole, self.work_max);
                    // The work units of a dive are not taken from those of the later improvement.
                    self.work_max += self.scratch.work - started;
                    let Some(bins) = dived else { continue };
                    remaining.fill(0);
                    bins
                }
                Start::Nothing => Vec::new(),
                Start::Rounded(columns, threshold) => self.round(columns, threshold, &mut remaining),
                Start::AssignedSlots(nodes) => self.fill_up(nodes, &mut remaining),
            };
            if !self.greedy_rest(&mut remaining, &mut bins) {
                continue;
            }
            let cost = price(&bins, self.kinds);
            if best.as_ref().is_none_or(|(least, _, _)| cost < *least) {
                best = Some((cost, bins, values.clone()));
            }
        }
        if !distributed.is_empty() {
            // Problems with distributed nodes have many groups of equal pods, so the attempts use many work units;
            // these are not taken from those of the improvement.
            self.work_max += self.scratch.work - work_before;
        }
        let (_, mut bins, values) = best?;
        self.values = values;
        self.improve(&mut bins);
        Some(bins)
    }

    /// Adds remaining pods that fit to the distributed nodes.
    fn fill_up(&mut self, nodes: &[ColumnUse], remaining: &mut [u32]) -> Vec<Bin> {
        for (row, count) in nodes.iter().flat_map(|(_, pod_counts, _)| pod_counts) {
            remaining[*row as usize] -= count;
        }
        let mut bins = Vec::new();
        for (kind, pod_counts, _) in nodes {
            for (row, count) in pod_counts {
                remaining[*row as usize] += count;
            }
            let pod_counts = self.filled_up(*kind, pod_counts.clone(), remaining);
            for (row, count) in &pod_counts {
                remaining[*row as usize] -= count;
            }
            bins.push(Bin { kind: *kind, pod_counts, copies: 1 });
        }
        bins
    }

    fn round(
        &mut self,
        columns: &[(usize, PodCounts, f64)],
        threshold: f64,
        remaining: &mut [u32],
    ) -> Vec<Bin> {
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by(|a, b| columns[*b].2.total_cmp(&columns[*a].2).then(a.cmp(b)));
        let mut bins = Vec::new();
        for fractional in [false, true] {
            for index in &order {
                let (kind, pod_counts, amount) = &columns[*index];
                let wanted = if fractional {
                    u32::from(amount.fract() >= threshold && threshold < 1.0)
                } else {
                    (amount + 1e-6).floor() as u32
                };
                let copies = pod_counts
                    .iter()
                    .map(|(row, count)| remaining[*row as usize] / count)
                    .min()
                    .unwrap_or(0)
                    .min(wanted);
                if copies > 0 {
                    for (row, count) in pod_counts {
                        remaining[*row as usize] -= count * copies;
                    }
                    bins.push(Bin { kind: *kind, pod_counts: pod_counts.clone(), copies });
                }
            }
        }
        bins
    }

    /// The pods of one node plus remaining pods that fit, added in order of value per resource.
    pub(super) fn filled_up(&mut self, kind: usize, pod_counts: PodCounts, remaining: &[u32]) -> PodCounts {
        let kind = &self.kinds[kind];
        let mut left = kind.free;
        let mut exclusions = Exclusions::default();
        let mut filled = pod_counts;
        for (row, count) in &filled {
            let row = &self.rows[*row as usize];
            knapsack::take(&mut left, &row.requests, *count);
            exclusions.occupy(row, *count);
        }
        let order = Order::new(self.rows, &self.values, self.weights, |row| remaining[row] > 0);
        self.scratch.work += self.rows.len() as u64;
        for index in order.rows {
            let row = &self.rows[index as usize];
            if !kind.takes(row) {
                continue;
            }
            let present = filled.iter().find(|(known, _)| *known == index).map_or(0, |(_, count)| *count);
            let at_most =
                (remaining[index as usize].min(row.cap).saturating_sub(present)).min(exclusions.room(row));
            let count = knapsack::copies(&left, &row.requests, at_most);
            if count > 0 {
                knapsack::take(&mut left, &row.requests, count);
                exclusions.occupy(row, count);
                match filled.iter_mut().find(|(known, _)| *known == index) {
                    Some((_, total)) => *total += count,
                    None => filled.push((index, count)),
                }
            }
        }
        filled
    }

    /// Packs the remaining pods: repeatedly adds the node with the highest ratio of value to price. Returns false if
    /// some group of equal pods fits on no instance type.
    pub(super) fn greedy_rest(&mut self, remaining: &mut [u32], bins: &mut Vec<Bin>) -> bool {
        let values = self.values.clone();
        let estimate = representatives(self.kinds);
        self.greedy_with(&values, &estimate, remaining, bins, f64::MAX)
    }

    /// Like [`Self::greedy_rest`], but with other values and instance types; stops when the total price reaches
    /// `price_max`.
    fn greedy_with(
        &mut self,
        values: &[f64],
        kinds: &[u32],
        remaining: &mut [u32],
        bins: &mut Vec<Bin>,
        price_max: f64,
    ) -> bool {
        let rows = self.rows;
        let mut left: u64 = remaining.iter().map(|count| u64::from(*count)).sum();
        if left == 0 {
            return true;
        }
        let mut orders: Vec<Vec<u32>> = {
            let present = |row: usize| remaining[row] > 0;
            let orders = shared_orders_of(rows, values, &self.weights, present);
            orders.into_iter().map(|order| order.rows).collect()
        };
        // As pods are placed, the ratio of value to price that an instance type can reach only decreases, so an earlier
        // ratio is an upper bound.
        let mut best_known: Vec<(f64, u32)> = kinds.iter().map(|kind| (f64::MAX, *kind)).collect();
        let mut pod_counts = PodCounts::new();
        let mut spent = 0.0;
        while left > 0 {
            let mut best: Option<(f64, u32, PodCounts)> = None;
            best_known.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for (known, index) in &mut best_known {
                if best.as_ref().is_some_and(|(efficiency, _, _)| *known <= *efficiency) {
                    break;
                }
                let kind = &self.kinds[*index as usize];
                let mut here = 0.0;
                for order in &orders {
                    let value =
                        knapsack::greedy(rows, values, order, kind, remaining, self.scratch, &mut pod_counts);
                    let efficiency = value / kind.price;
                    if efficiency > here {
                        here = efficiency;
                        if best.as_ref().is_none_or(|(efficiency, _, _)| here > *efficiency * (1.0 + 1e-12)) {
                            best = Some((here, *index, pod_counts.clone()));
                        }
                    }
                }
                let value = knapsack::balanced(
                    rows,
                    values,
                    &orders[0],
                    kind,
                    &self.weights,
                    remaining,
                    self.scratch,
                    &mut pod_counts,
                );
                if value / kind.price > here {
                    here = value / kind.price;
                    if best.as_ref().is_none_or(|(efficiency, _, _)| here > *efficiency * (1.0 + 1e-12)) {
                        best = Some((here, *index, pod_counts.clone()));
                    }
                }
                *known = here;
            }
            let Some((_, index, pods_of_column)) =
                best.filter(|(_, _, pods_of_column)| !pods_of_column.is_empty())
            else {
                return false;
            };
            let copies = pods_of_column
                .iter()
                .map(|(row, count)| remaining[*row as usize] / count)
                .min()
                .unwrap_or(0)
                .max(1);
            let mut kind = index as usize;
            let total = self.total(&pods_of_column);
            // A cheaper instance type may hold the same pods.
            if let Some(cheaper) = self.cheapest_for(&total, &pods_of_column)
                && self.kinds[cheaper].price < self.kinds[kind].price
            {
                kind = cheaper;
            }
            let mut emptied = false;
            for (row, count) in &pods_of_column {
                remaining[*row as usize] -= count * copies;
                left -= u64::from(count * copies);
                emptied |= remaining[*row as usize] == 0;
            }
            spent += self.kinds[kind].price * f64::from(copies);
            if spent >= price_max {
                return false;
            }
            bins.push(Bin { kind, pod_counts: pods_of_column, copies });
            if emptied {
                for order in &mut orders {
                    order.retain(|row| remaining[*row as usize] > 0);
                }
            }
        }
        true
    }

    pub(super) fn total(&self, pod_counts: &PodCounts) -> Vector {
        let mut total = [0; DIMENSIONS_MAX];
        for (row, count) in pod_counts {
            for (sum, request) in total.iter_mut().zip(&self.rows[*row as usize].requests) {
                *sum += request * i64::from(*count);
            }
        }
        total
    }

    /// The cheapest instance type that holds the pods. `kinds` is sorted by price.
    pub(super) fn cheapest_for(&mut self, total: &Vector, pod_counts: &PodCounts) -> Option<usize> {
        self.scratch.work += self.kinds.len() as u64 / 8;
        (0..self.kinds.len()).find(|kind| {
            let kind = &self.kinds[*kind];
            covers(&kind.free, total)
                && pod_counts.iter().all(|(row, _)| kind.takes(&self.rows[*row as usize]))
        })
    }

    /// Repacks a few nodes at a time and keeps the result if it is cheaper.
    pub(crate) fn improve(&mut self, bins: &mut Vec<Bin>) {
        let mut total = price(bins, self.kinds);
        let reserve = set_aside_copies(bins);
        let kinds: Vec<u32> = self.useful_kinds(bins);
        let mut remaining = vec![0u32; self.rows.len()];
        while bins.len() > 1 && total > self.target_price && self.scratch.work < self.work_max {
            // Every iteration counts as work, so the loop ends.
            self.scratch.work += 8;
            if self.random.below(4) == 0 {
                total -= self.dissolve_one(bins);
                continue;
            }
            let chosen = self.choose(bins);
            if chosen.len() < 2 {
                continue;
            }
            let before: f64 = chosen.iter().map(|index| self.kinds[bins[*index].kind].price).sum();
            for index in &chosen {
                for (row, count) in &bins[*index].pod_counts {
                    remaining[*row as usize] += count;
                }
            }
            let spread = [0.02, 0.07, 0.15][self.random.below(3)];
            let mut values = self.values.clone();
            for index in &chosen {
                for (row, _) in &bins[*index].pod_counts {
                    let nudge = 1.0 + spread * (self.random.fraction() * 2.0 - 1.0);
                    values[*row as usize] = self.values[*row as usize] * nudge;
                }
            }
            let mut fresh = Vec::new();
            let done = self.greedy_with(&values, &kinds, &mut remaining, &mut fresh, before * (1.0 + 1e-9));
            remaining.iter_mut().for_each(|count| *count = 0);
            if !done {
                continue;
            }
            let after = price(&fresh, self.kinds);
            let nodes: u32 = fresh.iter().map(|bin| bin.copies).sum();
            if after < before - 1e-9 || (after <= before + 1e-9 && nodes as usize <= chosen.len()) {
                total += after - before;
                replace(bins, chosen, fresh);
            }
        }
        bins.extend(reserve);
    }

    /// Chooses nodes to repack: one that wastes much of its price, and a few that can exchange pods with it.
    fn choose(&mut self, bins: &[Bin]) -> Vec<usize> {
        let mut anchor = self.random.below(bins.len());
        let mut worst = self.loss(&bins[anchor]);
        for _ in 0..2 {
            let other = self.random.below(bins.len());
            let loss = self.loss(&bins[other]);
            if loss > worst {
                worst = loss;
                anchor = other;
            }
        }
        let wanted = 2 + self.random.below(4);
        let mut chosen = vec![anchor];
        for _ in 0..wanted * 3 {
            if chosen.len() == wanted.min(bins.len()) {
                break;
            }
            let other = self.random.below(bins.len());
            if !chosen.contains(&other) && self.can_exchange(&bins[anchor], &bins[other]) {
                chosen.push(other);
            }
        }
        chosen
    }

    fn loss(&self, bin: &Bin) -> f64 {
        let value: f64 =
            bin.pod_counts.iter().map(|(row, count)| self.values[*row as usize] * f64::from(*count)).sum();
        self.kinds[bin.kind].price - value
    }

    fn can_exchange(&self, a: &Bin, b: &Bin) -> bool {
        a.pod_counts.iter().any(|(row, _)| self.kinds[b.kind].takes(&self.rows[*row as usize]))
            || b.pod_counts.iter().any(|(row, _)| self.kinds[a.kind].takes(&self.rows[*row as usize]))
    }

    /// Moves the pods of one node into free capacity of other nodes; pods that do not fit there get the cheapest node
    /// that holds them. Returns the saving.
    fn dissolve_one(&mut self, bins: &mut Vec<Bin>) -> f64 {
        let chosen = self.choose(bins)[0];
        let mut rest = bins[chosen].pod_counts.clone();
        rest.sort_by(|(a, _), (b, _)| {
            let weigh = |row: &u32| knapsack::weigh(&self.weights, &self.rows[*row as usize].requests);
            weigh(b).total_cmp(&weigh(a)).then(a.cmp(b))
        });
        let mut moves: Vec<(usize, u32, u32)> = Vec::new();
        let mut exclusions = Exclusions::default();
        for (other, bin) in bins.iter().enumerate() {
            if other == chosen || rest.is_empty() {
                continue;
            }
            self.scratch.work += 2;
            let mut left = self.kinds[bin.kind].free;
            let total = self.total(&bin.pod_counts);
            for (left, used) in left.iter_mut().zip(&total) {
                *left -= used;
            }
            exclusions.clear();
            for (row, count) in &bin.pod_counts {
                exclusions.occupy(&self.rows[*row as usize], *count);
            }
            for (row, count) in &mut rest {
                let data = &self.rows[*row as usize];
                if !self.kinds[bin.kind].takes(data) {
                    continue;
                }
                let present =
                    bin.pod_counts.iter().find(|(known, _)| known == row).map_or(0, |(_, count)| *count);
                let at_most = (*count).min(data.cap.saturating_sub(present)).min(exclusions.room(data));
                let moved = knapsack::copies(&left, &data.requests, at_most);
                if moved > 0 {
                    knapsack::take(&mut left, &data.requests, moved);
                    exclusions.occupy(data, moved);
                    *count -= moved;
                    moves.push((other, *row, moved));
                }
            }
            rest.retain(|(_, count)| *count > 0);
        }
        if moves.is_empty() {
            return 0.0;
        }
        let before = self.kinds[bins[chosen].kind].price;
        let replacement = if rest.is_empty() {
            None
        } else {
            let total = self.total(&rest);
            match self.cheapest_for(&total, &rest) {
                Some(kind) if self.kinds[kind].price < self.kinds[bins[chosen].kind].price - 1e-9 => {
                    Some(kind)
                }
                _ => return 0.0,
            }
        };
        for (other, row, moved) in moves {
            match bins[other].pod_counts.iter_mut().find(|(known, _)| *known == row) {
                Some((_, count)) => *count += moved,
                None => bins[other].pod_counts.push((row, moved)),
            }
        }
        match replacement {
            Some(kind) => {
                bins[chosen] = Bin { kind, pod_counts: rest, copies: 1 };
                before - self.kinds[kind].price
            }
            None => {
                bins.swap_remove(chosen);
                before
            }
        }
    }

    /// Instance types to try when repacking a few nodes: those in use, and those whose price per pod may be nearly as
    /// low.
    fn useful_kinds(&mut self, bins: &[Bin]) -> Vec<u32> {
        let all: Vec<u32> = self.rows.iter().map(|row| row.count).collect();
        let mut ranked: Vec<(f64, u32)> = Vec::new();
        let orders = shared_orders(self.rows, &self.values, &self.weights);
        let mut pod_counts = PodCounts::new();
        for index in representatives(self.kinds).into_iter().map(|index| index as usize) {
            let kind = &self.kinds[index];
            let own = Order::new(self.rows, &self.values, inverse_weights(kind, &self.weights), |_| true);
            let mut best: f64 = 0.0;
            for order in orders.iter().chain([&own]) {
                let value = knapsack::greedy(
                    self.rows,
                    &self.values,
                    &order.rows,
                    kind,
                    &all,
                    self.scratch,
                    &mut pod_counts,
                );
                best = best.max(value / kind.price);
            }
            ranked.push((best, index as u32));
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let add_column = 48.min(ranked.len());
        let mut useful: Vec<u32> = ranked[..add_column].iter().map(|(_, kind)| *kind).collect();
        useful.extend(bins.iter().map(|bin| bin.kind as u32));
        useful.sort_unstable();
        useful.dedup();
        useful
    }
}

/// Splits groups of identical nodes into single nodes, up to a maximum number; the nodes beyond it are returned.
fn set_aside_copies(bins: &mut Vec<Bin>) -> Vec<Bin> {
    const SINGLE_MAX: u32 = 4_000;
    let total: u32 = bins.iter().map(|bin| bin.copies).sum();
    let keep_each =
        if total <= SINGLE_MAX { u32::MAX } else { (SINGLE_MAX / bins.len().max(1) as u32).clamp(1, 8) };
    let mut single = Vec::new();
    let mut aside = Vec::new();
    for bin in bins.drain(..) {
        let kept = bin.copies.min(keep_each);
        for _ in 0..kept {
            single.push(Bin { copies: 1, ..bin.clone() });
        }
        if bin.copies > kept {
            aside.push(Bin { copies: bin.copies - kept, ..bin });
        }
    }
    *bins = single;
    aside
}

fn replace(bins: &mut Vec<Bin>, mut chosen: Vec<usize>, fresh: Vec<Bin>) {
    chosen.sort_unstable();
    for index in chosen.into_iter().rev() {
        bins.swap_remove(index);
    }
    for bin in fresh {
        for _ in 0..bin.copies {
            bins.push(Bin { copies: 1, ..bin.clone() });
        }
    }
}

/// A small seeded random generator, so that the search has the same result on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
