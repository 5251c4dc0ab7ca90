//! The linear relaxation of a packing problem, in which nodes may be fractional, solved by column generation. Its
//! results are a dual price for each group of equal pods, a lower bound, and the columns (sets of pods for one node) of
//! a good fleet.
//!
//! Three relaxations are solved in turn, each starting at the dual prices of the one before: the resource relaxation
//! (`resources`), the box relaxation (`boxes`) and the relaxation with whole pods (`generation`). The lower bound is
//! the highest of the three. That of the last relaxation is Farley's bound, computed from dual prices at which every
//! instance type was priced (`farley`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::generation::Generation;
use super::groups::Groups;
use super::knapsack::{self, PodCounts, Scratch};
use super::resources::ResourceRelaxation;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row};
use super::simplex::Column;
use super::{boxes, farley};

pub(crate) struct Relaxation {
    pub(crate) duals: Vec<f64>,
    /// The dual prices that gave the best bound. They change less from round to round than the final ones, so another
    /// relaxation starts from them.
    pub(crate) center: Vec<f64>,
    pub(crate) lower_bound: f64,
    /// The cost of the linear program with the columns (sets of pods for one node) found so far. No fleet of these
    /// columns costs less, but columns may be missing.
    pub(crate) objective: f64,
    /// An estimate of the optimal cost, not a bound: the objective if the program was solved to optimality, else the
    /// lower bound.
    pub(crate) estimate: f64,
    /// The columns (sets of pods for one node) of the solution, as (instance type, pods, number of nodes).
    pub(crate) columns: Vec<(usize, PodCounts, f64)>,
    /// The price of one unit of each resource in the resource relaxation.
    pub(crate) resource_prices: [f64; DIMENSIONS_MAX],
}

/// Limits of the search. All of them are counts, none is a duration, so results do not depend on the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// The maximum number of search nodes per instance type and round.
    pub(crate) search_nodes: u64,
    /// If there are more groups of equal pods than this, the dual prices come from the resource relaxation only.
    pub(crate) rows_max: usize,
    /// Column generation stops after this many work units.
    pub(crate) work_max: u64,
    /// The box relaxation stops after this many work units per group of equal pods and instance type; with 0 it is not
    /// solved.
    pub(crate) box_work: u64,
    /// The maximum number of attempts to prove the lower bound by solving the pricing problem exactly (`grid`).
    pub(crate) proofs: usize,
}

/// The maximum work units of the box relaxation. If the catalog's prices are linear in size, many instance types are
/// nearly equal, and the box bound is hardly above that of the resource relaxation, so more work would be wasted.
const BOX_WORK_MAX: u64 = 6_000_000;
/// If the objective is at most this multiple of the lower bound, no further proof is attempted.
const PROVED_RATIO: f64 = 1.0002;
/// Searches that prove a bound may visit this multiple of the effort's search nodes.
const PROOF_SEARCH_FACTOR: u64 = 4;
/// If there are more rows than this, the first dual prices come from groups of similar rows.
const GROUPS_MAX: usize = 96;

/// Results of an earlier relaxation that a relaxation starts from.
pub(crate) struct Hint {
    /// Approximate dual prices of the groups of equal pods.
    pub(crate) duals: Vec<f64>,
    /// Columns (sets of pods for one node) that are likely to be in the optimal solution.
    pub(crate) columns: Vec<(usize, PodCounts)>,
}

/// Solves the relaxation; `None` if the pods of some group of equal pods fit on no instance type.
pub(crate) fn relax(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    relax_from(rows, kinds, effort, None, scratch)
}

/// Like [`relax`], but starts from a hint: dual prices and columns (sets of pods for one node) of an earlier
/// relaxation.
pub(crate) fn relax_from(
    rows: &[Row],
    kinds: &[NodeKind],
    effort: Effort,
    hint: Option<Hint>,
    scratch: &mut Scratch,
) -> Option<Relaxation> {
    let ResourceRelaxation { weights, bound } = ResourceRelaxation::solve(rows, kinds);
    let start = start_columns(rows, kinds)?;
    let mut lower_bound = bound;
    // If pods are small compared with nodes, a pod's dual price is close to the price of its requests in the resource
    // relaxation.
    let priced = rows.iter().zip(&start).map(|(row, column)| {
        let single = column.price / column.entries[0].1;
        knapsack::weigh(&weights, &row.requests).min(single).max(single * 1e-6)
    });
    let mut center: Vec<f64> = priced.collect();
    let limited = with_exclusions(rows, kinds);
    let (rows, kinds) = limited.as_ref().map_or((rows, kinds), |(rows, kinds)| (&rows[..], &kinds[..]));
    if hint.is_none() && effort.box_work > 0 && rows.len() > GROUPS_MAX {
        center = of_groups(rows, kinds, center, &weights, effort, scratch);
    }
    if rows.len() > effort.rows_max {
        let bound = farley::farley_bound(rows, kinds, &center, &weights, 0, scratch);
        lower_bound = lower_bound.max(bound);
        return Some(Relaxation {
            duals: center.clone(),
            center,
            lower_bound,
            objective: lower_bound,
            estimate: lower_bound,
            columns: vec![],
            resource_prices: weights,
        });
    }
    let mut known = Vec::new();
    if let Some(hint) = hint {
        (center, known) = (hint.duals, hint.columns);
    } else if effort.box_work > 0 {
        let work_max = box_work(rows, kinds, effort);
        let boxed = boxes::relax(rows, kinds, &start, &center, work_max, scratch);
        if boxed.lower_bound > lower_bound {
            (lower_bound, center) = (boxed.lower_bound, boxed.duals);
        }
    }
    let mut generation = Generation::new(rows, kinds, start, effort, scratch);
    known.into_iter().for_each(|(kind, pod_counts)| {
        generation.add_column(kind, pod_counts);
    });
    let generated = generation.run(center, lower_bound, scratch);
    lower_bound = lower_bound.max(generated.lower_bound);
    // The searches during column generation may have been too short to prove a bound; longer ones may succeed.
    let proving =
        if effort.box_work > 0 { &[&generated.center, &generated.duals][..] } else { &[&generated.duals] };
    for prices in proving {
        if generated.objective > lower_bound * PROVED_RATIO {
            let nodes = effort.search_nodes * PROOF_SEARCH_FACTOR;
            let bound = farley::farley_bound(rows, kinds, prices, &weights, nodes, scratch);
            lower_bound = lower_bound.max(bound);
        }
    }
    Some(Relaxation {
        lower_bound,
        objective: generated.objective.max(lower_bound),
        estimate: if generated.is_solved { generated.objective.max(lower_bound) } else { lower_bound },
        duals: generated.duals,
        center: generated.center,
        columns: generated.columns,
        resource_prices: weights,
    })
}

/// The maximum work units of the box relaxation: proportional to groups of equal pods times instance types, up to a
/// fixed maximum.
fn box_work(rows: &[Row], kinds: &[NodeKind], effort: Effort) -> u64 {
    (effort.box_work * (rows.len() * kinds.len()) as u64).min(BOX_WORK_MAX)
}

/// The dual prices of many rows, derived from the box relaxation of groups of similar rows.
fn of_groups(
    rows: &[Row],
    kinds: &[NodeKind],
    duals: Vec<f64>,
    weights: &[f64; DIMENSIONS_MAX],
    effort: Effort,
    scratch: &mut Scratch,
) -> Vec<f64> {
    let groups = Groups::new(rows, GROUPS_MAX);
    let Some(start) = start_columns(&groups.rows, kinds) else { return duals };
    let priced = groups.rows.iter().map(|row| knapsack::weigh(weights, &row.requests)).collect::<Vec<_>>();
    let work_max = box_work(&groups.rows, kinds, effort);
    let boxed = boxes::relax(&groups.rows, kinds, &start, &priced, work_max, scratch);
    groups.duals_of_rows(rows, &boxed.duals, weights)
}

/// Adds an artificial resource for each set of rows (groups of equal pods) whose pods exclude each other. Every node
/// has as many units as the set's limit per node, and every pod in the set requests one, so the relaxations respect the
/// limit. `None` if there are no such sets.
fn with_exclusions(rows: &[Row], kinds: &[NodeKind]) -> Option<(Vec<Row>, Vec<NodeKind>)> {
    let unused = (0..DIMENSIONS_MAX).filter(|dimension| rows.iter().all(|row| row.requests[*dimension] == 0));
    let mut pods: BTreeMap<(u16, u32), u32> = BTreeMap::new();
    for row in rows {
        if let Some(exclusion) = row.exclusion {
            *pods.entry(exclusion).or_insert(0) += row.count;
        }
    }
    let mut exclusions: Vec<((u16, u32), u32)> = pods.into_iter().collect();
    exclusions.sort_by_key(|(exclusion, pods)| (Reverse(*pods), *exclusion));
    if exclusions.is_empty() {
        return None;
    }
    let (mut rows, mut kinds) = (rows.to_vec(), kinds.to_vec());
    for (dimension, (exclusion, _)) in unused.collect::<Vec<_>>().into_iter().zip(exclusions) {
        let excluded = rows.iter_mut().filter(|row| row.exclusion == Some(exclusion));
        excluded.for_each(|row| row.requests[dimension] = 1);
        kinds.iter_mut().for_each(|kind| kind.free[dimension] = i64::from(exclusion.1));
    }
    Some((rows, kinds))
}

/// One column (set of pods for one node) per group of equal pods (row): only pods of that row, on the instance type
/// with the lowest price per pod.
fn start_columns(rows: &[Row], kinds: &[NodeKind]) -> Option<Vec<Column>> {
    rows.iter()
        .enumerate()
        .map(|(index, row)| {
            let mut best: Option<(f64, usize, u32)> = None;
            for (position, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.takes(row)) {
                let room = row.exclusion.map_or(u32::MAX, |(_, cap)| cap);
                let count = knapsack::copies(&kind.free, &row.requests, row.count.min(row.cap).min(room));
                if count > 0 {
                    let unit = kind.price / f64::from(count);
                    if best.is_none_or(|best| unit < best.0) {
                        best = Some((unit, position, count));
                    }
                }
            }
            best.map(|(_, position, count)| Column {
                price: kinds[position].price,
                entries: vec![(index as u32, f64::from(count))],
                tag: position as u32,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;

    /// Pods of sizes 7, 5 and 3 can fill at most 15 units of a node of size 16. The resource relaxation does not
    /// account for the unused unit.
    fn awkward() -> (Vec<Row>, Vec<NodeKind>) {
        let rows = [(7, 300), (5, 200), (3, 100)].map(|(cpu, count)| {
            let mut requests = [0; DIMENSIONS_MAX];
            (requests[0], requests[1]) = (cpu, 1);
            Row { requests, demand: 0, count, cap: u32::MAX, exclusion: None }
        });
        let mut demands = Bits::empty(1);
        demands.insert(0);
        let mut free = [0; DIMENSIONS_MAX];
        (free[0], free[1]) = (16, 100);
        let kind = NodeKind { template: 0, instance_type: 0, free, price: 1.0, demands, is_spot: false };
        (rows.to_vec(), vec![kind])
    }

    fn effort(search_nodes: u64, proofs: usize) -> Effort {
        Effort { rounds: 40, search_nodes, rows_max: 100, work_max: 1_000_000, box_work: 0, proofs }
    }

    #[test]
    fn proven_bound_accounts_for_whole_pods() {
        let (rows, kinds) = awkward();
        let total = f64::from(300 * 7 + 200 * 5 + 100 * 3);
        let quick = relax(&rows, &kinds, effort(0, 0), &mut Scratch::default()).unwrap();
        assert!(quick.lower_bound < total / 16.0 * 1.01);
        let proven_bound = relax(&rows, &kinds, effort(0, 10), &mut Scratch::default()).unwrap();
        assert!(
            proven_bound.lower_bound > total / 15.0 * 0.999,
            "{} {}",
            proven_bound.lower_bound,
            total / 15.0
        );
        assert!(proven_bound.lower_bound <= proven_bound.objective + 1e-9);
        assert!(proven_bound.objective <= quick.objective + 1e-9);
    }
}
