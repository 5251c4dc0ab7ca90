//! Runs the scheduler with an API server: receives changes, decides pod by pod, and executes the decisions.
//!
//! One task owns the snapshot and the queue, so decisions are sequential and depend only on the order of changes.
//! Writes run concurrently; until the API server confirms a binding the pod is assumed to be bound.
//!
//! Upstream: pkg/scheduler/scheduler.go, pkg/scheduler/eventhandlers.go

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::Shutdown;
use kube::Client;
use tokio::task::JoinSet;

use super::cycle::schedule_one;
use super::hints::{ClusterEvent, could_help, update_could_help};
use super::node::NodeFacts;
use super::pod::PodInfo;
use super::queue::{Queue, QueueSettings};
use super::snapshot::{PodChange, PodKey, Snapshot};
use super::sources::{Sources, Subscriptions, Update};
use super::verdict::{Decision, Failure};
use super::volumes::VolumePlan;
use super::writes::{EventKind, StatusChange, Step, Write, Writer, is_gone};

#[derive(Debug, Clone)]
pub struct Settings {
    /// Only pods with this `spec.schedulerName` are scheduled.
    pub name: String,
    pub backoff_initial: Duration,
    pub backoff_max: Duration,
    /// An unschedulable pod is retried after this time even if no event occurred that could help.
    pub waiting_max: Duration,
    /// The timeout for the binding of a pod's volumes.
    pub volumes_max: Duration,
    pub writes_at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "default-scheduler".to_owned(),
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(10),
            waiting_max: Duration::from_secs(5 * 60),
            volumes_max: Duration::from_secs(10 * 60),
            writes_at_once: 64,
        }
    }
}

/// The number of decisions between checks for new changes.
const DECISIONS_PER_BATCH: usize = 16;
/// If an event is repeated after a longer pause, a new Event is created; otherwise its count is increased.
const EVENT_SERIES: SignedDuration = SignedDuration::from_mins(6);

/// Runs until shutdown; writes in progress are completed first.
pub async fn run(client: Client, sources: Sources, clock: Clock, settings: Settings, shutdown: Shutdown) {
    tokio::select! {
        biased;
        () = shutdown.requested() => return,
        () = sources.synced() => {}
    }
    let subscriptions = sources.subscribe();
    let writer = Writer { client, sources, clock, name: settings.name.as_str().into() };
    let queue = Queue::new(QueueSettings {
        backoff_initial: settings.backoff_initial,
        backoff_max: settings.backoff_max,
        waiting_max: settings.waiting_max,
    });
    let runner = Runner {
        snapshot: Snapshot::new(),
        queue,
        writer,
        settings,
        lanes: BTreeMap::new(),
        startable: VecDeque::new(),
        running: JoinSet::new(),
        notes: JoinSet::new(),
        volume_waits: BTreeMap::new(),
        events: BTreeMap::new(),
    };
    runner.run(subscriptions, shutdown).await;
}

struct Runner {
    snapshot: Snapshot,
    queue: Queue,
    writer: Writer,
    settings: Settings,
    /// Writes that wait for an earlier write for the same pod.
    lanes: BTreeMap<PodKey, VecDeque<(Arc<str>, Write)>>,
    /// Pods whose next write can start.
    startable: VecDeque<PodKey>,
    running: JoinSet<Outcome>,
    notes: JoinSet<RecordedEvent>,
    /// Pods whose node is selected and whose volumes are not bound yet.
    volume_waits: BTreeMap<PodKey, VolumeWait>,
    events: BTreeMap<PodKey, Series>,
}

struct Outcome {
    key: PodKey,
    uid: Arc<str>,
    step: Step,
    result: kube::Result<()>,
}

struct RecordedEvent {
    key: PodKey,
    uid: Arc<str>,
    name: Option<String>,
}

struct VolumeWait {
    node: Arc<str>,
    deadline: Timestamp,
}

/// The event series of an unschedulable pod.
struct Series {
    uid: Arc<str>,
    /// The version of the pod; any change of the pod starts a new series.
    version: Arc<str>,
    name: Option<String>,
    count: u32,
    last_at: Timestamp,
}

impl Runner {
    async fn run(mut self, mut subscriptions: Subscriptions, shutdown: Shutdown) {
        loop {
            while let Some(update) = subscriptions.arrived() {
                self.apply(update);
            }
            while let Some(outcome) = self.running.try_join_next() {
                self.finish(outcome);
            }
            while let Some(recorded) = self.notes.try_join_next() {
                self.event_recorded(recorded);
            }
            if shutdown.is_requested() {
                break;
            }
            let now = self.writer.clock.now();
            self.fail_volume_timeouts(now);
            let busy = self.decide_batch(now);
            self.start_writes();
            if busy {
                tokio::task::yield_now().await;
                continue;
            }
            let due = self.next_due();
            let clock = self.writer.clock;
            let sleep = async {
                match due {
                    Some(due) => clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                update = subscriptions.next() => match update {
                    Some(update) => self.apply(update),
                    None => break,
                },
                Some(outcome) = self.running.join_next() => self.finish(outcome),
                Some(recorded) = self.notes.join_next() => self.event_recorded(recorded),
                () = sleep => {}
            }
        }
        while self.running.join_next().await.is_some() {}
        while self.notes.join_next().await.is_some() {}
    }

    fn next_due(&self) -> Option<Timestamp> {
        let volumes = self.volume_waits.values().map(|wait| wait.deadline).min();
        self.queue.next_due().into_iter().chain(volumes).min()
    }

    fn apply(&mut self, update: Update) {
        macro_rules! follow {
            ($change:expr, $apply:ident, $remove:ident, key) => {
                match &$change {
                    Change::Applied { new, .. } => self.snapshot.$apply(new),
                    Change::Deleted { old } => self.snapshot.$remove(&ObjectKey::of(&old.metadata)),
                }
            };
            ($change:expr, $apply:ident, $remove:ident, name) => {
                match &$change {
                    Change::Applied { new, .. } => self.snapshot.$apply(new),
                    Change::Deleted { old } => {
                        self.snapshot.$remove(old.metadata.name.as_deref().unwrap_or_default())
                    }
                }
            };
        }
        match update {
            Update::Namespace(change) => follow!(change, apply_namespace, remove_namespace, name),
            Update::Service(change) => follow!(change, apply_service, remove_service, key),
            Update::ReplicaSet(change) => follow!(change, apply_replica_set, remove_replica_set, key),
            Update::StatefulSet(change) => follow!(change, apply_stateful_set, remove_stateful_set, key),
            Update::Budget(change) => follow!(change, apply_budget, remove_budget, key),
            Update::StorageClass(change) => {
                follow!(change, apply_storage_class, remove_storage_class, name);
                self.handle_event(&ClusterEvent::VolumeOrClass);
            }
            Update::CsiNode(change) => {
                follow!(change, apply_csi_node, remove_csi_node, name);
                self.handle_event(&ClusterEvent::CsiNode);
            }
            Update::Volume(change) => {
                follow!(change, apply_volume, remove_volume, name);
                self.handle_event(&ClusterEvent::VolumeOrClass);
                self.check_volumes();
            }
            Update::Claim(change) => {
                follow!(change, apply_claim, remove_claim, key);
                let namespace = change.object().metadata.namespace.clone().unwrap_or_default();
                self.handle_event(&ClusterEvent::Claim { namespace: &namespace });
                self.check_volumes();
            }
            Update::Attachment(change) => {
                follow!(change, apply_attachment, remove_attachment, name);
                if change.is_deleted() {
                    self.handle_event(&ClusterEvent::Detached);
                }
            }
            Update::Node(Change::Applied { new, .. }) => {
                let facts = NodeFacts::parse(&new);
                let old = self.snapshot.put_node(facts.clone());
                self.handle_event(&ClusterEvent::NodeApplied { old: old.as_ref(), new: &facts });
            }
            Update::Node(Change::Deleted { old }) => {
                self.snapshot.remove_node(old.metadata.name.as_deref().unwrap_or_default());
                self.handle_event(&ClusterEvent::NodeGone);
            }
            Update::Pod(Change::Applied { new, .. }) => {
                let change = self.snapshot.apply_pod(&new);
                self.apply_pod_change(change, Some(&new));
            }
            Update::Pod(Change::Deleted { old }) => {
                let change = self.snapshot.remove_pod(&ObjectKey::of(&old.metadata));
                self.apply_pod_change(change, None);
            }
        }
    }

    fn handle_event(&mut self, event: &ClusterEvent<'_>) {
        self.handle_event_up_to(event, i32::MAX);
    }

    /// Handles an event that can help only pods of at most this priority.
    fn handle_event_up_to(&mut self, event: &ClusterEvent<'_>, priority_max: i32) {
        let now = self.writer.clock.now();
        let snapshot = &self.snapshot;
        self.queue.handle_event(now, event.affected_plugins(), |key, plugins| {
            snapshot
                .pod(key)
                .is_some_and(|pod| pod.priority <= priority_max && could_help(event, pod, plugins))
        });
    }

    fn apply_pod_change(&mut self, change: PodChange, object: Option<&Pod>) {
        let now = self.writer.clock.now();
        match (change.old, change.new) {
            (None, None) => {}
            (None, Some(new)) => self.pod_added(&new, object, now),
            (Some(old), Some(new)) if old.uid != new.uid => {
                self.pod_removed(&old);
                self.pod_added(&new, object, now);
            }
            (Some(old), None) => self.pod_removed(&old),
            (Some(old), Some(new)) => self.pod_updated(&old, &new, now),
        }
    }

    fn pod_added(&mut self, new: &Arc<PodInfo>, object: Option<&Pod>, now: Timestamp) {
        if new.node.is_some() {
            self.handle_event(&ClusterEvent::PodPlaced(new));
        } else if new.scheduler_name == self.settings.name {
            let gated = !new.gates.is_empty();
            self.queue.add(&new.key, new.priority, gated, now);
            let conditions = object.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
            let said = conditions.into_iter().flatten().any(|condition| condition.type_ == "PodScheduled");
            if gated && !said {
                let message = "Scheduling is blocked due to non-empty scheduling gates".to_owned();
                let unscheduled = Some(("SchedulingGated", message));
                self.push(new, Write::Status(StatusChange { unscheduled, nomination: None }));
            }
        }
    }

    fn pod_removed(&mut self, old: &Arc<PodInfo>) {
        self.queue.remove(&old.key);
        self.volume_waits.remove(&old.key);
        self.events.remove(&old.key);
        if old.node.is_some() {
            self.handle_event(&ClusterEvent::PodGone(old));
        } else if old.nominated_node.is_some() {
            self.handle_event_up_to(&ClusterEvent::PodGone(old), old.priority);
        }
    }

    fn pod_updated(&mut self, old: &Arc<PodInfo>, new: &Arc<PodInfo>, now: Timestamp) {
        match (&old.node, &new.node) {
            (_, Some(_)) if self.snapshot.is_assumed(&new.key) => {
                if new.deleting && !old.deleting {
                    // The pod is terminating, so its binding will fail or have no effect, and the resources are free at
                    // once.
                    self.snapshot.forget(&new.key);
                    self.volume_waits.remove(&new.key);
                    self.handle_event(&ClusterEvent::PodGone(new));
                }
            }
            (None, Some(_)) => {
                self.queue.remove(&new.key);
                self.handle_event(&ClusterEvent::PodPlaced(new));
            }
            (Some(_), Some(_)) => {
                // Confirms an assumed pod, or updates a bound pod.
                self.queue.remove(&new.key);
                self.handle_event(&ClusterEvent::PodChanged { old, new });
            }
            (_, None) => {
                if new.scheduler_name != self.settings.name {
                    return;
                }
                self.queue.add(&new.key, new.priority, !new.gates.is_empty(), now);
                self.queue.set_gated(&new.key, !new.gates.is_empty());
                if update_could_help(old, new) {
                    self.queue.activate(&new.key, now);
                }
                if old.nominated_node.is_some() && old.nominated_node != new.nominated_node {
                    self.handle_event_up_to(&ClusterEvent::PodGone(old), old.priority);
                }
            }
        }
    }

    // ---- decisions

    fn decide_batch(&mut self, now: Timestamp) -> bool {
        for _ in 0..DECISIONS_PER_BATCH {
            let Some(key) = self.queue.pop(now) else { return false };
            self.decide(&key, now);
        }
        true
    }

    fn decide(&mut self, key: &PodKey, now: Timestamp) {
        let Some(pod) = self.snapshot.pod(key).cloned() else {
            self.queue.remove(key);
            return;
        };
        if pod.node.is_some() {
            return;
        }
        if pod.deleting {
            let note = format!("skip schedule deleting pod: {}", pod.key);
            self.record_event(&pod, &note, now);
            self.queue.remove(key);
            return;
        }
        match schedule_one(&mut self.snapshot, &pod) {
            Decision::Bind { node, volumes } => self.start_binding(&pod, node, volumes),
            Decision::Nominate { node, victims, failure } => {
                self.mark_unschedulable(&pod, failure, Some(Some(node.clone())), now);
                self.remove_nominations(&pod, &node);
                if victims.iter().any(|victim| self.snapshot.pod(victim).is_some_and(|pod| !pod.deleting)) {
                    self.queue.hold(key);
                    self.push(&pod, Write::Preempt { node, victims });
                }
            }
            Decision::Unschedulable { failure, gives_up_nomination } => {
                self.mark_unschedulable(&pod, failure, gives_up_nomination.then_some(None), now);
            }
            Decision::Failed { message } => self.fail(&pod, message, now),
        }
    }

    fn start_binding(&mut self, pod: &Arc<PodInfo>, node: Arc<str>, volumes: VolumePlan) {
        self.snapshot.assume(&pod.key, &node, &volumes);
        self.handle_event(&ClusterEvent::PodPlaced(pod));
        if volumes.is_empty() {
            self.push(pod, Write::Bind { node });
            return;
        }
        let nomination = Some(Some(node.clone()));
        self.push(pod, Write::Status(StatusChange { unscheduled: None, nomination }));
        self.push(pod, Write::Volumes { node, plan: volumes });
    }

    fn mark_unschedulable(
        &mut self,
        pod: &Arc<PodInfo>,
        failure: Failure,
        nomination: Option<Option<Arc<str>>>,
        now: Timestamp,
    ) {
        if failure.plugins.is_empty() {
            self.queue.failed(&pod.key, now);
        } else {
            self.queue.unschedulable(&pod.key, failure.plugins, now);
        }
        let nominated = nomination.clone().unwrap_or_else(|| pod.nominated_node.clone());
        self.snapshot.set_nomination(&pod.key, nominated);
        self.record_event(pod, &failure.message, now);
        let unscheduled = Some(("Unschedulable", failure.message));
        self.push(pod, Write::Status(StatusChange { unscheduled, nomination }));
    }

    fn fail(&mut self, pod: &Arc<PodInfo>, message: String, now: Timestamp) {
        self.queue.failed(&pod.key, now);
        self.snapshot.set_nomination(&pod.key, None);
        self.record_event(pod, &message, now);
        let unscheduled = Some(("SchedulerError", message));
        self.push(pod, Write::Status(StatusChange { unscheduled, nomination: Some(None) }));
    }

    /// Removes nominations to the node of pods with lower priority than this pod.
    fn remove_nominations(&mut self, pod: &PodInfo, node: &str) {
        let lower: Vec<Arc<PodInfo>> = self
            .snapshot
            .nominated_on(node)
            .filter(|other| other.priority < pod.priority && other.key != pod.key)
            .cloned()
            .collect();
        for other in lower {
            self.snapshot.set_nomination(&other.key, None);
            self.push(&other, Write::Status(StatusChange { unscheduled: None, nomination: Some(None) }));
        }
    }

    // ---- volumes

    /// Continues with pods whose volumes are bound, and fails pods whose volumes cannot be bound.
    fn check_volumes(&mut self) {
        let mut ready = Vec::new();
        let mut hopeless = Vec::new();
        for (key, wait) in &self.volume_waits {
            let Some(pod) = self.snapshot.pod(key) else { continue };
            match self.snapshot.claims_are_ready(pod, &wait.node) {
                Ok(true) => ready.push((pod.clone(), wait.node.clone())),
                Ok(false) => {}
                Err(why) => hopeless.push((pod.clone(), why)),
            }
        }
        for (pod, node) in ready {
            self.volume_waits.remove(&pod.key);
            self.push(&pod, Write::Bind { node });
        }
        for (pod, why) in hopeless {
            self.binding_failed(
                &pod.key,
                format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}"),
            );
        }
    }

    fn fail_volume_timeouts(&mut self, now: Timestamp) {
        let late: Vec<PodKey> = self
            .volume_waits
            .iter()
            .filter(|(_, wait)| wait.deadline <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            let why = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
            self.binding_failed(&key, why.to_owned());
        }
    }

    /// The pod could not be bound to the selected node.
    fn binding_failed(&mut self, key: &PodKey, message: String) {
        self.volume_waits.remove(key);
        let now = self.writer.clock.now();
        let Some(placed) = self.snapshot.forget(key) else { return };
        self.handle_event(&ClusterEvent::PodGone(&placed));
        if let Some(pod) = self.snapshot.pod(key).cloned() {
            self.fail(&pod, message, now);
        }
    }

    // ---- writes

    fn push(&mut self, pod: &PodInfo, write: Write) {
        let lane = self.lanes.entry(pod.key.clone()).or_default();
        let idle = lane.is_empty();
        lane.push_back((pod.uid.clone(), write));
        if idle {
            self.startable.push_back(pod.key.clone());
        }
    }

    fn start_writes(&mut self) {
        while self.running.len() < self.settings.writes_at_once.max(1) {
            let Some(key) = self.startable.pop_front() else { return };
            // A started write stays at the head of the pod's queue until it is finished, so that the next one does not
            // start.
            let Some((uid, write)) = self.lanes.get_mut(&*key).and_then(|lane| lane.front_mut()) else {
                continue;
            };
            let write = std::mem::replace(write, Write::Status(StatusChange::default()));
            let (uid, writer, step) = (uid.clone(), self.writer.clone(), write.step());
            self.running.spawn(async move {
                let result = writer.write(&key, &uid, write).await;
                Outcome { key, uid, step, result }
            });
        }
    }

    fn finish(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        // Tasks do not panic and are not aborted.
        let Ok(Outcome { key, uid, step, result }) = outcome else { return };
        if let Some(lane) = self.lanes.get_mut(&*key) {
            lane.pop_front();
            if lane.is_empty() {
                self.lanes.remove(&*key);
            } else {
                self.startable.push_back(key.clone());
            }
        }
        let now = self.writer.clock.now();
        let current = self.snapshot.pod(&key).filter(|pod| pod.uid == uid).cloned();
        let Some(pod) = current else { return };
        match (step, result) {
            (Step::Status, _) | (Step::Bind, Ok(())) => {}
            (Step::Preempt, result) => self.queue.release(&key, result.is_err(), now),
            (Step::Volumes, Ok(())) => {
                let Some(node) = pod.node.clone().filter(|_| self.snapshot.is_assumed(&key)) else { return };
                let deadline =
                    SignedDuration::try_from(self.settings.volumes_max).unwrap_or(SignedDuration::MAX);
                let deadline = now.checked_add(deadline).unwrap_or(Timestamp::MAX);
                self.volume_waits.insert(key, VolumeWait { node, deadline });
                self.check_volumes();
            }
            (Step::Volumes, Err(error)) => {
                self.binding_failed(&key, format!("running PreBind plugin \"VolumeBinding\": {error}"));
            }
            (Step::Bind, Err(error)) => {
                // If the pod was deleted, its watch event reports that.
                let message = match &error {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                if is_gone(&error) {
                    self.queue.remove(&key);
                    if let Some(placed) = self.snapshot.forget(&key) {
                        self.handle_event(&ClusterEvent::PodGone(&placed));
                    }
                } else {
                    self.binding_failed(&key, format!("running Bind plugin \"DefaultBinder\": {message}"));
                }
            }
        }
    }

    // ---- events

    /// Records an event with the reason why a pod was not scheduled. As in kube-scheduler, repetitions for an unchanged
    /// pod are counted, and only the first repetition is sent to the API server.
    fn record_event(&mut self, pod: &PodInfo, note: &str, now: Timestamp) {
        let (key, uid, writer) = (pod.key.clone(), pod.uid.clone(), self.writer.clone());
        let same = |series: &&mut Series| {
            series.uid == uid
                && series.version == pod.version
                && now.duration_since(series.last_at) < EVENT_SERIES
        };
        if let Some(series) = self.events.get_mut(&*key).filter(same) {
            series.count += 1;
            series.last_at = now;
            if let Some(name) = series.name.clone().filter(|_| series.count == 2) {
                self.notes.spawn(async move {
                    writer.increment_event(&key.namespace, &name, 2).await;
                    RecordedEvent { key, uid, name: Some(name) }
                });
            }
            return;
        }
        let version = pod.version.clone();
        let series = Series { uid: uid.clone(), version, name: None, count: 1, last_at: now };
        self.events.insert(key.clone(), series);
        let note = note.to_owned();
        self.notes.spawn(async move {
            let name = writer.record_event(&key, &uid, None, EventKind::FailedScheduling, &note).await;
            RecordedEvent { key, uid, name }
        });
    }

    fn event_recorded(&mut self, recorded: Result<RecordedEvent, tokio::task::JoinError>) {
        let Ok(RecordedEvent { key, uid, name }) = recorded else { return };
        if let Some(series) = self.events.get_mut(&*key).filter(|series| series.uid == uid) {
            series.name = name;
        }
    }
}
