//! Pods that wait become NodeClaims: gather a batch, plan it, create what the plan asks for, remember the plan.
//!
//! One round at a time. A round reads mirrors only, plans off the event loop, has every plan judged by the
//! validator, and writes nothing but claims and events. Unlike upstream it does not stand still while a claim waits
//! for its launch: such a claim counts as the smallest node it may become, and the pods planned for it keep their
//! places. Upstream: pkg/controllers/provisioning.

mod act;
mod back_off;
mod batcher;
mod buffers;
mod decide;
pub(crate) mod faults;
mod logged;
mod observe;
mod unchanged;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_cluster::clock::{since, until};
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, ObjectKey};
use karpenter_model::problem::Options;
use karpenter_scheduling::validated::{Engine, Solver};

use crate::capacity_buffer::{for_buffers_of, is_same_wish};
use crate::contained::{self, Lane};
use crate::context::Context;
use crate::{claims, nomination, pods};

pub use back_off::{BackOff, SharedBackOff};
pub use batcher::Batcher;
pub use observe::is_launching_pool;
pub(crate) use observe::{gather, revision, survey};

/// How long a pod that still waits is left alone before it is planned again.
pub const RETRY_AFTER: Duration = Duration::from_secs(10);
/// What upstream's metrics call this controller.
const METRIC_LABEL: &str = "provisioner";
/// Nominations of nodes last at least this long.
const NOMINATION_LEAST: Duration = Duration::from_secs(10);

/// The knobs of provisioning.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A batch ends when this long nothing new came.
    pub batch_idle: Duration,
    /// A batch ends after this long, whatever comes.
    pub batch_max: Duration,
    pub engine: Options,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_idle: Duration::from_secs(1),
            batch_max: Duration::from_secs(10),
            engine: Options::default(),
        }
    }
}

impl Settings {
    /// How long pods are expected on a node they were planned for, once it can take them.
    pub fn nomination(&self) -> Duration {
        nomination_time(self.batch_max)
    }
}

/// How long pods are expected on an open node before they are given up.
pub(crate) fn nomination_time(batch_max: Duration) -> Duration {
    batch_max.saturating_mul(2).max(NOMINATION_LEAST)
}

pub struct Provisioner {
    context: Context,
    settings: Settings,
    batcher: Arc<Mutex<Batcher>>,
    /// What is remembered from round to round for telling only.
    telling: Mutex<act::Telling>,
    settled: Mutex<unchanged::Settled>,
    suspects: Mutex<faults::Suspects>,
    engine: Arc<dyn Engine + Send>,
}

impl Provisioner {
    pub fn new(context: Context, settings: Settings) -> Self {
        let batcher = Batcher::new(settings.batch_idle, settings.batch_max);
        Self {
            context,
            settings,
            batcher: Arc::new(Mutex::new(batcher)),
            telling: Mutex::default(),
            settled: Mutex::default(),
            suspects: Mutex::default(),
            engine: Arc::new(Solver),
        }
    }

    /// With another engine than the real one.
    pub fn with_engine(mut self, engine: Arc<dyn Engine + Send>) -> Self {
        self.engine = engine;
        self
    }

    /// A pod that waits, a node that drains, a claim that failed and a pool that became ready start a batch.
    pub fn watch(&self, queue: &Queue) {
        let trigger = self.trigger(queue);
        let (state, mirrors) = (self.context.state.clone(), self.context.mirrors.clone());
        self.context.mirrors.pods.observe(move |change| {
            let pod = change.object();
            if let Change::Applied { old: Some(old), new } = change
                && let Some(node) = pods::node_name(new)
                && !pods::is_bound(old)
            {
                state.bound(pods::uid_of(new), |claim| observe::is_node_of(&mirrors, claim, node));
            }
            if !change.is_deleted() && pods::is_waiting(pod) && state.place_of(pods::uid_of(pod)).is_none() {
                trigger(pods::uid_of(pod));
            }
        });
        self.context.state.on_lost_place(self.trigger(queue));
        let trigger = self.trigger(queue);
        self.context.mirrors.nodes.observe(move |change| {
            let node = change.object();
            if !change.is_deleted() && is_disrupted(node) {
                trigger(node.metadata.uid.as_deref().unwrap_or_default());
            }
        });
        let trigger = self.trigger(queue);
        let context = self.context.clone();
        self.context.mirrors.node_claims.observe(move |change| note_claim(&context, change, &trigger));
        let trigger = self.trigger(queue);
        self.context.mirrors.node_pools.observe(move |change| {
            if let Change::Applied { old, new } = change
                && old.as_ref().is_none_or(|old| is_news(old, new))
            {
                trigger(new.metadata.uid.as_deref().unwrap_or_default());
            }
        });
        self.watch_buffers(queue);
    }

    /// A buffer that changed, or whose template did, starts a batch.
    fn watch_buffers(&self, queue: &Queue) {
        let Some(buffers) = &self.context.mirrors.capacity_buffers else { return };
        let trigger = self.trigger(queue);
        buffers.observe(move |change| {
            let is_news = match change {
                Change::Applied { old: Some(old), new } => !is_same_wish(old, new),
                _ => true,
            };
            if is_news {
                trigger(change.object().metadata.uid.as_deref().unwrap_or_default());
            }
        });
        let trigger = Arc::new(self.trigger(queue));
        for_buffers_of(&self.context.mirrors, move |buffer| {
            trigger(buffer.metadata.uid.as_deref().unwrap_or_default());
        });
    }

    fn trigger(&self, queue: &Queue) -> impl Fn(&str) + Send + Sync + 'static {
        let (batcher, queue, clock) = (self.batcher.clone(), queue.clone(), self.context.clock);
        move |element: &str| {
            let is_new = batcher.lock().unwrap_or_else(PoisonError::into_inner).trigger(element, clock.now());
            if is_new {
                queue.add(key());
            }
        }
    }

    fn settled(&self) -> std::sync::MutexGuard<'_, unchanged::Settled> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspects(&self) -> std::sync::MutexGuard<'_, faults::Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batcher(&self) -> std::sync::MutexGuard<'_, Batcher> {
        self.batcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One batch, from what is known now.
    async fn round(&self) -> kube::Result<After> {
        let context = &self.context;
        claims::settle_doubts(context).await?;
        let now = context.clock.now();
        context.state.expire(now);
        let pods = observe::sort_pods(context, self.settings.nomination(), now);
        context.metrics.pods.acknowledge(pods.pending.iter().map(|pod| &**pod), now);
        nomination::clear(context, &pods.given_up).await;
        self.nominate_successors(&pods).await;
        let after = self.next_look(&pods);
        if pods.pending.is_empty() {
            act::tell_metrics(context, &[]);
            buffers::record(context, buffers::Outcome::default(), now).await;
            return Ok(after);
        }
        let revision = observe::revision(&context.mirrors);
        let pools = observe::launching_pools(context).await;
        let live = observe::gather(context, pods, pools);
        let fingerprint = unchanged::Fingerprint::of(&live, &context.mirrors);
        let repeated = self.settled().repeats(&fingerprint);
        if let Some(notices) = repeated {
            act::tell(context, notices).await;
            return Ok(after);
        }
        let mut options = self.settings.engine.clone();
        options.reserved_mode = karpenter_model::problem::ReservedMode::Strict;
        let started = context.clock.now();
        context.metrics.plans.begin(METRIC_LABEL, live.pending.len(), started);
        let asked = options.mode;
        options.mode = self.suspects().mode(asked, started);
        let mode = options.mode;
        let (suspects, engine) = (self.suspects().current(started), self.engine.clone());
        let names = logged::names(&live.pending);
        let work = move || decide::decide(&live, options, &suspects, &*engine);
        let decided = match contained::run(Lane::Provisioning, work).await {
            Ok(decided) => decided,
            // Nothing can be said about single pods; the whole batch is tried again.
            Err(fault) => decide::Decided {
                faults: faults::Faults::of_assembly(fault, mode),
                ..decide::Decided::default()
            },
        };
        decided.faults.report(context);
        self.suspects().remember(&decided.faults, context.clock.now());
        let took = since(context.clock.now(), started);
        context.metrics.scheduling_duration.with_label_values(&[METRIC_LABEL]).observe(took.as_secs_f64());
        logged::log(&decided, &names, took);
        let (outcome, settled) = act::act(self, decided, revision).await;
        self.settled().remember(fingerprint, settled);
        outcome.map(|wish| after.earlier(wish))
    }

    /// Pods that have taken the place of others hear of it at once if the node is open already.
    async fn nominate_successors(&self, pods: &observe::SortedPods) {
        for claim in &pods.taken_over {
            nomination::nominate_for(&self.context, claim).await;
        }
    }

    /// Pods that wait or are expected are looked at again, in case nobody tells.
    fn next_look(&self, pods: &observe::SortedPods) -> After {
        let is_quiet = pods.pending.is_empty()
            && pods.expected.is_empty()
            && !pods.is_anything_leaving
            && !pods.is_room_being_made;
        if is_quiet { After::Done } else { After::Again(RETRY_AFTER) }
    }
}

impl Reconcile for Provisioner {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        let now = self.context.clock.now();
        let closes_at = self.batcher().closes_at();
        match closes_at {
            Some(at) if at > now => Ok(After::Again(until(now, at))),
            Some(_) => {
                self.batcher().close();
                self.round().await
            }
            None => {
                // Nobody triggered: a look at what still waits.
                let pods = observe::sort_pods(&self.context, self.settings.nomination(), now);
                nomination::clear(&self.context, &pods.given_up).await;
                self.nominate_successors(&pods).await;
                let mut batcher = self.batcher();
                for pod in &pods.pending {
                    batcher.trigger(pods::uid_of(pod), now);
                }
                match batcher.closes_at() {
                    Some(at) => Ok(After::Again(until(now, at))),
                    None => Ok(self.next_look(&pods)),
                }
            }
        }
    }
}

/// The only key: all rounds are one piece of work.
fn key() -> ObjectKey {
    ObjectKey::new("", "provisioning")
}

fn is_disrupted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == labels::TAINT_DISRUPTED)
}

/// A pool whose wishes changed, or that can be used now and could not before.
fn is_news(old: &NodePool, new: &NodePool) -> bool {
    old.metadata.generation != new.metadata.generation || is_launching_pool(old) != is_launching_pool(new)
}

/// Learns from a claim's fate whether its pool can be launched from, and plans the pods of a lost claim anew.
fn note_claim(context: &Context, change: &Change<NodeClaim>, trigger: &impl Fn(&str)) {
    context.back_off.note(change, context.clock.now());
    let claim = change.object();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if change.is_deleted() || claim.metadata.deletion_timestamp.is_some() {
        for place in context.state.places_on(name) {
            trigger(&place.uid);
        }
    }
}

/// How long ago a node opened, for those who judge whether pods are late.
pub(crate) fn is_overdue(opened: jiff::Timestamp, now: jiff::Timestamp, patience: Duration) -> bool {
    since(now, opened) >= patience
}
