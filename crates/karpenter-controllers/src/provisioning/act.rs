//! Executes the decision of a provisioning pass: creates NodeClaims, reserves capacity for pods, publishes events, and
//! records the decision.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use karpenter_api::types::NodePool;
use karpenter_runtime::clock::{since, until};
use karpenter_runtime::worker::Requeue;
use karpenter_state::buffers::is_virtual;
use karpenter_state::pod::Pod;
use kube::Client;
use kube::api::Api;

use super::decide::{Decided, Failure, FailureKind, Launch, Placement};
use super::{METRIC_LABEL, Provisioner, RETRY_AFTER, buffers};
use crate::claims;
use crate::decision_journal::DecisionRecord;
use crate::events::ObjectEvent;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::planner_input::still_needs_a_node;

/// The maximum number of concurrent requests that create claims or publish events.
const CONCURRENT_WRITES_MAX: usize = 16;
/// How long the event `FailedScheduling` is not repeated for a pod.
const FAILED_REPEAT_AFTER: Duration = Duration::from_secs(300);
/// How long the event `NoCompatibleInstanceTypes` is not repeated for a NodePool.
const NO_TYPES_REPEAT_AFTER: Duration = Duration::from_secs(60);
/// The rate of the event `Nominated`, and below its burst; both limits are upstream's.
const NOMINATED_PER_SECOND: f64 = 5.0;
const NOMINATED_BURST: f64 = 10.0;
/// The maximum number of reasons in the journal entry of one pass.
const RECORDED_REASONS_MAX: usize = 20;

/// State of earlier passes that limits events and journal entries.
#[derive(Debug, Default)]
pub(super) struct ReportState {
    /// The token bucket of the event `Nominated`: the number of tokens, and when it was computed.
    nominated: Option<(f64, Timestamp)>,
    /// The decision and the reasons in the last journal entry.
    last_record: (String, Vec<String>),
}

impl ReportState {
    /// Takes a token for one event `Nominated`. Returns `false` if the rate limit allows no further event now.
    fn may_publish_nomination(&mut self, now: Timestamp) -> bool {
        let (tokens, at) = self.nominated.unwrap_or((NOMINATED_BURST, now));
        let refilled = since(now, at).as_secs_f64().mul_add(NOMINATED_PER_SECOND, tokens);
        let tokens = refilled.min(NOMINATED_BURST);
        let may = tokens >= 1.0;
        self.nominated = Some((if may { tokens - 1.0 } else { tokens }, now));
        may
    }
}

/// Executes a decision. The second value is `Some` if the pass launched nothing and planned no pods onto nodes: it
/// contains the published events, and the pass is not planned again until its input changes.
pub(super) async fn act(
    provisioner: &Provisioner,
    decided: Decided,
    revision: u64,
) -> (kube::Result<Requeue>, Option<Vec<ObjectEvent>>) {
    let now = provisioner.reads.clock.now();
    record_pod_decisions(&provisioner.writes.metrics, &decided, now);
    let summary = Summary::of(&decided);
    let buffered = buffers::Outcome::of(&decided);
    let Decided { launches, mut placements, mut failures, pools_without_types, faults, .. } = decided;
    // From here on, virtual pods are left out, because they get no reservations and no events.
    for placement in &mut placements {
        placement.pods.retain(|pod| !is_virtual(pod));
    }
    placements.retain(|placement| !placement.pods.is_empty());
    // If the planner failed for the whole batch, there is no result, and the batch is retried.
    let is_answered = faults.found.is_empty() || !failures.is_empty();
    let is_idle = launches.is_empty() && placements.is_empty() && is_answered;
    for placement in &placements {
        reserve_on_host(provisioner, placement, now);
    }
    let (created, mut outcome) = match launch(provisioner, launches, &mut failures).await {
        Ok(launched) => launched,
        Err(error) => return (Err(error), None),
    };
    for failure in &mut failures {
        failure.pods.retain(|pod| !is_virtual(pod));
    }
    failures.retain(|failure| !failure.pods.is_empty());
    let mut events = nominations(provisioner, &placements, &created, now);
    events.extend(failures.iter().filter(|failure| failure.is_reported).flat_map(failed_events));
    events.extend(pools_without_types.iter().map(|(pool, lacks_values)| no_types_event(pool, *lacks_values)));
    set_scheduler_gauges(&provisioner.writes.metrics, &failures);
    summary.record(provisioner, created.len(), &failures, revision, now);
    let last_idle_pass = is_idle.then(|| events.clone());
    publish(&provisioner.writes.recorder, events).await;
    buffers::record(provisioner, buffered, now).await;
    if let Some(error) = outcome.error.take() {
        return (Err(error), None);
    }
    (Ok(outcome.requeue), last_idle_pass)
}

pub(super) async fn publish(recorder: &Recorder, events: Vec<ObjectEvent>) {
    stream::iter(events).for_each_concurrent(CONCURRENT_WRITES_MAX, |event| recorder.publish(event)).await;
}

/// Protects a node from disruption for a while, because pods were planned onto it. If the node is not initialized yet,
/// these pods also get a reservation on it.
fn reserve_on_host(provisioner: &Provisioner, placement: &Placement, now: Timestamp) {
    let ttl = SignedDuration::try_from(provisioner.settings.nomination_ttl()).unwrap_or_default();
    let expires = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
    if let Some(name) = placement.host.node.as_ref().and_then(|node| node.metadata.name.as_deref()) {
        provisioner.reads.state.nominate_node(name, expires);
    }
    if let Some(name) = placement.host.claim.as_ref().and_then(|claim| claim.metadata.name.as_deref()) {
        provisioner.reads.state.nominate_node(name, expires);
        if !placement.is_initialized {
            provisioner.reads.state.drop_successor_slots(name);
            for pod in &placement.pods {
                provisioner.reads.state.reserve(pod, name, now);
            }
        }
    }
}

/// A NodeClaim that was created, and the pods that were planned for it.
struct Created {
    claim: String,
    pods: Vec<Arc<Pod>>,
}

/// When to run the next pass because claims were not created, and the first error of their creation.
struct LaunchOutcome {
    requeue: Requeue,
    error: Option<kube::Error>,
}

/// Creates the NodeClaims. If one creation fails, the others continue, and the pods planned for the failed claim are
/// planned again in the next pass.
async fn launch(
    provisioner: &Provisioner,
    launches: Vec<Launch>,
    failures: &mut Vec<Failure>,
) -> kube::Result<(Vec<Created>, LaunchOutcome)> {
    let mut outcome = LaunchOutcome { requeue: Requeue::No, error: None };
    if launches.is_empty() {
        return Ok((Vec::new(), outcome));
    }
    let current = current_pools(&provisioner.writes.client, &launches).await?;
    let now = provisioner.reads.clock.now();
    let mut allowed = Vec::new();
    for mut launch in launches {
        launch.pods.retain(|pod| is_virtual(pod) || still_needs_a_node(&provisioner.reads.stores, pod));
        if launch.pods.is_empty() {
            continue;
        }
        let name = launch.pool.metadata.name.clone().unwrap_or_default();
        let held = provisioner.creator.launch_backoff.lock().held_until(&name, now);
        let blocked = match current.get(&name) {
            Some(pool) => claims::check_still_launchable(pool, &launch.pool, &launch.usage),
            None => Some(format!("nodepool {name} is gone")),
        };
        if let Some(held) = held {
            outcome.requeue = outcome.requeue.earlier(Requeue::After(until(now, held)));
            let why = format!("nodepool {name}: launches failed repeatedly, next attempt at {held}");
            failures.push(launch_failure(launch.pods, why, true));
        } else if let Some(why) = blocked {
            outcome.requeue = outcome.requeue.earlier(Requeue::After(RETRY_AFTER));
            failures.push(launch_failure(launch.pods, why, false));
        } else {
            allowed.push(launch);
        }
    }
    provisioner.creator.launch_backoff.lock().begin_pass();
    let creator = &provisioner.creator;
    let mut results = stream::iter(allowed)
        .map(|launch| async move {
            let result = creator.create(&launch.claim).await;
            (launch, result)
        })
        .buffered(CONCURRENT_WRITES_MAX);
    let mut created = Vec::new();
    while let Some((mut launch, result)) = results.next().await {
        match result {
            Ok(claim) => {
                let name = claim.metadata.name.unwrap_or_default();
                launch.pods.retain(|pod| !is_virtual(pod));
                for pod in &launch.pods {
                    provisioner.reads.state.reserve(pod, &name, now);
                }
                created.push(Created { claim: name, pods: launch.pods });
            }
            Err(error) => {
                let why = format!("creating nodeclaim: {error}");
                failures.push(launch_failure(launch.pods, why, false));
                outcome.error.get_or_insert(error);
            }
        }
    }
    Ok((created, outcome))
}

/// The failure for the pods of a claim that was not created.
fn launch_failure(pods: Vec<Arc<Pod>>, why: String, is_reported: bool) -> Failure {
    Failure { pods, why, fix: None, is_reported, kind: FailureKind::Unschedulable }
}

/// Records in the pod metrics which pods were planned onto a node and which were not.
fn record_pod_decisions(metrics: &Metrics, decided: &Decided, now: Timestamp) {
    metrics.plans.end(METRIC_LABEL, decided.zones.clone());
    let launched = decided.launches.iter().flat_map(|launch| &launch.pods);
    let placed = decided.placements.iter().flat_map(|placement| &placement.pods);
    metrics.pods.decide(launched.chain(placed).map(|pod| &**pod), true, now);
    let failed = decided.failures.iter().flat_map(|failure| &failure.pods);
    metrics.pods.decide(failed.map(|pod| &**pod), false, now);
}

/// Sets the gauges that describe the last plan.
pub(super) fn set_scheduler_gauges(metrics: &Metrics, failures: &[Failure]) {
    let count = |kind: FailureKind| {
        let of_kind = failures.iter().filter(|failure| failure.kind == kind);
        of_kind.map(|failure| failure.pods.len()).sum::<usize>() as i64
    };
    metrics.scheduler_ignored_pods.set(count(FailureKind::Ignored));
    let unschedulable = count(FailureKind::Unschedulable);
    metrics.scheduler_unschedulable_pods.with_label_values(&[METRIC_LABEL]).set(unschedulable);
}

/// The NodePools of the launches, read from the API server.
async fn current_pools(client: &Client, launches: &[Launch]) -> kube::Result<BTreeMap<String, NodePool>> {
    let api = Api::<NodePool>::all(client.clone());
    let mut current = BTreeMap::new();
    for launch in launches {
        let name = launch.pool.metadata.name.clone().unwrap_or_default();
        if current.contains_key(&name) {
            continue;
        }
        if let Some(pool) = api.get_opt(&name).await? {
            current.insert(name, pool);
        }
    }
    Ok(current)
}

fn nominations(
    provisioner: &Provisioner,
    placements: &[Placement],
    created: &[Created],
    now: Timestamp,
) -> Vec<ObjectEvent> {
    let mut report_state = provisioner.report_state.lock().unwrap_or_else(PoisonError::into_inner);
    let on_existing = placements.iter().map(|placement| {
        let claim = placement.host.claim.as_ref().and_then(|claim| claim.metadata.name.as_deref());
        let node = placement.host.node.as_ref().and_then(|node| node.metadata.name.as_deref());
        let claim = claim.map(|name| format!("nodeclaim/{name}"));
        let node = node.map(|name| format!("node/{name}"));
        (claim.into_iter().chain(node).collect::<Vec<_>>().join(", "), &placement.pods)
    });
    let on_new = created.iter().map(|created| (format!("nodeclaim/{}", created.claim), &created.pods));
    let mut events = Vec::new();
    for (host, pods) in on_existing.chain(on_new) {
        for pod in pods {
            if !report_state.may_publish_nomination(now) {
                return events;
            }
            let message = format!("Pod should schedule on: {host}");
            events.push(ObjectEvent::normal_of_pod(pod, "Nominated", message));
        }
    }
    events
}

fn failed_events(failure: &Failure) -> impl Iterator<Item = ObjectEvent> {
    failure.pods.iter().map(|pod| {
        let fix = failure.fix.iter().map(|fix| format!("; fix: {fix}")).collect::<String>();
        let message = format!("Failed to schedule pod, {}{fix}", failure.why);
        ObjectEvent::warning_of_pod(pod, "FailedScheduling", message).repeat_after(FAILED_REPEAT_AFTER)
    })
}

fn no_types_event(pool: &NodePool, lacks_values: bool) -> ObjectEvent {
    let mut message = "NodePool requirements filtered out all compatible available instance types".to_owned();
    if lacks_values {
        message.push_str(" due to minValues incompatibility");
    }
    ObjectEvent::warning(pool, "NoCompatibleInstanceTypes", message).repeat_after(NO_TYPES_REPEAT_AFTER)
}

/// The content of the journal entry about a pass.
struct Summary {
    launched: BTreeMap<String, usize>,
    launches: usize,
    launched_pods: usize,
    placed_pods: usize,
    faults: Vec<String>,
    input: Option<Arc<str>>,
    price_before_per_hour: f64,
    price_after_per_hour: f64,
}

impl Summary {
    fn of(decided: &Decided) -> Self {
        let mut launched: BTreeMap<String, usize> = BTreeMap::new();
        for launch in &decided.launches {
            let pool = launch.pool.metadata.name.as_deref().unwrap_or_default();
            let line = format!("{pool}: {} at {:.4} $/h", launch.instance_type, launch.price_per_hour);
            *launched.entry(line).or_default() += 1;
        }
        Self {
            launched,
            launches: decided.launches.len(),
            launched_pods: decided.launches.iter().map(|launch| launch.pods.len()).sum(),
            placed_pods: decided.placements.iter().map(|placement| placement.pods.len()).sum(),
            faults: decided.faults.lines(),
            input: decided.faults.input.clone(),
            price_before_per_hour: decided.price_before_per_hour,
            price_after_per_hour: decided.price_after_per_hour,
        }
    }

    /// Adds the pass to the decision journal. A pass that launched nothing is left out if its result and reasons are
    /// those of the last entry.
    fn record(
        self,
        provisioner: &Provisioner,
        created: usize,
        failures: &[Failure],
        revision: u64,
        now: Timestamp,
    ) {
        let mut why: Vec<String> = self.faults;
        why.extend(self.launched.iter().map(|(line, count)| format!("{count} × {line}")));
        let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
        for failure in failures {
            *failed.entry(failure.why.as_str()).or_default() += failure.pods.len();
        }
        let unschedulable: usize = failed.values().sum();
        why.extend(failed.iter().map(|(line, count)| format!("{count} unschedulable: {line}")));
        why.truncate(RECORDED_REASONS_MAX);
        let mut report_state = provisioner.report_state.lock().unwrap_or_else(PoisonError::into_inner);
        let what = format!(
            "launched {} of {} nodes for {} pods, planned {} pods onto existing nodes, {unschedulable} unschedulable",
            created, self.launches, self.launched_pods, self.placed_pods
        );
        let record = (what.clone(), why.clone());
        if self.launches == 0 && report_state.last_record == record {
            return;
        }
        report_state.last_record = record;
        let decision = DecisionRecord {
            at: now,
            by: "provisioning",
            what,
            why,
            revision,
            cost_before_per_hour: Some(self.price_before_per_hour),
            cost_after_per_hour: Some(self.price_after_per_hour),
        };
        provisioner.journal.record_with(decision, self.input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nominated_events_have_a_burst_of_ten_and_a_rate_of_five_per_second() {
        let mut report_state = ReportState::default();
        let at = |millis| Timestamp::from_millisecond(millis).expect("a time");
        let mut published =
            |millis| (0..20).filter(|_| report_state.may_publish_nomination(at(millis))).count();
        let counts = [published(0), published(0), published(200), published(1200), published(60_000)];
        assert_eq!(counts, [10, 0, 1, 5, 10]);
    }
}
