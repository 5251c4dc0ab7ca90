//! CronJob controller: creates a Job at each scheduled time, in UTC. Other time zones are not supported.
//!
//! Upstream: pkg/controller/cronjob/cronjob_controllerv2.go

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use karpenter_model::cron::CronSchedule;
use karpenter_runtime::clock::until;
use karpenter_runtime::object::{ObjectKey, is_already_exists, is_deleting, name_of, namespace_of, uid_of};
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::context::Context;
use super::events::{self, ObjectEvent};
use super::owners;
use crate::stores::BY_CONTROLLER;

const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub struct CronJobs {
    pub context: Context,
}

/// The writes of one reconcile.
#[derive(Debug, PartialEq)]
struct Plan {
    /// The scheduled time for which a Job is created, if any.
    start: Option<Timestamp>,
    /// Names of the Jobs to delete.
    delete: Vec<String>,
    status: CronJobStatus,
    next: Option<Timestamp>,
}

impl CronJobs {
    pub fn watch(&self, queue: &Queue) {
        let to = queue.clone();
        self.context.stores.cron_jobs.observe(move |change| to.add(ObjectKey::of(&change.object().metadata)));
        let to = queue.clone();
        self.context.stores.jobs.observe(move |change: &Change<Job>| {
            let job = change.object();
            if let Some(owner) = owners::controller_of(&job.metadata).filter(|owner| owner.kind == "CronJob")
            {
                to.add(ObjectKey::new(namespace_of(&**job), &owner.name));
            }
        });
    }
}

impl Reconcile for CronJobs {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let stores = &self.context.stores;
        let Some(cron) = stores.cron_jobs.get_key(key).filter(|cron| !is_deleting(&**cron)) else {
            return Ok(Requeue::No);
        };
        let Some(spec) = &cron.spec else { return Ok(Requeue::No) };
        let schedule = match parse(spec) {
            Ok(schedule) => schedule,
            Err(event) => {
                events::record(&self.context, &*cron, event).await;
                return Ok(Requeue::No);
            }
        };
        let jobs = stores.jobs.by(BY_CONTROLLER, uid_of(&*cron));
        let now = self.context.clock.now();
        let mut plan = plan(&cron, spec, &schedule, &jobs, now);
        for name in &plan.delete {
            if let Some(job) = jobs.iter().find(|job| name_of(&***job) == name) {
                self.context.delete(&stores.jobs, &**job).await?;
            }
        }
        if let Some(start) = plan.start {
            match self.context.create(&stores.jobs, &new_job(&cron, spec, start)).await {
                Ok(job) => {
                    plan.status.active.get_or_insert_default().push(reference(&job));
                    let message = format!("Created job {}", name_of(&job));
                    let event = ObjectEvent::normal("SuccessfulCreate", message, "cronjob-controller");
                    events::record(&self.context, &*cron, event).await;
                }
                Err(error) if is_already_exists(&error) => {}
                Err(error) => return Err(error),
            }
            plan.status.last_schedule_time = Some(Time(start));
        }
        let old = cron.status.clone().unwrap_or_default();
        self.context.merge_status(&stores.cron_jobs, &*cron, &old, &plan.status).await?;
        Ok(plan.next.map(|next| until(self.context.clock.now(), next)).into())
    }
}

fn parse(spec: &CronJobSpec) -> Result<CronSchedule, ObjectEvent> {
    let component = "cronjob-controller";
    if let Some(zone) = spec.time_zone.as_deref().filter(|zone| !matches!(*zone, "UTC" | "Etc/UTC" | "")) {
        return Err(ObjectEvent::warning(
            "UnknownTimeZone",
            format!("invalid timeZone: {zone:?}"),
            component,
        ));
    }
    spec.schedule.parse().map_err(|error| {
        ObjectEvent::warning(
            "UnparseableSchedule",
            format!("unparseable schedule {:?} : {error}", spec.schedule),
            component,
        )
    })
}

fn finished(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let ended =
        |kind: &str| conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True");
    if ended("Complete") {
        Some("Complete")
    } else if ended("Failed") {
        Some("Failed")
    } else {
        None
    }
}

fn plan(
    cron: &CronJob,
    spec: &CronJobSpec,
    schedule: &CronSchedule,
    jobs: &[Arc<Job>],
    now: Timestamp,
) -> Plan {
    let mut status = cron.status.clone().unwrap_or_default();
    let running: Vec<&Arc<Job>> = jobs.iter().filter(|job| finished(job).is_none()).collect();
    status.active =
        Some(running.iter().map(|job| reference(job)).collect::<Vec<_>>()).filter(|all| !all.is_empty());
    let completed = jobs.iter().filter(|job| finished(job) == Some("Complete"));
    let success = completed.filter_map(|job| job.status.as_ref()?.completion_time.clone()).max();
    status.last_successful_time = success.max(status.last_successful_time.take());

    let mut delete = Vec::new();
    let limits = [
        ("Complete", spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", spec.failed_jobs_history_limit.unwrap_or(1)),
    ];
    for (kind, limit) in limits {
        let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(|job| finished(job) == Some(kind)).collect();
        ended.sort_by_key(|job| {
            (job.status.as_ref().and_then(|status| status.start_time.clone()), name_of(&***job).to_string())
        });
        let excess = ended.len().saturating_sub(limit.max(0) as usize);
        delete.extend(ended.iter().take(excess).map(|job| name_of(&***job).to_string()));
    }

    let next = schedule.next_after(now.as_second()).and_then(|second| Timestamp::from_second(second).ok());
    if spec.suspend.unwrap_or(false) {
        return Plan { start: None, delete, status, next: None };
    }
    let mut start = due(cron, spec, schedule, now);
    // The name of a Job contains its scheduled time, so an existing name means that the Job was created.
    start = start.filter(|start| jobs.iter().all(|job| name_of(&**job) != job_name(cron, *start)));
    if start.is_some() && !running.is_empty() {
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") => start = None,
            Some("Replace") => {
                delete.extend(running.iter().map(|job| name_of(&***job).to_string()));
                status.active = None;
            }
            _ => {}
        }
    }
    Plan { start, delete, status, next }
}

/// The latest scheduled time that has passed since the last started Job, and not longer ago than
/// `startingDeadlineSeconds`.
fn due(cron: &CronJob, spec: &CronJobSpec, schedule: &CronSchedule, now: Timestamp) -> Option<Timestamp> {
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let mut earliest = last.or(cron.metadata.creation_timestamp.as_ref())?.0.as_second();
    if let Some(deadline) = spec.starting_deadline_seconds {
        earliest = earliest.max(now.as_second() - deadline);
    }
    let mut due = None;
    // The loop ends after 100,000 scheduled times, which is ten weeks if the schedule is every minute. If more times
    // have passed, the last time that the loop reached is used.
    for _ in 0..100_000 {
        match schedule.next_after(earliest) {
            Some(second) if second <= now.as_second() => {
                due = Some(second);
                earliest = second;
            }
            _ => break,
        }
    }
    due.and_then(|second| Timestamp::from_second(second).ok())
}

fn job_name(cron: &CronJob, start: Timestamp) -> String {
    format!("{}-{}", name_of(cron), start.as_second().div_euclid(60))
}

fn new_job(cron: &CronJob, spec: &CronJobSpec, start: Timestamp) -> Job {
    let template = spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.into(), start.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let metadata = ObjectMeta {
        name: Some(job_name(cron, start)),
        namespace: cron.metadata.namespace.clone(),
        labels: meta.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![owners::controller_reference(cron)]),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: template.spec, status: None }
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::fixtures::{at, from, merge, now};

    fn cron(patch: Value) -> CronJob {
        let mut object = json!({
            "metadata": {"name": "tidy", "namespace": "default", "uid": "c", "creationTimestamp": "2026-01-01T11:57:30Z"},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {}}}},
        });
        merge(&mut object, &patch);
        from(object)
    }

    fn decide(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Plan {
        let spec = cron.spec.as_ref().expect("spec");
        plan(cron, spec, &parse(spec).expect("a schedule"), jobs, now)
    }

    fn job(name: &str, ended: Option<&str>) -> Arc<Job> {
        let conditions: Vec<Value> =
            ended.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        Arc::new(from(json!({"metadata": {"name": name, "namespace": "default"},
            "status": {"conditions": conditions, "startTime": "2026-01-01T10:00:00Z"}})))
    }

    #[test]
    fn job_starts_on_schedule_and_requeues_for_the_next_time() {
        let early = decide(&cron(json!({})), &[], at("2026-01-01T11:59:59Z"));
        assert_eq!((early.start, early.next), (None, Some(now())));
        let due = decide(&cron(json!({})), &[], now());
        assert_eq!((due.start, due.next), (Some(now()), Some(at("2026-01-01T12:05:00Z"))));
        let done = json!({"status": {"lastScheduleTime": "2026-01-01T12:00:00Z"}});
        assert_eq!(decide(&cron(done), &[], now()).start, None);
        assert_eq!(decide(&cron(json!({"spec": {"suspend": true}})), &[], now()).start, None);
    }

    #[test]
    fn only_the_latest_missed_time_starts_a_job() {
        let late = decide(&cron(json!({})), &[], at("2026-01-01T12:17:00Z"));
        assert_eq!(late.start, Some(at("2026-01-01T12:15:00Z")));
        let strict = cron(json!({"spec": {"startingDeadlineSeconds": 60}}));
        assert_eq!(decide(&strict, &[], at("2026-01-01T12:17:00Z")).start, None);
    }

    #[test]
    fn concurrency_policy_applies_to_active_jobs() {
        let running = [job("tidy-1", None)];
        let policy = |policy: &str| cron(json!({"spec": {"concurrencyPolicy": policy}}));
        assert!(decide(&policy("Allow"), &running, now()).start.is_some());
        assert_eq!(decide(&policy("Forbid"), &running, now()).start, None);
        let replace = decide(&policy("Replace"), &running, now());
        assert_eq!((replace.start, replace.delete), (Some(now()), vec!["tidy-1".to_string()]));
    }

    #[test]
    fn history_is_limited() {
        let jobs: Vec<Arc<Job>> = (0..5)
            .map(|number| job(&format!("tidy-{number}"), Some("Complete")))
            .chain((5..7).map(|number| job(&format!("tidy-{number}"), Some("Failed"))))
            .collect();
        assert_eq!(decide(&cron(json!({})), &jobs, now()).delete, ["tidy-0", "tidy-1", "tidy-5"]);
    }

    #[test]
    fn job_name_contains_scheduled_time() {
        let cron = cron(json!({}));
        let job = new_job(&cron, cron.spec.as_ref().expect("spec"), now());
        assert_eq!(name_of(&job), format!("tidy-{}", now().as_second() / 60));
    }
}
