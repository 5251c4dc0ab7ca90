use serde_json::{Value, json};

use super::*;

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
fn pods_are_asked_unless_they_say_no_or_are_going() {
    let now = time("12:00:00");
    let ending = json!({"deletionTimestamp": "2026-01-01T12:00:10Z"});
    let cases = [
        (pod(json!({}), Some(30)), Attempt::Evict),
        (pod(ending, Some(30)), Attempt::Drop),
        (pod(keep("true"), Some(30)), Attempt::Wait { until: None }),
        (pod(keep("90m"), Some(30)), Attempt::Wait { until: Some(time("12:30:00")) }),
        (pod(keep("1h"), Some(30)), Attempt::Evict),
        (pod(keep("false"), Some(30)), Attempt::Evict),
        (pod(keep("-5m"), Some(30)), Attempt::Evict),
    ];
    for (pod, attempt) in cases {
        assert_eq!(decide(Some(&pod), &Manner::Evict, now), attempt, "{:?}", pod);
    }
    assert_eq!(decide(None, &Manner::Evict, now), Attempt::Drop);
}

#[test]
fn pods_are_deleted_when_their_grace_would_outlast_the_node() {
    let by = time("12:00:00");
    let ends = |at: &str| json!({"deletionTimestamp": format!("2026-01-01T{at}Z")});
    let cases = [
        // A pod of 30 s is left alone until 30 s before the end.
        (json!({}), Some(30), "11:59:30", None),
        (json!({}), Some(30), "11:59:31", Some(29)),
        (json!({}), Some(0), "11:59:59", None),
        (json!({}), Some(0), "12:00:01", Some(1)),
        (json!({}), Some(30), "12:00:20", Some(1)),
        (json!({}), None, "12:10:00", None),
        // What it says about itself does not count any more.
        (keep("true"), Some(60), "11:59:10", Some(50)),
        // On its way out already: only if that would take too long, and only once.
        (ends("11:59:59"), Some(30), "11:59:40", None),
        (ends("12:05:00"), Some(600), "11:58:00", Some(120)),
        (ends("12:00:00"), Some(600), "11:58:00", None),
        (ends("12:00:02"), Some(600), "12:00:01", None),
    ];
    for (metadata, grace, now, expected) in cases {
        let pod = pod(metadata, grace);
        let expected = expected.map_or(Attempt::Drop, |grace_seconds| Attempt::Delete { grace_seconds });
        let attempt = decide(Some(&pod), &Manner::DeleteBy(by), time(now));
        assert_eq!(attempt, expected, "{now} {:?}", pod);
    }
}

#[test]
fn the_earlier_end_counts_and_deletion_beats_asking() {
    let (early, late) = (Manner::DeleteBy(time("12:00:00")), Manner::DeleteBy(time("12:10:00")));
    assert_eq!(early.clone().or_sooner(late.clone()), early);
    assert_eq!(late.clone().or_sooner(early.clone()), early);
    assert_eq!(Manner::Evict.or_sooner(late.clone()), late);
    assert_eq!(late.clone().or_sooner(Manner::Evict), late);
    let queue = EvictionQueue::default();
    let web = pod(json!({}), Some(30));
    queue.add(&web, "n1", Manner::Evict, "Empty");
    queue.add(&web, "n1", late, "Empty");
    queue.add(&web, "n1", early.clone(), "Empty");
    let namesake = pod(json!({"uid": "u2"}), Some(30));
    queue.add(&namesake, "n1", Manner::Evict, "Empty");
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.get(&key_of(&web)).map(|entry| entry.manner), Some(early));
}

#[test]
fn pauses_grow_to_ten_seconds() {
    let pauses: Vec<u128> = (1..=9).map(|failures| launch_backoff(failures).as_millis()).collect();
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    assert_eq!(launch_backoff(u32::MAX), BACK_OFF_MAX);
}

#[test]
fn answers_of_the_server() {
    let answer = |code: u16, message: &str| {
        let status = kube::core::Status {
            code,
            message: message.to_owned(),
            ..kube::core::Status::failure(message, "Reason")
        };
        refusal_of(&kube::Error::Api(Box::new(status)))
    };
    assert_eq!(answer(404, "not found"), Refusal::Gone);
    assert_eq!(answer(409, "conflict"), Refusal::Gone);
    assert_eq!(answer(429, "budget"), Refusal::Budget);
    let several =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(answer(500, several), Refusal::Budget);
    assert_eq!(answer(500, "etcd"), Refusal::Other);
}

#[test]
fn an_eviction_with_an_end_leaves_the_pod_there_and_gives_way_to_any_other() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
    let end = now + jiff::SignedDuration::from_secs(60);
    let until = Manner::EvictUntil(end);
    let web = pod(json!({}), Some(30));
    assert_eq!(decide(Some(&web), &until, now), Attempt::Evict);
    assert_eq!(decide(Some(&web), &until, end), Attempt::Drop, "not a moment longer");
    let kept = pod(json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}), Some(30));
    assert_eq!(decide(Some(&kept), &until, now), Attempt::Wait { until: Some(end) });
    let sooner = Manner::EvictUntil(now);
    assert_eq!(until.clone().or_sooner(sooner.clone()), sooner);
    for other in [Manner::Evict, Manner::DeleteBy(end)] {
        assert_eq!(until.clone().or_sooner(other.clone()), other);
        assert_eq!(other.clone().or_sooner(until.clone()), other);
    }
}
