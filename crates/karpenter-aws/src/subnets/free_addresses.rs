//! Estimates the free IP addresses of subnets between two responses of EC2: the last count minus the addresses that
//! launches in flight will use.
//!
//! A launch is assumed to need as many addresses as the smallest candidate instance type has pod capacity. A response
//! of EC2 replaces the estimate of its subnet. This module makes no calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::SubnetStatus;

/// The subnet to use in a zone, and the addresses reserved in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSubnet {
    pub id: String,
    pub zone: String,
    pub zone_id: Option<String>,
    /// EC2's count when the subnet was chosen; 0 if unknown.
    known_count: i64,
    set_aside: i64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    count: i64,
    until: Timestamp,
}

/// Free addresses by subnet id.
#[derive(Debug, Clone)]
pub struct FreeAddresses {
    count_ttl: Duration,
    known: BTreeMap<String, Known>,
    estimates: BTreeMap<String, i64>,
}

impl FreeAddresses {
    /// `count_ttl`: how long a count is valid; longer than the interval between two responses.
    pub fn new(count_ttl: Duration) -> Self {
        Self { count_ttl, known: BTreeMap::new(), estimates: BTreeMap::new() }
    }

    /// Records the number of free addresses that EC2 returned.
    pub fn learn(&mut self, subnet_id: &str, count: i64, now: Timestamp) {
        let until = now.checked_add(self.count_ttl).unwrap_or(Timestamp::MAX);
        self.known.insert(subnet_id.to_owned(), Known { count, until });
        self.estimates.remove(subnet_id);
    }

    /// Records that a launch failed because the subnet has no free addresses.
    pub fn exhausted(&mut self, subnet_id: &str, now: Timestamp) {
        self.learn(subnet_id, 0, now);
    }

    /// The estimated number of free addresses.
    pub fn left(&self, subnet_id: &str, now: Timestamp) -> i64 {
        self.estimates.get(subnet_id).copied().unwrap_or_else(|| self.known_count(subnet_id, now))
    }

    fn known_count(&self, subnet_id: &str, now: Timestamp) -> i64 {
        self.known.get(subnet_id).filter(|known| known.until > now).map_or(0, |known| known.count)
    }

    /// The subnet with the most free addresses in each zone, or the first of several equal ones; reserves `needed`
    /// addresses in it.
    pub fn choose(
        &mut self,
        subnets: &[SubnetStatus],
        needed: impl Fn(&str) -> i64,
        now: Timestamp,
    ) -> BTreeMap<String, LaunchSubnet> {
        let mut best: BTreeMap<&str, &SubnetStatus> = BTreeMap::new();
        for subnet in subnets {
            let held = best.entry(&subnet.zone).or_insert(subnet);
            if self.left(&subnet.id, now) > self.left(&held.id, now) {
                *held = subnet;
            }
        }
        let mut chosen = BTreeMap::new();
        for (zone, subnet) in best {
            let set_aside = needed(zone);
            let left = self.left(&subnet.id, now) - set_aside;
            let known_count = self.known_count(&subnet.id, now);
            self.estimates.insert(subnet.id.clone(), left);
            let launch = LaunchSubnet {
                id: subnet.id.clone(),
                zone: subnet.zone.clone(),
                zone_id: subnet.zone_id.clone(),
                known_count,
                set_aside,
            };
            chosen.insert(zone.to_owned(), launch);
        }
        chosen
    }

    /// Called after a launch: releases the addresses reserved in subnets that it did not use, unless EC2 has returned a
    /// new count since.
    pub fn settle<'a>(
        &mut self,
        chosen: impl IntoIterator<Item = &'a LaunchSubnet>,
        used: &BTreeSet<&str>,
        now: Timestamp,
    ) {
        for subnet in chosen {
            if used.contains(subnet.id.as_str()) || self.known_count(&subnet.id, now) != subnet.known_count {
                continue;
            }
            if let Some(estimate) = self.estimates.get_mut(&subnet.id) {
                *estimate += subnet.set_aside;
            }
        }
    }
}

#[cfg(test)]
mod tests;
