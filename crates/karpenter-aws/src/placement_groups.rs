//! The placement groups of EC2NodeClasses: reads them from EC2, and chooses the partition of a launch.
//!
//! EC2's response is cached for a minute, even the response that the group does not exist. While EC2 does not respond,
//! the last known group is used, for at most a day.
//!
//! Upstream: `pkg/providers/placementgroup`

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::types::PlacementGroupSelector;
use karpenter_catalog::aws;
use karpenter_model::requirements::Requirement;
use karpenter_runtime::clock::Clock;

use crate::api::ec2::{PlacementGroup, PlacementGroupQuery};
use crate::api::{AwsError, Ec2};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

const REFRESH: Duration = Duration::from_secs(60);
const LAST_KNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The EC2 query for a selector; `None` if the selector is empty. If it has both id and name, the id is used.
pub fn query(selector: &PlacementGroupSelector) -> Option<PlacementGroupQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let by_id = given(&selector.id).map(PlacementGroupQuery::Id);
    by_id.or_else(|| given(&selector.name).map(PlacementGroupQuery::Name))
}

/// The placement group as an input of instance type resolution; `None` if its strategy is unknown.
pub fn facts(group: &PlacementGroup) -> Option<aws::PlacementGroup> {
    Some(aws::PlacementGroup {
        id: group.id.as_str().into(),
        name: group.name.as_str().into(),
        strategy: aws::PlacementStrategy::parse(&group.strategy)?,
        partition_count: u32::try_from(group.partition_count).unwrap_or(0),
    })
}

/// The partition to launch into: the lowest one that the NodeClaim's requirement allows. `None` if the requirement
/// excludes no partition; then EC2 chooses one. The launch template and the NodeClaim's label must both use this
/// result.
pub fn launch_partition(group: &aws::PlacementGroup, required: Option<&Requirement>) -> Option<u32> {
    let required = required?;
    let mut allowed = group.partitions().filter(|number| required.has(&number.to_string())).peekable();
    let lowest = *allowed.peek()?;
    let partition_count = group.partitions().count();
    let has_choice = partition_count > 1 && allowed.count() == partition_count;
    (!has_choice).then_some(lowest)
}

type Answer = Result<Option<PlacementGroup>, AwsError>;

/// Reads placement groups through a cache, which all clones share.
#[derive(Clone)]
pub struct PlacementGroups {
    ec2: Arc<dyn Ec2>,
    answers: Arc<Cache<PlacementGroupQuery, Option<PlacementGroup>>>,
    last_known: Arc<Cache<PlacementGroupQuery, PlacementGroup>>,
    flights: SingleFlight<PlacementGroupQuery, Answer>,
}

impl PlacementGroups {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock) -> Self {
        Self {
            ec2,
            answers: Arc::new(Cache::new(clock, REFRESH)),
            last_known: Arc::new(Cache::new(clock, LAST_KNOWN_FOR)),
            flights: SingleFlight::default(),
        }
    }

    /// The placement group that the selector selects, as known at most a minute ago; `None` if it does not exist.
    pub async fn find(&self, selector: &PlacementGroupSelector) -> Answer {
        let Some(query) = query(selector) else { return Ok(None) };
        if let Some(answer) = self.answers.get(&query) {
            return Ok(answer);
        }
        let ec2 = Arc::clone(&self.ec2);
        let (answers, last_known, asked) =
            (Arc::clone(&self.answers), Arc::clone(&self.last_known), query.clone());
        let question = move || async move {
            let group = match ec2.describe_placement_groups(&asked).await {
                Ok(groups) => groups.into_iter().next(),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            };
            match &group {
                Some(group) => last_known.insert(asked.clone(), group.clone()),
                None => drop(last_known.remove(&asked)),
            }
            answers.insert(asked, group.clone());
            Ok(group)
        };
        self.flights.run(query, question).await
    }

    /// The placement group for resolving instance types. While EC2 does not respond, this is the last known group.
    pub async fn find_or_last_known(&self, selector: &PlacementGroupSelector) -> Option<PlacementGroup> {
        match self.find(selector).await {
            Ok(group) => group,
            Err(error) => {
                tracing::warn!(%error, "failed to read placement groups, using last known placement group");
                query(selector).and_then(|query| self.last_known.get(&query))
            }
        }
    }
}
