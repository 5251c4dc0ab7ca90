//! The operator starts and stops all controllers of a process.
//!
//! [`Operator::watch`] starts the watches, and [`Operator::start`] starts the controllers; leader election, if enabled,
//! takes place between the two. [`Operator::stop`] stops watches and controllers after the passes in progress. Nothing
//! here decides about pods, NodeClaims or nodes. Upstream: pkg/operator/operator.go, pkg/controllers/controllers.go.

pub mod context;
pub mod election;
pub mod http;
mod instrument;
pub mod legacy_api;
mod lifecycle_report;
pub mod options;
mod pages;
pub mod throttle;

use std::sync::{Arc, Mutex, PoisonError};

use karpenter_cloud::CloudProvider;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::name_of;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{self, Reconcile, Shutdown};
use kube::Client;
use tokio::task::JoinHandle;

pub use options::Options;

use self::context::Context;
use self::instrument::Instrumented;
use crate::capacity_buffer::CapacityBuffers;
use crate::claims::hooks::Hooks;
use crate::disruption::Disruption;
use crate::evictions::EvictionQueue;
use crate::logs::PassIds;
use crate::metrics::Metrics;
use crate::metrics::cloud::MeasuredCloud;
use crate::metrics_export::cost::PoolCosts;
use crate::node::{Evictions, LegacyRepair, NodeHydration, NodeTermination};
use crate::node_health::{RepairUnavailable, check_policies};
use crate::node_overlay::NodeOverlays;
use crate::nodeclaim::consistency::ConsistencyController;
use crate::nodeclaim::disruption::DisruptionConditions;
use crate::nodeclaim::expiration::ExpirationController;
use crate::nodeclaim::garbage_collection::GarbageCollection;
use crate::nodeclaim::hydration::HydrationController;
use crate::nodeclaim::lifecycle::Lifecycle;
use crate::nodeclaim::pod_events::PodEventsController;
use crate::nodeclaim::reboot::RebootController;
use crate::nodepool::{NodePoolConditions, NodePoolCounter, NodePoolHash};
use crate::nomination::{NominationController, RegistrationGate};
use crate::offerings::{Offerings, OverlayStore};
use crate::pod_deletion_cost::{CostQueue, CostWriter, PodDeletionCosts};
use crate::provisioning::{self, Provisioner};
use crate::registration_health::RegistrationHealth;
use crate::static_capacity::{StaticDeprovisioning, StaticProvisioning};
use crate::status_events::TransitionEvents;
use crate::stores::{OptionalKinds, Stores};

/// The maximum number of concurrent reconciles of a controller that publishes status events; there is one for each
/// kind.
const STATUS_EVENT_WORKERS: usize = 10;

/// All controllers of a process.
pub struct Operator {
    context: Context,
    options: Options,
    offerings: Arc<Offerings>,
    health: RegistrationHealth,
    shutdown: Shutdown,
    queues: Arc<Mutex<Vec<(&'static str, Queue)>>>,
    pass_ids: PassIds,
    workers: Vec<JoinHandle<()>>,
    watches: Vec<JoinHandle<()>>,
}

impl Operator {
    /// Checks that the provider supports the options. Call it before anything starts.
    pub fn check(cloud: &dyn CloudProvider, options: &Options) -> Result<(), RepairUnavailable> {
        match options.feature_gates.node_repair && !options.legacy_node_repair {
            true => check_policies(cloud),
            false => Ok(()),
        }
    }

    /// Starts the watches that fill the stores. No object is written before [`Self::start`].
    pub fn watch(client: Client, cloud: Arc<dyn CloudProvider>, clock: Clock, options: Options) -> Self {
        let metrics = Metrics::of(&*cloud);
        let measured: Arc<dyn CloudProvider> = Arc::new(MeasuredCloud::new(cloud, metrics.clone()));
        let gates = options.feature_gates;
        let overlays = OverlayStore::default();
        let offerings = Arc::new(Offerings::new(measured, gates, overlays.clone()));
        let extras = OptionalKinds {
            node_overlays: gates.node_overlay,
            capacity_buffers: gates.capacity_buffer,
            default_spreads: !options.scheduler_config.is_empty(),
        };
        let (stores, watches) = Stores::watch_with(&client, offerings.node_class_kinds(), extras);
        let context = Context {
            nominates_pods: !options.disable_pod_nomination,
            metrics: metrics.clone(),
            gates,
            overlays,
            settings: Arc::new(options.settings()),
            ..Context::new(client, stores, offerings.clone(), clock)
        };
        Self {
            context,
            options,
            offerings,
            health: RegistrationHealth::default(),
            shutdown: Shutdown::default(),
            queues: Arc::default(),
            pass_ids: PassIds::new(clock.now()),
            workers: Vec::new(),
            watches,
        }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Starts all controllers once the stores are synced.
    pub async fn start(&mut self) {
        self.context.stores.synced().await;
        let in_detail = !self.options.disable_cluster_state_observability;
        self.context.metrics.follow(&self.context.stores, self.context.clock, in_detail);
        if in_detail {
            self.start_transitions();
        }
        let hooks = self.hooks();
        self.start_pools();
        self.start_claims(hooks);
        self.start_nodes();
        self.start_provisioning();
        self.start_static_capacity();
        self.start_deletion_costs();
        self.start_disruption();
    }

    /// Stops all controllers after their passes in progress have ended, and then the watches.
    pub async fn stop(self) {
        self.shutdown.request();
        for worker in self.workers {
            // Joining fails if the worker panicked. It has ended in that case too, so the error is ignored.
            let _ = worker.await;
        }
        for watch in &self.watches {
            watch.abort();
        }
        for watch in self.watches {
            let _ = watch.await;
        }
    }

    fn hooks(&self) -> Hooks {
        let state = self.context.state.clone();
        let gate = RegistrationGate::new(self.context.nominator(), self.context.settings.planner.mode);
        let (opening_gate, connected_gate) = (gate.clone(), gate.clone());
        Hooks {
            hold_registration: Arc::new(move |claim, node| gate.hold(claim, node)),
            set_queue: Arc::new(move |claims| connected_gate.connect(claims)),
            before_schedulable: Arc::new(move |claim, _| {
                let gate = opening_gate.clone();
                Box::pin(async move { gate.open(name_of(&*claim)).await })
            }),
            planned_pods: Arc::new(move |claim| {
                state.reservations_on(name_of(claim)).into_iter().map(|reservation| reservation.pod).collect()
            }),
            on_outcome: lifecycle_report::reporter(
                self.context.metrics.clone(),
                self.context.stores.clone(),
                self.context.clock,
            ),
        }
    }

    fn start_transitions(&mut self) {
        let Context { recorder, stores, .. } = self.context.clone();
        let claims = TransitionEvents::new(recorder.clone(), stores.node_claims);
        self.spawn("operatorpkg.nodeclaim.status", claims, TransitionEvents::watch, STATUS_EVENT_WORKERS);
        let pools = TransitionEvents::new(recorder.clone(), stores.node_pools);
        self.spawn("operatorpkg.nodepool.status", pools, TransitionEvents::watch, STATUS_EVENT_WORKERS);
        let nodes = TransitionEvents::new(recorder.clone(), stores.nodes);
        self.spawn("operatorpkg.node.status", nodes, TransitionEvents::watch, STATUS_EVENT_WORKERS);
        if let Some(buffers) = stores.capacity_buffers {
            let buffers = TransitionEvents::new(recorder, buffers);
            self.spawn(
                "operatorpkg.capacitybuffer.status",
                buffers,
                TransitionEvents::watch,
                STATUS_EVENT_WORKERS,
            );
        }
    }

    fn start_pools(&mut self) {
        let context = self.context.clone();
        let workers = self.options.workers(10, 1000);
        let conditions = NodePoolConditions {
            reads: context.reads(),
            writes: context.writes(),
            health: self.health.clone(),
        };
        self.spawn("nodepool.readiness", conditions, NodePoolConditions::watch, workers);
        let counter = NodePoolCounter { reads: context.reads(), writes: context.writes() };
        self.spawn("nodepool.counter", counter, NodePoolCounter::watch, 1);
        self.spawn(
            "nodepool.hash",
            NodePoolHash { reads: context.reads(), writes: context.writes() },
            NodePoolHash::watch,
            workers,
        );
        if !self.options.disable_cluster_state_observability {
            self.spawn(
                "metrics.nodepool",
                PoolCosts { reads: context.reads(), writes: context.writes(), cloud: context.cloud.clone() },
                PoolCosts::watch,
                1,
            );
        }
    }

    fn start_claims(&mut self, hooks: Hooks) {
        let context = self.context.clone();
        let many = self.options.workers(1000, 5000);
        let some = self.options.workers(10, 1000);
        let lifecycle = Lifecycle::new(
            context.reads(),
            context.writes(),
            context.cloud.clone(),
            hooks.clone(),
            self.health.clone(),
        );
        self.spawn("nodeclaim.lifecycle", lifecycle, Lifecycle::watch, many);
        let conditions = DisruptionConditions::new(context.reads(), context.writes(), context.cloud.clone());
        self.spawn("nodeclaim.disruption", conditions, DisruptionConditions::watch, some);
        let expiration =
            ExpirationController { reads: context.reads(), writes: context.writes(), hooks: hooks.clone() };
        self.spawn("nodeclaim.expiration", expiration, ExpirationController::watch, 1);
        let garbage = GarbageCollection::new(context.reads(), context.writes(), context.cloud.clone(), hooks);
        self.spawn("nodeclaim.garbagecollection", garbage, GarbageCollection::watch, 1);
        let consistency = ConsistencyController::new(context.reads(), context.writes());
        self.spawn("nodeclaim.consistency", consistency, ConsistencyController::watch, some);
        let pod_events = PodEventsController::new(context.reads(), context.writes());
        self.spawn("nodeclaim.podevents", pod_events, PodEventsController::watch, 1);
        self.spawn(
            "nodeclaim.hydration",
            HydrationController { reads: context.reads(), writes: context.writes() },
            HydrationController::watch,
            many,
        );
    }

    fn start_nodes(&mut self) {
        let context = self.context.clone();
        let workers = self.options.workers(100, 5000);
        let queue = EvictionQueue::default();
        let evictions = Evictions { reads: context.reads(), writes: context.writes(), queue: queue.clone() };
        self.spawn("eviction-queue", evictions, Evictions::watch, workers);
        let termination = NodeTermination {
            reads: context.reads(),
            writes: context.writes(),
            cloud: context.cloud.clone(),
            evictions: queue.clone(),
        };
        self.spawn("node.termination", termination, NodeTermination::watch, workers);
        // This controller runs even if node repair is disabled, so that a reboot in progress is finished.
        let reboots = RebootController::new(context.reads(), context.writes(), context.cloud.clone(), queue);
        self.spawn("nodeclaim.reboot", reboots, RebootController::watch, 10);
        if context.gates.node_repair && context.settings.is_node_repair_legacy {
            let legacy = LegacyRepair::new(context.reads(), context.writes(), &*context.cloud);
            self.spawn("node.health", legacy, LegacyRepair::watch, self.options.workers(10, 1000));
        }
        let many = self.options.workers(1000, 5000);
        self.spawn(
            "node.hydration",
            NodeHydration { reads: context.reads(), writes: context.writes() },
            NodeHydration::watch,
            many,
        );
    }

    fn start_deletion_costs(&mut self) {
        let context = self.context.clone();
        if !context.gates.pod_deletion_cost_management {
            return;
        }
        let queue = CostQueue::default();
        let writer = CostWriter {
            stores: context.stores.clone(),
            client: context.client.clone(),
            metrics: context.metrics.clone(),
            queue: queue.clone(),
        };
        self.spawn("pod.deletioncost.queue", writer, CostWriter::watch, self.options.workers(100, 5000));
        let costs = PodDeletionCosts::new(context.planner_reader(), context.writes(), queue);
        self.spawn("pod.deletioncost", costs, PodDeletionCosts::watch, 1);
    }

    /// Starts the evaluation loop and the command loop of disruption as two controllers, each with its own queue and
    /// name.
    fn start_disruption(&mut self) {
        let disruption = Arc::new(Disruption::new(self.context.disruption_inputs()));
        let (evaluations, commands) = (self.queue("disruption"), self.queue("disruption.queue"));
        disruption.watch_apart(&evaluations, &commands);
        self.run("disruption", disruption.clone(), evaluations, 1);
        self.run("disruption.queue", disruption, commands, 1);
    }

    fn start_static_capacity(&mut self) {
        let context = self.context.clone();
        if !context.gates.static_capacity {
            return;
        }
        let provisioning_controller = StaticProvisioning {
            reads: context.reads(),
            claims: context.claim_creator(),
            node_limit_grants: context.node_limit_grants.clone(),
        };
        self.spawn("static.provisioning", provisioning_controller, StaticProvisioning::watch, 10);
        let deprovisioning_controller = StaticDeprovisioning {
            reads: context.reads(),
            client: context.client.clone(),
            deletion_costs: context.gates.deletion_costs(),
        };
        self.spawn("static.deprovisioning", deprovisioning_controller, StaticDeprovisioning::watch, 10);
    }

    fn start_provisioning(&mut self) {
        let context = self.context.clone();
        if context.gates.node_overlay {
            let overlays = NodeOverlays {
                reads: context.reads(),
                writes: context.writes(),
                overlays: context.overlays.clone(),
                offerings: self.offerings.clone(),
            };
            self.spawn("nodeoverlay.controller", overlays, NodeOverlays::watch, 1);
        }
        if context.gates.capacity_buffer {
            self.spawn(
                "capacitybuffer",
                CapacityBuffers { reads: context.reads(), writes: context.writes() },
                CapacityBuffers::watch,
                10,
            );
        }
        let settings = provisioning::Settings {
            batch_idle: self.options.batch_idle_duration,
            batch_max: self.options.batch_max_duration,
            planner: self.options.planner(),
        };
        let provisioner = Provisioner::new(self.context.provisioning_inputs(), settings);
        self.spawn("provisioner", provisioner, Provisioner::watch, 1);
        let renomination = NominationController::new(self.context.nominator());
        self.spawn(
            "pod.nomination",
            renomination,
            NominationController::watch,
            self.options.workers(10, 100),
        );
    }

    /// The shutdown signal of this process. Passes that wait for long end when it is set.
    pub fn shutdown_signal(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Starts a controller of the provider, instrumented like all others. Call it after [`Operator::start`].
    pub fn spawn<R: Reconcile>(
        &mut self,
        name: &'static str,
        work: R,
        watch: fn(&R, &Queue),
        workers: usize,
    ) {
        let queue = self.queue(name);
        watch(&work, &queue);
        self.run(name, work, queue, workers);
    }

    fn queue(&self, name: &str) -> Queue {
        Queue::measured(self.context.metrics.runtime.queue(name))
    }

    fn run<R: Reconcile>(&mut self, name: &'static str, work: R, queue: Queue, workers: usize) {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push((name, queue.clone()));
        let ids = self.pass_ids.clone();
        let work = Arc::new(Instrumented::new(name, work, &self.context.metrics, ids, workers));
        let running = worker::run(work, queue, workers, self.context.clock, self.shutdown.clone());
        self.workers.push(tokio::spawn(running));
    }
}
