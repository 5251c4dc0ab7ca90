use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_model::selector::Labels;

use crate::assemble::{CatalogChoice, assemble};
use crate::testing::{POOL, objects};

const CONFIG: &str = "podTopologySpread: {defaultConstraints: [\
    {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule},\
    {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]}";
const SERVICE: &str = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}";
const REPLICA_SET: &str = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web}, spec: {replicas: 1, \
    selector: {matchLabels: {app: web, hash: x}}, template: {metadata: {labels: {app: web, hash: x}}, \
    spec: {containers: [{name: c, image: i}]}}}}";

fn pod(labels: &str, owner: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p, labels: {{{labels}}}, ownerReferences: [{owner}]}}, \
         spec: {{containers: [{{name: c, image: i}}]{spec}}}}}"
    )
}

fn owned_by(api_version: &str, kind: &str) -> String {
    format!("{{apiVersion: {api_version}, kind: {kind}, name: web, uid: u, controller: true}}")
}

/// Keys of the constraints of the first pending pod, and which of these labels the first of them selects.
fn spread(documents: &[&str], config: &str, candidates: &[&[(&str, &str)]]) -> (Vec<String>, Vec<bool>) {
    let mut objects = objects(&format!("{POOL}---\n{}", documents.join("\n---\n")));
    objects.scheduler_config = SchedulerConfig::parse(config).expect("a valid configuration");
    let (problem, _) = assemble(&objects, &CatalogChoice::Kwok);
    let spec = &problem.pods[0].spec;
    let selects = candidates.iter().map(|labels| {
        let labels: Labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let first = spec.spread.first().and_then(|spread| spread.selector.as_ref());
        first.is_some_and(|selector| selector.matches(&labels))
    });
    (spec.spread.iter().map(|spread| spread.key.to_string()).collect(), selects.collect())
}

#[test]
fn selector_comes_from_services_and_owner() {
    let web: &[(&str, &str)] = &[("app", "web")];
    let hashed: &[(&str, &str)] = &[("app", "web"), ("hash", "x")];
    let other: &[(&str, &str)] = &[("app", "db"), ("hash", "x")];
    let bare = pod("app: web", "", "");
    let owned = pod("app: web, hash: x", &owned_by("apps/v1", "ReplicaSet"), "");
    let of_job = pod("app: web", &owned_by("batch/v1", "Job"), "");
    let own = pod(
        "app: web",
        "",
        ", topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, \
        whenUnsatisfiable: DoNotSchedule}]",
    );
    let elsewhere = SERVICE.replace("name: web", "name: web, namespace: other");
    let headless = SERVICE.replace("selector: {app: web}", "clusterIP: None");
    let db = SERVICE.replace("app: web", "app: db");
    let defaults = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];
    let cases: [(&[&str], &[&str], [bool; 3]); 10] = [
        (&[&bare, SERVICE], &defaults, [true, true, false]),
        (&[&of_job, SERVICE], &defaults, [true, true, false]),
        (&[&owned, REPLICA_SET], &defaults, [false, true, false]),
        (&[&owned, REPLICA_SET, SERVICE], &defaults, [false, true, false]),
        // The owner does not exist, but the Service does.
        (&[&owned, SERVICE], &defaults, [true, true, false]),
        (&[&bare], &[], [false; 3]),
        (&[&of_job], &[], [false; 3]),
        (&[&bare, &elsewhere, &headless], &[], [false; 3]),
        (&[&bare, &db], &[], [false; 3]),
        (&[&own, SERVICE], &["rack"], [false; 3]),
    ];
    for (documents, keys, selected) in cases {
        let (found, selects) = spread(documents, CONFIG, &[web, hashed, other]);
        assert_eq!(
            (found, selects),
            (keys.iter().map(ToString::to_string).collect(), selected.to_vec()),
            "{documents:?}"
        );
    }
    assert_eq!(spread(&[&bare, SERVICE], "", &[]).0, [""; 0]);
}

#[test]
fn pods_of_templates_use_the_selector_of_their_workload() {
    let web: &[(&str, &str)] = &[("app", "web"), ("hash", "x")];
    let (keys, selects) = spread(&[REPLICA_SET], CONFIG, &[web, &[("app", "web")]]);
    assert_eq!((keys.len(), selects), (2, vec![true, false]));
    let deployment = REPLICA_SET.replace("ReplicaSet", "Deployment");
    let (keys, selects) = spread(&[&deployment], CONFIG, &[web, &[("app", "web")]]);
    assert_eq!((keys.len(), selects), (2, vec![true, false]));
    let controller = "{apiVersion: v1, kind: ReplicationController, metadata: {name: web}, spec: {replicas: 1, \
        selector: {app: web, hash: x}, template: {metadata: {labels: {app: web, hash: x}}, \
        spec: {containers: [{name: c, image: i}]}}}}";
    let (keys, selects) = spread(&[controller], CONFIG, &[web, &[("app", "web")]]);
    assert_eq!((keys.len(), selects), (2, vec![true, false]));
}
