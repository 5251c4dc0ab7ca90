use serde_json::{Value, json};

use super::*;
use crate::evictions::{BACKOFF_MAX, backoff};

fn time(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().expect("a time")
}

fn pod(metadata: Value, grace: Option<i64>) -> Pod {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [], "terminationGracePeriodSeconds": grace},
        "status": {"phase": "Running", "startTime": "2026-01-01T11:00:00Z"},
    });
    for (key, part) in metadata.as_object().into_iter().flatten() {
        value["metadata"][key] = part.clone();
    }
    serde_json::from_value(value).expect("a pod")
}

fn keep(value: &str) -> Value {
    json!({"annotations": {"karpenter.sh/do-not-disrupt": value}})
}

#[test]
fn pods_are_evicted_unless_protected_or_terminating() {
    let now = time("12:00:00");
    let terminating = json!({"deletionTimestamp": "2026-01-01T12:00:10Z"});
    let cases = [
        (pod(json!({}), Some(30)), EvictionAttempt::Evict),
        (pod(terminating, Some(30)), EvictionAttempt::Drop),
        (pod(keep("true"), Some(30)), EvictionAttempt::Wait { until: None }),
        (pod(keep("90m"), Some(30)), EvictionAttempt::Wait { until: Some(time("12:30:00")) }),
        (pod(keep("1h"), Some(30)), EvictionAttempt::Evict),
        (pod(keep("false"), Some(30)), EvictionAttempt::Evict),
        (pod(keep("-5m"), Some(30)), EvictionAttempt::Evict),
    ];
    for (pod, attempt) in cases {
        assert_eq!(decide(Some(&pod), &EvictionMode::Evict, now), attempt, "{:?}", pod);
    }
    assert_eq!(decide(None, &EvictionMode::Evict, now), EvictionAttempt::Drop);
}

#[test]
fn pod_is_deleted_when_its_grace_period_would_exceed_the_deadline() {
    let by = time("12:00:00");
    let ends = |at: &str| json!({"deletionTimestamp": format!("2026-01-01T{at}Z")});
    let cases = [
        // A pod with a grace period of 30 s is not deleted until 30 s before the deadline.
        (json!({}), Some(30), "11:59:30", None),
        (json!({}), Some(30), "11:59:31", Some(29)),
        (json!({}), Some(0), "11:59:59", None),
        (json!({}), Some(0), "12:00:01", Some(1)),
        (json!({}), Some(30), "12:00:20", Some(1)),
        (json!({}), None, "12:10:00", None),
        // The do-not-disrupt annotation does not protect a pod from deletion at the deadline.
        (keep("true"), Some(60), "11:59:10", Some(50)),
        // A pod that is terminating is deleted once more if its grace period would end after the deadline.
        (ends("11:59:59"), Some(30), "11:59:40", None),
        (ends("12:05:00"), Some(600), "11:58:00", Some(120)),
        (ends("12:00:00"), Some(600), "11:58:00", None),
        (ends("12:00:02"), Some(600), "12:00:01", None),
    ];
    for (metadata, grace, now, expected) in cases {
        let pod = pod(metadata, grace);
        let expected =
            expected.map_or(EvictionAttempt::Drop, |grace_seconds| EvictionAttempt::Delete { grace_seconds });
        let attempt = decide(Some(&pod), &EvictionMode::DeleteBy(by), time(now));
        assert_eq!(attempt, expected, "{now} {:?}", pod);
    }
}

#[test]
fn earlier_deadline_counts_and_deletion_precedes_eviction() {
    let (early, late) = (EvictionMode::DeleteBy(time("12:00:00")), EvictionMode::DeleteBy(time("12:10:00")));
    assert_eq!(early.clone().earlier(late.clone()), early);
    assert_eq!(late.clone().earlier(early.clone()), early);
    assert_eq!(EvictionMode::Evict.earlier(late.clone()), late);
    assert_eq!(late.clone().earlier(EvictionMode::Evict), late);
    let queue = EvictionQueue::default();
    let web = pod(json!({}), Some(30));
    queue.add(&web, "n1", EvictionMode::Evict, "Empty");
    queue.add(&web, "n1", late, "Empty");
    queue.add(&web, "n1", early.clone(), "Empty");
    let recreated = pod(json!({"uid": "u2"}), Some(30));
    queue.add(&recreated, "n1", EvictionMode::Evict, "Empty");
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.get(&key_of(&web)).map(|entry| entry.mode), Some(early));
}

#[test]
fn backoff_grows_to_ten_seconds() {
    let pauses: Vec<u128> = (1..=9).map(|failures| backoff(failures).as_millis()).collect();
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    assert_eq!(backoff(u32::MAX), BACKOFF_MAX);
}

#[test]
fn failures_are_classified_by_status_code() {
    let answer = |code: u16, message: &str| {
        let status = kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::failure(message, "Reason")
        };
        failure_of(&kube::Error::Api(Box::new(status)))
    };
    assert_eq!(answer(404, "not found"), Failure::Gone);
    assert_eq!(answer(409, "conflict"), Failure::Gone);
    assert_eq!(answer(429, "budget"), Failure::Budget);
    let several =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(answer(500, several), Failure::Budget);
    assert_eq!(answer(500, "etcd"), Failure::Other);
}

#[test]
fn eviction_with_a_deadline_leaves_the_pod_and_yields_to_other_modes() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
    let end = now + jiff::SignedDuration::from_secs(60);
    let until = EvictionMode::EvictUntil(end);
    let web = pod(json!({}), Some(30));
    assert_eq!(decide(Some(&web), &until, now), EvictionAttempt::Evict);
    assert_eq!(decide(Some(&web), &until, end), EvictionAttempt::Drop, "dropped at the deadline");
    let kept = pod(json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}), Some(30));
    assert_eq!(decide(Some(&kept), &until, now), EvictionAttempt::Wait { until: Some(end) });
    let sooner = EvictionMode::EvictUntil(now);
    assert_eq!(until.clone().earlier(sooner.clone()), sooner);
    for other in [EvictionMode::Evict, EvictionMode::DeleteBy(end)] {
        assert_eq!(until.clone().earlier(other.clone()), other);
        assert_eq!(other.clone().earlier(until.clone()), other);
    }
}
