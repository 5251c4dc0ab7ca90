//! A cloud in process: the traits of [`crate::api`] answered from memory, for tests and demonstrations.
//!
//! It knows nothing of Karpenter. Its types, zones and prices are those of the embedded catalog; ids are counted, time
//! is the injected clock's, and nothing is random, so equal calls in equal order give equal answers. What EC2 does
//! later it does by the clock: machines are seen a while after their launch, run a while after that, and are gone a
//! while after their end was asked for. Everything in the [`World`] may be changed between calls, and any call may be
//! made to fail.

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
use karpenter_cluster::clock::Clock;
use tokio::sync::Notify;

use crate::api::{AwsApis, AwsError, AwsFuture};
pub use instances::FakeInstance;
pub use world::{Pool, QueuedMessage, StoredTemplate, World};

/// Every call that can be made, by AWS's name for it.
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

/// The cloud.
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
    under_way_max: usize,
}

impl FakeAws {
    /// A region with a subnet per zone, a security group, images and a cluster; see [`World::new`].
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
            under_way_max: 0,
        };
        Arc::new(Self { clock, state: Mutex::new(state), message_came: Notify::new() })
    }

    /// The cloud as callers know it.
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

    /// Looks at the world, or changes it.
    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.lock().world)
    }

    /// The next of these calls fail, one error each, in this order.
    pub fn fail_next(&self, call: Call, errors: impl IntoIterator<Item = AwsError>) {
        self.lock().faults.entry(call).or_default().extend(errors);
    }

    /// Every such call fails from now on, until it is given `None`.
    pub fn fail_always(&self, call: Call, error: Option<AwsError>) {
        let mut state = self.lock();
        match error {
            Some(error) => state.always.insert(call, error),
            None => state.always.remove(&call),
        };
    }

    /// How long every call takes.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// All calls so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// How often a call was made since the last [`FakeAws::forget_calls`].
    pub fn count(&self, call: Call) -> usize {
        self.lock().calls.iter().filter(|made| **made == call).count()
    }

    /// The most calls that were under way at the same time since the last [`FakeAws::forget_calls`]; on a wire each of
    /// them would have a connection of its own.
    pub fn under_way_max(&self) -> usize {
        self.lock().under_way_max
    }

    pub fn forget_calls(&self) {
        let mut state = self.lock();
        state.calls.clear();
        state.under_way_max = state.under_way;
    }

    /// Puts a message into a queue, which need not exist yet.
    pub fn send_message(&self, queue_name: &str, body: impl Into<String>) {
        let now = self.clock.now();
        self.lock().world.send_message(queue_name, body.into(), now);
        self.message_came.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call: it is written down, it takes its time, it fails if told to, and then it acts on the world.
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
                state.under_way_max = state.under_way_max.max(state.under_way);
                state.latency
            };
            let _under_way = UnderWay(self);
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

/// A call that has not been answered; one that is given up ends too.
struct UnderWay<'a>(&'a FakeAws);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}
