//! Groups rows (sets of equal pods) with similar requests. If a relaxation has many rows, the dual prices of the groups
//! are a start for the dual prices of the rows.

use std::collections::BTreeMap;

use super::knapsack::weigh;
use super::shapes::{DIMENSIONS_MAX, Row};

/// At first, requests within one group differ by at most this factor; the factor is squared until few enough groups
/// remain.
const SIMILAR_RATIO: f64 = 1.05;

pub(crate) struct Groups {
    /// One row (group of equal pods) for each set of joined rows, with the mean of the requests of their pods.
    pub(crate) rows: Vec<Row>,
    of_row: Vec<usize>,
}

impl Groups {
    /// Joins rows (groups of equal pods) with similar requests into at most `groups_max` sets, unless more are needed.
    /// Rows that differ in demand (constraints on labels and taints), limit per node, exclusion or the set of requested
    /// resources are never joined.
    pub(crate) fn new(rows: &[Row], groups_max: usize) -> Self {
        let mut ratio = SIMILAR_RATIO;
        loop {
            let groups = Self::with_ratio(rows, ratio);
            // At a factor of a thousand, the groups that remain must not be joined.
            if groups.rows.len() <= groups_max || ratio > 1e3 {
                return groups;
            }
            ratio *= ratio;
        }
    }

    fn with_ratio(rows: &[Row], ratio: f64) -> Self {
        let step = |amount: i64| {
            if amount > 0 { ((amount as f64).ln() / ratio.ln()).round() as i64 } else { i64::MIN }
        };
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut index = BTreeMap::new();
        let of_row: Vec<usize> = rows
            .iter()
            .enumerate()
            .map(|(number, row)| {
                let key = (row.demand, row.exclusion, row.cap, row.requests.map(step));
                let group = *index.entry(key).or_insert_with(|| {
                    members.push(Vec::new());
                    members.len() - 1
                });
                members[group].push(number);
                group
            })
            .collect();
        let mean = |members: &Vec<usize>| {
            let count: u32 = members.iter().map(|row| rows[*row].count).sum();
            let mut requests = [0; DIMENSIONS_MAX];
            for (dimension, mean) in requests.iter_mut().enumerate() {
                let total: i128 = members
                    .iter()
                    .map(|row| i128::from(rows[*row].requests[dimension]) * i128::from(rows[*row].count))
                    .sum();
                *mean = (total / i128::from(count.max(1))) as i64;
            }
            Row { requests, count, ..rows[members[0]].clone() }
        };
        Self { rows: members.iter().map(mean).collect(), of_row }
    }

    /// The dual price of each row (group of equal pods): the price of the set that it was joined into, multiplied by
    /// the cost of the row's requests relative to those of the set, at these resource prices.
    pub(crate) fn duals_of_rows(
        &self,
        rows: &[Row],
        duals: &[f64],
        weights: &[f64; DIMENSIONS_MAX],
    ) -> Vec<f64> {
        let weight = |row: &Row| weigh(weights, &row.requests).max(f64::MIN_POSITIVE);
        let pairs = rows.iter().zip(&self.of_row);
        pairs.map(|(row, group)| duals[*group] * weight(row) / weight(&self.rows[*group])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cpu: i64, memory: i64, demand: usize, count: u32) -> Row {
        let mut requests = [0; DIMENSIONS_MAX];
        (requests[0], requests[1]) = (cpu, memory);
        Row { requests, demand, count, cap: u32::MAX, exclusion: None }
    }

    #[test]
    fn similar_rows_form_one_group() {
        let rows = [row(100, 1000, 0, 1), row(102, 1000, 0, 3), row(800, 1000, 0, 1), row(100, 1000, 1, 1)];
        let groups = Groups::new(&rows, 3);
        let seen: Vec<_> = groups.rows.iter().map(|row| (row.requests[0], row.demand, row.count)).collect();
        assert_eq!(seen, [(101, 0, 4), (800, 0, 1), (100, 1, 1)]);
        let mut weights = [0.0; DIMENSIONS_MAX];
        weights[0] = 1.0;
        let duals = groups.duals_of_rows(&rows, &[101.0, 7.0, 5.0], &weights);
        assert_eq!(duals, [100.0, 102.0, 7.0, 5.0]);
        // Rows (groups of equal pods) with different demands (constraints on labels and taints) must never be joined.
        assert!(Groups::new(&rows, 1).rows.len() > 1);
    }
}
