//! Counts the outcomes of a Job's pods and decides its next step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{
    Job, JobCondition, JobSpec, JobStatus, PodFailurePolicyRule, UncountedTerminatedPods,
};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_runtime::clock::whole_seconds;
use karpenter_runtime::object::{annotation, is_deleting, name_of, namespace_of, uid_of};
use serde_json::json;

use super::indexes;
use crate::controllers::context::unless_zero;
use crate::controllers::{owners, pods};

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const BACK_OFF_FIRST: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(600);
const BURST_MAX: usize = 500;

/// Consecutive failures since the last success.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// No pod is created before this time.
    fn until(self) -> Option<Timestamp> {
        let times = self.failures.checked_sub(1)?;
        let wait = BACK_OFF_FIRST.saturating_mul(1 << times.min(10)).min(BACK_OFF_MAX);
        self.last?.checked_add(SignedDuration::try_from(wait).ok()?).ok()
    }
}

#[derive(Debug)]
pub(super) struct Plan {
    /// The new status. It is written before the other changes.
    pub(super) status: JobStatus,
    /// Pods whose finalizer is removed after the status is written.
    pub(super) release: Vec<String>,
    pub(super) delete: Vec<String>,
    /// Pods to create, with their completion index for indexed Jobs.
    pub(super) create: Vec<Option<i32>>,
    pub(super) backoff: Backoff,
    pub(super) again: Option<Timestamp>,
}

fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// When the Job completed or failed.
pub(super) fn finished_at(job: &Job) -> Option<Timestamp> {
    let status = job.status.as_ref()?;
    let finished = condition(status, "Complete").or_else(|| condition(status, "Failed"))?;
    finished.last_transition_time.as_ref().map(|time| time.0)
}

fn set_condition(status: &mut JobStatus, kind: &str, is: &str, reason: &str, message: &str, now: Timestamp) {
    let now = Time(whole_seconds(now));
    let new = JobCondition {
        type_: kind.into(),
        status: is.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(known) if known.status == is => {}
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}

fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn index_of(pod: &Pod) -> Option<i32> {
    annotation(pod, INDEX)?.parse().ok()
}

pub(super) fn plan(job: &Job, owned: &[Arc<Pod>], backoff: Backoff, now: Timestamp) -> Plan {
    let default_spec = JobSpec::default();
    let spec = job.spec.as_ref().unwrap_or(&default_spec);
    let mut count = Count::new(job, spec, backoff);
    count.flush(owned);
    count.note_finished(owned, now);

    let suspended = spec.suspend.unwrap_or(false);
    let active: Vec<&Arc<Pod>> = owned.iter().filter(|pod| pods::is_active(pod)).collect();
    let terminating = owned.iter().filter(|pod| pods::is_terminating(pod)).count() as i32;
    let mut plan = Plan {
        status: JobStatus::default(),
        release: count.release.clone(),
        delete: Vec::new(),
        create: Vec::new(),
        backoff: count.backoff,
        again: None,
    };
    if count.status.start_time.is_none() && !suspended {
        count.status.start_time = Some(Time(whole_seconds(now)));
    }
    if let Some((kind, reason, message)) = count.verdict(&active, owned, now) {
        set_condition(&mut count.status, kind, "True", reason, &message, now);
    }
    let decided =
        condition(&count.status, "SuccessCriteriaMet").or_else(|| condition(&count.status, "FailureTarget"));
    match decided.cloned() {
        Some(decided) => {
            plan.delete.extend(active.iter().map(|pod| name_of(&***pod).to_string()));
            if active.is_empty() && terminating == 0 && count.is_settled() {
                let kind = if decided.type_ == "SuccessCriteriaMet" { "Complete" } else { "Failed" };
                let reason = decided.reason.unwrap_or_default();
                let message = decided.message.unwrap_or_default();
                set_condition(&mut count.status, kind, "True", &reason, &message, now);
                if kind == "Complete" {
                    count.status.completion_time = Some(Time(whole_seconds(now)));
                }
            }
        }
        None => manage(&mut plan, &mut count, &active, terminating, suspended, now),
    }
    let deadline = count.deadline().filter(|_| !suspended);
    plan.again = [plan.again, deadline].into_iter().flatten().filter(|at| *at > now).min();
    let mut status = count.status;
    status.active = unless_zero(active.len() as i32);
    status.ready = Some(active.iter().filter(|pod| pods::is_ready(pod)).count() as i32);
    status.terminating = Some(terminating);
    plan.status = status;
    plan
}

/// Creates or deletes pods to reach the desired parallelism.
fn manage(
    plan: &mut Plan,
    count: &mut Count<'_>,
    active: &[&Arc<Pod>],
    terminating: i32,
    suspended: bool,
    now: Timestamp,
) {
    let spec = count.spec;
    let running = active.len() as i32;
    if suspended {
        // Pods that are deleted because of suspension do not count as failed.
        plan.delete.extend(active.iter().map(|pod| name_of(&***pod).to_string()));
        plan.release.extend(active.iter().map(|pod| name_of(&***pod).to_string()));
        set_condition(&mut count.status, "Suspended", "True", "JobSuspended", "Job suspended", now);
        return;
    }
    if condition(&count.status, "Suspended").is_some() {
        set_condition(&mut count.status, "Suspended", "False", "JobResumed", "Job resumed", now);
        count.status.start_time = Some(Time(whole_seconds(now)));
    }
    let parallelism = spec.parallelism.unwrap_or(1);
    let wanted = match spec.completions {
        None if count.succeeded() > 0 => running,
        None => parallelism,
        Some(completions) => (completions - count.succeeded()).clamp(0, parallelism.max(0)),
    };
    if running > wanted {
        let mut excess = active.to_vec();
        excess.sort_by_key(|pod| {
            (pods::node_name(pod).is_some(), pods::is_ready(pod), name_of(&***pod).to_string())
        });
        excess.truncate((running - wanted) as usize);
        plan.delete.extend(excess.iter().map(|pod| name_of(&***pod).to_string()));
        plan.release.extend(excess.iter().map(|pod| name_of(&***pod).to_string()));
        return;
    }
    let replaced_late = spec.pod_replacement_policy.as_deref() == Some("Failed");
    let missing = wanted - running - if replaced_late { terminating } else { 0 };
    if missing <= 0 {
        return;
    }
    if let Some(until) = count.backoff.until().filter(|until| *until > now) {
        plan.again = Some(until);
        return;
    }
    let missing = (missing as usize).min(BURST_MAX);
    if !count.is_indexed() {
        plan.create = vec![None; missing];
        return;
    }
    let busy: BTreeSet<i32> = active.iter().filter_map(|pod| index_of(pod)).collect();
    let pending = (0..spec.completions.unwrap_or(0))
        .filter(|index| !busy.contains(index) && !count.completed.contains(index))
        .take(missing);
    plan.create = pending.map(Some).collect();
}

/// The counts of a Job while they are updated.
struct Count<'a> {
    spec: &'a JobSpec,
    status: JobStatus,
    uncounted_succeeded: Vec<String>,
    uncounted_failed: Vec<String>,
    completed: BTreeSet<i32>,
    release: Vec<String>,
    backoff: Backoff,
    /// The message if a rule of the pod failure policy fails the Job.
    fatal: Option<String>,
}

impl<'a> Count<'a> {
    fn new(job: &Job, spec: &'a JobSpec, backoff: Backoff) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let completed = indexes::parse(status.completed_indexes.as_deref().unwrap_or_default());
        Self {
            spec,
            status,
            uncounted_succeeded: uncounted.succeeded.unwrap_or_default(),
            uncounted_failed: uncounted.failed.unwrap_or_default(),
            completed,
            release: Vec::new(),
            backoff,
            fatal: None,
        }
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn is_settled(&self) -> bool {
        self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty()
    }

    fn succeeded(&self) -> i32 {
        if self.is_indexed() {
            return self.completed.len() as i32;
        }
        self.status.succeeded.unwrap_or(0) + self.uncounted_succeeded.len() as i32
    }

    fn failed(&self) -> i32 {
        self.status.failed.unwrap_or(0) + self.uncounted_failed.len() as i32
    }

    /// Adds pods whose uid is recorded in the status and whose finalizer is removed to the counts.
    fn flush(&mut self, owned: &[Arc<Pod>]) {
        let held: BTreeSet<&str> =
            owned.iter().filter(|pod| is_held(pod)).map(|pod| uid_of(&**pod)).collect();
        let settle = |uids: &mut Vec<String>| {
            let before = uids.len();
            uids.retain(|uid| held.contains(uid.as_str()));
            (before - uids.len()) as i32
        };
        let succeeded = settle(&mut self.uncounted_succeeded);
        let failed = settle(&mut self.uncounted_failed);
        self.status.succeeded = unless_zero(self.status.succeeded.unwrap_or(0) + succeeded);
        self.status.failed = unless_zero(self.status.failed.unwrap_or(0) + failed);
    }

    /// Records pods that finished since the last pass.
    fn note_finished(&mut self, owned: &[Arc<Pod>], now: Timestamp) {
        let mut fresh: Vec<&Arc<Pod>> = owned.iter().filter(|pod| is_held(pod)).collect();
        fresh.sort_by_key(|pod| (finish_time(pod), name_of(&***pod).to_string()));
        for pod in fresh {
            let uid = uid_of(&**pod).to_string();
            let noted = self.uncounted_succeeded.contains(&uid) || self.uncounted_failed.contains(&uid);
            if noted {
                self.release.push(name_of(&**pod).to_string());
            } else if pods::phase(pod) == "Succeeded" {
                self.release.push(name_of(&**pod).to_string());
                self.backoff = Backoff::default();
                match index_of(pod).filter(|_| self.is_indexed()) {
                    Some(index) if self.completed.insert(index) => self.uncounted_succeeded.push(uid),
                    Some(_) => {}
                    None => self.uncounted_succeeded.push(uid),
                }
            } else if self.has_failed(pod) {
                self.release.push(name_of(&**pod).to_string());
                match self.policy(pod) {
                    Some((rule, _)) if rule.action == "Ignore" => {}
                    found => {
                        if let Some((rule, number)) = found.filter(|(rule, _)| rule.action == "FailJob") {
                            let message = policy_message(pod, rule, number);
                            self.fatal.get_or_insert(message);
                        }
                        self.uncounted_failed.push(uid);
                        self.backoff.failures += 1;
                        self.backoff.last = Some(finish_time(pod).unwrap_or(now));
                    }
                }
            }
        }
        let some = |uids: &Vec<String>| Some(uids.clone()).filter(|uids| !uids.is_empty());
        self.status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: some(&self.uncounted_succeeded),
            failed: some(&self.uncounted_failed),
        });
        if self.is_indexed() {
            self.status.completed_indexes =
                Some(indexes::print(&self.completed)).filter(|text| !text.is_empty());
            // For indexed Jobs, `succeeded` counts indexes, not pods.
            self.status.succeeded =
                unless_zero(self.completed.len() as i32 - self.uncounted_succeeded.len() as i32);
        }
    }

    /// A pod that is deleted before it finished counts as failed, unless the pod replacement policy is `Failed`.
    fn has_failed(&self, pod: &Pod) -> bool {
        let only_failed = self.spec.pod_replacement_policy.as_deref() == Some("Failed");
        pods::phase(pod) == "Failed" || (!only_failed && is_deleting(pod))
    }

    /// The first rule of the pod failure policy that matches the pod, and its index.
    fn policy(&self, pod: &Pod) -> Option<(&'a PodFailurePolicyRule, usize)> {
        if pods::phase(pod) != "Failed" {
            return None;
        }
        let rules = &self.spec.pod_failure_policy.as_ref()?.rules;
        rules.iter().enumerate().find(|(_, rule)| meets(pod, rule)).map(|(number, rule)| (rule, number))
    }

    fn deadline(&self) -> Option<Timestamp> {
        let start = self.status.start_time.as_ref()?.0;
        start.checked_add(SignedDuration::from_secs(self.spec.active_deadline_seconds?)).ok()
    }

    /// Whether the Job is finished now, and with which condition.
    fn verdict(
        &self,
        active: &[&Arc<Pod>],
        owned: &[Arc<Pod>],
        now: Timestamp,
    ) -> Option<(&'static str, &'static str, String)> {
        let decided = ["SuccessCriteriaMet", "FailureTarget"];
        if decided.iter().any(|kind| condition(&self.status, kind).is_some()) {
            return None;
        }
        if let Some(message) = &self.fatal {
            return Some(("FailureTarget", "PodFailurePolicy", message.clone()));
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed() > limit || self.too_many_restarts(owned, limit) {
            let message = "Job has reached the specified backoff limit".to_string();
            return Some(("FailureTarget", "BackoffLimitExceeded", message));
        }
        let suspended = self.spec.suspend.unwrap_or(false);
        if !suspended && self.deadline().is_some_and(|deadline| deadline <= now) {
            let message = "Job was active longer than specified deadline".to_string();
            return Some(("FailureTarget", "DeadlineExceeded", message));
        }
        let enough = match self.spec.completions {
            None => self.succeeded() > 0,
            Some(completions) => self.succeeded() >= completions,
        };
        let message = "Reached expected number of succeeded pods".to_string();
        (enough && active.is_empty()).then_some(("SuccessCriteriaMet", "CompletionsReached", message))
    }

    /// With restartPolicy OnFailure, container restarts count as failures.
    fn too_many_restarts(&self, owned: &[Arc<Pod>], limit: i32) -> bool {
        let template = self.spec.template.spec.as_ref();
        if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let restarts: i32 = owned
            .iter()
            .filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"))
            .filter_map(|pod| pod.status.as_ref())
            .flat_map(|status| {
                status.container_statuses.iter().chain(&status.init_container_statuses).flatten()
            })
            .map(|status| status.restart_count)
            .sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }
}

fn finish_time(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let ended = status.container_statuses.iter().flatten().filter_map(|container| {
        container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0)
    });
    ended.max().or_else(|| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0))
}

fn meets(pod: &Pod, rule: &PodFailurePolicyRule) -> bool {
    if let Some(codes) = &rule.on_exit_codes {
        let statuses = pod.status.iter().flat_map(|status| {
            status.container_statuses.iter().chain(&status.init_container_statuses).flatten()
        });
        return statuses
            .filter(|status| codes.container_name.as_ref().is_none_or(|name| *name == status.name))
            .filter_map(|status| status.state.as_ref()?.terminated.as_ref())
            .filter(|ended| ended.exit_code != 0)
            .any(|ended| codes.values.contains(&ended.exit_code) == (codes.operator == "In"));
    }
    rule.on_pod_conditions.iter().flatten().any(|pattern| {
        pods::condition(pod, &pattern.type_)
            .is_some_and(|condition| condition.status == pattern.status.as_deref().unwrap_or("True"))
    })
}

fn policy_message(pod: &Pod, rule: &PodFailurePolicyRule, number: usize) -> String {
    let subject = format!("pod {}/{}", namespace_of(pod), name_of(pod));
    if rule.on_exit_codes.is_some() {
        let statuses = pod.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
        let ended = statuses
            .filter_map(|status| Some((status, status.state.as_ref()?.terminated.as_ref()?)))
            .find(|(_, ended)| ended.exit_code != 0);
        if let Some((status, ended)) = ended {
            let (name, code) = (&status.name, ended.exit_code);
            return format!(
                "Container {name} for {subject} failed with exit code {code} matching FailJob rule at index {number}"
            );
        }
    }
    let condition = rule.on_pod_conditions.iter().flatten().map(|pattern| pattern.type_.clone()).next();
    let condition = condition.unwrap_or_default();
    let subject = subject.replacen("pod", "Pod", 1);
    format!("{subject} has condition {condition} matching FailJob rule at index {number}")
}

pub(super) fn new_pod(job: &Job, index: Option<i32>) -> Pod {
    let mut template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let meta = template.metadata.get_or_insert_default();
    meta.finalizers.get_or_insert_default().push(FINALIZER.into());
    // The API server adds these labels to the template when it generates the selector; a Job with `manualSelector` has
    // none.
    let labels = meta.labels.get_or_insert_default();
    labels.entry("batch.kubernetes.io/job-name".into()).or_insert_with(|| name_of(job).to_string());
    labels.entry("job-name".into()).or_insert_with(|| name_of(job).to_string());
    labels.entry("batch.kubernetes.io/controller-uid".into()).or_insert_with(|| uid_of(job).to_string());
    labels.entry("controller-uid".into()).or_insert_with(|| uid_of(job).to_string());
    if let Some(index) = index {
        labels.insert(INDEX.into(), index.to_string());
        meta.annotations.get_or_insert_default().insert(INDEX.into(), index.to_string());
        let spec = template.spec.get_or_insert_default();
        spec.hostname = Some(format!("{}-{index}", name_of(job)));
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let env = container.env.get_or_insert_default();
            if env.iter().all(|variable| variable.name != "JOB_COMPLETION_INDEX") {
                let from_label = json!({"name": "JOB_COMPLETION_INDEX",
                    "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}}});
                env.extend(serde_json::from_value::<EnvVar>(from_label));
            }
        }
    }
    let mut pod = pods::from_template(&template, namespace_of(job), owners::controller_reference(job));
    if let Some(index) = index {
        pod.metadata.generate_name = Some(format!("{}-{index}-", name_of(job)));
    }
    pod
}
