//! Cost mode of the planner: searches for the cheapest valid fleet within a fixed number of work units.
//!
//! The search starts from the placement of [`compat`](crate::compat) and repacks the pods that it put on new nodes.
//! Zones, relaxation levels and volume alternatives are kept, so that the search considers only prices, resources and
//! hostname constraints. The repacked fleet is used only if it is cheaper.

mod blocks;
mod bound;
#[cfg(test)]
mod bound_properties;
mod boxes;
mod counted;
mod dive;
mod farley;
mod fewer;
mod fractional;
mod generation;
mod grid;
mod groups;
mod hosts;
mod items;
mod knapsack;
mod limits;
mod merged;
mod orders;
mod pack;
mod pricing;
mod realize;
mod relaxation;
mod resources;
mod shapes;
mod share;
mod simplex;
mod slots;
mod smoothing;

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
pub(crate) use items::Demands;
pub(crate) use items::{Demand, kinds, pins, vector};
use knapsack::Scratch;
use merged::MergedRelaxation;
use relaxation::{Effort, Hint, Relaxation};
use shapes::{NodeKind, Row};
use slots::ReservedNodes;

/// If the price of a packing is at most this multiple of the lower bound, the planner does not solve the linear program
/// (relaxation) again with more effort.
const ACCEPTABLE_COST_RATIO: f64 = 1.008;
/// If the price of a packing is at most this multiple of the lower bound, the packing counts as optimal.
const OPTIMAL_COST_RATIO: f64 = 1.0002;
/// If the gap stays large after the first relaxation, a second relaxation is solved with this many times the effort.
const SECOND_RELAXATION_FACTOR: u64 = 4;
/// If there are more items (groups of interchangeable pods) than this, no second relaxation is solved, because it would
/// take longer than all earlier steps.
const SECOND_RELAXATION_ITEMS_MAX: usize = 1_500;
/// Diving (rounding the relaxation step by step) is skipped if there are more rows (groups of equal pods) than this,
/// because a dive solves the relaxation many times.
const DIVE_ROWS_MAX: usize = 250;

/// Rows (groups of equal pods) that differ only in how many of their pods may share a node are merged. The relaxation
/// of the merged rows is solved with this multiple of the default effort, except in small simulations.
const MERGED_EFFORT_FACTOR: u64 = 2;

/// If `effort` is at least this multiple of the default, the relaxation is solved to optimality and its lower bound is
/// proved.
const PROOF_EFFORT_FACTOR: u64 = 10;
/// The maximum number of attempts to prove the lower bound of one relaxation.
const PROOFS_MAX: usize = 60;

/// Limits at the default effort for column generation, which solves the linear program with few columns (sets of pods
/// for one node) and adds those that lower the cost: rounds, search nodes per instance type, work units.
const ROUNDS: usize = 200;
const SEARCH_NODES: u64 = 300;
const FIRST_RELAXATION_WORK: u64 = 3_000_000;
/// Work units of every relaxation after the first, per multiple of the default effort.
const RELAXATION_WORK: u64 = 6_000_000;
/// The number of search nodes grows with the effort up to this multiple of the default; a larger effort only adds
/// rounds.
const SEARCH_NODES_SCALE_MAX: u64 = 16;
/// The maximum work units of the box relaxation, per pair of a row (group of equal pods) and an instance type.
const BOX_WORK: u64 = 400;

/// The packer may use this many work units per unit of `effort`.
const WORK_PER_EFFORT: u64 = 3_000;

pub(crate) fn schedule(problem: &Problem) -> Plan {
    solve(&mut Ledger::new(problem), Bound::Wanted)
}

/// Whether the caller needs the lower bound of the plan's price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Wanted,
    /// No lower bound is computed; `Plan::lower_bound_per_hour` is 0.
    NotWanted,
}

/// Plans the pending pods of the ledger (the mutable state of one planning run): first in compat mode, then, in cost
/// mode, by repacking the new nodes.
pub(crate) fn solve(ledger: &mut Ledger, bound: Bound) -> Plan {
    let left = compat::solve(ledger);
    let compat_price = claims_price(ledger, &ledger.claims);
    let (mode, effort) = (ledger.options.mode, ledger.options.effort);
    let mut scratch = Scratch::default();
    // The lower bound is computed for the pods that compat mode placed, because repacking places the same pods.
    let bound_effort = relaxation_effort(effort.min(EFFORT_DEFAULT));
    let tiers = tiers(&ledger.prepared);
    let mut fleet = Fleet::default();
    if mode == Mode::Cost && !ledger.claims.is_empty() {
        fleet = repack_tiers(ledger, &tiers, &mut scratch);
    }
    let mut lower_bound = fleet.lower_bound;
    if bound == Bound::NotWanted {
        lower_bound = 0.0;
    } else if mode == Mode::Compat || tiers.len() > 1 || needs_own_bound(ledger) {
        lower_bound = bound::lower_bound(ledger, bound_effort, &mut scratch);
    }
    let fleet_price = claims_price(ledger, &fleet.claims);
    let mut is_repacked = fleet.is_complete && fleet_price < compat_price - 1e-9;
    if fleet.is_complete
        && bound == Bound::Wanted
        && effort >= EFFORT_DEFAULT
        && !ledger.options.node_count_tolerance.is_none()
    {
        is_repacked = prefer_fewer_nodes(
            ledger,
            &tiers,
            (&mut fleet, is_repacked),
            (compat_price, lower_bound),
            &mut scratch,
        );
    }
    if is_repacked && let Some(claims) = feasible(ledger, &fleet) {
        ledger.log = sequence::of_repacking(ledger, &claims, &fleet.kept);
        ledger.claims = claims;
    }
    let mut plan = finalize::plan(ledger, &left);
    plan.lower_bound_per_hour = lower_bound.min(plan.price_per_hour);
    plan.compat_price_per_hour = compat_price;
    plan.stats.work = scratch.work;
    plan
}

/// The planned nodes after repacking. Each tier (NodePools of equal weight) is repacked by itself.
#[derive(Default)]
struct Fleet {
    claims: Vec<Claim>,
    /// The nodes that repacking did not change: maps their index in `ledger.claims` to their index in `claims`.
    kept: BTreeMap<usize, usize>,
    lower_bound: f64,
    /// Whether a packing was found for the pods of every tier.
    is_complete: bool,
}

fn repack_tiers(ledger: &mut Ledger, tiers: &[Bits], scratch: &mut Scratch) -> Fleet {
    let mut fleet = Fleet { is_complete: true, ..Fleet::default() };
    for (position, tier) in tiers.iter().enumerate() {
        let later = |claim: &&Claim| {
            let template = ledger.states.get(claim.state).template;
            tiers[position + 1..].iter().any(|tier| tier.contains(template))
        };
        let others: Vec<Claim> =
            fleet.claims.iter().chain(ledger.claims.iter().filter(later)).cloned().collect();
        let repacked = repack(ledger, tier, &others, scratch);
        fleet.lower_bound += repacked.lower_bound;
        match repacked.claims {
            Some(claims) => {
                fleet.claims.extend(claims);
                // `repack` returns the nodes that it did not change at the end of the list.
                let first = fleet.claims.len() - repacked.frozen_from.len();
                fleet.kept.extend(repacked.frozen_from.into_iter().zip(first..));
            }
            None => fleet.is_complete = false,
        }
    }
    fleet
}

/// The nodes of a fleet with slots of capacity reservations assigned; `None` if reservations or NodePool limits do not
/// allow the fleet.
fn feasible(ledger: &mut Ledger, fleet: &Fleet) -> Option<Vec<Claim>> {
    // Reservations are assigned before limits are checked, because a node in a reservation can launch only as the
    // instance types of that reservation.
    let mut claims = ledger.with_slots(&fleet.claims)?;
    within_limits(ledger, &mut claims).then_some(claims)
}

/// Replaces `fleet` by a fleet with fewer nodes if one is found within the price tolerance. Returns false if the plan
/// of compat mode, which may have fewer nodes as well, is to be used instead.
fn prefer_fewer_nodes(
    ledger: &mut Ledger,
    tiers: &[Bits],
    (fleet, is_repacked): (&mut Fleet, bool),
    (compat_price, lower_bound): (f64, f64),
    scratch: &mut Scratch,
) -> bool {
    let compat_nodes = ledger.claims.len();
    let (price, nodes) = match is_repacked {
        true => (claims_price(ledger, &fleet.claims), fleet.claims.len()),
        false => (compat_price, compat_nodes),
    };
    let incumbent = fewer::Incumbent { price, nodes, lower_bound, price_max: compat_price };
    let limit = incumbent.limit(ledger.options.node_count_tolerance.fraction());
    let found = fewer::find(ledger, tiers, &incumbent, scratch);
    let nodes = found.as_ref().map_or(nodes, |found| found.claims.len());
    if is_repacked && compat_nodes < nodes && compat_price <= limit {
        return false;
    }
    let is_found = found.is_some();
    if let Some(found) = found {
        *fleet = found;
    }
    is_repacked || is_found
}

/// A lower bound for the price of new nodes for all pending pods, and, for each pod group of the problem, the dual
/// price of one pod (its share of the cost in the linear program). Hostname spreads count the pods of `fleet`, which
/// includes the pending pods.
pub(crate) fn dual_prices(problem: &Problem, fleet: &Problem, effort: u64) -> (f64, Vec<f64>) {
    let mut ledger = Ledger::new(problem);
    let effort = relaxation_effort(effort);
    let (bound, by_class) = bound::class_prices(&mut ledger, fleet, effort, &mut Scratch::default());
    let mut prices = vec![0.0; problem.pods.len()];
    for (class, price) in ledger.classes.classes.iter().zip(by_class) {
        class.pods.iter().for_each(|run| prices[run.group as usize] = price);
    }
    (bound, prices)
}

/// Whether the relaxation of the repacking has constraints that not every valid fleet satisfies, so that the lower
/// bound needs a relaxation of its own.
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

/// Whether some planned node may launch as spot capacity.
fn any_spot(ledger: &Ledger) -> bool {
    ledger.claims.iter().any(|claim| {
        let allowed = ledger.states.get(claim.state).requirements.get(labels::CAPACITY_TYPE);
        allowed.is_none_or(|requirement| requirement.has(labels::CAPACITY_TYPE_SPOT))
    })
}

/// Groups NodePool templates of equal weight into tiers, highest weight first. Repacking never moves pods between
/// tiers.
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
    // `sum` of an empty iterator is -0.0, which would be printed as `-0`.
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
    /// The nodes after repacking; the frozen nodes, which were not repacked, come last. `None` if no packing was found.
    claims: Option<Vec<Claim>>,
    /// For each frozen node (one that is not repacked): its index in `ledger.claims`.
    frozen_from: Vec<usize>,
}

/// Repacks the planned nodes of one tier (NodePools of equal weight). `others` are the planned nodes of all other
/// tiers.
fn repack(ledger: &mut Ledger, tier: &Bits, others: &[Claim], scratch: &mut Scratch) -> Repacked {
    let repacking = items::extract(ledger, tier, ReservedNodes::Keep);
    let mut best = pack_items(ledger, tier, repacking, scratch);
    if ledger.prepared.reservations.is_empty() {
        return best;
    }
    let price_of = |ledger: &Ledger, repacked: &Repacked| match &repacked.claims {
        Some(claims) => claims_price(ledger, claims),
        None => f64::MAX,
    };
    let mut least = price_of(ledger, &best);
    for reserved in [ReservedNodes::Keep, ReservedNodes::Repack] {
        let Some(repacking) = slots::fill(ledger, tier, reserved, others, scratch) else { continue };
        let repacked =
            Repacked { lower_bound: best.lower_bound, ..pack_items(ledger, tier, repacking, scratch) };
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

/// Packs the items (groups of interchangeable pods) of a repacking onto new nodes. Frozen nodes, which are not
/// repacked, keep their pods.
fn pack_items(
    ledger: &mut Ledger,
    tier: &Bits,
    repacking: items::Repacking,
    scratch: &mut Scratch,
) -> Repacked {
    let frozen_price = claims_price(ledger, &repacking.frozen);
    let items = repacking.items;
    let frozen_from = repacking.frozen_from;
    let not_repacked = |bound: f64| Repacked { lower_bound: bound, claims: None, frozen_from: Vec::new() };
    if items.is_empty() {
        return Repacked { lower_bound: frozen_price, claims: Some(repacking.frozen), frozen_from };
    }
    if ledger.prepared.dimensions.len() > shapes::DIMENSIONS_MAX {
        return not_repacked(0.0);
    }
    let effort = ledger.options.effort;
    let first_effort = effort.min(EFFORT_DEFAULT);
    let mut zone_free_demands = Demands::default();
    let zone_free = items::rows(ledger, &items, &mut zone_free_demands, tier, items::Purpose::Values);
    let mut zone_free_kinds = items::kinds(ledger, tier, &zone_free_demands.list, true);
    let is_zoned = items.iter().any(|item| item.added != item.added_without_zone);
    let mut is_flexible = true;
    let mut relaxed = FirstRelaxation::relax(&zone_free.rows, &zone_free_kinds, effort, is_zoned, scratch);
    if relaxed.is_none() {
        // Some pods fit only on spot instance types that have too few alternative types, so alternatives are no longer
        // required.
        is_flexible = false;
        zone_free_kinds = items::kinds(ledger, tier, &zone_free_demands.list, false);
        relaxed = FirstRelaxation::relax(&zone_free.rows, &zone_free_kinds, effort, is_zoned, scratch);
    }
    let Some(first) = relaxed else { return not_repacked(0.0) };
    let mut demands = Demands::default();
    let zoned_rows = items::rows(ledger, &items, &mut demands, tier, items::Purpose::Packing);
    let kinds = if is_zoned {
        items::kinds(ledger, tier, &demands.list, is_flexible)
    } else {
        zone_free_kinds.clone()
    };
    let task = PackingTask { zone_free, zone_free_kinds, zoned_rows, kinds, is_zoned, items: items.len() };
    let mut distributed = Vec::new();
    let (packing, mut bound) = match &first {
        FirstRelaxation::MergedRelaxation(merged) => {
            distributed = task.distribute(merged);
            let packing =
                task.pack(&merged.for_original_rows(), &distributed, first_effort, Stage::Quick, scratch);
            (packing, merged.relaxed.lower_bound)
        }
        FirstRelaxation::ByRow(relaxed) => {
            (task.pack(relaxed, &[], first_effort, Stage::Quick, scratch), relaxed.lower_bound)
        }
    };
    let mut packings: Vec<Packing> = packing.into_iter().collect();
    let is_acceptable = |packings: &[Packing], bound: f64, acceptable: f64| {
        packings.iter().any(|(price, _)| *price <= bound * acceptable)
    };
    // An effort below the default is used for many small simulations, each of which solves only one relaxation.
    if matches!(first, FirstRelaxation::MergedRelaxation(_))
        && effort >= EFFORT_DEFAULT
        && !is_acceptable(&packings, bound, ACCEPTABLE_COST_RATIO)
        && let (rows, kinds) = (&task.zone_free.rows, &task.zone_free_kinds)
        && let Some(relaxed) = blocks::relax_blocks(rows, kinds, relaxation_effort(first_effort), scratch)
    {
        bound = bound.max(relaxed.lower_bound);
        packings.extend(task.pack(&relaxed, &[], first_effort, Stage::Quick, scratch));
    }
    // If the price is far above the lower bound, the relaxation is solved again with more effort. The cheapest of all
    // packings is used, so more effort never makes a plan more expensive.
    let mut further_relaxations = vec![(first_effort * SECOND_RELAXATION_FACTOR, ACCEPTABLE_COST_RATIO)];
    if effort < EFFORT_DEFAULT {
        further_relaxations.clear();
    }
    if effort > EFFORT_DEFAULT {
        further_relaxations.push((effort, OPTIMAL_COST_RATIO));
    }
    if task.items > SECOND_RELAXATION_ITEMS_MAX {
        further_relaxations.retain(|(effort, _)| *effort > EFFORT_DEFAULT * SECOND_RELAXATION_FACTOR);
    }
    for (effort, acceptable) in further_relaxations {
        if is_acceptable(&packings, bound, acceptable) {
            continue;
        }
        let (rows, kinds) = (&task.zone_free.rows, &task.zone_free_kinds);
        let hint = first.hint();
        let relaxed = blocks::relax_blocks_from(rows, kinds, relaxation_effort(effort), hint, scratch);
        let Some(relaxed) = relaxed else { break };
        bound = bound.max(relaxed.lower_bound);
        if effort > EFFORT_DEFAULT * SECOND_RELAXATION_FACTOR
            && let Some(merged) = bound::merged_relaxation(rows, kinds, relaxation_effort(effort), scratch)
        {
            bound = bound.max(merged.relaxed.lower_bound);
        }
        packings.extend(task.pack(&relaxed, &distributed, effort, Stage::Thorough, scratch));
        if is_zoned && !distributed.is_empty() {
            packings.extend(task.pack(&relaxed, &distributed, effort, Stage::WithoutDives, scratch));
        }
    }
    let lower_bound = frozen_price + bound;
    if packings.is_empty() {
        return not_repacked(lower_bound);
    }
    packings.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    if !is_zoned {
        packings.truncate(1);
    }
    let PackingTask { zoned_rows, kinds, .. } = task;
    let mut claims = cheapest_claims(ledger, &items, &zoned_rows, &kinds, &packings);
    if tier.len() == ledger.prepared.templates.len() {
        // A hostname spread counts nodes of all NodePools. So pods with a spread share nodes only if this tier contains
        // all NodePools.
        let price = claims.as_ref().map_or(f64::MAX, |claims| claims_price(ledger, claims)) + frozen_price;
        let shared = share::repack(ledger, tier, &items, &repacking.frozen, price, scratch);
        claims = shared.or(claims);
    }
    if let Some(claims) = &mut claims {
        claims.extend(repacking.frozen);
    }
    Repacked { lower_bound, claims, frozen_from }
}

/// The total price of a packing and its nodes.
type Packing = (f64, Vec<pack::Bin>);

/// Converts several packings into planned nodes and returns the cheapest result. The packing with the lowest price may
/// not give the cheapest nodes: if pods that exclude each other were packed onto one node, another node is added.
fn cheapest_claims(
    ledger: &mut Ledger,
    items: &[items::Item],
    rows: &items::Rows,
    kinds: &[NodeKind],
    packings: &[Packing],
) -> Option<Vec<Claim>> {
    let mut cheapest: Option<(f64, Vec<Claim>)> = None;
    for (_, bins) in packings {
        let Some(claims) = realize::claims(ledger, items, rows, kinds, bins) else { continue };
        let price = claims_price(ledger, &claims);
        if cheapest.as_ref().is_none_or(|(least, _)| price < *least) {
            cheapest = Some((price, claims));
        }
    }
    cheapest.map(|(_, claims)| claims)
}

/// The solution of the linear program that guides the first packing.
enum FirstRelaxation {
    /// Rows (groups of equal pods) that differ only in how many pods may share a node were merged.
    MergedRelaxation(MergedRelaxation),
    ByRow(Relaxation),
}

impl FirstRelaxation {
    fn relax(
        rows: &[Row],
        kinds: &[NodeKind],
        effort: u64,
        is_zoned: bool,
        scratch: &mut Scratch,
    ) -> Option<Self> {
        // There are few merged groups of equal pods, and the packing depends on how exactly their relaxation is solved,
        // so only small simulations reduce the effort.
        let is_small = effort.saturating_mul(2) < EFFORT_DEFAULT;
        let merged_effort =
            relaxation_effort(if is_small { effort } else { EFFORT_DEFAULT * MERGED_EFFORT_FACTOR });
        let merged = bound::merged_relaxation(rows, kinds, merged_effort, scratch);
        let lower_bound = merged.as_ref().map_or(0.0, |merged| merged.relaxed.lower_bound);
        // If pods have zonal constraints, the merged relaxation is the start of only one of several packings. So it is
        // used even if it has fewer nodes than the limits per node require; it may still lead to the cheapest nodes.
        let has_other_packings = is_zoned && effort >= EFFORT_DEFAULT;
        let is_usable = |merged: &MergedRelaxation| has_other_packings || merged.has_enough_nodes_for(rows);
        if let Some(merged) = merged.filter(is_usable) {
            return Some(Self::MergedRelaxation(merged));
        }
        let effort = relaxation_effort(effort.min(EFFORT_DEFAULT));
        let mut relaxed = blocks::relax_blocks(rows, kinds, effort, scratch)?;
        relaxed.lower_bound = relaxed.lower_bound.max(lower_bound);
        Some(Self::ByRow(relaxed))
    }

    /// The columns (sets of pods for one node) and dual prices of this relaxation, from which a relaxation of the same
    /// groups of equal pods with more effort starts.
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::MergedRelaxation(_) => None,
            Self::ByRow(relaxed) if relaxed.columns.is_empty() => None,
            Self::ByRow(relaxed) => {
                let columns = relaxed.columns.iter().map(|(kind, pods, _)| (*kind, pods.clone()));
                Some(Hint { duals: relaxed.center.clone(), columns: columns.collect() })
            }
        }
    }
}

/// One packing problem in two forms: the relaxation ignores zones (`zone_free`), the packing respects them
/// (`zoned_rows`).
struct PackingTask {
    zone_free: items::Rows,
    zone_free_kinds: Vec<NodeKind>,
    zoned_rows: items::Rows,
    kinds: Vec<NodeKind>,
    is_zoned: bool,
    items: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Quick,
    Thorough,
    /// Uses the same effort as `Thorough`, but does not dive (round the relaxation step by step).
    WithoutDives,
}

impl Stage {
    /// The packer stops improving a packing when its price is within this factor of the relaxation's objective, or of
    /// the relaxation's lower bound if the relaxation was not solved to optimality.
    fn acceptable_ratio(self) -> f64 {
        match self {
            Self::Quick => 1.0003,
            Self::Thorough | Self::WithoutDives => OPTIMAL_COST_RATIO,
        }
    }
}

impl PackingTask {
    /// Packs the pods of all groups of equal pods onto whole nodes; returns the packing and its price.
    fn pack(
        &self,
        relaxed: &Relaxation,
        distributed: &[Vec<pack::ColumnUse>],
        effort: u64,
        stage: Stage,
        scratch: &mut Scratch,
    ) -> Option<Packing> {
        let columns = if self.is_zoned {
            zoned_columns(relaxed, &self.zone_free, &self.zone_free_kinds, &self.zoned_rows, &self.kinds)
        } else {
            relaxed.columns.clone()
        };
        let values = self.values(relaxed);
        let rows = &self.zoned_rows.rows;
        let row_value = |row: usize| values[row] * f64::from(rows[row].count);
        let total_value: f64 = (0..rows.len()).map(row_value).sum();
        let blocks = blocks::blocks(rows, &self.kinds);
        let is_one = blocks.len() == 1;
        let mut bins = Vec::new();
        for block in blocks {
            // Each block (pods that share no instance type with other pods) gets its own share of work units, so a
            // block that exceeds its share takes nothing from other blocks.
            let share = effort.saturating_mul(WORK_PER_EFFORT) / rows.len() as u64 * block.rows.len() as u64;
            let work_max = scratch.work + share;
            let (own_rows, own_kinds) = block.of(rows, &self.kinds);
            let own_values = block.rows.iter().map(|row| values[*row]).collect();
            let own_columns = block.columns(&columns);
            let own_dealt: Vec<_> = distributed.iter().map(|nodes| block.columns(nodes)).collect();
            let weights = if is_one {
                relaxed.resource_prices
            } else {
                resources::resource_prices(&own_rows, &own_kinds)
            };
            let mut packer = pack::Packer::new(&own_rows, &own_kinds, own_values, weights, scratch, work_max);
            let share = block.rows.iter().map(|row| row_value(*row)).sum::<f64>() / total_value;
            packer.target_price = share * relaxed.estimate * stage.acceptable_ratio();
            // A packing by zone splits each column (set of pods for one node) of the relaxation among the zones. The
            // fractions are then too small for a dive, which fixes whole nodes first.
            let is_diving = match stage {
                Stage::Quick => effort >= EFFORT_DEFAULT && !self.is_zoned,
                Stage::Thorough => true,
                Stage::WithoutDives => false,
            };
            packer.is_diving = is_diving && rows.len() <= DIVE_ROWS_MAX;
            bins.extend(packer.pack(&own_columns, &own_dealt)?.into_iter().map(|bin| pack::Bin {
                kind: block.kinds[bin.kind],
                pod_counts: block.widened(bin.pod_counts),
                copies: bin.copies,
            }));
        }
        Some((pack::price(&bins, &self.kinds), bins))
    }

    /// Turns the columns (sets of pods for one node) of the merged relaxation into whole nodes, once per rounding
    /// threshold.
    fn distribute(&self, merged: &MergedRelaxation) -> Vec<Vec<pack::ColumnUse>> {
        let target = merged::PackingTarget {
            zone_free_kinds: &self.zone_free_kinds,
            zoned_rows: &self.zoned_rows,
            kinds: &self.kinds,
        };
        let row_of_item = self.row_of_item();
        let distribute = |threshold| merged::distribute(merged, &target, &row_of_item, threshold);
        [0.7, 0.4].map(distribute).to_vec()
    }

    /// For each item: the index of its group of equal pods in the relaxation without zones.
    fn row_of_item(&self) -> Vec<usize> {
        let mut row_of_item = vec![0; self.items];
        for (row, members) in self.zone_free.items.iter().enumerate() {
            members.iter().for_each(|item| row_of_item[*item] = row);
        }
        row_of_item
    }

    /// The value of one pod of each zoned group of equal pods (row): the dual price of the row without zones that
    /// contains the same items.
    fn values(&self, relaxed: &Relaxation) -> Vec<f64> {
        let row_of_item = self.row_of_item();
        let row_of = self.zoned_rows.items.iter().map(|members| row_of_item[members[0]]);
        row_of
            .zip(&self.zoned_rows.rows)
            .map(|(row, data)| {
                // The dual price of a group of equal pods may be 0. The packer must place such pods nevertheless, so
                // they get a small value.
                let floor = knapsack::weigh(&relaxed.resource_prices, &data.requests) * 0.02;
                relaxed.duals[row].max(floor).max(1e-9)
            })
            .collect()
    }
}

/// Repeats each column of the relaxation (a set of pods for one node) in every zone; the number of its nodes is divided
/// equally among the zones.
fn zoned_columns(
    relaxed: &Relaxation,
    zone_free: &items::Rows,
    zone_free_kinds: &[NodeKind],
    zoned_rows: &items::Rows,
    kinds: &[NodeKind],
) -> Vec<(usize, knapsack::PodCounts, f64)> {
    let items: usize = zone_free.items.iter().map(Vec::len).sum();
    let mut rows_of_item: Vec<Vec<u32>> = vec![Vec::new(); items];
    for (row, members) in zoned_rows.items.iter().enumerate() {
        members.iter().for_each(|item| rows_of_item[*item].push(row as u32));
    }
    // For each group of equal pods (row) of the relaxation, which ignores zones: the zoned rows that contain the same
    // items.
    let behind: Vec<Vec<u32>> = zone_free
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
    for (kind, pod_counts, amount) in &relaxed.columns {
        let of = &zone_free_kinds[*kind];
        let mapped: Vec<(usize, knapsack::PodCounts)> = kinds
            .iter()
            .enumerate()
            .filter(|(_, kind)| (kind.template, kind.instance_type) == (of.template, of.instance_type))
            .filter_map(|(index, kind)| {
                let row_in_zone = |row: &u32| {
                    behind[*row as usize]
                        .iter()
                        .copied()
                        .find(|row| kind.takes(&zoned_rows.rows[*row as usize]))
                };
                // Within one zone, pods that require the zone and pods that were assigned to the zone form one group of
                // equal pods.
                let mut rows = knapsack::PodCounts::new();
                for (row, count) in pod_counts {
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
        columns.extend(mapped.into_iter().map(|(kind, pod_counts)| (kind, pod_counts, share)));
    }
    columns
}

fn relaxation_effort(effort: u64) -> Effort {
    if effort < EFFORT_DEFAULT {
        // Efforts below the default are used for many small simulations, so all limits are scaled down.
        let share = |of: u64, least: u64| (of * effort / EFFORT_DEFAULT).max(least);
        return Effort {
            rounds: share(120, 6) as usize,
            search_nodes: share(300, 20),
            rows_max: 250,
            work_max: share(2_500_000, 25_000),
            box_work: share(BOX_WORK, 10),
            proofs: 0,
        };
    }
    let scale = effort / EFFORT_DEFAULT;
    Effort {
        rounds: ROUNDS * scale as usize,
        search_nodes: SEARCH_NODES * scale.min(SEARCH_NODES_SCALE_MAX),
        rows_max: if scale > 1 { 600 } else { 250 },
        work_max: if scale > 1 { RELAXATION_WORK * scale } else { FIRST_RELAXATION_WORK },
        box_work: BOX_WORK,
        proofs: if scale >= PROOF_EFFORT_FACTOR { PROOFS_MAX } else { 0 },
    }
}

/// Whether the repacked nodes respect the limits of every NodePool. If little of a limit is left, instance type options
/// larger than the planned type are dropped, so that a launch cannot exceed the limit.
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
            // Frozen nodes (not repacked) keep all their instance type options, so the largest option counts against
            // the limit.
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
        // If enough of the limit is left for the largest option on every node, all options are kept.
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
