//! What launches must not use for a while: offerings after insufficient capacity errors, capacity types, and subnets
//! without free addresses.
//!
//! An entry expires three minutes after the last error. Readers get a snapshot with a version. They can ask which
//! instance types changed since an older version, so that only these are resolved again. Reservations are not tracked
//! here, because their free instances are counted ([`crate::reservations`]).
//!
//! Upstream: `pkg/cache/unavailableofferings.go`

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_model::duration::GoDuration;
use karpenter_runtime::clock::Clock;

/// How long an entry is valid after the last error.
pub const UNAVAILABLE_FOR: Duration = Duration::from_secs(3 * 60);

/// To which launches an entry applies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All launches, whatever their placement group.
    AnyLaunch,
    /// All launches into this placement group, whatever their partition.
    Group(String),
    /// All launches into this partition of this placement group.
    Partition(String, u32),
}

impl Scope {
    /// The narrowest scope of a launch, given its placement group and partition, if it has them.
    pub fn of(group_id: Option<&str>, partition: Option<u32>) -> Self {
        match (group_id, partition) {
            (None, _) => Self::AnyLaunch,
            (Some(id), None) => Self::Group(id.to_owned()),
            (Some(id), Some(number)) => Self::Partition(id.to_owned(), number),
        }
    }

    fn applies_to(&self, group_id: Option<&str>, partition: Option<u32>) -> bool {
        match self {
            Self::AnyLaunch => true,
            Self::Group(id) => group_id == Some(id),
            Self::Partition(id, number) => group_id == Some(id) && partition == Some(*number),
        }
    }
}

/// An offering for which EC2 returned an insufficient capacity error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnavailableOffering {
    pub instance_type: String,
    pub zone: String,
    /// The capacity type: `on-demand` or `spot`.
    pub capacity_type: String,
    pub scope: Scope,
}

/// The offering that a launch would use.
#[derive(Debug, Clone, Copy)]
pub struct OfferingQuery<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    pub capacity_type: &'a str,
    /// The subnets in the zone that the launch could use.
    pub subnet_ids: &'a [String],
    pub group_id: Option<&'a str>,
    pub partition: Option<u32>,
}

/// A snapshot of the unavailable offerings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnavailableSnapshot {
    /// The version of the snapshot, which increases with every change.
    version: u64,
    pools: BTreeMap<String, BTreeMap<UnavailableOffering, Timestamp>>,
    capacity_types: BTreeMap<String, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    /// For each instance type: the version at which one of its entries was last added or removed.
    type_changed: BTreeMap<String, u64>,
    /// The version at which an entry that concerns all instance types was last added or removed.
    all_changed: u64,
}

/// The instance types whose availability changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    All,
    Types(BTreeSet<String>),
}

impl UnavailableSnapshot {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether a launch cannot use the offering. A zone lacks addresses only if all its candidate subnets do. Zones
    /// without subnets are excluded by other code.
    pub fn is_unavailable(&self, query: &OfferingQuery<'_>) -> bool {
        self.capacity_types.contains_key(query.capacity_type)
            || (!self.subnets.is_empty()
                && !query.subnet_ids.is_empty()
                && query.subnet_ids.iter().all(|id| self.subnets.contains_key(id)))
            || self.pools.get(query.instance_type).is_some_and(|pools| {
                pools.keys().any(|pool| {
                    pool.zone == query.zone
                        && pool.capacity_type == query.capacity_type
                        && pool.scope.applies_to(query.group_id, query.partition)
                })
            })
    }

    pub fn is_subnet_unavailable(&self, subnet_id: &str) -> bool {
        self.subnets.contains_key(subnet_id)
    }

    /// What changed since the snapshot with this version.
    pub fn changed_since(&self, version: u64) -> Changed {
        if self.all_changed > version {
            return Changed::All;
        }
        let changed = self.type_changed.iter().filter(|(_, changed)| **changed > version);
        Changed::Types(changed.map(|(name, _)| name.clone()).collect())
    }

    fn mark_pool(&mut self, pool: UnavailableOffering, until: Timestamp) {
        self.version += 1;
        let name = pool.instance_type.clone();
        let pools = self.pools.entry(name.clone()).or_default();
        // A repeated error only extends the entry, so it does not count as a change.
        if pools.insert(pool, until).is_none() {
            self.type_changed.insert(name, self.version);
        }
    }

    fn mark_capacity_type(&mut self, capacity_type: &str, until: Timestamp) {
        self.version += 1;
        if self.capacity_types.insert(capacity_type.to_owned(), until).is_none() {
            self.all_changed = self.version;
        }
    }

    fn mark_subnet(&mut self, subnet_id: &str, until: Timestamp) {
        self.version += 1;
        if self.subnets.insert(subnet_id.to_owned(), until).is_none() {
            self.all_changed = self.version;
        }
    }

    fn next_end(&self) -> Option<Timestamp> {
        let pools = self.pools.values().flat_map(BTreeMap::values);
        pools.chain(self.capacity_types.values()).chain(self.subnets.values()).min().copied()
    }

    fn forget_until(&mut self, now: Timestamp) {
        self.version += 1;
        let version = self.version;
        for (name, pools) in &mut self.pools {
            let before = pools.len();
            pools.retain(|_, until| *until > now);
            if pools.len() != before {
                self.type_changed.insert(name.clone(), version);
            }
        }
        self.pools.retain(|_, pools| !pools.is_empty());
        for concerns_all in [&mut self.capacity_types, &mut self.subnets] {
            let before = concerns_all.len();
            concerns_all.retain(|_, until| *until > now);
            if concerns_all.len() != before {
                self.all_changed = version;
            }
        }
    }
}

/// Holds the entries until they expire. All clones share their state.
#[derive(Debug, Clone)]
pub struct Unavailable {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    current: Arc<UnavailableSnapshot>,
    /// The earliest time at which an entry expires.
    next_end: Option<Timestamp>,
}

impl Unavailable {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Adds an entry, or extends it; `reason` is the error code that EC2 returned.
    pub fn mark_pool(&self, pool: UnavailableOffering, reason: &str) {
        tracing::debug!(
            reason,
            instance_type = pool.instance_type,
            zone = pool.zone,
            capacity_type = pool.capacity_type,
            scope = ?pool.scope,
            ttl = %GoDuration::from_seconds(UNAVAILABLE_FOR.as_secs().cast_signed()),
            "removing offering from offerings"
        );
        self.change(|shortages, until| shortages.mark_pool(pool, until));
    }

    /// Marks all offerings of the capacity type as unavailable.
    pub fn mark_capacity_type(&self, capacity_type: &str) {
        self.change(|shortages, until| shortages.mark_capacity_type(capacity_type, until));
    }

    /// Marks a subnet as having no free addresses.
    pub fn mark_subnet(&self, subnet_id: &str) {
        self.change(|shortages, until| shortages.mark_subnet(subnet_id, until));
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<UnavailableSnapshot> {
        let mut state = self.lock();
        self.forget(&mut state);
        Arc::clone(&state.current)
    }

    fn change(&self, change: impl FnOnce(&mut UnavailableSnapshot, Timestamp)) {
        let until = self.clock.now().checked_add(UNAVAILABLE_FOR).unwrap_or(Timestamp::MAX);
        let mut state = self.lock();
        self.forget(&mut state);
        change(Arc::make_mut(&mut state.current), until);
        state.next_end = state.current.next_end();
    }

    fn forget(&self, state: &mut State) {
        let now = self.clock.now();
        if state.next_end.is_some_and(|end| end <= now) {
            Arc::make_mut(&mut state.current).forget_until(now);
            state.next_end = state.current.next_end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // If a thread panicked during a change, at most one entry is missing or superfluous, so a poisoned lock can be
        // used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
