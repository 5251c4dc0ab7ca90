//! Carries out what was decided: claims, the memory of who was planned where, events, the journal.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use karpenter_api::types::NodePool;
use karpenter_cluster::clock::{since, until};
use karpenter_cluster::harness::After;
use karpenter_state::buffers::is_virtual;
use karpenter_state::pod::Pod;
use kube::api::Api;

use super::decide::{Decided, Failure, FailureKind, Launch, Placement};
use super::observe::still_needs_a_node;
use super::{METRIC_LABEL, Provisioner, RETRY_AFTER, buffers};
use crate::claims;
use crate::context::Context;
use crate::events::Notice;
use crate::journal::Decision;

/// Writes that are under way at the same time.
const AT_ONCE: usize = 16;
const FAILED_REPEAT_AFTER: Duration = Duration::from_secs(300);
const NO_TYPES_REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Nominations told per second, and how many at once.
const NOMINATED_PER_SECOND: f64 = 5.0;
const NOMINATED_BURST: f64 = 10.0;
/// Reasons that the journal keeps of one round.
const JOURNAL_REASONS_MAX: usize = 20;

/// Memory that only decides what is told.
#[derive(Debug, Default)]
pub(super) struct Telling {
    nominated: Option<(f64, Timestamp)>,
    last_reasons: Vec<String>,
}

impl Telling {
    /// Whether one more nomination may be told now.
    fn may_tell_nomination(&mut self, now: Timestamp) -> bool {
        let (tokens, at) = self.nominated.unwrap_or((NOMINATED_BURST, now));
        let refilled = since(now, at).as_secs_f64().mul_add(NOMINATED_PER_SECOND, tokens);
        let tokens = refilled.min(NOMINATED_BURST);
        let may = tokens >= 1.0;
        self.nominated = Some((if may { tokens - 1.0 } else { tokens }, now));
        may
    }
}

/// Carries out a round. The second part is what was told, if nothing at all could be done: such a round need not be
/// planned again before something changes.
pub(super) async fn act(
    provisioner: &Provisioner,
    decided: Decided,
    revision: u64,
) -> (kube::Result<After>, Option<Vec<Notice>>) {
    let context = &provisioner.context;
    let now = context.clock.now();
    tell_decisions(context, &decided, now);
    let summary = Summary::of(&decided);
    let buffered = buffers::Outcome::of(&decided);
    let Decided { launches, mut placements, mut failures, pools_without_types, faults, .. } = decided;
    // From here on only pods that exist count.
    for placement in &mut placements {
        placement.pods.retain(|pod| !is_virtual(pod));
    }
    placements.retain(|placement| !placement.pods.is_empty());
    // A batch that has no answer at all is tried again.
    let is_answered = faults.found.is_empty() || !failures.is_empty();
    let is_idle = launches.is_empty() && placements.is_empty() && is_answered;
    for placement in &placements {
        keep_place(provisioner, placement, now);
    }
    let (created, mut outcome) = match launch(provisioner, launches, &mut failures).await {
        Ok(launched) => launched,
        Err(error) => return (Err(error), None),
    };
    for failure in &mut failures {
        failure.pods.retain(|pod| !is_virtual(pod));
    }
    failures.retain(|failure| !failure.pods.is_empty());
    let mut notices = nominations(provisioner, &placements, &created, now);
    notices.extend(failures.iter().filter(|failure| failure.is_told).flat_map(failed_notices));
    notices
        .extend(pools_without_types.iter().map(|(pool, lacks_values)| no_types_notice(pool, *lacks_values)));
    tell_metrics(context, &failures);
    summary.record(provisioner, created.len(), &failures, revision, now);
    let settled = is_idle.then(|| notices.clone());
    tell(context, notices).await;
    buffers::record(context, buffered, now).await;
    if let Some(error) = outcome.error.take() {
        return (Err(error), None);
    }
    (Ok(outcome.wish), settled)
}

pub(super) async fn tell(context: &Context, notices: Vec<Notice>) {
    stream::iter(notices).for_each_concurrent(AT_ONCE, |notice| context.recorder.publish(notice)).await;
}

/// A node that exists keeps the room: in memory, for as long as the scheduler may take, or until it has come up.
fn keep_place(provisioner: &Provisioner, placement: &Placement, now: Timestamp) {
    let context = &provisioner.context;
    let patience = SignedDuration::try_from(provisioner.settings.nomination()).unwrap_or_default();
    let expires = now.checked_add(patience).unwrap_or(Timestamp::MAX);
    if let Some(name) = placement.host.node.as_ref().and_then(|node| node.metadata.name.as_deref()) {
        context.state.nominate_node(name, expires);
    }
    if let Some(name) = placement.host.claim.as_ref().and_then(|claim| claim.metadata.name.as_deref()) {
        context.state.nominate_node(name, expires);
        if !placement.is_initialized {
            context.state.drop_vacancies(name);
            for pod in &placement.pods {
                context.state.expect(pod, name, now);
            }
        }
    }
}

/// A claim that was made and the pods it is for.
struct Created {
    claim: String,
    pods: Vec<Arc<Pod>>,
}

/// What became of the claims, besides those that were made.
struct Outcome {
    wish: After,
    error: Option<kube::Error>,
}

/// Creates the claims. One that fails keeps no other from being made; its pods wait for the next round.
async fn launch(
    provisioner: &Provisioner,
    launches: Vec<Launch>,
    failures: &mut Vec<Failure>,
) -> kube::Result<(Vec<Created>, Outcome)> {
    let context = &provisioner.context;
    let mut outcome = Outcome { wish: After::Done, error: None };
    if launches.is_empty() {
        return Ok((Vec::new(), outcome));
    }
    let current = current_pools(context, &launches).await?;
    let now = context.clock.now();
    let mut allowed = Vec::new();
    for mut launch in launches {
        launch.pods.retain(|pod| is_virtual(pod) || still_needs_a_node(&context.mirrors, pod));
        if launch.pods.is_empty() {
            continue;
        }
        let name = launch.pool.metadata.name.clone().unwrap_or_default();
        let held = context.back_off.lock().held_until(&name, now);
        let refusal = match current.get(&name) {
            Some(pool) => claims::refusal(pool, &launch.pool, &launch.usage),
            None => Some(format!("nodepool {name} is gone")),
        };
        if let Some(held) = held {
            outcome.wish = outcome.wish.earlier(After::Again(until(now, held)));
            let why = format!("nodepool {name}: launches failed repeatedly, the next is tried at {held}");
            failures.push(lost(launch.pods, why, true));
        } else if let Some(why) = refusal {
            outcome.wish = outcome.wish.earlier(After::Again(RETRY_AFTER));
            failures.push(lost(launch.pods, why, false));
        } else {
            allowed.push(launch);
        }
    }
    context.back_off.lock().begin_round();
    let mut results = stream::iter(allowed)
        .map(|launch| async move {
            let result = claims::create(context, &launch.claim).await;
            (launch, result)
        })
        .buffered(AT_ONCE);
    let mut created = Vec::new();
    while let Some((mut launch, result)) = results.next().await {
        match result {
            Ok(claim) => {
                let name = claim.metadata.name.unwrap_or_default();
                launch.pods.retain(|pod| !is_virtual(pod));
                for pod in &launch.pods {
                    context.state.expect(pod, &name, now);
                }
                created.push(Created { claim: name, pods: launch.pods });
            }
            Err(error) => {
                let why = format!("the nodeclaim could not be created: {error}");
                failures.push(lost(launch.pods, why, false));
                outcome.error.get_or_insert(error);
            }
        }
    }
    Ok((created, outcome))
}

/// Pods of a launch that did not come about.
fn lost(pods: Vec<Arc<Pod>>, why: String, is_told: bool) -> Failure {
    Failure { pods, why, is_told, kind: FailureKind::Unschedulable }
}

/// Which pods have a place now and which have none, as far as metrics are concerned.
fn tell_decisions(context: &Context, decided: &Decided, now: Timestamp) {
    let metrics = &context.metrics;
    metrics.plans.end(METRIC_LABEL, decided.zones.clone());
    let launched = decided.launches.iter().flat_map(|launch| &launch.pods);
    let placed = decided.placements.iter().flat_map(|placement| &placement.pods);
    metrics.pods.decide(launched.chain(placed).map(|pod| &**pod), true, now);
    let failed = decided.failures.iter().flat_map(|failure| &failure.pods);
    metrics.pods.decide(failed.map(|pod| &**pod), false, now);
}

/// Sets the numbers that speak of the last plan only.
pub(super) fn tell_metrics(context: &Context, failures: &[Failure]) {
    let count = |kind: FailureKind| {
        let of_kind = failures.iter().filter(|failure| failure.kind == kind);
        of_kind.map(|failure| failure.pods.len()).sum::<usize>() as i64
    };
    let metrics = &context.metrics;
    metrics.scheduler_ignored_pods.set(count(FailureKind::Ignored));
    let unschedulable = count(FailureKind::Unschedulable);
    metrics.scheduler_unschedulable_pods.with_label_values(&[METRIC_LABEL]).set(unschedulable);
}

/// The pools as the server has them now, once each.
async fn current_pools(context: &Context, launches: &[Launch]) -> kube::Result<BTreeMap<String, NodePool>> {
    let api = Api::<NodePool>::all(context.client.clone());
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
) -> Vec<Notice> {
    let mut telling = provisioner.telling.lock().unwrap_or_else(PoisonError::into_inner);
    let on_existing = placements.iter().map(|placement| {
        let claim = placement.host.claim.as_ref().and_then(|claim| claim.metadata.name.as_deref());
        let node = placement.host.node.as_ref().and_then(|node| node.metadata.name.as_deref());
        let claim = claim.map(|name| format!("nodeclaim/{name}"));
        let node = node.map(|name| format!("node/{name}"));
        (claim.into_iter().chain(node).collect::<Vec<_>>().join(", "), &placement.pods)
    });
    let on_new = created.iter().map(|created| (format!("nodeclaim/{}", created.claim), &created.pods));
    let mut notices = Vec::new();
    for (place, pods) in on_existing.chain(on_new) {
        for pod in pods {
            if !telling.may_tell_nomination(now) {
                return notices;
            }
            let message = format!("Pod should schedule on: {place}");
            notices.push(Notice::normal_of_pod(pod, "Nominated", message));
        }
    }
    notices
}

fn failed_notices(failure: &Failure) -> impl Iterator<Item = Notice> {
    failure.pods.iter().map(|pod| {
        let message = format!("Failed to schedule pod, {}", failure.why);
        Notice::warning_of_pod(pod, "FailedScheduling", message).repeat_after(FAILED_REPEAT_AFTER)
    })
}

fn no_types_notice(pool: &NodePool, lacks_values: bool) -> Notice {
    let mut message = "NodePool requirements filtered out all compatible available instance types".to_owned();
    if lacks_values {
        message.push_str(" due to minValues incompatibility");
    }
    Notice::warning(pool, "NoCompatibleInstanceTypes", message).repeat_after(NO_TYPES_REPEAT_AFTER)
}

/// What the journal says about a round.
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

    /// Written down unless it would repeat that nothing can be done.
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
        let left: usize = failed.values().sum();
        why.extend(failed.iter().map(|(line, count)| format!("{count} without a place: {line}")));
        why.truncate(JOURNAL_REASONS_MAX);
        let mut telling = provisioner.telling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.launches == 0 && self.placed_pods == 0 && telling.last_reasons == why {
            return;
        }
        telling.last_reasons.clone_from(&why);
        let what = format!(
            "launch {} of {} nodes for {} pods, {} pods onto nodes that are there, {left} without a place",
            created, self.launches, self.launched_pods, self.placed_pods
        );
        let decision = Decision {
            at: now,
            by: "provisioning",
            what,
            why,
            revision,
            cost_before_per_hour: Some(self.price_before_per_hour),
            cost_after_per_hour: Some(self.price_after_per_hour),
        };
        provisioner.context.journal.record_with(decision, self.input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nominations_are_told_ten_at_once_and_five_a_second() {
        let mut telling = Telling::default();
        let at = |millis| Timestamp::from_millisecond(millis).expect("a time");
        let mut told = |millis| (0..20).filter(|_| telling.may_tell_nomination(at(millis))).count();
        assert_eq!([told(0), told(0), told(200), told(1200), told(60_000)], [10, 0, 1, 5, 10]);
    }
}
