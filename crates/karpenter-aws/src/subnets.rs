//! The subnets that an EC2NodeClass selects, and their free IP addresses.
//!
//! [`queries`] translates selector terms, [`status`] builds the entries of the status, and [`FreeAddresses`] chooses
//! the subnet of a launch. [`crate::unavailable`] tracks subnets that have no free addresses.
//!
//! Upstream: `pkg/providers/subnet/subnet.go`

mod free_addresses;
mod public;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karpenter_api::labels::ANNOTATION_SUBNET_IDS;
use karpenter_api::types::{EC2NodeClass, SubnetSelectorTerm, SubnetStatus};
use karpenter_runtime::clock::Clock;

use crate::api::ec2::{Subnet, SubnetQuery};
use crate::api::{AwsError, Ec2, tag_filters};
use crate::cache::Cache;

pub use free_addresses::{FreeAddresses, LaunchSubnet};
pub use public::PublicSubnets;

/// How much longer than EC2's cached response a subnet's count of free addresses is kept, unless `COUNT_TTL_MIN` is
/// longer.
const COUNT_TTL_BEYOND_REFRESH: Duration = Duration::from_secs(4 * 60);
/// The lower limit of the time after which a subnet's cached count of free addresses expires, however short the refresh
/// interval is.
const COUNT_TTL_MIN: Duration = Duration::from_secs(5 * 60);

/// The EC2 queries for selector terms: one for each term with tags, and one for all ids.
pub fn queries(terms: &[SubnetSelectorTerm]) -> Vec<SubnetQuery> {
    let mut queries = Vec::new();
    let mut ids = Vec::new();
    for term in terms {
        match term.id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => ids.push(id.to_owned()),
            None => {
                let tags = term.tags.as_ref().map(tag_filters).unwrap_or_default();
                queries.push(SubnetQuery { ids: Vec::new(), tags });
            }
        }
    }
    if !ids.is_empty() {
        queries.push(SubnetQuery { ids, tags: Vec::new() });
    }
    // A query without conditions would return all subnets, so such queries are dropped. The API server rejects terms
    // without conditions, except those with an empty map of tags.
    queries.retain(|query| !query.ids.is_empty() || !query.tags.is_empty());
    queries
}

/// The EC2 queries for a node class. If the node class is derived from an AWSNodeTemplate, it may restrict the results
/// to a list of ids.
pub fn queries_of(class: &EC2NodeClass) -> Vec<SubnetQuery> {
    let mut queries = queries(&class.spec.subnet_selector_terms);
    let only = only_ids(class, ANNOTATION_SUBNET_IDS);
    for query in queries.iter_mut().filter(|query| query.ids.is_empty()) {
        query.ids.clone_from(&only);
    }
    queries
}

/// The ids in an annotation of a node class; empty if the node class lacks the annotation.
pub(crate) fn only_ids(class: &EC2NodeClass, annotation: &str) -> Vec<String> {
    let text = class.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation));
    let ids = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    ids.filter(|id| !id.is_empty()).map(str::to_owned).collect()
}

/// The status entries of the subnets: those with the most free addresses first, then by id, without duplicates.
pub fn status(subnets: &[Subnet]) -> Vec<SubnetStatus> {
    let by_id: BTreeMap<&str, &Subnet> = subnets.iter().map(|subnet| (subnet.id.as_str(), subnet)).collect();
    let mut ordered: Vec<&Subnet> = by_id.into_values().collect();
    ordered.sort_by_key(|subnet| std::cmp::Reverse(subnet.available_ip_count));
    ordered
        .into_iter()
        .map(|subnet| SubnetStatus {
            id: subnet.id.clone(),
            zone: subnet.zone.clone(),
            zone_id: subnet.zone_id.clone(),
        })
        .collect()
}

/// Reads subnets from EC2 through a cache, and tracks their free addresses.
pub struct Subnets {
    ec2: Arc<dyn Ec2>,
    clock: Clock,
    answers: Cache<ClassVersion, Arc<Vec<Subnet>>>,
    free: Mutex<FreeAddresses>,
    public: PublicSubnets,
}

impl Subnets {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock, refresh: Duration) -> Self {
        let count_ttl = (refresh + COUNT_TTL_BEYOND_REFRESH).max(COUNT_TTL_MIN);
        let free = Mutex::new(FreeAddresses::new(count_ttl));
        Self { ec2, clock, answers: Cache::new(clock, refresh), free, public: PublicSubnets::default() }
    }

    /// Makes the cache record in `public` which subnets give instances public addresses.
    pub fn recording(mut self, public: PublicSubnets) -> Self {
        self.public = public;
        self
    }

    /// The subnets that the node class selects, as known within the refresh interval.
    pub async fn list(&self, class: &EC2NodeClass) -> Result<Arc<Vec<Subnet>>, AwsError> {
        let version = class_version(class, ANNOTATION_SUBNET_IDS);
        if let Some(known) = self.answers.get(&version) {
            return Ok(known);
        }
        let mut found: BTreeMap<String, Subnet> = BTreeMap::new();
        for query in queries_of(class) {
            for subnet in self.ec2.describe_subnets(&query).await? {
                found.insert(subnet.id.clone(), subnet);
            }
        }
        let subnets = Arc::new(found.into_values().collect::<Vec<_>>());
        self.public.learn(&subnets);
        let now = self.clock.now();
        let mut free = self.free();
        for subnet in subnets.iter() {
            free.learn(&subnet.id, subnet.available_ip_count, now);
        }
        self.answers.insert(version, subnets.clone());
        Ok(subnets)
    }

    /// For each zone, the subnet to launch into; reserves `needed` addresses in each of them. See
    /// [`FreeAddresses::choose`].
    pub fn choose(
        &self,
        subnets: &[SubnetStatus],
        needed: impl Fn(&str) -> i64,
    ) -> BTreeMap<String, LaunchSubnet> {
        let now = self.clock.now();
        self.free().choose(subnets, needed, now)
    }

    /// Releases the addresses that were reserved for a launch and that it did not use.
    pub fn settle<'a>(&self, chosen: impl IntoIterator<Item = &'a LaunchSubnet>, used: &BTreeSet<&str>) {
        let now = self.clock.now();
        self.free().settle(chosen, used, now);
    }

    /// Records that a launch into the subnet failed, because it has no free addresses.
    pub fn exhausted(&self, subnet_id: &str) {
        let now = self.clock.now();
        self.free().exhausted(subnet_id, now);
    }

    /// The estimated number of free addresses in the subnet.
    pub fn left(&self, subnet_id: &str) -> i64 {
        self.free().left(subnet_id, self.clock.now())
    }

    fn free(&self) -> MutexGuard<'_, FreeAddresses> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version of a node class in cache keys: uid, generation, and the ids in an annotation, because changing an
/// annotation does not change the generation.
pub(crate) type ClassVersion = (String, i64, Vec<String>);

pub(crate) fn class_version(class: &EC2NodeClass, annotation: &str) -> ClassVersion {
    let meta = &class.metadata;
    (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default(), only_ids(class, annotation))
}
