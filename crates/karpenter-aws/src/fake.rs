//! A fake of AWS in memory. It implements the traits of [`crate::api`] for tests and demonstrations.
//!
//! The fake contains no logic of Karpenter. Instance types, zones and prices come from the embedded catalog. Ids are
//! numbered, time comes from the injected clock, and nothing is random, so the same calls in the same order give the
//! same results. An instance becomes visible some time after its launch and is running later; some time after a request
//! to terminate it, it is terminated. Between calls a test can change everything in the [`World`], and it can make any
//! call fail.

mod ec2;
mod fleets;
mod instances;
mod services;
#[cfg(test)]
mod tests;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::Clock;
use tokio::sync::Notify;

use crate::api::{AwsApis, AwsError, AwsFuture};
pub use instances::FakeInstance;
pub use world::{Pool, QueuedMessage, StoredTemplate, World};

/// The calls that the fake supports, by AWS's names of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    CheckAccess,
    DescribeInstanceTypes,
    DescribeInstanceTypeOfferings,
    DescribeSpotPriceHistory,
    DescribeSubnets,
    DescribeSecurityGroups,
    DescribeImages,
    DescribeCapacityReservations,
    DescribePlacementGroups,
    DescribeLaunchTemplates,
    CreateLaunchTemplate,
    DeleteLaunchTemplate,
    CreateFleet,
    RunInstances,
    DescribeInstances,
    TerminateInstances,
    CreateTags,
    DescribeInstanceStatus,
    GetInstanceProfile,
    CreateInstanceProfile,
    DeleteInstanceProfile,
    AddRoleToInstanceProfile,
    RemoveRoleFromInstanceProfile,
    ListInstanceProfiles,
    DescribeCluster,
    GetParameter,
    GetProducts,
    GetQueueUrl,
    ReceiveMessage,
    DeleteMessage,
    GetManagedResource,
}

/// The fake of AWS.
pub struct FakeAws {
    clock: Clock,
    state: Mutex<State>,
    message_came: Notify,
}

struct State {
    world: World,
    calls: Vec<Call>,
    faults: BTreeMap<Call, VecDeque<AwsError>>,
    always: BTreeMap<Call, AwsError>,
    latency: Duration,
    under_way: usize,
    concurrent_calls_max: usize,
}

impl FakeAws {
    /// A fake region with a subnet in each zone, a security group, AMIs and a cluster; see [`World::new`].
    pub fn new(clock: Clock, region: &str) -> Arc<Self> {
        Self::with_world(clock, World::new(region))
    }

    pub fn with_world(clock: Clock, world: World) -> Arc<Self> {
        let state = State {
            world,
            calls: Vec::new(),
            faults: BTreeMap::new(),
            always: BTreeMap::new(),
            latency: Duration::ZERO,
            under_way: 0,
            concurrent_calls_max: 0,
        };
        Arc::new(Self { clock, state: Mutex::new(state), message_came: Notify::new() })
    }

    /// Clients for all services; their calls go to this fake.
    pub fn apis(self: &Arc<Self>) -> AwsApis {
        AwsApis {
            ec2: Arc::clone(self) as _,
            iam: Arc::clone(self) as _,
            ssm: Arc::clone(self) as _,
            sqs: Arc::clone(self) as _,
            pricing: Arc::clone(self) as _,
            eks: Arc::clone(self) as _,
            zonal_shift: Arc::clone(self) as _,
        }
    }

    /// Gives access to the state of the fake, to read or change it.
    pub fn world<T>(&self, access: impl FnOnce(&mut World) -> T) -> T {
        access(&mut self.lock().world)
    }

    /// Makes the next calls of this kind fail: the first with the first error, the second with the second, and so on.
    pub fn fail_next(&self, call: Call, errors: impl IntoIterator<Item = AwsError>) {
        self.lock().faults.entry(call).or_default().extend(errors);
    }

    /// Makes all calls of this kind fail with `error`; with `None`, they succeed again.
    pub fn fail_always(&self, call: Call, error: Option<AwsError>) {
        let mut state = self.lock();
        match error {
            Some(error) => state.always.insert(call, error),
            None => state.always.remove(&call),
        };
    }

    /// Sets how long every call takes.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// All calls so far, in the order in which they were made.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// The number of calls of this kind since the last [`FakeAws::forget_calls`].
    pub fn count(&self, call: Call) -> usize {
        self.lock().calls.iter().filter(|made| **made == call).count()
    }

    /// The maximum number of calls that ran at the same time since the last [`FakeAws::forget_calls`]. A real client
    /// would use one connection for each.
    pub fn concurrent_calls_max(&self) -> usize {
        self.lock().concurrent_calls_max
    }

    pub fn forget_calls(&self) {
        let mut state = self.lock();
        state.calls.clear();
        state.concurrent_calls_max = state.under_way;
    }

    /// Sends a message to a queue; if the queue does not exist, creates it.
    pub fn send_message(&self, queue_name: &str, body: impl Into<String>) {
        let now = self.clock.now();
        self.lock().world.send_message(queue_name, body.into(), now);
        self.message_came.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call: records the call, waits for the configured latency, and returns the configured error if there is
    /// one; otherwise applies `act` to the state.
    fn call<'a, T: Send + 'a>(
        &'a self,
        call: Call,
        act: impl FnOnce(&mut World, Timestamp) -> Result<T, AwsError> + Send + 'a,
    ) -> AwsFuture<'a, T> {
        Box::pin(async move {
            let latency = {
                let mut state = self.lock();
                state.calls.push(call);
                state.under_way += 1;
                state.concurrent_calls_max = state.concurrent_calls_max.max(state.under_way);
                state.latency
            };
            let _under_way = InFlight(self);
            if !latency.is_zero() {
                self.clock.sleep(latency).await;
            }
            let now = self.clock.now();
            let mut state = self.lock();
            if let Some(error) = state.faults.get_mut(&call).and_then(VecDeque::pop_front) {
                return Err(error);
            }
            if let Some(error) = state.always.get(&call) {
                return Err(error.clone());
            }
            state.world.settle(now);
            act(&mut state.world, now)
        })
    }
}

/// Counts a call as running until it is finished or cancelled.
struct InFlight<'a>(&'a FakeAws);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}
