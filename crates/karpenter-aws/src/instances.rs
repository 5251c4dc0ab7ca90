//! Reads, tags and terminates the instances of the cluster. A cache holds the instances that were read.
//!
//! Instances are cached from the last list; a caller can request that an instance is read again. Requests to describe
//! and to terminate are batched. One unknown id fails a whole call, so requests that a batched call did not answer are
//! repeated one by one. During a zonal shift, no EC2 calls are made for instances of the shifted zone, because they
//! would add load to an impaired zone.
//!
//! Upstream: `pkg/providers/instance/instance.go`, `pkg/batcher`

mod provider_instance;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use karpenter_api::labels;
use karpenter_runtime::clock::Clock;

use crate::api::ec2::{Ec2Instance, InstanceQuery, InstanceState};
use crate::api::{AwsError, Ec2, TagFilter, Tags};
use crate::batcher::{Batcher, Windows};
use crate::cache::Cache;
use crate::launch::LaunchMetrics;
use crate::launch::templates::CLUSTER_TAG;
use crate::zonal_shift::ZonalShifts;
pub use provider_instance::{ProviderInstance, capacity_type};

const WINDOWS: Windows = Windows {
    idle: Duration::from_millis(100),
    longest: Duration::from_secs(1),
    items_max: 500,
    concurrent_calls_max: 100,
};

/// The maximum number of single calls at the same time, because each uses a connection.
const CONCURRENT_SINGLE_CALLS_MAX: usize = 50;

/// Whether the caller accepts an instance from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The cached instance.
    Cached,
    /// The caller needs the instance as read from EC2 now.
    Fresh,
}

/// The instances of one cluster. All clones share the cache.
#[derive(Clone)]
pub struct Instances {
    ec2: Arc<dyn Ec2>,
    clock: Clock,
    cluster_name: String,
    shifts: ZonalShifts,
    metrics: LaunchMetrics,
    known: Arc<Cache<String, Arc<Ec2Instance>>>,
    describe: Batcher<(), String, Option<Arc<Ec2Instance>>>,
    terminate: Batcher<(), String, ()>,
}

impl Instances {
    pub fn new(
        ec2: Arc<dyn Ec2>,
        clock: Clock,
        cluster_name: &str,
        shifts: ZonalShifts,
        metrics: LaunchMetrics,
    ) -> Self {
        let (asks, ends) = (Arc::clone(&ec2), Arc::clone(&ec2));
        let (describe_metrics, terminate_metrics) = (metrics.clone(), metrics.clone());
        let describe = Batcher::new(
            "describe_instances",
            clock,
            WINDOWS,
            move |(), ids: Vec<String>| {
                let ec2 = Arc::clone(&asks);
                Box::pin(async move { describe_batch(&*ec2, &ids).await })
            },
            move |batch| describe_metrics.record_batch(batch),
        );
        let terminate = Batcher::new(
            "terminate_instances",
            clock,
            WINDOWS,
            move |(), ids: Vec<String>| {
                let ec2 = Arc::clone(&ends);
                Box::pin(async move { terminate_batch(&*ec2, &ids).await })
            },
            move |batch| terminate_metrics.record_batch(batch),
        );
        let known = Arc::new(Cache::without_expiry(clock));
        Self {
            ec2,
            clock,
            cluster_name: cluster_name.to_owned(),
            shifts,
            metrics,
            known,
            describe,
            terminate,
        }
    }

    /// Returns an instance unless it is terminated; if there is no such instance, an error of kind `NotFound`.
    pub async fn get(&self, id: &str, freshness: Freshness) -> Result<Arc<Ec2Instance>, AwsError> {
        let key = id.to_owned();
        if let Some(known) = self.known.get(&key)
            && (freshness == Freshness::Cached || self.is_shifted(&known))
        {
            return Ok(known);
        }
        match self.describe.call((), key.clone()).await {
            Ok(Some(instance)) => {
                self.known.insert(key, Arc::clone(&instance));
                Ok(instance)
            }
            Ok(None) => {
                self.known.remove(&key);
                Err(not_found(id))
            }
            Err(error) => {
                if error.is_not_found() {
                    self.known.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// All instances of this cluster that are not terminated.
    pub async fn list(&self) -> Result<Vec<Arc<Ec2Instance>>, AwsError> {
        let query = InstanceQuery {
            ids: Vec::new(),
            tags: vec![
                TagFilter::exists(labels::NODEPOOL),
                TagFilter::exists(labels::AWS_NODE_CLASS),
                TagFilter::is(CLUSTER_TAG, &self.cluster_name),
            ],
            states: InstanceState::ALIVE.to_vec(),
        };
        let found = self.ec2.describe_instances(&query).await?;
        let found: Vec<Arc<Ec2Instance>> = found.into_iter().map(Arc::new).collect();
        let ids: BTreeSet<&str> = found.iter().map(|instance| instance.id.as_str()).collect();
        self.known.retain(|id, known| ids.contains(id.as_str()) || self.is_shifted(known));
        for instance in &found {
            self.known.insert(instance.id.clone(), Arc::clone(instance));
        }
        Ok(found)
    }

    /// Terminates an instance. The result is `Ok` until the instance is terminated, and then an error of kind
    /// `NotFound`.
    pub async fn terminate(&self, id: &str) -> Result<(), AwsError> {
        let instance = self.get(id, Freshness::Fresh).await?;
        if self.is_shifted(&instance) {
            return Err(shifted(&instance, "termination"));
        }
        // The instance is already terminating, so no further call is needed.
        if instance.state == InstanceState::ShuttingDown {
            return Ok(());
        }
        let answer = self.terminate.call((), id.to_owned()).await;
        if answer.is_err() {
            let zone_id = instance.zone_id.as_deref().unwrap_or_default();
            self.metrics.termination_failures.with_label_values(&[instance.zone.as_str(), zone_id]).inc();
        }
        answer
    }

    pub async fn create_tags(&self, id: &str, tags: &Tags) -> Result<(), AwsError> {
        if let Some(known) = self.known.get(&id.to_owned())
            && self.is_shifted(&known)
        {
            return Err(shifted(&known, "tag creation"));
        }
        self.ec2.create_tags(&[id.to_owned()], tags).await
    }

    fn is_shifted(&self, instance: &Ec2Instance) -> bool {
        let zone_id = instance.zone_id.as_deref().filter(|zone_id| !zone_id.is_empty());
        zone_id.is_some_and(|zone_id| self.shifts.is_shifted(zone_id, self.clock.now()))
    }
}

fn not_found(id: &str) -> AwsError {
    AwsError::new("InvalidInstanceID.NotFound", format!("instance {id} not found"))
}

fn shifted(instance: &Ec2Instance, what: &str) -> AwsError {
    let zone_id = instance.zone_id.as_deref().unwrap_or_default();
    let message = format!(
        "instance {} is in zonally shifted availability zone {} ({zone_id}), skipping {what}",
        instance.id, instance.zone
    );
    AwsError::unreachable(message)
}

type Found = Result<Option<Arc<Ec2Instance>>, AwsError>;

/// Returns one result per id, in the order of the ids. The query includes terminated instances, which EC2 returns for
/// about an hour. So one call distinguishes them from unknown ids, and many terminating instances do not cause a call
/// each.
async fn describe_batch(ec2: &dyn Ec2, ids: &[String]) -> Vec<Found> {
    let unique: BTreeSet<&String> = ids.iter().collect();
    let mut answers: BTreeMap<String, Found> = BTreeMap::new();
    let all: Vec<String> = unique.iter().map(ToString::to_string).collect();
    let is_single = all.len() == 1;
    let answer = ec2.describe_instances(&of_any_state(all)).await;
    match answer {
        Ok(found) => {
            answers.extend(
                found.into_iter().map(|instance| (instance.id.clone(), Ok(unless_terminated(instance)))),
            );
        }
        Err(error) if is_single => return vec![Err(error); ids.len()],
        // After a throttled call, single calls would cause more throttling; after a missing permission, they would fail
        // as well.
        Err(error) if error.is_throttled() || error.is_unauthorized() => return vec![Err(error); ids.len()],
        Err(_) => {}
    }
    let missing = unique.into_iter().filter(|id| !answers.contains_key(*id) && !is_single).cloned();
    let missing: Vec<String> = missing.collect();
    let singly = one_by_one(&missing, |id| async move {
        let found = ec2.describe_instances(&of_any_state(vec![id])).await;
        found.map(|found| found.into_iter().next().and_then(unless_terminated))
    });
    answers.extend(missing.iter().cloned().zip(singly.await));
    ids.iter().map(|id| answers.get(id).cloned().unwrap_or(Ok(None))).collect()
}

/// Makes one call per id; returns the results in the order of the ids.
async fn one_by_one<T, F: Future<Output = T>>(ids: &[String], ask: impl Fn(String) -> F) -> Vec<T> {
    stream::iter(ids.iter().cloned().map(ask)).buffered(CONCURRENT_SINGLE_CALLS_MAX).collect().await
}

/// A query for instances in any state. All states are listed, because EC2 throttles calls without a filter sooner.
fn of_any_state(ids: Vec<String>) -> InstanceQuery {
    InstanceQuery { ids, tags: Vec::new(), states: InstanceState::ALL.to_vec() }
}

fn unless_terminated(instance: Ec2Instance) -> Option<Arc<Ec2Instance>> {
    (instance.state != InstanceState::Terminated).then(|| Arc::new(instance))
}

/// Returns one result per id, in the order of the ids.
async fn terminate_batch(ec2: &dyn Ec2, ids: &[String]) -> Vec<Result<(), AwsError>> {
    let unique: BTreeSet<&String> = ids.iter().collect();
    let all: Vec<String> = unique.iter().map(ToString::to_string).collect();
    let mut answers: BTreeMap<String, Result<(), AwsError>> = BTreeMap::new();
    match ec2.terminate_instances(&all).await {
        Ok(changes) => {
            let ending = changes.into_iter().filter(|change| change.current.is_terminating());
            answers.extend(ending.map(|change| (change.id, Ok(()))));
        }
        Err(error) if all.len() == 1 || error.is_throttled() || error.is_unauthorized() => {
            return vec![Err(error); ids.len()];
        }
        Err(_) => {}
    }
    let open = all.iter().filter(|id| !answers.contains_key(*id)).cloned();
    let open: Vec<String> = open.collect();
    let singly = one_by_one(&open, |id| async move {
        let changes = ec2.terminate_instances(std::slice::from_ref(&id)).await?;
        if changes.iter().any(|change| change.id == id && change.current.is_terminating()) {
            return Ok(());
        }
        Err(AwsError::unreachable(format!("EC2 did not begin to terminate instance {id}")))
    });
    answers.extend(open.iter().cloned().zip(singly.await));
    let lost =
        |id: &String| Err(AwsError::unreachable(format!("the response does not contain instance {id}")));
    ids.iter().map(|id| answers.get(id).cloned().unwrap_or_else(|| lost(id))).collect()
}
