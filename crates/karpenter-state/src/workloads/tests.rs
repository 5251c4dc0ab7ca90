use karpenter_model::problem::{PodGroup, PodNames};

use crate::notes::Note;
use crate::testing::{POOL, pod_yaml, problem};

fn groups(text: &str) -> Vec<PodGroup> {
    problem(&format!("{POOL}---\n{text}")).0.pods
}

/// `(prefix or names, count)` of every group.
fn names(text: &str) -> Vec<(String, u32)> {
    let describe = |group: &PodGroup| match &group.names {
        PodNames::Numbered { prefix, count } => (format!("{prefix}-#"), *count),
        PodNames::Listed(names) => (names.join(","), names.len() as u32),
    };
    groups(text).iter().map(describe).collect()
}

fn workload(kind: &str, name: &str, lines: &str) -> String {
    format!(
        "---\napiVersion: {}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  selector: {{}}\n  template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c}}]}}}}\n  {lines}\n",
        if kind == "Job" { "batch/v1" } else { "apps/v1" }
    )
}

fn owned_pod(name: &str, kind: &str, owner: &str, extra: &str) -> String {
    let pod = pod_yaml(name, "").replace(
        "labels: {app: web}",
        &format!("labels: {{app: web, pod-template-hash: h}}, ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: {owner}, uid: u, controller: true}}]{extra}"),
    );
    format!("---\n{pod}")
}

#[test]
fn replicas_form_one_group_with_a_count() {
    for (kind, lines, expected) in [
        ("Deployment", "replicas: 3", vec![("web-#".to_owned(), 3)]),
        ("Deployment", "paused: false", vec![("web-#".to_owned(), 1)]),
        ("Deployment", "replicas: 0", vec![]),
        ("ReplicaSet", "replicas: 2", vec![("web-#".to_owned(), 2)]),
        ("StatefulSet", "replicas: 2\n  serviceName: web", vec![("web-#".to_owned(), 2)]),
        ("StatefulSet", "replicas: 0\n  serviceName: web", vec![]),
        ("StatefulSet", "replicas: 2\n  ordinals: {start: 5}", vec![("web-5,web-6".to_owned(), 2)]),
        ("Job", "parallelism: 4\n  completions: 3", vec![("web-#".to_owned(), 3)]),
        ("Job", "parallelism: 2\n  completions: 9", vec![("web-#".to_owned(), 2)]),
        ("Job", "parallelism: 4", vec![("web-#".to_owned(), 4)]),
        ("Job", "backoffLimit: 1", vec![("web-#".to_owned(), 1)]),
        ("Job", "suspend: true", vec![]),
    ] {
        assert_eq!(names(&workload(kind, "web", lines)), expected, "{kind} {lines}");
    }
}

#[test]
fn cron_job_counts_one_run_unless_running_or_suspended() {
    let cron = |lines: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: tick}}\nspec:\n  schedule: '* * * * *'\n  {lines}\n  jobTemplate: {{spec: {{parallelism: 2, template: {{spec: {{containers: [{{name: c}}]}}}}}}}}\n"
        )
    };
    assert_eq!(names(&cron("suspend: false")), [("tick-#".to_owned(), 2)]);
    assert_eq!(names(&cron("suspend: true")), []);
    let running = workload("Job", "tick-1", "parallelism: 1").replace(
        "metadata: {name: tick-1}",
        "metadata: {name: tick-1, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: tick, uid: u, controller: true}]}",
    );
    assert_eq!(names(&format!("{}{running}", cron("suspend: false"))), [("tick-1-#".to_owned(), 1)]);
    let finished = format!("{running}status: {{conditions: [{{type: Complete, status: 'True'}}]}}\n");
    assert_eq!(names(&format!("{}{finished}", cron("suspend: false"))), [("tick-#".to_owned(), 2)]);
}

#[test]
fn job_pods_have_the_job_name_label() {
    let group = &groups(&workload("Job", "web", "parallelism: 1"))[0];
    assert_eq!(group.spec.labels.get("job-name").map(AsRef::as_ref), Some("web"));
}

#[test]
fn replica_set_of_listed_deployment_is_not_counted_twice() {
    let owned = workload("ReplicaSet", "web-h", "replicas: 3").replace(
        "metadata: {name: web-h}",
        "metadata: {name: web-h, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]}",
    );
    assert_eq!(
        names(&format!("{}{owned}", workload("Deployment", "web", "replicas: 3"))),
        [("web-#".to_owned(), 3)]
    );
    assert_eq!(names(&owned), [("web-h-#".to_owned(), 3)]);
}

#[test]
fn existing_pods_count_as_replicas() {
    let deployment = workload("Deployment", "web", "replicas: 3");
    // The ReplicaSet of these pods is not in the input: its name and the hash label of the pods identify the
    // Deployment.
    let one = owned_pod("web-h-1", "ReplicaSet", "web-h", "");
    assert_eq!(names(&format!("{deployment}{one}")), [("web-h-1".to_owned(), 1), ("web-#".to_owned(), 2)]);
    let two = owned_pod("web-h-2", "ReplicaSet", "web-h", "");
    let three = owned_pod("web-h-3", "ReplicaSet", "web-h", "");
    let all = format!("{deployment}{one}{two}{three}");
    assert_eq!(names(&all), [("web-h-1,web-h-2,web-h-3".to_owned(), 3)]);
    // A terminal or terminating pod does not count as a replica.
    let done = format!("{one}status: {{phase: Failed}}\n");
    let deleted = owned_pod("web-h-2", "ReplicaSet", "web-h", ", deletionTimestamp: 2026-01-01T00:00:00Z");
    assert_eq!(names(&format!("{deployment}{done}{deleted}")), [("web-#".to_owned(), 3)]);
}

#[test]
fn stateful_set_adds_missing_ordinals() {
    let set = workload("StatefulSet", "db", "replicas: 3\n  serviceName: db");
    let pod = owned_pod("db-1", "StatefulSet", "db", "");
    assert_eq!(names(&format!("{set}{pod}")), [("db-1".to_owned(), 1), ("db-0,db-2".to_owned(), 2)]);
}

#[test]
fn daemon_set_is_overhead_and_its_pods_are_not_pending() {
    let set = workload("DaemonSet", "agent", "minReadySeconds: 0")
        .replace("containers: [{name: c}]", "containers: [{name: c, resources: {limits: {cpu: 100m}}}]");
    let (problem, _) = problem(&format!("{POOL}{set}{}", owned_pod("agent-x", "Other", "agent", "")));
    assert_eq!(problem.daemons.len(), 1);
    assert_eq!(&*problem.daemons[0].name, "agent");
    assert_eq!(problem.daemons[0].spec.requests.get("cpu"), 100);
    assert_eq!(problem.pods.len(), 1);
    // The spec of an active pod includes changes by admission, but its node affinity must not be used for the next pod.
    let living = owned_pod("agent-x", "DaemonSet", "agent", "").replace(
        "containers: [{name: c, image: i}]",
        "containers: [{name: c, resources: {requests: {cpu: 300m}}}]\n  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}",
    );
    let (problem, _) = crate::testing::problem(&format!("{POOL}{set}{living}"));
    assert_eq!(problem.pods.len(), 0);
    assert_eq!(problem.daemons[0].spec.requests.get("cpu"), 300);
    assert_eq!(problem.daemons[0].spec.required_terms, []);
    assert_eq!(problem.daemons[0].spec.refusal, None);
}

#[test]
fn unknown_match_label_keys_are_ignored_on_pods_made_from_templates() {
    let text = workload("Deployment", "web", "replicas: 2").replace(
        "containers: [{name: c}]",
        "containers: [{name: c}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [pod-template-hash, app]}]",
    );
    let group = &groups(&text)[0];
    assert_eq!(group.spec.spread[0].selector.as_ref().unwrap().to_string(), "app=web");
}

#[test]
fn daemon_set_with_resource_claims_reserves_no_capacity() {
    let claims = "resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]";
    let opted_out = "nodeSelector: {karpenter.sh/nodepool: x}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}]}}}";
    for more in [claims.to_owned(), format!("{claims}, {opted_out}")] {
        let set = workload("DaemonSet", "devices", "minReadySeconds: 0")
            .replace("containers: [{name: c}]", &format!("containers: [{{name: c}}], {more}"));
        let other = workload("DaemonSet", "agent", "minReadySeconds: 0");
        let (problem, notes) = problem(&format!("{POOL}{set}{other}"));
        let counted: Vec<(&str, bool)> =
            problem.daemons.iter().map(|one| (&*one.name, one.reserves_capacity())).collect();
        assert_eq!(counted, [("devices", false), ("agent", true)], "{more}");
        assert!(notes.contains(&Note::DaemonSetsWithClaims { names: vec!["devices".to_owned()] }));
    }
}
