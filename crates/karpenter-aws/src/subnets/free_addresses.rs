//! Estimates the free IP addresses of subnets between two responses of EC2: EC2's last count minus the addresses that
//! launches in flight will use.
//!
//! A launch is assumed to need as many addresses as the pod capacity of its smallest candidate instance type. EC2's
//! next response replaces the estimate. This module makes no calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::SubnetStatus;

/// The subnet that a launch uses in a zone, and the addresses that are reserved for the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSubnet {
    pub id: String,
    pub zone: String,
    pub zone_id: Option<String>,
    /// EC2's count of free addresses when the subnet was chosen; 0 if it was unknown.
    known_count: i64,
    set_aside: i64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    count: i64,
    until: Timestamp,
}

/// The estimated free addresses by subnet id.
#[derive(Debug, Clone)]
pub struct FreeAddresses {
    count_ttl: Duration,
    known: BTreeMap<String, Known>,
    estimates: BTreeMap<String, i64>,
}

impl FreeAddresses {
    /// `count_ttl` is how long a count is valid; it must be longer than the interval between two responses of EC2.
    pub fn new(count_ttl: Duration) -> Self {
        Self { count_ttl, known: BTreeMap::new(), estimates: BTreeMap::new() }
    }

    /// Records how many free addresses EC2 returned for the subnet.
    pub fn learn(&mut self, subnet_id: &str, count: i64, now: Timestamp) {
        let until = now.checked_add(self.count_ttl).unwrap_or(Timestamp::MAX);
        self.known.insert(subnet_id.to_owned(), Known { count, until });
        self.estimates.remove(subnet_id);
    }

    /// Records that a launch into the subnet failed, because it has no free addresses.
    pub fn exhausted(&mut self, subnet_id: &str, now: Timestamp) {
        self.learn(subnet_id, 0, now);
    }

    /// The estimated number of free addresses in the subnet.
    pub fn left(&self, subnet_id: &str, now: Timestamp) -> i64 {
        self.estimates.get(subnet_id).copied().unwrap_or_else(|| self.known_count(subnet_id, now))
    }

    fn known_count(&self, subnet_id: &str, now: Timestamp) -> i64 {
        self.known.get(subnet_id).filter(|known| known.until > now).map_or(0, |known| known.count)
    }

    /// For each zone, the subnet with the most free addresses (the first of several equal ones); reserves `needed`
    /// addresses in each of them.
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

    /// Called after a launch: in subnets that the launch did not use, releases the reserved addresses, unless EC2
    /// returned a new count in the meantime.
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
