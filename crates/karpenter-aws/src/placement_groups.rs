//! Placement groups of EC2NodeClasses: reads them from EC2, and selects the partition of a launch.
//!
//! A response is cached for a minute, also if the group does not exist. The last known group is used only while EC2
//! does not respond, for at most a day.
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

/// The query for a selector; `None` if it is empty. The id takes precedence over the name.
pub fn query(selector: &PlacementGroupSelector) -> Option<PlacementGroupQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let by_id = given(&selector.id).map(PlacementGroupQuery::Id);
    by_id.or_else(|| given(&selector.name).map(PlacementGroupQuery::Name))
}

/// The group as an input of instance type resolution; `None` for an unknown strategy.
pub fn facts(group: &PlacementGroup) -> Option<aws::PlacementGroup> {
    Some(aws::PlacementGroup {
        id: group.id.as_str().into(),
        name: group.name.as_str().into(),
        strategy: aws::PlacementStrategy::parse(&group.strategy)?,
        partition_count: u32::try_from(group.partition_count).unwrap_or(0),
    })
}

/// The partition to launch into: the lowest that the NodeClaim's requirement allows. `None` if the requirement excludes
/// no partition; then EC2 chooses. Launch template and NodeClaim label must both use this result.
pub fn launch_partition(group: &aws::PlacementGroup, required: Option<&Requirement>) -> Option<u32> {
    let required = required?;
    let mut allowed = group.partitions().filter(|number| required.has(&number.to_string())).peekable();
    let lowest = *allowed.peek()?;
    let partition_count = group.partitions().count();
    let has_choice = partition_count > 1 && allowed.count() == partition_count;
    (!has_choice).then_some(lowest)
}

type Answer = Result<Option<PlacementGroup>, AwsError>;

/// Reads placement groups through a cache. Clones share it.
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

    /// The selected group, at most a minute old; `None` if it does not exist.
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

    /// The group for resolving instance types: the last known one while EC2 does not respond.
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
