//! The free capacity of every existing node, in one table that can be searched fast.
//!
//! The table groups nodes into blocks and stores, per block and resource, the maximum free amount, so that a search
//! skips full blocks. After placements the stored maximum may be too high, but never too low.

use super::fit::holds;

/// The number of nodes per block: as many as one word of a bit set has bits.
pub(crate) const BLOCK: usize = 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct FreeCapacity {
    dimensions: usize,
    free: Vec<i64>,
    most: Vec<i64>,
}

impl FreeCapacity {
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

    /// Whether some node of a block may have enough free capacity for the requests; if false, none has.
    pub(crate) fn block_may_hold(&self, block: usize, requests: &[i64]) -> bool {
        holds(&self.most[block * self.dimensions..(block + 1) * self.dimensions], requests)
    }

    pub(crate) fn take(&mut self, node: usize, requests: &[i64], count: u32) {
        let free = &mut self.free[node * self.dimensions..(node + 1) * self.dimensions];
        for (free, request) in free.iter_mut().zip(requests) {
            *free -= request.saturating_mul(i64::from(count));
        }
    }

    /// Reverts [`FreeCapacity::take`].
    pub(crate) fn give_back(&mut self, node: usize, requests: &[i64], count: u32) {
        let free = &mut self.free[node * self.dimensions..(node + 1) * self.dimensions];
        for (free, request) in free.iter_mut().zip(requests) {
            *free += request.saturating_mul(i64::from(count));
        }
    }
}
