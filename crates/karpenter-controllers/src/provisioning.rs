//! The provisioner: collects unschedulable pods into a batch, plans nodes for them, creates NodeClaims, and reserves
//! the planned capacity for the pods.
//!
//! Only one pass runs at a time. A pass reads only stores, plans on a separate thread, and checks every plan with the
//! validator. It writes only NodeClaims, events, pod nominations and the status of CapacityBuffers. Unlike upstream,
//! the provisioner also plans while a claim has no instance yet: the planner counts such a claim as the smallest node
//! that it may become, and the pods planned for it keep their reservations.
//!
//! Upstream: pkg/controllers/provisioning.

mod act;
mod batcher;
mod buffers;
mod decide;
pub(crate) mod faults;
mod fingerprint;
mod log_lines;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_model::problem::Options;
use karpenter_runtime::clock::{since, until};
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};
use karpenter_scheduling::validated::{DefaultPlanner, Planner};
use karpenter_state::pool::is_launching_pool;

use crate::buffers::{asks_for_same_pods, observe_referenced_objects};
use crate::claims::ClaimCreator;
use crate::compute::{self, Lane};
use crate::decision_journal::DecisionJournal;
use crate::inputs::{Reads, Writes};
use crate::nominations::Nominator;
use crate::planner_input::PlannerReader;
use crate::settings::nomination_ttl;
use crate::state::launch_backoff::SharedLaunchBackoff;
use crate::{nominations, planner_input, pods};

pub use batcher::Batcher;

/// If pods are still pending after a pass, they are planned again after this time.
pub const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The value of the label `controller` in upstream's metrics.
const METRIC_LABEL: &str = "provisioner";
#[derive(Debug, Clone)]
pub struct Settings {
    /// A batch closes when no pod or other trigger was added for this long.
    pub batch_idle: Duration,
    /// A batch closes at the latest this long after its first trigger.
    pub batch_max: Duration,
    pub planner: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_idle: Duration::from_secs(1),
            batch_max: Duration::from_secs(10),
            planner: Options::default(),
        }
    }
}

impl Settings {
    /// How long a reservation is kept after pods can be bound to its node.
    pub fn nomination_ttl(&self) -> Duration {
        nomination_ttl(self.batch_max)
    }
}

/// The parts of the operator that the provisioner uses.
pub struct Inputs {
    pub reads: Reads,
    pub writes: Writes,
    pub reader: PlannerReader,
    pub creator: ClaimCreator,
    pub nominator: Nominator,
    pub journal: DecisionJournal,
}

pub struct Provisioner {
    reads: Reads,
    writes: Writes,
    reader: PlannerReader,
    creator: ClaimCreator,
    nominator: Nominator,
    journal: DecisionJournal,
    settings: Settings,
    batcher: Arc<Mutex<Batcher>>,
    /// State of earlier passes that affects only which events and journal entries are published.
    report_state: Mutex<act::ReportState>,
    last_idle_pass: Mutex<fingerprint::LastIdlePass>,
    suspects: Mutex<faults::Suspects>,
    planner: Arc<dyn Planner + Send>,
}

impl Provisioner {
    pub fn new(inputs: Inputs, settings: Settings) -> Self {
        let Inputs { reads, writes, reader, creator, nominator, journal } = inputs;
        let batcher = Batcher::new(settings.batch_idle, settings.batch_max);
        Self {
            reads,
            writes,
            reader,
            creator,
            nominator,
            journal,
            settings,
            batcher: Arc::new(Mutex::new(batcher)),
            report_state: Mutex::default(),
            last_idle_pass: Mutex::default(),
            suspects: Mutex::default(),
            planner: Arc::new(DefaultPlanner),
        }
    }

    /// Replaces the planner, for tests.
    pub fn with_planner(mut self, planner: Arc<dyn Planner + Send>) -> Self {
        self.planner = planner;
        self
    }

    /// Observes the objects that trigger a batch: pods that become pending, nodes that get the disrupted taint, claims
    /// that are deleted, and NodePools that change or become ready.
    pub fn watch(&self, queue: &Queue) {
        let trigger = self.trigger(queue);
        let (state, stores) = (self.reads.state.clone(), self.reads.stores.clone());
        self.reads.stores.pods.observe(move |change| {
            let pod = change.object();
            if let Change::Applied { old: Some(old), new } = change
                && let Some(node) = pods::node_name(new)
                && !pods::is_bound(old)
            {
                state.record_binding(pods::uid_of(new), |claim| {
                    planner_input::is_node_of(&stores, claim, node)
                });
            }
            if !change.is_deleted()
                && pods::is_provisionable(pod)
                && state.reservation_of(pods::uid_of(pod)).is_none()
            {
                trigger(pods::uid_of(pod));
            }
        });
        self.reads.state.on_reservation_revoked(self.trigger(queue));
        let trigger = self.trigger(queue);
        self.reads.stores.nodes.observe(move |change| {
            let node = change.object();
            if !change.is_deleted() && is_disrupted(node) {
                trigger(node.metadata.uid.as_deref().unwrap_or_default());
            }
        });
        let trigger = self.trigger(queue);
        let (reads, launch_backoff) = (self.reads.clone(), self.creator.launch_backoff.clone());
        self.reads
            .stores
            .node_claims
            .observe(move |change| record_launch_result(&reads, &launch_backoff, change, &trigger));
        let trigger = self.trigger(queue);
        self.reads.stores.node_pools.observe(move |change| {
            if let Change::Applied { old, new } = change
                && old.as_ref().is_none_or(|old| is_relevant_change(old, new))
            {
                trigger(new.metadata.uid.as_deref().unwrap_or_default());
            }
        });
        self.watch_buffers(queue);
    }

    /// A CapacityBuffer that changed, or whose template changed, triggers a batch.
    fn watch_buffers(&self, queue: &Queue) {
        let Some(buffers) = &self.reads.stores.capacity_buffers else { return };
        let trigger = self.trigger(queue);
        buffers.observe(move |change| {
            let is_relevant = match change {
                Change::Applied { old: Some(old), new } => !asks_for_same_pods(old, new),
                _ => true,
            };
            if is_relevant {
                trigger(change.object().metadata.uid.as_deref().unwrap_or_default());
            }
        });
        let trigger = Arc::new(self.trigger(queue));
        observe_referenced_objects(&self.reads.stores, move |buffer| {
            trigger(buffer.metadata.uid.as_deref().unwrap_or_default());
        });
    }

    fn trigger(&self, queue: &Queue) -> impl Fn(&str) + Send + Sync + 'static {
        let (batcher, queue, clock) = (self.batcher.clone(), queue.clone(), self.reads.clock);
        move |element: &str| {
            let is_new = batcher.lock().unwrap_or_else(PoisonError::into_inner).trigger(element, clock.now());
            if is_new {
                queue.add(key());
            }
        }
    }

    fn last_idle_pass(&self) -> std::sync::MutexGuard<'_, fingerprint::LastIdlePass> {
        self.last_idle_pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspects(&self) -> std::sync::MutexGuard<'_, faults::Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batcher(&self) -> std::sync::MutexGuard<'_, Batcher> {
        self.batcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans and executes one batch.
    async fn run_batch(&self) -> kube::Result<Requeue> {
        self.creator.resolve_unconfirmed_creates().await?;
        let now = self.reads.clock.now();
        self.reads.state.expire(now);
        let pods = planner_input::classify_pods(&self.reader, self.settings.nomination_ttl(), now);
        self.writes.metrics.pods.acknowledge(pods.pending.iter().map(|pod| &**pod), now);
        nominations::clear(&self.nominator, &pods.expired_reservations).await;
        self.nominate_inherited(&pods).await;
        let after = self.next_pass(&pods);
        if pods.pending.is_empty() {
            act::set_scheduler_gauges(&self.writes.metrics, &[]);
            buffers::record(self, buffers::Outcome::default(), now).await;
            return Ok(after);
        }
        let revision = self.reads.stores.revision();
        let pools = planner_input::launching_pools(&self.reader).await;
        let input = planner_input::planning_input(&self.reader, pods, pools);
        let fingerprint = fingerprint::Fingerprint::of(&input, &self.reads.stores);
        let repeated = self.last_idle_pass().repeats(&fingerprint);
        if let Some(events) = repeated {
            act::publish(&self.writes.recorder, events).await;
            return Ok(after);
        }
        let mut options = self.settings.planner.clone();
        options.reserved_mode = karpenter_model::problem::ReservedMode::Strict;
        let started = self.reads.clock.now();
        self.writes.metrics.plans.begin(METRIC_LABEL, input.pending.len(), started);
        let configured = options.mode;
        options.mode = self.suspects().mode(configured, started);
        let mode = options.mode;
        let (suspects, planner) = (self.suspects().current(started), self.planner.clone());
        let names = log_lines::names(&input.pending);
        let work = move || decide::decide(&input, options, &suspects, &*planner);
        let decided = match compute::run(Lane::Provisioning, work).await {
            Ok(decided) => decided,
            // The planner panicked, and it is not known which pod is the cause, so the whole batch is retried.
            Err(fault) => decide::Decided {
                faults: faults::Faults::of_assembly(fault, mode),
                ..decide::Decided::default()
            },
        };
        decided.faults.report(&self.writes, self.reads.clock.now());
        self.suspects().remember(&decided.faults, self.reads.clock.now());
        let took = since(self.reads.clock.now(), started);
        self.writes
            .metrics
            .scheduling_duration
            .with_label_values(&[METRIC_LABEL])
            .observe(took.as_secs_f64());
        log_lines::log(&decided, &names, took);
        let (outcome, last_idle_pass) = act::act(self, decided, revision).await;
        self.last_idle_pass().remember(fingerprint, last_idle_pass);
        outcome.map(|requeue| after.earlier(requeue))
    }

    /// Nominates nodes for pods that inherited a reservation, if pods can be bound to the node already.
    async fn nominate_inherited(&self, pods: &planner_input::ClassifiedPods) {
        for claim in &pods.inherited_on {
            nominations::write_nominations(&self.nominator, claim).await;
        }
    }

    /// When to run the next pass if no watch event triggers a batch: after [`RETRY_AFTER`] while there are pending
    /// pods, reservations or terminating nodes, otherwise never.
    fn next_pass(&self, pods: &planner_input::ClassifiedPods) -> Requeue {
        let is_idle = pods.pending.is_empty()
            && pods.expected.is_empty()
            && !pods.is_any_node_terminating
            && !pods.is_preempting;
        if is_idle { Requeue::No } else { Requeue::After(RETRY_AFTER) }
    }
}

impl Reconcile for Provisioner {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        let now = self.reads.clock.now();
        let closes_at = self.batcher().closes_at();
        match closes_at {
            Some(at) if at > now => Ok(Requeue::After(until(now, at))),
            Some(_) => {
                self.batcher().close();
                self.run_batch().await
            }
            None => {
                // No batch is open, so this is a periodic pass: pods that are still pending start a batch.
                let pods = planner_input::classify_pods(&self.reader, self.settings.nomination_ttl(), now);
                nominations::clear(&self.nominator, &pods.expired_reservations).await;
                self.nominate_inherited(&pods).await;
                let mut batcher = self.batcher();
                for pod in &pods.pending {
                    batcher.trigger(pods::uid_of(pod), now);
                }
                match batcher.closes_at() {
                    Some(at) => Ok(Requeue::After(until(now, at))),
                    None => Ok(self.next_pass(&pods)),
                }
            }
        }
    }
}

/// The only key of this controller, because a pass plans all pending pods.
fn key() -> ObjectKey {
    ObjectKey::new("", "provisioning")
}

fn is_disrupted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == labels::TAINT_DISRUPTED)
}

/// Whether a change of a NodePool triggers a batch: its spec changed, or it can launch nodes now and could not before,
/// or the reverse.
fn is_relevant_change(old: &NodePool, new: &NodePool) -> bool {
    old.metadata.generation != new.metadata.generation || is_launching_pool(old) != is_launching_pool(new)
}

/// Updates the launch back-off from the change of a claim. If the claim was deleted, triggers a batch for the pods with
/// a reservation on it.
fn record_launch_result(
    reads: &Reads,
    launch_backoff: &SharedLaunchBackoff,
    change: &Change<NodeClaim>,
    trigger: &impl Fn(&str),
) {
    launch_backoff.note(change, reads.clock.now());
    let claim = change.object();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if change.is_deleted() || claim.metadata.deletion_timestamp.is_some() {
        for reservation in reads.state.reservations_on(name) {
            trigger(&reservation.uid);
        }
    }
}
