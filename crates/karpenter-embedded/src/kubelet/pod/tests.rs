use super::*;
use crate::controllers::fixtures::{at, from, merge, now};

fn node() -> Node {
    from(json!({"metadata": {"name": "n1", "creationTimestamp": "2026-01-01T11:00:00Z"}}))
}

/// A pod bound at 11:59:50.
fn pod(patch: Value) -> Pod {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:59:50Z"}]},
    });
    merge(&mut object, &patch);
    from(object)
}

/// A pod that is running and ready since 11:59:50.
fn running_pod(patch: Value) -> Pod {
    let mut with = json!({"status": {"phase": "Running", "startTime": "2026-01-01T11:59:50Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:50Z"}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T11:59:50Z"}}}]}});
    merge(&mut with, &patch);
    pod(with)
}

fn step(pod: &Pod) -> Step {
    let booted = at("2026-01-01T11:00:00Z");
    decide(pod, &node(), Some(booted), || true, &Options::default(), now())
}

fn noted(notes: Value) -> Value {
    json!({"metadata": {"annotations": notes}})
}

fn deleted(seconds_ago: i64, grace: i64, patch: Value) -> Value {
    let deadline = now() + SignedDuration::from_secs(grace - seconds_ago);
    let mut object =
        json!({"metadata": {"deletionTimestamp": deadline, "deletionGracePeriodSeconds": grace}});
    merge(&mut object, &patch);
    object
}

#[test]
fn bound_pod_runs_and_becomes_ready() {
    let pod = pod(json!({}));
    assert_eq!(step(&pod), Step::Write(Change::Running { ready: true }));
    let patch = status_patch(&pod, &node(), &Change::Running { ready: true }, || "100.64.0.1".into(), now());
    let status = &patch["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["podIP"], "100.64.0.1");
    assert_eq!(status["startTime"], "2026-01-01T12:00:00Z");
    assert_eq!(status["containerStatuses"][0]["state"]["running"]["startedAt"], "2026-01-01T12:00:00Z");
    let conditions: Vec<(&str, &str)> = status["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .map(|condition| {
            (condition["type"].as_str().unwrap_or(""), condition["status"].as_str().unwrap_or(""))
        })
        .collect();
    let all_true = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| (kind, "True"));
    assert_eq!(conditions, all_true);
    // The transition time of PodScheduled is kept.
    assert_eq!(status["conditions"][4]["lastTransitionTime"], "2026-01-01T11:59:50Z");
}

#[test]
fn pod_starts_after_boot_start_delay_and_bound_claims() {
    let slow = pod(noted(json!({"fake-kubelet/start-seconds": "15"})));
    assert_eq!(step(&slow), Step::Wait(Duration::from_secs(5)));
    let unready_node = decide(
        &pod(json!({})),
        &node(),
        Some(at("2026-01-01T12:00:07Z")),
        || true,
        &Options::default(),
        now(),
    );
    assert_eq!(unready_node, Step::Wait(Duration::from_secs(7)));
    let unbound = decide(&pod(json!({})), &node(), Some(now()), || false, &Options::default(), now());
    assert_eq!(unbound, Step::Nothing);
}

#[test]
fn readiness_follows_script_and_readiness_gates() {
    let late = running_pod(json!({"metadata": {"annotations": {"fake-kubelet/ready-seconds": "12"}},
        "status": {"conditions": []}}));
    assert_eq!(step(&late), Step::Wait(Duration::from_secs(2)));
    let never = running_pod(noted(json!({"fake-kubelet/never-ready": "true"})));
    assert_eq!(step(&never), Step::Write(Change::Running { ready: false }));
    let gated = running_pod(json!({"spec": {"readinessGates": [{"conditionType": "gate"}]}}));
    assert_eq!(step(&gated), Step::Write(Change::Running { ready: false }));
    let patch = status_patch(&gated, &node(), &Change::Running { ready: false }, String::new, now());
    assert_eq!(patch["status"]["containerStatuses"][0]["ready"], true);
}

#[test]
fn scripted_pods_finish_after_their_run_time() {
    let job = |seconds: &str, code: &str, policy: &str| {
        running_pod(json!({"spec": {"restartPolicy": policy}, "metadata": {"annotations":
            {"fake-kubelet/run-seconds": seconds, "fake-kubelet/exit-code": code}}}))
    };
    assert_eq!(step(&job("30", "0", "Never")), Step::Wait(Duration::from_secs(20)));
    let done = |exit_code| Step::Write(Change::Finished { exit_code, reason: None, message: None });
    assert_eq!(step(&job("10", "0", "Never")), done(0));
    assert_eq!(step(&job("10", "3", "Never")), done(3));
    assert_eq!(step(&job("10", "3", "OnFailure")), Step::Write(Change::Restarted));
    assert_eq!(step(&job("10", "0", "Always")), Step::Nothing);
    let patch = status_patch(&job("10", "3", "OnFailure"), &node(), &Change::Restarted, String::new, now());
    assert_eq!(patch["status"]["containerStatuses"][0]["restartCount"], 1);
    assert_eq!(
        patch["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
        "2026-01-01T12:00:00Z"
    );
}

#[test]
fn active_deadline_fails_the_pod() {
    let late = running_pod(json!({"spec": {"activeDeadlineSeconds": 10}}));
    assert!(matches!(step(&late), Step::Write(Change::Finished { reason: Some("DeadlineExceeded"), .. })));
    let early = running_pod(json!({"spec": {"activeDeadlineSeconds": 15}}));
    assert_eq!(step(&early), Step::Wait(Duration::from_secs(5)));
}

#[test]
fn termination_takes_hook_and_stop_time_within_grace_period() {
    let hook = json!({"spec": {"containers": [{"name": "c", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 20}}}}]}});
    assert_eq!(step(&running_pod(deleted(5, 30, hook.clone()))), Step::Wait(Duration::from_secs(15)));
    assert_eq!(step(&running_pod(deleted(5, 8, hook))), Step::Wait(Duration::from_secs(3)));
    assert_eq!(step(&running_pod(deleted(0, 30, json!({})))), Step::Remove);
    let lingering = noted(json!({"pod-delete.stage.kwok.x-k8s.io/delay": "10s"}));
    assert_eq!(step(&running_pod(deleted(4, 30, lingering))), Step::Wait(Duration::from_secs(6)));
    assert_eq!(step(&pod(deleted(0, 30, noted(json!({"fake-kubelet/stop-seconds": "10"}))))), Step::Remove);
}

#[test]
fn pod_with_finalizer_reports_its_outcome_before_removal() {
    let held = json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}});
    let expected = Step::Write(Change::Finished { exit_code: 143, reason: None, message: None });
    assert_eq!(step(&running_pod(deleted(0, 30, held.clone()))), expected);
    let mut ended = held;
    merge(&mut ended, &json!({"status": {"phase": "Failed"}}));
    assert_eq!(step(&running_pod(deleted(0, 30, ended.clone()))), Step::Remove);
    assert_eq!(step(&running_pod(deleted(0, 0, ended))), Step::Nothing);
}

#[test]
fn mirror_pods_and_pods_of_dead_nodes_are_not_removed() {
    let mirror = noted(json!({"kubernetes.io/config.mirror": "x"}));
    assert_eq!(step(&running_pod(deleted(60, 30, mirror))), Step::Nothing);
    let dead: Node = from(json!({"metadata": {"name": "n1", "creationTimestamp": "2026-01-01T11:00:00Z",
        "annotations": {"fake-kubelet/dies-at": "2026-01-01T11:59:00Z"}}}));
    let gone = running_pod(deleted(60, 30, json!({})));
    assert_eq!(decide(&gone, &dead, Some(now()), || true, &Options::default(), now()), Step::Nothing);
}
