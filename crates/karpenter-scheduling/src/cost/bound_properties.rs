//! Property tests of the relaxations on small problems, whose optimum is found by brute force.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::boxes;
use super::farley::farley_bound;
use super::fractional::{FractionalNode, Scaled};
use super::knapsack::{PodCounts, Scratch};
use super::pricing::Pricing;
use super::relaxation::{Effort, relax};
use super::resources::ResourceRelaxation;
use super::shapes::{DIMENSIONS_MAX, NodeKind, Row, covers};
use super::simplex::Column;
use crate::bits::Bits;

const EFFORT: Effort =
    Effort { rounds: 60, search_nodes: 300, rows_max: 100, work_max: 1_000_000, box_work: 10_000, proofs: 0 };

#[derive(Debug, Clone)]
struct Small {
    rows: Vec<Row>,
    kinds: Vec<NodeKind>,
}

fn amounts(cpu: i64, memory: i64, gpu: i64) -> [i64; DIMENSIONS_MAX] {
    let mut amounts = [0; DIMENSIONS_MAX];
    (amounts[0], amounts[1], amounts[3]) = (cpu, memory, gpu);
    amounts
}

/// One to three groups of equal pods with up to four pods each, two to four instance types; some pods need GPUs, have
/// limits per node or exclude each other, and some instance types serve only the first demand (constraints on labels
/// and taints).
fn small() -> impl Strategy<Value = Small> {
    let row = (1..9_i64, 1..9_i64, 0..3_i64, 1..5_u32, 0..6_u32, 0..2_usize);
    let kind = (4..17_i64, 4..17_i64, 0..5_i64, 1..40_u32, any::<bool>());
    (prop::collection::vec(row, 1..4), prop::collection::vec(kind, 1..4)).prop_map(|(rows, kinds)| {
        let row = |(cpu, memory, gpu, count, limit, demand)| Row {
            requests: amounts(cpu, memory, i64::max(gpu - 1, 0)),
            demand,
            count,
            cap: if limit == 0 { 1 } else { u32::MAX },
            exclusion: (limit == 1).then_some((0, 1)),
        };
        let kind = |(cpu, memory, gpu, tenths, serves_all)| {
            let mut demands = Bits::empty(2);
            (0..if serves_all { 2 } else { 1 }).for_each(|demand| demands.insert(demand));
            let (free, price) = (amounts(cpu, memory, gpu), f64::from(tenths) / 10.0);
            NodeKind { template: 0, instance_type: 0, free, price, demands, is_spot: false }
        };
        let rows = rows.into_iter().map(row).collect();
        let mut kinds: Vec<NodeKind> = kinds.into_iter().map(kind).collect();
        // Every pod fits on this instance type.
        kinds.push(kind((16, 16, 4, 45, true)));
        Small { rows, kinds }
    })
}

impl Small {
    /// Lists every set of pods that fits on one node of an instance type.
    fn columns(&self, kind: &NodeKind) -> Vec<Vec<u32>> {
        let mut columns = vec![vec![0; self.rows.len()]];
        for (number, row) in self.rows.iter().enumerate() {
            let most = if kind.takes(row) { row.count.min(row.cap) } else { 0 };
            let more = |column: Vec<u32>| {
                (0..=most).map(move |count| {
                    let mut column = column.clone();
                    column[number] = count;
                    column
                })
            };
            columns = columns.into_iter().flat_map(more).collect();
        }
        columns.retain(|column| {
            let mut total = [0; DIMENSIONS_MAX];
            let mut excluded = 0;
            for (row, count) in self.rows.iter().zip(column) {
                total.iter_mut().zip(row.requests).for_each(|(sum, one)| *sum += one * i64::from(*count));
                excluded += row.exclusion.map_or(0, |_| *count);
            }
            covers(&kind.free, &total) && excluded <= 1
        });
        columns
    }

    fn optimum(&self) -> f64 {
        let columns: Vec<(f64, Vec<u32>)> = self
            .kinds
            .iter()
            .flat_map(|kind| self.columns(kind).into_iter().map(|column| (kind.price, column)))
            .filter(|(_, column)| column.iter().any(|count| *count > 0))
            .collect();
        let wanted: Vec<u32> = self.rows.iter().map(|row| row.count).collect();
        cheapest(&wanted, &columns, &mut BTreeMap::new())
    }
}

fn cheapest(left: &[u32], columns: &[(f64, Vec<u32>)], known: &mut BTreeMap<Vec<u32>, f64>) -> f64 {
    if left.iter().all(|count| *count == 0) {
        return 0.0;
    }
    if let Some(known) = known.get(left) {
        return *known;
    }
    let mut best = f64::MAX;
    for (price, column) in columns {
        let rest: Vec<u32> =
            left.iter().zip(column).map(|(left, count)| left.saturating_sub(*count)).collect();
        if rest != left {
            best = best.min(price + cheapest(&rest, columns, known));
        }
    }
    known.insert(left.to_vec(), best);
    best
}

fn value_of(pod_counts: &PodCounts, values: &[f64]) -> f64 {
    pod_counts.iter().map(|(row, count)| values[*row as usize] * f64::from(*count)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn bounds_are_at_most_the_optimum(small in small(), duals in prop::collection::vec(0.0..3.0_f64, 3)) {
        let Small { rows, kinds } = &small;
        let optimum = small.optimum() + 1e-6;
        let scratch = &mut Scratch::default();
        let resources = ResourceRelaxation::solve(rows, kinds);
        prop_assert!(resources.bound <= optimum, "resources {} {optimum}", resources.bound);
        let duals = &duals[..rows.len()];
        for nodes in [0, 5, 1_000] {
            let farley = farley_bound(rows, kinds, duals, &resources.weights, nodes, scratch);
            prop_assert!(farley <= optimum, "farley {farley} {optimum}");
        }
        let start: Vec<Column> = (0..rows.len() as u32)
            .map(|row| Column { price: 100.0, entries: vec![(row, 1.0)], tag: 0 })
            .collect();
        let boxed = boxes::relax(rows, kinds, &start, duals, 1_000_000, scratch);
        prop_assert!(boxed.lower_bound <= optimum, "boxes {} {optimum}", boxed.lower_bound);
        let relaxed = relax(rows, kinds, EFFORT, scratch).expect("every pod fits on the last kind");
        prop_assert!(relaxed.lower_bound <= optimum, "relaxation {} {optimum}", relaxed.lower_bound);
        prop_assert!(relaxed.lower_bound >= boxed.lower_bound * 0.98);
        prop_assert!(relaxed.lower_bound <= relaxed.objective + 1e-9);
        // The pods of every column (set of pods for one node) must fit on one node of its instance type.
        for (kind, pod_counts, amount) in &relaxed.columns {
            let mut column = vec![0; rows.len()];
            pod_counts.iter().for_each(|(row, count)| column[*row as usize] = *count);
            prop_assert!(*amount > 0.0 && small.columns(&kinds[*kind]).contains(&column), "{column:?}");
        }
    }

    #[test]
    fn pricing_is_exact_within_its_search_nodes(
        small in small(),
        values in prop::collection::vec(0.0..3.0_f64, 3),
        target in 0.0..4.0_f64,
    ) {
        let Small { rows, kinds } = &small;
        let scaled = Scaled::new(rows, kinds);
        let scratch = &mut Scratch::default();
        let values = &values[..rows.len()];
        for kind in kinds {
            let of_column = |column: &Vec<u32>| -> f64 {
                column.iter().zip(values).map(|(count, value)| f64::from(*count) * value).sum()
            };
            let columns = small.columns(kind);
            let best = columns.iter().map(of_column).fold(0.0, f64::max);
            let mut node = FractionalNode::new(rows, &scaled, kind);
            let bound = node.solve(&scaled, values, &mut scratch.work);
            prop_assert!(bound >= best - 1e-6, "fractional {bound} {best}");
            let pods: f64 = node.pods().iter().map(|(row, amount)| values[*row as usize] * amount).sum();
            prop_assert!((bound - pods).abs() < 1e-5, "dual {bound} primal {pods}");
            let pricing = Pricing { node: &node, scaled: &scaled, rows, values, kind, target };
            for nodes in [3, 10_000] {
                let searches =
                    [pricing.search(nodes, scratch), pricing.search_counted(nodes, scratch)];
                for priced in searches {
                    prop_assert!(priced.at_most.max(target) >= best - 1e-6, "{} {best}", priced.at_most);
                    if priced.pod_counts.is_empty() {
                        continue;
                    }
                    let mut column = vec![0; rows.len()];
                    priced.pod_counts.iter().for_each(|(row, count)| column[*row as usize] = *count);
                    prop_assert!(columns.contains(&column), "{column:?}");
                    prop_assert!((value_of(&priced.pod_counts, values) - priced.value).abs() < 1e-9);
                    prop_assert!(nodes < 10_000 || priced.value >= best - 1e-6);
                }
            }
        }
    }
}
