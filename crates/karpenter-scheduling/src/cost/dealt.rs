//! Fillings of rows without limits, dealt out to the rows with limits behind them.
//!
//! Deployments that keep their pods apart are a row each in every zone, more than a relaxation solves. Without these limits they
//! are few; a node that shall hold three pods of one size then gets them from three Deployments that have many left.

use std::cmp::Reverse;

use super::items;
use super::knapsack::{self, Exclusions, Pattern};
use super::pack::Share;
use super::relaxation::Relaxation;
use super::shapes::{Kind, Row};

/// A node that gets less than this share of what it shall hold is left to the packer.
const HAND_LEAST: f64 = 0.9;

/// Rows that need more than this share of the nodes to be kept apart say more about the fleet than what all rows ask for.
const NODES_SHARE: f64 = 0.8;

/// A relaxation of rows that limits per node do not tell apart.
pub(crate) struct Merged {
    pub(crate) relaxed: Relaxation,
    /// By row with limits: which of them it became.
    pub(crate) of_row: Vec<usize>,
}

impl Merged {
    /// What it says of the rows with limits. Its fillings are none of theirs.
    pub(crate) fn unfolded(&self) -> Relaxation {
        let duals = self.of_row.iter().map(|row| self.relaxed.duals[*row]).collect();
        Relaxation { duals, columns: Vec::new(), ..self.relaxed }
    }

    /// Whether its nodes are enough for every row to be kept apart.
    pub(crate) fn has_nodes_for(&self, rows: &[Row]) -> bool {
        let nodes: f64 = self.relaxed.columns.iter().map(|(.., amount)| amount).sum();
        rows.iter().all(|row| f64::from(row.count) / f64::from(row.cap) <= NODES_SHARE * nodes)
    }
}

/// What is dealt out to, and how it hangs together with what was relaxed.
pub(crate) struct Table<'a> {
    pub(crate) anywhere_kinds: &'a [Kind],
    pub(crate) pinned: &'a items::Rows,
    pub(crate) kinds: &'a [Kind],
}

/// Whole nodes, one by one, with pods that there are; those of which the relaxation has less than one from `threshold` on.
pub(crate) fn deal(merged: &Merged, table: &Table<'_>, row_of_item: &[usize], threshold: f64) -> Vec<Share> {
    let rows = &table.pinned.rows;
    let merged_rows = merged.of_row.iter().max().map_or(0, |most| most + 1);
    let mut behind: Vec<Vec<u32>> = vec![Vec::new(); merged_rows];
    for (row, members) in table.pinned.items.iter().enumerate() {
        behind[merged.of_row[row_of_item[members[0]]]].push(row as u32);
    }
    let mut left: Vec<u32> = rows.iter().map(|row| row.count).collect();
    let mut order: Vec<(&Share, u32)> = Vec::new();
    for column in &merged.relaxed.columns {
        let whole = (column.2 + 1e-6).floor();
        order.push((column, whole as u32));
        if threshold < 1.0 && column.2 - whole >= threshold {
            order.push((column, 1));
        }
    }
    order.sort_by(|(a, whole_a), (b, whole_b)| whole_b.cmp(whole_a).then(b.2.total_cmp(&a.2)));
    let mut nodes = Vec::new();
    for ((kind, pattern, _), copies) in order {
        let of = &table.anywhere_kinds[*kind];
        let same = |kind: &Kind| (kind.template, kind.instance_type) == (of.template, of.instance_type);
        let places: Vec<usize> = (0..table.kinds.len()).filter(|kind| same(&table.kinds[*kind])).collect();
        let duals = &merged.relaxed.duals;
        let wanted: f64 = pattern.iter().map(|(row, count)| duals[*row as usize] * f64::from(*count)).sum();
        for _ in 0..copies {
            let hands = places
                .iter()
                .map(|place| (*place, hand(rows, &behind, &left, &table.kinds[*place], pattern, duals)));
            let best = hands.reduce(|best, next| if next.1.is_better_than(&best.1) { next } else { best });
            let is_enough = |hand: &Hand| hand.worth >= HAND_LEAST * wanted;
            let Some((place, hand)) = best.filter(|(_, hand)| is_enough(hand)) else { break };
            hand.pattern.iter().for_each(|(row, count)| left[*row as usize] -= count);
            nodes.push((place, hand.pattern, 1.0));
        }
    }
    nodes
}

/// What one node gets.
#[derive(Default)]
struct Hand {
    pattern: Pattern,
    worth: f64,
    /// Pods that not every node takes any number of.
    limited: u32,
}

impl Hand {
    fn is_better_than(&self, other: &Self) -> bool {
        self.worth.total_cmp(&other.worth).then(self.limited.cmp(&other.limited)).is_gt()
    }
}

fn hand(
    rows: &[Row],
    behind: &[Vec<u32>],
    left: &[u32],
    kind: &Kind,
    pattern: &Pattern,
    duals: &[f64],
) -> Hand {
    let mut exclusions = Exclusions::default();
    // A kind of one zone may have less room than the same of any zone.
    let mut room = kind.free;
    let mut hand = Hand::default();
    for (merged, count) in pattern {
        let mut wanted = *count;
        let takes = |row: &u32| left[*row as usize] > 0 && kind.takes(&rows[*row as usize]);
        let mut members: Vec<u32> = behind[*merged as usize].iter().copied().filter(takes).collect();
        // Those with limits first, and of them those with most to place.
        members.sort_by_key(|row| (rows[*row as usize].cap == u32::MAX, Reverse(left[*row as usize]), *row));
        for row in members {
            let data = &rows[row as usize];
            let at_most = wanted.min(left[row as usize]).min(data.cap).min(exclusions.room(data));
            let dealt = knapsack::copies(&room, &data.requests, at_most);
            if dealt > 0 {
                knapsack::take(&mut room, &data.requests, dealt);
                exclusions.occupy(data, dealt);
                hand.pattern.push((row, dealt));
                hand.worth += duals[*merged as usize] * f64::from(dealt);
                hand.limited += if data.cap < u32::MAX { dealt } else { 0 };
                wanted -= dealt;
            }
            if wanted == 0 {
                break;
            }
        }
    }
    hand
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

    fn kind(cpu: i64, demands: &[usize]) -> Kind {
        let mut free = [0; DIMENSIONS_MAX];
        free[0] = cpu;
        let mut bits = Bits::empty(3);
        demands.iter().for_each(|demand| bits.insert(*demand));
        Kind { template: 0, instance_type: 0, free, price: 1.0, demands: bits, is_spot: false }
    }

    /// Two Deployments that keep their pods apart in zones 1 and 2, and pods without such a wish (demand 0).
    fn pinned() -> items::Rows {
        let many = u32::MAX;
        let rows =
            vec![row(2, 1, 3, 1), row(2, 2, 1, 1), row(2, 1, 2, 1), row(2, 2, 2, 1), row(1, 0, 9, many)];
        items::Rows { rows, items: (0..5).map(|item| vec![item]).collect() }
    }

    fn merged(columns: Vec<Share>) -> Merged {
        let relaxed = Relaxation {
            duals: vec![2.0, 1.0],
            lower_bound: 0.0,
            objective: 0.0,
            likely: 0.0,
            columns,
            fluid_weights: [0.0; DIMENSIONS_MAX],
        };
        // Rows of the relaxation before they were merged: one per Deployment, and the others.
        Merged { relaxed, of_row: vec![0, 0, 1] }
    }

    fn dealt(columns: Vec<Share>, kinds: &[Kind], threshold: f64) -> Vec<(usize, Pattern)> {
        let table = Table { anywhere_kinds: &[kind(8, &[0, 1, 2])], pinned: &pinned(), kinds };
        let nodes = deal(&merged(columns), &table, &[0, 0, 1, 1, 2], threshold);
        nodes.into_iter().map(|(kind, pattern, _)| (kind, pattern)).collect()
    }

    #[test]
    fn every_node_gets_one_pod_of_each_deployment_in_one_zone() {
        let kinds = [kind(8, &[0, 1]), kind(8, &[0, 2])];
        let nodes = dealt(vec![(0, vec![(0, 2), (1, 3)], 3.0)], &kinds, 1.0);
        let filled = |a: u32, b: u32| vec![(a, 1), (b, 1), (4, 3)];
        assert_eq!(nodes, [(0, filled(0, 2)), (0, filled(0, 2)), (1, filled(3, 1))]);
    }

    #[test]
    fn what_is_not_there_or_does_not_fit_is_not_dealt() {
        // Three times five pods are more than the nine there are: the second node lacks one, the third nearly all.
        let kinds = [kind(8, &[0, 1])];
        let nodes = dealt(vec![(0, vec![(1, 5)], 3.0)], &kinds, 1.0);
        assert_eq!(nodes, [(0, vec![(4, 5)])], "four of five are less than nine tenths");
        // In the zones themselves only a smaller node is to be had.
        let nodes = dealt(vec![(0, vec![(0, 2), (1, 4)], 1.0)], &[kind(5, &[0, 1])], 1.0);
        assert_eq!(nodes, []);
    }

    #[test]
    fn nearly_whole_nodes_are_whole_ones_where_that_is_asked_for() {
        let kinds = [kind(8, &[0, 1])];
        let column = || vec![(0, vec![(1, 4)], 1.6)];
        assert_eq!(dealt(column(), &kinds, 1.0).len(), 1);
        assert_eq!(dealt(column(), &kinds, 0.7).len(), 1);
        assert_eq!(dealt(column(), &kinds, 0.5).len(), 2);
    }

    #[test]
    fn rows_that_need_nearly_every_node_are_told_from_others() {
        let merged = merged(vec![(0, vec![(0, 1)], 5.0)]);
        assert!(merged.has_nodes_for(&[row(2, 0, 4, 1), row(2, 0, 8, 2), row(1, 0, 900, u32::MAX)]));
        assert!(!merged.has_nodes_for(&[row(2, 0, 5, 1)]));
    }
}
