use std::sync::Arc;

use serde_json::Value;

use super::plan::{Plan, new_pod};
use super::*;
use crate::controllers::fixtures::{from, merge, now, pod as any_pod};

fn job(patch: Value) -> Job {
    let mut object = json!({
        "metadata": {"name": "work", "namespace": "default", "uid": "j"},
        "spec": {"parallelism": 2, "completions": 3, "backoffLimit": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}},
    });
    merge(&mut object, &patch);
    from(object)
}

fn pod(name: &str, patch: Value) -> Arc<Pod> {
    let mut with = json!({"metadata": {"finalizers": [FINALIZER]}});
    merge(&mut with, &patch);
    any_pod(name, with)
}

fn ended(name: &str, phase: &str, seconds_ago: i64) -> Arc<Pod> {
    let at = now() - jiff::SignedDuration::from_secs(seconds_ago);
    let code = i32::from(phase == "Failed");
    pod(
        name,
        json!({"status": {"phase": phase, "conditions": [], "containerStatuses": [{"name": "c", "image": "",
        "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "finishedAt": at}}}]}}),
    )
}

fn decide(job: &Job, pods: &[Arc<Pod>]) -> Plan {
    plan(job, pods, Backoff::default(), now())
}

fn conditions(plan: &Plan) -> Vec<(String, String)> {
    let all = plan.status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    all.map(|condition| (condition.type_.clone(), condition.reason.clone().unwrap_or_default())).collect()
}

fn named(kind: &str, reason: &str) -> (String, String) {
    (kind.to_string(), reason.to_string())
}

#[test]
fn active_pods_are_limited_by_parallelism_and_completions() {
    assert_eq!(decide(&job(json!({})), &[]).create, [None, None]);
    assert_eq!(decide(&job(json!({})), &[pod("a", json!({}))]).create, [None]);
    let almost = job(json!({"status": {"succeeded": 2}}));
    assert_eq!(decide(&almost, &[]).create, [None]);
    let too_many = decide(&almost, &[pod("a", json!({})), pod("b", json!({}))]);
    assert_eq!((too_many.delete, too_many.release), (vec!["a".to_string()], vec!["a".to_string()]));
}

#[test]
fn finished_pods_are_recorded_released_and_counted() {
    let first = decide(&job(json!({})), &[ended("a", "Succeeded", 1)]);
    let uncounted = first.status.uncounted_terminated_pods.clone().unwrap_or_default();
    assert_eq!(uncounted.succeeded, Some(vec!["uid-a".to_string()]));
    assert_eq!((first.release, first.status.succeeded), (vec!["a".to_string()], None));
    let mut next = job(json!({}));
    next.status = Some(first.status);
    let released = ended("a", "Succeeded", 1);
    let mut released = Pod::clone(&released);
    released.metadata.finalizers = None;
    let second = decide(&next, &[Arc::new(released)]);
    assert_eq!(second.status.succeeded, Some(1));
    assert_eq!(second.status.uncounted_terminated_pods, Some(Default::default()));
    assert_eq!(second.create, [None, None]);
}

#[test]
fn job_completes_with_enough_successes() {
    let done = decide(&job(json!({"status": {"succeeded": 3}})), &[]);
    let reason = "CompletionsReached";
    assert_eq!(conditions(&done), [named("SuccessCriteriaMet", reason), named("Complete", reason)]);
    assert!(done.status.completion_time.is_some());
    // The Job is not complete until every outcome is counted.
    let early = decide(&job(json!({"status": {"succeeded": 2}})), &[ended("c", "Succeeded", 1)]);
    assert_eq!(conditions(&early), [named("SuccessCriteriaMet", reason)]);
}

#[test]
fn failures_back_off_and_exceed_backoff_limit() {
    let failed = decide(&job(json!({})), &[ended("a", "Failed", 4)]);
    assert!(failed.create.is_empty());
    assert_eq!(failed.again, Some(now() + jiff::SignedDuration::from_secs(6)));
    let later = decide(&job(json!({})), &[ended("a", "Failed", 11)]);
    assert_eq!(later.create.len(), 2);
    let over =
        decide(&job(json!({"status": {"failed": 2}})), &[ended("a", "Failed", 1), pod("b", json!({}))]);
    assert_eq!(conditions(&over), [named("FailureTarget", "BackoffLimitExceeded")]);
    assert_eq!(over.delete, ["b"]);
    let end = json!({"status": {"failed": 3, "conditions": [{"type": "FailureTarget", "status": "True",
        "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}]}});
    let last = conditions(&decide(&job(end), &[]));
    assert_eq!(last[1], named("Failed", "BackoffLimitExceeded"));
}

#[test]
fn deleted_pod_counts_as_failed_unless_replacement_policy_is_failed() {
    let deleted = pod("a", json!({"metadata": {"deletionTimestamp": "2026-01-01T11:00:00Z"}}));
    let failed = |plan: Plan| {
        plan.status.uncounted_terminated_pods.unwrap_or_default().failed.map_or(0, |all| all.len())
    };
    assert_eq!(failed(decide(&job(json!({})), std::slice::from_ref(&deleted))), 1);
    let patient = job(json!({"spec": {"podReplacementPolicy": "Failed"}}));
    let waiting = decide(&patient, &[deleted]);
    assert_eq!((waiting.create.len(), failed(waiting)), (1, 0));
}

#[test]
fn pod_failure_policy_ignores_disruptions_and_fails_on_exit_codes() {
    let policy = json!({"spec": {"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}}});
    let mut disrupted = Pod::clone(&ended("a", "Failed", 20));
    disrupted.status.as_mut().expect("status").conditions =
        Some(vec![from(json!({"type": "DisruptionTarget", "status": "True"}))]);
    let ignored = decide(&job(policy.clone()), &[Arc::new(disrupted)]);
    assert_eq!((ignored.create.len(), ignored.release.len()), (2, 1));
    let fatal = decide(&job(policy), &[ended("a", "Failed", 20)]);
    assert_eq!(conditions(&fatal), [named("FailureTarget", "PodFailurePolicy")]);
    let message = fatal.status.conditions.iter().flatten().find_map(|condition| condition.message.clone());
    let expected = "Container c for pod default/a failed with exit code 1 matching FailJob rule at index 1";
    assert_eq!(message.as_deref(), Some(expected));
}

#[test]
fn indexed_job_completes_each_index_once() {
    let indexed = job(json!({"spec": {"completionMode": "Indexed", "parallelism": 5, "completions": 5},
        "status": {"completedIndexes": "0,2", "succeeded": 2}}));
    let index = |index: i32| json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}}});
    let plan = decide(&indexed, &[pod("a", index(1))]);
    assert_eq!(plan.create, [Some(3), Some(4)]);
    let made = new_pod(&indexed, Some(3));
    assert_eq!(made.metadata.generate_name.as_deref(), Some("work-3-"));
    let mut succeeded = Pod::clone(&ended("a", "Succeeded", 1));
    succeeded.metadata.annotations = from::<Pod>(index(1)).metadata.annotations;
    assert_eq!(decide(&indexed, &[Arc::new(succeeded)]).status.completed_indexes.as_deref(), Some("0-2"));
}

#[test]
fn suspended_jobs_have_no_pods() {
    let plan = decide(&job(json!({"spec": {"suspend": true}})), &[pod("a", json!({}))]);
    assert_eq!((plan.delete, plan.status.start_time), (vec!["a".to_string()], None));
}

#[test]
fn active_deadline_fails_the_job() {
    let started =
        json!({"spec": {"activeDeadlineSeconds": 60}, "status": {"startTime": "2026-01-01T11:59:30Z"}});
    assert_eq!(decide(&job(started), &[]).again, Some(now() + jiff::SignedDuration::from_secs(30)));
    let late =
        json!({"spec": {"activeDeadlineSeconds": 60}, "status": {"startTime": "2026-01-01T11:59:00Z"}});
    assert_eq!(conditions(&decide(&job(late), &[]))[0], named("FailureTarget", "DeadlineExceeded"));
}
