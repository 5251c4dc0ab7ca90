//! The cheapest valid fleet found within a budget of work.
//!
//! Starts from the plain order's answer and repacks the pods it put on new nodes: the zones, relaxation levels and
//! volume choices it made are kept, so that only prices, resources and host constraints are left to decide. The
//! result is used only if it is cheaper; otherwise the plain order's plan stands.

mod blocks;
mod bound;
mod dealt;
mod dive;
mod grid;
mod hosts;
mod items;
mod knapsack;
mod limits;
mod pack;
mod realize;
mod relaxation;
mod shapes;
mod share;
mod simplex;
mod slots;
mod tables;

use std::collections::BTreeMap;

use karpenter_model::labels;
use karpenter_model::plan::Plan;
use karpenter_model::problem::{EFFORT_DEFAULT, Mode, Problem};

use crate::bits::Bits;
use crate::compat;
use crate::finalize;
use crate::ledger::{Claim, Ledger, Prepared};
use crate::reservations;
use crate::sequence;
use crate::topology::Kind as GroupKind;
use dealt::Merged;
use items::Demands;
pub(crate) use items::pins;
use knapsack::Scratch;
use relaxation::{Effort, Relaxation};
use shapes::{Kind, Row};
use slots::Reserved;

/// A packing within this of the bound is not looked at again.
const ACCEPTABLE: f64 = 1.008;
/// A packing within this of the bound is as good as the best one.
const GOOD_ENOUGH: f64 = 1.0002;
/// How many times longer the second look may take.
const SECOND_LOOK: u64 = 4;
/// With more different pods than this a second look takes longer than everything before.
const SECOND_LOOK_ITEMS_MAX: usize = 1_500;
/// Rounding step by step solves the relaxation many times over; with more rows than this that takes too long.
const DIVE_ROWS_MAX: usize = 250;

/// How many times harder rows that are merged because only limits per node tell them apart are relaxed.
const MERGED_SCALE: u64 = 2;

/// From so many times the usual effort on, the relaxation is solved to the end and its bound proved.
const PROOF_SCALE: u64 = 10;
/// How often the proof is tried at most.
const PROOFS_MAX: usize = 60;
/// How hard a guess at the least price tries.
const GUESS: Effort = Effort {
    rounds: 400,
    search_nodes: 2_500,
    deep_passes: 300,
    rows_max: 600,
    work_max: 6_000_000,
    has_tables: true,
    proofs: 0,
};

/// Work units per unit of effort.
const WORK_PER_EFFORT: u64 = 3_000;

pub(crate) fn schedule(problem: &Problem) -> Plan {
    solve(&mut Ledger::new(problem), Bound::Wanted)
}

/// Whether a plan is to say how far it may be from the best one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Wanted,
    /// The plan says 0.
    NotWanted,
}

/// Plans what waits in the ledger.
pub(crate) fn solve(ledger: &mut Ledger, bound: Bound) -> Plan {
    let left = compat::solve(ledger);
    let compat_price = claims_price(ledger, &ledger.claims);
    let (mode, effort) = (ledger.options.mode, ledger.options.effort);
    let mut scratch = Scratch::default();
    // The bound is about the plain order's placements as they are: repacking below only improves on them.
    let bound_effort = relaxation_effort(effort.min(EFFORT_DEFAULT));
    let mut lower_bound = 0.0;
    let mut cheaper: Vec<Claim> = Vec::new();
    let mut kept: BTreeMap<usize, usize> = BTreeMap::new();
    let mut complete = !ledger.claims.is_empty();
    let tiers = tiers(&ledger.prepared);
    if mode == Mode::Cost && complete {
        for (position, tier) in tiers.iter().enumerate() {
            let later = |claim: &&Claim| {
                let template = ledger.states.get(claim.state).template;
                tiers[position + 1..].iter().any(|tier| tier.contains(template))
            };
            let others: Vec<Claim> =
                cheaper.iter().chain(ledger.claims.iter().filter(later)).cloned().collect();
            let repacked = repack(ledger, tier, &others, &mut scratch);
            lower_bound += repacked.lower_bound;
            match repacked.claims {
                Some(claims) => {
                    cheaper.extend(claims);
                    // They come last; see `repack`.
                    let first = cheaper.len() - repacked.frozen_from.len();
                    kept.extend(repacked.frozen_from.into_iter().zip(first..));
                }
                None => complete = false,
            }
        }
    }
    if bound == Bound::NotWanted {
        lower_bound = 0.0;
    } else if mode == Mode::Compat || tiers.len() > 1 || needs_own_bound(ledger) {
        lower_bound = bound::lower_bound(ledger, bound_effort, &mut scratch);
    }
    if mode == Mode::Cost
        && complete
        && claims_price(ledger, &cheaper) < compat_price - 1e-9
        // Slots first: a claim is limited to the type of the reservation that is its own.
        && let Some(mut cheaper) = ledger.with_slots(&cheaper)
        && within_limits(ledger, &mut cheaper)
    {
        ledger.log = sequence::of_repacking(ledger, &cheaper, &kept);
        ledger.claims = cheaper;
    }
    let mut plan = finalize::plan(ledger, &left);
    plan.lower_bound_per_hour = lower_bound.min(plan.price_per_hour);
    plan.compat_price_per_hour = compat_price;
    plan.stats.work = scratch.work;
    plan
}

/// A lower bound for all waiting pods on new nodes, and a price for one pod of each group. They are part of a fleet, whose
/// pods hostname spreads count.
pub(crate) fn prices(problem: &Problem, fleet: &Problem, effort: u64) -> (f64, Vec<f64>) {
    let mut ledger = Ledger::new(problem);
    let effort = relaxation_effort(effort);
    let (bound, by_class) = bound::class_prices(&mut ledger, fleet, effort, &mut Scratch::default());
    let mut prices = vec![0.0; problem.pods.len()];
    for (class, price) in ledger.classes.classes.iter().zip(by_class) {
        class.pods.iter().for_each(|run| prices[run.group as usize] = price);
    }
    (bound, prices)
}

/// What all waiting pods will cost on new nodes at about the least: more than the bound, which has to be proved.
pub(crate) fn guess(problem: &Problem, fleet: &Problem) -> Option<f64> {
    bound::guess(&mut Ledger::new(problem), fleet, GUESS, &mut Scratch::default())
}

/// Whether the relaxation that guides the repacking decides more than every valid fleet must.
fn needs_own_bound(ledger: &Ledger) -> bool {
    let options = &ledger.options;
    !ledger.nodes.is_empty()
        || reservations::any(&ledger.problem)
        || (options.min_spot_types > 1 && any_spot(ledger))
        || options.node_overhead_price_per_hour > 0.0
        || options.min_node_cpu_millis > 0
        || options.max_node_cpu_millis < i64::MAX
        || ledger.prepared.templates.iter().any(|template| template.has_min_values)
        || ledger.claims.iter().flat_map(|claim| &claim.content).any(|(variant, alternative, _)| {
            let variant = &ledger.classes.variants[*variant];
            let as_written = &ledger.classes.classes[variant.class].spec;
            *alternative > 0
                || variant.alternatives.len() > 1
                || as_written.required_terms.len() > 1
                || !variant.spec.host_ports.is_empty()
                || !variant.spec.volumes.attachments.is_empty()
                || variant.owned.iter().any(|owned| {
                    owned.is_hostname && !(owned.kind == GroupKind::AntiAffinity && owned.is_required)
                })
        })
}

/// Whether some planned node may be bought as spot.
fn any_spot(ledger: &Ledger) -> bool {
    ledger.claims.iter().any(|claim| {
        let allowed = ledger.states.get(claim.state).requirements.get(labels::CAPACITY_TYPE);
        allowed.is_none_or(|requirement| requirement.has(labels::CAPACITY_TYPE_SPOT))
    })
}

/// Templates of equal weight, heaviest first. A pool is never traded for one of another weight.
fn tiers(prepared: &Prepared) -> Vec<Bits> {
    let mut tiers: Vec<(i32, Bits)> = Vec::new();
    for (position, template) in prepared.templates.iter().enumerate() {
        match tiers.last_mut() {
            Some((weight, members)) if *weight == template.weight => members.insert(position),
            _ => {
                let mut members = Bits::empty(prepared.templates.len());
                members.insert(position);
                tiers.push((template.weight, members));
            }
        }
    }
    tiers.into_iter().map(|(_, members)| members).collect()
}

fn claims_price(ledger: &Ledger, claims: &[Claim]) -> f64 {
    // Not `sum`: the sum of nothing is minus zero, and would be printed so.
    let total = |claims: &[Claim]| {
        let prices = claims.iter().map(|claim| ledger.cheapest_price(claim).unwrap_or(0.0));
        prices.fold(0.0, |total, price| total + price)
    };
    if ledger.prepared.reservations.is_empty() {
        return total(claims);
    }
    ledger.with_slots(claims).map_or(f64::MAX, |claims| total(&claims))
}

struct Repacked {
    lower_bound: f64,
    /// Nodes that were left alone come last.
    claims: Option<Vec<Claim>>,
    /// Where the nodes that were left alone are among the ledger's.
    frozen_from: Vec<usize>,
}

/// `others` are nodes beyond these templates.
fn repack(ledger: &mut Ledger, tier: &Bits, others: &[Claim], scratch: &mut Scratch) -> Repacked {
    let repacking = items::extract(ledger, tier, Reserved::Stay);
    let mut best = buy(ledger, tier, repacking, scratch);
    if ledger.prepared.reservations.is_empty() {
        return best;
    }
    let price_of = |ledger: &Ledger, repacked: &Repacked| match &repacked.claims {
        Some(claims) => claims_price(ledger, claims),
        None => f64::MAX,
    };
    let mut least = price_of(ledger, &best);
    for reserved in [Reserved::Stay, Reserved::Move] {
        let Some(repacking) = slots::fill(ledger, tier, reserved, others, scratch) else { continue };
        let repacked = Repacked { lower_bound: best.lower_bound, ..buy(ledger, tier, repacking, scratch) };
        let price = price_of(ledger, &repacked);
        let Some(claims) = &repacked.claims else { continue };
        let all: Vec<Claim> = claims.iter().chain(others).cloned().collect();
        if price < least
            && let Some(mut assigned) = ledger.with_slots(&all)
            && within_limits(ledger, &mut assigned[..claims.len()])
        {
            (least, best) = (price, repacked);
        }
    }
    best
}

/// Packs what is not left alone into nodes that can be bought.
fn buy(ledger: &mut Ledger, tier: &Bits, repacking: items::Repacking, scratch: &mut Scratch) -> Repacked {
    let frozen_price = claims_price(ledger, &repacking.frozen);
    let items = repacking.items;
    let frozen_from = repacking.frozen_from;
    let stands = |bound: f64| Repacked { lower_bound: bound, claims: None, frozen_from: Vec::new() };
    if items.is_empty() {
        return Repacked { lower_bound: frozen_price, claims: Some(repacking.frozen), frozen_from };
    }
    if ledger.prepared.dimensions.len() > shapes::DIMENSIONS_MAX {
        return stands(0.0);
    }
    let effort = ledger.options.effort;
    let first_effort = effort.min(EFFORT_DEFAULT);
    let mut anywhere_demands = Demands::default();
    let anywhere = items::rows(ledger, &items, &mut anywhere_demands, tier, items::Purpose::Values);
    let mut anywhere_kinds = items::kinds(ledger, tier, &anywhere_demands.list, true);
    let mut is_flexible = true;
    let mut relaxed = First::relax(&anywhere.rows, &anywhere_kinds, effort, scratch);
    if relaxed.is_none() {
        // Some pods fit only types that few others can stand in for.
        is_flexible = false;
        anywhere_kinds = items::kinds(ledger, tier, &anywhere_demands.list, false);
        relaxed = First::relax(&anywhere.rows, &anywhere_kinds, effort, scratch);
    }
    let Some(first) = relaxed else { return stands(0.0) };
    let mut demands = Demands::default();
    let pinned = items::rows(ledger, &items, &mut demands, tier, items::Purpose::Packing);
    let is_zoned = items.iter().any(|item| item.added != item.added_anywhere);
    let kinds = if is_zoned {
        items::kinds(ledger, tier, &demands.list, is_flexible)
    } else {
        anywhere_kinds.clone()
    };
    let task = Task { anywhere, anywhere_kinds, pinned, kinds, is_zoned, items: items.len() };
    let mut dealt = Vec::new();
    let (mut packing, mut bound) = match &first {
        First::Merged(merged) => {
            dealt = task.deal(merged);
            let packing = task.pack(&merged.unfolded(), &dealt, first_effort, Stage::Quick, scratch);
            (packing, merged.relaxed.lower_bound)
        }
        First::ByRow(relaxed) => {
            (task.pack(relaxed, &[], first_effort, Stage::Quick, scratch), relaxed.lower_bound)
        }
    };
    let is_acceptable = |packing: &Option<Packing>, bound: f64, acceptable: f64| {
        packing.as_ref().is_some_and(|(price, _)| *price <= bound * acceptable)
    };
    // Little effort is for many small questions, and one look at each.
    if matches!(first, First::Merged(_))
        && effort >= EFFORT_DEFAULT
        && !is_acceptable(&packing, bound, ACCEPTABLE)
        && let (rows, kinds) = (&task.anywhere.rows, &task.anywhere_kinds)
        && let Some(relaxed) = blocks::relax_blocks(rows, kinds, relaxation_effort(first_effort), scratch)
    {
        bound = bound.max(relaxed.lower_bound);
        packing = cheaper(packing, task.pack(&relaxed, &[], first_effort, Stage::Quick, scratch));
    }
    // Money is at stake where an answer is far from the bound; there a harder look at the relaxation pays. More effort
    // adds looks and takes none away, so it never makes a plan dearer.
    let mut looks = vec![(first_effort * SECOND_LOOK, ACCEPTABLE)];
    if effort < EFFORT_DEFAULT {
        looks.clear();
    }
    if effort > EFFORT_DEFAULT {
        looks.push((effort, GOOD_ENOUGH));
    }
    if task.items > SECOND_LOOK_ITEMS_MAX {
        looks.retain(|(effort, _)| *effort > EFFORT_DEFAULT * SECOND_LOOK);
    }
    for (effort, acceptable) in looks {
        if is_acceptable(&packing, bound, acceptable) {
            continue;
        }
        let (rows, kinds) = (&task.anywhere.rows, &task.anywhere_kinds);
        let Some(relaxed) = blocks::relax_blocks(rows, kinds, relaxation_effort(effort), scratch) else {
            break;
        };
        bound = bound.max(relaxed.lower_bound);
        if effort > EFFORT_DEFAULT * SECOND_LOOK
            && let Some(merged) =
                bound::relaxed_without_limits(rows, kinds, relaxation_effort(effort), scratch)
        {
            bound = bound.max(merged.relaxed.lower_bound);
        }
        packing = cheaper(packing, task.pack(&relaxed, &dealt, effort, Stage::Thorough, scratch));
    }
    let lower_bound = frozen_price + bound;
    let Some((_, bins)) = packing else { return stands(lower_bound) };
    let Task { pinned, kinds, .. } = task;
    let mut claims = realize::claims(ledger, &items, &pinned, &kinds, &bins);
    if tier.len() == ledger.prepared.templates.len() {
        // Hosts of other weights would count too; sharing is tried only where all nodes are in view.
        let price = claims.as_ref().map_or(f64::MAX, |claims| claims_price(ledger, claims)) + frozen_price;
        let shared = share::repack(ledger, tier, &items, &repacking.frozen, price, scratch);
        claims = shared.or(claims);
    }
    if let Some(claims) = &mut claims {
        claims.extend(repacking.frozen);
    }
    Repacked { lower_bound, claims, frozen_from }
}

/// What nodes cost together, and the nodes.
type Packing = (f64, Vec<pack::Bin>);

fn cheaper(known: Option<Packing>, other: Option<Packing>) -> Option<Packing> {
    match (known, other) {
        (Some(known), Some(other)) => Some(if other.0 < known.0 { other } else { known }),
        (known, other) => known.or(other),
    }
}

/// What the first look goes by.
enum First {
    /// Rows that only limits per node tell apart as one.
    Merged(Merged),
    ByRow(Relaxation),
}

impl First {
    fn relax(rows: &[Row], kinds: &[Kind], effort: u64, scratch: &mut Scratch) -> Option<Self> {
        // There are few of them, and everything hangs on how well they are solved: only small questions save on that.
        let is_small = effort.saturating_mul(2) < EFFORT_DEFAULT;
        let merged_effort = relaxation_effort(if is_small { effort } else { EFFORT_DEFAULT * MERGED_SCALE });
        let merged = bound::relaxed_without_limits(rows, kinds, merged_effort, scratch);
        let lower_bound = merged.as_ref().map_or(0.0, |merged| merged.relaxed.lower_bound);
        if let Some(merged) = merged.filter(|merged| merged.has_nodes_for(rows)) {
            return Some(Self::Merged(merged));
        }
        let effort = relaxation_effort(effort.min(EFFORT_DEFAULT));
        let mut relaxed = blocks::relax_blocks(rows, kinds, effort, scratch)?;
        relaxed.lower_bound = relaxed.lower_bound.max(lower_bound);
        Some(Self::ByRow(relaxed))
    }
}

/// What there is to pack, twice: without the zones for the relaxation, with them for the packing.
struct Task {
    anywhere: items::Rows,
    anywhere_kinds: Vec<Kind>,
    pinned: items::Rows,
    kinds: Vec<Kind>,
    is_zoned: bool,
    items: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Quick,
    /// Also rounds the relaxation step by step.
    Thorough,
}

impl Task {
    /// A packing and its price.
    fn pack(
        &self,
        relaxed: &Relaxation,
        dealt: &[Vec<pack::Share>],
        effort: u64,
        stage: Stage,
        scratch: &mut Scratch,
    ) -> Option<Packing> {
        let columns = if self.is_zoned {
            zoned_columns(relaxed, &self.anywhere, &self.anywhere_kinds, &self.pinned, &self.kinds)
        } else {
            relaxed.columns.clone()
        };
        let values = self.values(relaxed);
        let rows = &self.pinned.rows;
        let worth = |row: usize| values[row] * f64::from(rows[row].count);
        let worth_of_all: f64 = (0..rows.len()).map(worth).sum();
        let blocks = blocks::blocks(rows, &self.kinds);
        let is_one = blocks.len() == 1;
        let mut bins = Vec::new();
        for block in blocks {
            // What a block takes beyond its share is no other's loss.
            let share = effort.saturating_mul(WORK_PER_EFFORT) / rows.len() as u64 * block.rows.len() as u64;
            let work_max = scratch.work + share;
            let (own_rows, own_kinds) = block.of(rows, &self.kinds);
            let own_values = block.rows.iter().map(|row| values[*row]).collect();
            let own_columns = block.columns(&columns);
            let own_dealt: Vec<_> = dealt.iter().map(|nodes| block.columns(nodes)).collect();
            let weights =
                if is_one { relaxed.fluid_weights } else { relaxation::fluid_weights(&own_rows, &own_kinds) };
            let mut packer = pack::Packer::new(&own_rows, &own_kinds, own_values, weights, scratch, work_max);
            let share = block.rows.iter().map(|row| worth(*row)).sum::<f64>() / worth_of_all;
            packer.good_enough = share
                * relaxed.lower_bound
                * match stage {
                    Stage::Quick => 1.0025,
                    Stage::Thorough => GOOD_ENOUGH,
                };
            packer.dives = stage == Stage::Thorough && own_rows.len() <= DIVE_ROWS_MAX;
            bins.extend(packer.pack(&own_columns, &own_dealt)?.into_iter().map(|bin| pack::Bin {
                kind: block.kinds[bin.kind],
                pattern: block.widened(bin.pattern),
                copies: bin.copies,
            }));
        }
        Some((pack::price(&bins, &self.kinds), bins))
    }

    /// Whole nodes from fillings that know no limits per node, in several ways.
    fn deal(&self, merged: &Merged) -> Vec<Vec<pack::Share>> {
        let table =
            dealt::Table { anywhere_kinds: &self.anywhere_kinds, pinned: &self.pinned, kinds: &self.kinds };
        let row_of_item = self.row_of_item();
        let deal = |threshold| dealt::deal(merged, &table, &row_of_item, threshold);
        [0.7, 0.4].map(deal).to_vec()
    }

    /// By item: the zone-free row that holds it.
    fn row_of_item(&self) -> Vec<usize> {
        let mut row_of_item = vec![0; self.items];
        for (row, members) in self.anywhere.items.iter().enumerate() {
            members.iter().for_each(|item| row_of_item[*item] = row);
        }
        row_of_item
    }

    /// Values of the packing's rows: the duals of the zone-free rows that hold the same items.
    fn values(&self, relaxed: &Relaxation) -> Vec<f64> {
        let row_of_item = self.row_of_item();
        let row_of = self.pinned.items.iter().map(|members| row_of_item[members[0]]);
        row_of
            .zip(&self.pinned.rows)
            .map(|(row, data)| {
                // A row that rides for free in the relaxation is still worth something to a packer that must place it.
                let floor = knapsack::weigh(&relaxed.fluid_weights, &data.requests) * 0.02;
                relaxed.duals[row].max(floor).max(1e-9)
            })
            .collect()
    }
}

/// The relaxation's fillings once per zone, each with its share of the amount.
fn zoned_columns(
    relaxed: &Relaxation,
    anywhere: &items::Rows,
    anywhere_kinds: &[Kind],
    pinned: &items::Rows,
    kinds: &[Kind],
) -> Vec<(usize, knapsack::Pattern, f64)> {
    let items: usize = anywhere.items.iter().map(Vec::len).sum();
    let mut rows_of_item: Vec<Vec<u32>> = vec![Vec::new(); items];
    for (row, members) in pinned.items.iter().enumerate() {
        members.iter().for_each(|item| rows_of_item[*item].push(row as u32));
    }
    // Rows of the packing behind each row of the relaxation.
    let behind: Vec<Vec<u32>> = anywhere
        .items
        .iter()
        .map(|members| {
            let mut rows: Vec<u32> =
                members.iter().flat_map(|item| rows_of_item[*item].iter().copied()).collect();
            rows.sort_unstable();
            rows.dedup();
            rows
        })
        .collect();
    let mut columns = Vec::new();
    for (kind, pattern, amount) in &relaxed.columns {
        let of = &anywhere_kinds[*kind];
        let mapped: Vec<(usize, knapsack::Pattern)> = kinds
            .iter()
            .enumerate()
            .filter(|(_, kind)| (kind.template, kind.instance_type) == (of.template, of.instance_type))
            .filter_map(|(index, kind)| {
                let row_in_zone = |row: &u32| {
                    behind[*row as usize].iter().copied().find(|row| kind.takes(&pinned.rows[*row as usize]))
                };
                // Pods that chose their zone and pods that were given it are one row there.
                let mut rows = knapsack::Pattern::new();
                for (row, count) in pattern {
                    let row = row_in_zone(row)?;
                    match rows.iter_mut().find(|(known, _)| *known == row) {
                        Some((_, present)) => *present += count,
                        None => rows.push((row, *count)),
                    }
                }
                Some((index, rows))
            })
            .collect();
        let share = amount / mapped.len().max(1) as f64;
        columns.extend(mapped.into_iter().map(|(kind, pattern)| (kind, pattern, share)));
    }
    columns
}

fn relaxation_effort(effort: u64) -> Effort {
    if effort < EFFORT_DEFAULT {
        // A fraction of everything: little effort is for many small questions.
        let share = |of: u64, least: u64| (of * effort / EFFORT_DEFAULT).max(least);
        return Effort {
            rounds: share(120, 6) as usize,
            search_nodes: share(300, 20),
            deep_passes: share(40, 1) as usize,
            rows_max: 250,
            work_max: share(2_500_000, 25_000),
            has_tables: false,
            proofs: 0,
        };
    }
    let scale = effort / EFFORT_DEFAULT;
    Effort {
        rounds: (120 * scale as usize).min(2_000),
        search_nodes: (300 * scale).min(20_000),
        deep_passes: (40 * scale as usize).min(400),
        rows_max: if scale > 1 { 600 } else { 250 },
        work_max: 2_500_000 * scale,
        has_tables: scale >= PROOF_SCALE,
        proofs: if scale >= PROOF_SCALE { PROOFS_MAX } else { 0 },
    }
}

/// Whether the repacked nodes keep every pool's limits; where limits exist, options larger than the planned type are
/// given up so that a launch cannot exceed them either.
fn within_limits(ledger: &mut Ledger, claims: &mut [Claim]) -> bool {
    for position in 0..ledger.prepared.templates.len() {
        let template = &ledger.prepared.templates[position];
        let of_template = |claim: &&mut Claim| ledger.states.get(claim.state).template == position;
        let count = claims.iter_mut().filter(of_template).count() as i64;
        if template.nodes_left.is_some_and(|left| count > left) {
            return false;
        }
        if template.limited.is_empty() {
            continue;
        }
        let mut left: Vec<i64> = template.limited.iter().map(|(_, left)| *left).collect();
        for claim in claims.iter_mut().filter(of_template) {
            let options = ledger.survivors_of(claim);
            if options.is_empty() {
                return false;
            }
            let most = |limited: usize| {
                options
                    .iter()
                    .map(|entry| template.types[entry.index].limited_capacity[limited])
                    .max()
                    .unwrap_or(0)
            };
            // Nodes that were left as they were keep their options, and are charged for the largest.
            if template.has_min_values || claim.limit.is_some() {
                left.iter_mut().enumerate().for_each(|(limited, left)| *left -= most(limited));
                continue;
            }
            let Some(cheapest) = ledger.cheapest_type(claim) else { return false };
            let capacity = template.types[cheapest].limited_capacity.clone();
            for (left, used) in left.iter_mut().zip(&capacity) {
                *left -= used;
            }
            claim.limit = Some(capacity);
        }
        if left.iter().any(|left| *left < 0) {
            return false;
        }
        // Far from the limit there is no need to give options up.
        let most: Vec<i64> = (0..left.len())
            .map(|limited| template.types.iter().map(|t| t.limited_capacity[limited]).max().unwrap_or(0))
            .collect();
        if left.iter().zip(&most).all(|(left, most)| *left > most.saturating_mul(count)) {
            for claim in claims.iter_mut().filter(of_template) {
                claim.limit = None;
            }
        }
    }
    true
}
