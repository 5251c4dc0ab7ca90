//! Turns the columns (sets of pods for one node) of a relaxation with merged groups of equal pods (rows) into whole
//! nodes with pods of the original rows.
//!
//! Pods of a Deployment that exclude each other form a separate group of equal pods (row) in every zone, so there may
//! be more rows than a relaxation can solve. Merging rows that differ only in their limit per node leaves few. If a
//! column (set of pods for one node) has three pods of a merged row, a node gets one pod of each of the three
//! Deployments with the most remaining pods.

use std::cmp::Reverse;

use super::items;
use super::knapsack::{self, Exclusions, PodCounts};
use super::pack::ColumnUse;
use super::relaxation::Relaxation;
use super::shapes::{NodeKind, Row};

/// A node is used only if the value of its pods, at the dual prices, is at least this share of its column's value;
/// other pods are left to the packer.
const MIN_CONTENT_SHARE: f64 = 0.9;

/// If the limit per node of one group of equal pods (row) requires more than this share of all nodes, the merged rows
/// describe the fleet poorly.
const NODES_SHARE_MAX: f64 = 0.8;

/// A relaxation (linear program) in which groups of equal pods that differ only in their limit per node were merged.
pub(crate) struct MergedRelaxation {
    pub(crate) relaxed: Relaxation,
    /// For each original group of equal pods (row): the index of its merged row.
    pub(crate) of_row: Vec<usize>,
}

impl MergedRelaxation {
    /// The relaxation for the original groups of equal pods: it has dual prices and a bound, but no columns (sets of
    /// pods for one node).
    pub(crate) fn for_original_rows(&self) -> Relaxation {
        let of_rows = |prices: &[f64]| self.of_row.iter().map(|row| prices[*row]).collect();
        let (duals, center) = (of_rows(&self.relaxed.duals), of_rows(&self.relaxed.center));
        Relaxation { duals, center, columns: Vec::new(), ..self.relaxed }
    }

    /// Whether the relaxation has enough nodes for every group of equal pods (row), given how many pods of the row a
    /// node may hold.
    pub(crate) fn has_enough_nodes_for(&self, rows: &[Row]) -> bool {
        let nodes: f64 = self.relaxed.columns.iter().map(|(.., amount)| amount).sum();
        rows.iter().all(|row| f64::from(row.count) / f64::from(row.cap) <= NODES_SHARE_MAX * nodes)
    }
}

/// The groups of equal pods and instance types of the packing, and the instance types of the relaxation without zones.
pub(crate) struct PackingTarget<'a> {
    pub(crate) zone_free_kinds: &'a [NodeKind],
    pub(crate) zoned_rows: &'a items::Rows,
    pub(crate) kinds: &'a [NodeKind],
}

/// Distributes the pods to whole nodes, one node at a time. The fractional part of a column (set of pods for one node)
/// becomes a node if it is at least `threshold`.
pub(crate) fn distribute(
    merged: &MergedRelaxation,
    target: &PackingTarget<'_>,
    row_of_item: &[usize],
    threshold: f64,
) -> Vec<ColumnUse> {
    let rows = &target.zoned_rows.rows;
    let merged_rows = merged.of_row.iter().max().map_or(0, |most| most + 1);
    let mut behind: Vec<Vec<u32>> = vec![Vec::new(); merged_rows];
    for (row, members) in target.zoned_rows.items.iter().enumerate() {
        behind[merged.of_row[row_of_item[members[0]]]].push(row as u32);
    }
    let mut left: Vec<u32> = rows.iter().map(|row| row.count).collect();
    let mut order: Vec<(&ColumnUse, u32)> = Vec::new();
    for column in &merged.relaxed.columns {
        let whole = (column.2 + 1e-6).floor();
        order.push((column, whole as u32));
        if threshold < 1.0 && column.2 - whole >= threshold {
            order.push((column, 1));
        }
    }
    order.sort_by(|(a, whole_a), (b, whole_b)| whole_b.cmp(whole_a).then(b.2.total_cmp(&a.2)));
    let mut nodes = Vec::new();
    for ((kind, pod_counts, _), copies) in order {
        let of = &target.zone_free_kinds[*kind];
        let same = |kind: &NodeKind| (kind.template, kind.instance_type) == (of.template, of.instance_type);
        let places: Vec<usize> = (0..target.kinds.len()).filter(|kind| same(&target.kinds[*kind])).collect();
        let duals = &merged.relaxed.duals;
        let wanted: f64 =
            pod_counts.iter().map(|(row, count)| duals[*row as usize] * f64::from(*count)).sum();
        for _ in 0..copies {
            let hands = places.iter().map(|place| {
                (*place, fill_node(rows, &behind, &left, &target.kinds[*place], pod_counts, duals))
            });
            let best = hands.reduce(|best, next| if next.1.is_better_than(&best.1) { next } else { best });
            let is_enough = |fill_node: &NodeContent| fill_node.value >= MIN_CONTENT_SHARE * wanted;
            let Some((place, fill_node)) = best.filter(|(_, fill_node)| is_enough(fill_node)) else { break };
            fill_node.pod_counts.iter().for_each(|(row, count)| left[*row as usize] -= count);
            nodes.push((place, fill_node.pod_counts, 1.0));
        }
    }
    nodes
}

/// The pods of one node.
#[derive(Default)]
struct NodeContent {
    pod_counts: PodCounts,
    value: f64,
    /// The number of pods on this node for which there is a maximum per node.
    limited: u32,
}

impl NodeContent {
    fn is_better_than(&self, other: &Self) -> bool {
        self.value.total_cmp(&other.value).then(self.limited.cmp(&other.limited)).is_gt()
    }
}

fn fill_node(
    rows: &[Row],
    behind: &[Vec<u32>],
    left: &[u32],
    kind: &NodeKind,
    pod_counts: &PodCounts,
    duals: &[f64],
) -> NodeContent {
    let mut exclusions = Exclusions::default();
    // In one zone, an instance type may have less capacity than in the relaxation without zones.
    let mut room = kind.free;
    let mut fill_node = NodeContent::default();
    for (merged, count) in pod_counts {
        let mut wanted = *count;
        let takes = |row: &u32| left[*row as usize] > 0 && kind.takes(&rows[*row as usize]);
        let mut members: Vec<u32> = behind[*merged as usize].iter().copied().filter(takes).collect();
        // Groups of equal pods with a limit per node come first, those with the most remaining pods before the others.
        members.sort_by_key(|row| (rows[*row as usize].cap == u32::MAX, Reverse(left[*row as usize]), *row));
        for row in members {
            let data = &rows[row as usize];
            let at_most = wanted.min(left[row as usize]).min(data.cap).min(exclusions.room(data));
            let distributed = knapsack::copies(&room, &data.requests, at_most);
            if distributed > 0 {
                knapsack::take(&mut room, &data.requests, distributed);
                exclusions.occupy(data, distributed);
                fill_node.pod_counts.push((row, distributed));
                fill_node.value += duals[*merged as usize] * f64::from(distributed);
                fill_node.limited += if data.cap < u32::MAX { distributed } else { 0 };
                wanted -= distributed;
            }
            if wanted == 0 {
                break;
            }
        }
    }
    fill_node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;
    use crate::cost::shapes::DIMENSIONS_MAX;

    fn row(cpu: i64, demand: usize, count: u32, cap: u32) -> Row {
        let mut requests = [0; DIMENSIONS_MAX];
        requests[0] = cpu;
        Row { requests, demand, count, cap, exclusion: None }
    }

    fn kind(cpu: i64, demands: &[usize]) -> NodeKind {
        let mut free = [0; DIMENSIONS_MAX];
        free[0] = cpu;
        let mut bits = Bits::empty(3);
        demands.iter().for_each(|demand| bits.insert(*demand));
        NodeKind { template: 0, instance_type: 0, free, price: 1.0, demands: bits, is_spot: false }
    }

    /// Two Deployments whose pods exclude each other in zones 1 and 2, and pods without that constraint
    /// (demand 0).
    fn zoned_rows() -> items::Rows {
        let many = u32::MAX;
        let rows =
            vec![row(2, 1, 3, 1), row(2, 2, 1, 1), row(2, 1, 2, 1), row(2, 2, 2, 1), row(1, 0, 9, many)];
        items::Rows { rows, items: (0..5).map(|item| vec![item]).collect() }
    }

    fn merged(columns: Vec<ColumnUse>) -> MergedRelaxation {
        let relaxed = Relaxation {
            duals: vec![2.0, 1.0],
            center: vec![2.0, 1.0],
            lower_bound: 0.0,
            objective: 0.0,
            estimate: 0.0,
            columns,
            resource_prices: [0.0; DIMENSIONS_MAX],
        };
        // There is one original group of equal pods for each Deployment, and one for the other pods.
        MergedRelaxation { relaxed, of_row: vec![0, 0, 1] }
    }

    fn distributed(columns: Vec<ColumnUse>, kinds: &[NodeKind], threshold: f64) -> Vec<(usize, PodCounts)> {
        let target =
            PackingTarget { zone_free_kinds: &[kind(8, &[0, 1, 2])], zoned_rows: &zoned_rows(), kinds };
        let nodes = distribute(&merged(columns), &target, &[0, 0, 1, 1, 2], threshold);
        nodes.into_iter().map(|(kind, pod_counts, _)| (kind, pod_counts)).collect()
    }

    #[test]
    fn node_gets_one_pod_per_deployment_of_one_zone() {
        let kinds = [kind(8, &[0, 1]), kind(8, &[0, 2])];
        let nodes = distributed(vec![(0, vec![(0, 2), (1, 3)], 3.0)], &kinds, 1.0);
        let filled = |a: u32, b: u32| vec![(a, 1), (b, 1), (4, 3)];
        assert_eq!(nodes, [(0, filled(0, 2)), (0, filled(0, 2)), (1, filled(3, 1))]);
    }

    #[test]
    fn missing_or_too_large_pods_are_not_distributed() {
        // Three nodes of five pods would hold more than the nine pods that exist: the second node gets one pod fewer,
        // the third almost none.
        let kinds = [kind(8, &[0, 1])];
        let nodes = distributed(vec![(0, vec![(1, 5)], 3.0)], &kinds, 1.0);
        assert_eq!(nodes, [(0, vec![(4, 5)])], "four of five are less than nine tenths");
        // In the zones that the pods require, only a smaller node is available.
        let nodes = distributed(vec![(0, vec![(0, 2), (1, 4)], 1.0)], &[kind(5, &[0, 1])], 1.0);
        assert_eq!(nodes, []);
    }

    #[test]
    fn fraction_above_threshold_is_rounded_up() {
        let kinds = [kind(8, &[0, 1])];
        let column = || vec![(0, vec![(1, 4)], 1.6)];
        assert_eq!(distributed(column(), &kinds, 1.0).len(), 1);
        assert_eq!(distributed(column(), &kinds, 0.7).len(), 1);
        assert_eq!(distributed(column(), &kinds, 0.5).len(), 2);
    }

    #[test]
    fn rows_that_need_nearly_every_node_are_detected() {
        let merged = merged(vec![(0, vec![(0, 1)], 5.0)]);
        assert!(merged.has_enough_nodes_for(&[row(2, 0, 4, 1), row(2, 0, 8, 2), row(1, 0, 900, u32::MAX)]));
        assert!(!merged.has_enough_nodes_for(&[row(2, 0, 5, 1)]));
    }
}
