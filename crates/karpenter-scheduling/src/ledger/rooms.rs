//! What every existing node has left, in one table that is quick to search.
//!
//! Nodes are kept in blocks; of each block the largest amount per resource is known, so that blocks without room are
//! passed over. That figure may be too high after placements, never too low.

use super::fit::holds;

/// As many nodes as a word of a bit set.
pub(crate) const BLOCK: usize = 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Rooms {
    dimensions: usize,
    free: Vec<i64>,
    most: Vec<i64>,
}

impl Rooms {
    pub(crate) fn new(dimensions: usize) -> Self {
        Self { dimensions, free: Vec::new(), most: Vec::new() }
    }

    pub(crate) fn push(&mut self, free: &[i64]) {
        let position = self.free.len() / self.dimensions;
        if position.is_multiple_of(BLOCK) {
            self.most.extend_from_slice(free);
        } else {
            let most = &mut self.most[position / BLOCK * self.dimensions..];
            most.iter_mut().zip(free).for_each(|(most, free)| *most = (*most).max(*free));
        }
        self.free.extend_from_slice(free);
    }

    pub(crate) fn of(&self, node: usize) -> &[i64] {
        &self.free[node * self.dimensions..(node + 1) * self.dimensions]
    }

    /// Whether any node of a block may hold what is requested.
    pub(crate) fn block_may_hold(&self, block: usize, requests: &[i64]) -> bool {
        holds(&self.most[block * self.dimensions..(block + 1) * self.dimensions], requests)
    }

    pub(crate) fn take(&mut self, node: usize, requests: &[i64], count: u32) {
        let free = &mut self.free[node * self.dimensions..(node + 1) * self.dimensions];
        for (free, request) in free.iter_mut().zip(requests) {
            *free -= request.saturating_mul(i64::from(count));
        }
    }

    /// Takes back [`Rooms::take`].
    pub(crate) fn give_back(&mut self, node: usize, requests: &[i64], count: u32) {
        let free = &mut self.free[node * self.dimensions..(node + 1) * self.dimensions];
        for (free, request) in free.iter_mut().zip(requests) {
            *free += request.saturating_mul(i64::from(count));
        }
    }
}
