//! Placement groups of classes: how they are found, and which partition a launch goes into.
//!
//! What EC2 says holds for a minute, also when it says that there is no such group: a group that was deleted is gone.
//! Only while EC2 does not answer, what it said last may be used, for a day.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use karpenter_api::types::PlacementGroupSelector;
use karpenter_catalog::aws;
use karpenter_cluster::clock::Clock;
use karpenter_model::requirements::Requirement;

use crate::api::ec2::{PlacementGroup, PlacementGroupQuery};
use crate::api::{AwsError, Ec2};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

const REFRESH: Duration = Duration::from_secs(60);
const LAST_KNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// What has to be asked; nothing for a selector that selects nothing. The id wins over the name.
pub fn query(selector: &PlacementGroupSelector) -> Option<PlacementGroupQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let by_id = given(&selector.id).map(PlacementGroupQuery::Id);
    by_id.or_else(|| given(&selector.name).map(PlacementGroupQuery::Name))
}

/// The group as instance types are resolved with it; nothing for a strategy we do not know.
pub fn facts(group: &PlacementGroup) -> Option<aws::PlacementGroup> {
    Some(aws::PlacementGroup {
        id: group.id.as_str().into(),
        name: group.name.as_str().into(),
        strategy: aws::PlacementStrategy::parse(&group.strategy)?,
        partition_count: u32::try_from(group.partition_count).unwrap_or(0),
    })
}

/// The partition to launch into: the lowest of those a claim asks for, or none, which lets EC2 choose, if it is
/// content with all of several. The launch and the claim's label must both be made from this answer.
pub fn launch_partition(group: &aws::PlacementGroup, wanted: Option<&Requirement>) -> Option<u32> {
    let wanted = wanted?;
    let mut allowed = group.partitions().filter(|number| wanted.has(&number.to_string())).peekable();
    let lowest = *allowed.peek()?;
    let partition_count = group.partitions().count();
    let has_choice = partition_count > 1 && allowed.count() == partition_count;
    (!has_choice).then_some(lowest)
}

type Answer = Result<Option<PlacementGroup>, AwsError>;

/// Asks EC2 for placement groups, not too often. Clones share everything.
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

    /// The group that is selected, as EC2 told not longer than a minute ago; `None` if there is none.
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

    /// The group to resolve types with: while EC2 does not answer, the one that was there before.
    pub async fn find_or_recall(&self, selector: &PlacementGroupSelector) -> Option<PlacementGroup> {
        match self.find(selector).await {
            Ok(group) => group,
            Err(error) => {
                tracing::warn!(%error, "placement groups could not be read; the one known before still holds");
                query(selector).and_then(|query| self.last_known.get(&query))
            }
        }
    }
}
