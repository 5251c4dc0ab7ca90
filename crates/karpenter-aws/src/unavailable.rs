//! Where EC2 had nothing left a moment ago: pools, whole ways to buy, and subnets without addresses.
//!
//! Everything in here is forgotten three minutes after it was last seen. Readers get a snapshot that also says which
//! types changed since another snapshot, so that whoever keeps something made from one can tell what to make anew: a
//! number per type and one for what concerns all types, and every reader remembers for itself which it has seen.
//! Reservations are not here: they have counts.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::clock::Clock;
use karpenter_model::duration::GoDuration;

/// How long a shortage is believed in.
pub const UNAVAILABLE_FOR: Duration = Duration::from_secs(3 * 60);

/// Whom a shortage concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Every launch, whatever its placement.
    Everyone,
    /// Launches into this placement group.
    Group(String),
    /// Launches into one partition of this placement group.
    Partition(String, u32),
}

impl Scope {
    /// The narrowest scope of a launch into a group, or into none.
    pub fn of(group_id: Option<&str>, partition: Option<u32>) -> Self {
        match (group_id, partition) {
            (None, _) => Self::Everyone,
            (Some(id), None) => Self::Group(id.to_owned()),
            (Some(id), Some(number)) => Self::Partition(id.to_owned(), number),
        }
    }

    fn concerns(&self, group_id: Option<&str>, partition: Option<u32>) -> bool {
        match self {
            Self::Everyone => true,
            Self::Group(id) => group_id == Some(id),
            Self::Partition(id, number) => group_id == Some(id) && partition == Some(*number),
        }
    }
}

/// A pool that was found empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShortPool {
    pub instance_type: String,
    pub zone: String,
    /// `on-demand` or `spot`.
    pub capacity_type: String,
    pub scope: Scope,
}

/// A pool somebody would like to launch from.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub instance_type: &'a str,
    pub zone: &'a str,
    pub capacity_type: &'a str,
    /// The subnets that could be used in the zone.
    pub subnet_ids: &'a [String],
    pub group_id: Option<&'a str>,
    pub partition: Option<u32>,
}

/// What is short at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shortages {
    /// Grows with every change.
    version: u64,
    pools: BTreeMap<String, BTreeMap<ShortPool, Timestamp>>,
    capacity_types: BTreeMap<String, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    /// The version at which a type last came or went.
    type_changed: BTreeMap<String, u64>,
    /// The version at which something that concerns all types last came or went.
    all_changed: u64,
}

/// Which types are affected by changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    All,
    Types(BTreeSet<String>),
}

impl Shortages {
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A zone is without addresses only when all its subnets are; a zone without subnets is somebody else's business.
    pub fn is_short(&self, wish: &Wish<'_>) -> bool {
        self.capacity_types.contains_key(wish.capacity_type)
            || (!self.subnets.is_empty()
                && !wish.subnet_ids.is_empty()
                && wish.subnet_ids.iter().all(|id| self.subnets.contains_key(id)))
            || self.pools.get(wish.instance_type).is_some_and(|pools| {
                pools.keys().any(|pool| {
                    pool.zone == wish.zone
                        && pool.capacity_type == wish.capacity_type
                        && pool.scope.concerns(wish.group_id, wish.partition)
                })
            })
    }

    pub fn is_subnet_short(&self, subnet_id: &str) -> bool {
        self.subnets.contains_key(subnet_id)
    }

    /// What changed after the snapshot with this version was taken.
    pub fn changed_since(&self, version: u64) -> Changed {
        if self.all_changed > version {
            return Changed::All;
        }
        let changed = self.type_changed.iter().filter(|(_, changed)| **changed > version);
        Changed::Types(changed.map(|(name, _)| name.clone()).collect())
    }

    fn mark_pool(&mut self, pool: ShortPool, until: Timestamp) {
        self.version += 1;
        let name = pool.instance_type.clone();
        let pools = self.pools.entry(name.clone()).or_default();
        // Believed in for longer, but nothing new.
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

/// Keeps shortages until their time is over. Clones share everything.
#[derive(Debug, Clone)]
pub struct Unavailable {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    current: Arc<Shortages>,
    /// When the first of them is over.
    next_end: Option<Timestamp>,
}

impl Unavailable {
    pub fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// Seen again, a shortage lasts longer. `reason` is EC2's word for it.
    pub fn mark_pool(&self, pool: ShortPool, reason: &str) {
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

    /// Nothing of this kind can be bought, of any type and anywhere.
    pub fn mark_capacity_type(&self, capacity_type: &str) {
        self.change(|shortages, until| shortages.mark_capacity_type(capacity_type, until));
    }

    /// The subnet has no addresses left.
    pub fn mark_subnet(&self, subnet_id: &str) {
        self.change(|shortages, until| shortages.mark_subnet(subnet_id, until));
    }

    /// What is short now.
    pub fn current(&self) -> Arc<Shortages> {
        let mut state = self.lock();
        self.forget(&mut state);
        Arc::clone(&state.current)
    }

    fn change(&self, change: impl FnOnce(&mut Shortages, Timestamp)) {
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
        // A change that panicked half-way leaves at worst one shortage too many or too few.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
