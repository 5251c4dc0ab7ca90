//! Workload controllers.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::World;

fn deployment(replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

fn condition(deployment: &Deployment, kind: &str) -> Option<String> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.clone())
}

/// The condition that `kubectl rollout status` waits for.
fn rolled_out(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && condition(deployment, "Available").as_deref() == Some("True")
}

async fn rollout(world: &World) -> Deployment {
    let look = async || world.api::<Deployment>().get("web").await.expect("the deployment");
    world.until("the rollout", look, rolled_out).await
}

fn images(pods: &[Pod]) -> Vec<String> {
    let mut images: Vec<String> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.spec.as_ref()?.containers.first()?.image.clone())
        .collect();
    images.sort();
    images
}

#[tokio::test(start_paused = true)]
async fn deployment_becomes_available_scales_updates_and_rolls_back() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.create::<Deployment>(deployment(3, "v1")).await;
    let first = rollout(&world).await;
    let revision = |deployment: &Deployment| {
        deployment
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get("deployment.kubernetes.io/revision").cloned())
    };
    assert_eq!(revision(&first).as_deref(), Some("1"));
    let pods = world.pods("app=web").await;
    assert_eq!(images(&pods), ["v1", "v1", "v1"]);
    assert!(pods.iter().all(|pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())));

    world.merge::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    rollout(&world).await;
    assert_eq!(world.pods("app=web").await.len(), 5);

    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    world.merge::<Deployment>("web", image("v2")).await;
    let second = rollout(&world).await;
    assert_eq!(revision(&second).as_deref(), Some("2"));
    assert_eq!(images(&world.pods("app=web").await), ["v2"; 5]);

    // `kubectl rollout undo` restores the old template: the old ReplicaSet is scaled up as revision 3.
    world.merge::<Deployment>("web", image("v1")).await;
    let third = rollout(&world).await;
    assert_eq!(revision(&third).as_deref(), Some("3"));
    let sets = world.api::<ReplicaSet>().list(&ListParams::default()).await.expect("sets");
    assert_eq!(sets.items.len(), 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_on_nodes_with_free_resources() {
    let world = World::start().await;
    for name in ["n1", "n2", "n3"] {
        world.node(name, json!({})).await;
    }
    let mut web = deployment(6, "v1");
    web["spec"]["template"]["spec"] =
        json!({"containers": [{"name": "c", "image": "v1", "resources": {"requests": {"cpu": "3"}}}]});
    world.create::<Deployment>(web).await;
    rollout(&world).await;
    let mut nodes: Vec<String> =
        world.pods("app=web").await.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    nodes.sort();
    assert_eq!(nodes, ["n1", "n1", "n2", "n2", "n3", "n3"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn recreate_never_runs_two_versions() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let mut web = deployment(2, "v1");
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    web["spec"]["template"]["metadata"]["annotations"] = json!({"fake-kubelet/stop-seconds": "5"});
    world.create::<Deployment>(web).await;
    rollout(&world).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "v2"}]}}}});
    world.merge::<Deployment>("web", image).await;
    let look = async || {
        let pods = world.pods("app=web").await;
        let mut images: Vec<String> =
            pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first()?.image.clone()).collect();
        images.dedup();
        assert!(images.len() <= 1, "old and new pods at once: {images:?}");
        world.api::<Deployment>().get("web").await.expect("the deployment")
    };
    world.until("the rollout", look, rolled_out).await;
    assert_eq!(images(&world.pods("app=web").await), ["v2", "v2"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn daemon_set_runs_on_eligible_nodes_and_updates() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world.node("n2", json!({})).await;
    world.node("other", json!({"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}})).await;
    let daemon = |image: &str| {
        json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": image}]}}}})
    };
    world.create::<DaemonSet>(daemon("v1")).await;
    let look = async || world.api::<DaemonSet>().get("agent").await.expect("the set");
    let done = |wanted: i32| {
        move |set: &DaemonSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation
                && status.desired_number_scheduled == wanted
                && status.updated_number_scheduled == Some(wanted)
                && status.number_available == Some(wanted)
        }
    };
    world.until("two DaemonSet pods", look, done(2)).await;
    world.node("n3", json!({})).await;
    world.until("a third on the new node", look, done(3)).await;
    world.merge::<DaemonSet>("agent", json!({"spec": daemon("v2")["spec"]})).await;
    world.until("the new version", look, done(3)).await;
    assert_eq!(images(&world.pods("app=agent").await), ["v2", "v2", "v2"]);
    let mut nodes: Vec<String> =
        world.pods("app=agent").await.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_complete_fail_and_expire() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    let job = |name: &str, spec: Value, notes: Value| {
        let mut object = json!({"metadata": {"name": name}, "spec": {"template": {
            "metadata": {"annotations": notes},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        object
    };
    let runs = json!({"fake-kubelet/run-seconds": "30"});
    let fails = json!({"fake-kubelet/run-seconds": "1", "fake-kubelet/exit-code": "7"});
    world.create::<Job>(job("good", json!({"completions": 3, "parallelism": 2}), runs.clone())).await;
    world.create::<Job>(job("bad", json!({"backoffLimit": 1}), fails)).await;
    world.create::<Job>(job("brief", json!({"ttlSecondsAfterFinished": 60}), runs)).await;
    let status = |job: &Job, kind: &str| {
        let conditions =
            job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let get = async |name: &str| world.api::<Job>().get_opt(name).await.expect("an answer");
    let good = world
        .until("completion", async || get("good").await.expect("the job"), |job| status(job, "Complete"))
        .await;
    assert_eq!(good.status.as_ref().and_then(|status| status.succeeded), Some(3));
    let bad = world
        .until("failure", async || get("bad").await.expect("the job"), |job| status(job, "Failed"))
        .await;
    assert_eq!(bad.status.as_ref().and_then(|status| status.failed), Some(2));
    world
        .until("the Job is deleted after its time to live", async || get("brief").await, Option::is_none)
        .await;
    world
        .until("no pods of it", async || world.pods("job-name=brief").await.len(), |count| *count == 0)
        .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cron_job_creates_jobs_on_schedule() {
    let world = World::start().await;
    world.node("n1", json!({})).await;
    world
        .create::<CronJob>(json!({"metadata": {"name": "tidy"}, "spec": {"schedule": "*/10 * * * *",
            "jobTemplate": {"spec": {"template": {"metadata": {"annotations": {"fake-kubelet/run-seconds": "5"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}))
        .await;
    let created = world.clock.now();
    tokio::time::sleep(std::time::Duration::from_secs(3600 + 30)).await;
    let jobs = world.api::<Job>().list(&ListParams::default()).await.expect("jobs").items;
    // The CronJob created six Jobs within an hour; its history limit keeps three.
    assert_eq!(jobs.len(), 3);
    let cron = world.api::<CronJob>().get("tidy").await.expect("the cron job");
    let last = cron.status.and_then(|status| status.last_schedule_time).expect("a time").0;
    assert_eq!(last.as_second() - created.as_second(), 3600);
    world.stop().await;
}

/// The result of one simulation: the node of each pod, and name and revision of every object.
async fn run() -> Vec<String> {
    let world = World::start().await;
    for name in ["n1", "n2", "n3", "n4"] {
        world.node(name, json!({})).await;
    }
    for number in 0..3 {
        let mut web = deployment(4, "v1");
        web["metadata"]["name"] = json!(format!("web-{number}"));
        web["spec"]["selector"]["matchLabels"]["app"] = json!(format!("web-{number}"));
        web["spec"]["template"]["metadata"]["labels"]["app"] = json!(format!("web-{number}"));
        web["spec"]["template"]["spec"] = json!({"containers": [{"name": "c", "image": "v1"}]});
        world.create::<Deployment>(web).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    world.merge::<Deployment>("web-1", json!({"spec": {"replicas": 2}})).await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let pods = world.all::<Pod>().list(&ListParams::default()).await.expect("pods").items;
    let lines = pods.iter().map(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        format!("{:?} {:?} {node:?} {:?}", pod.metadata.name, pod.metadata.uid, pod.metadata.resource_version)
    });
    let lines = lines.collect();
    world.stop().await;
    lines
}

#[tokio::test(start_paused = true)]
async fn equal_runs_give_equal_results() {
    let first = run().await;
    assert_eq!(first.len(), 10);
    assert_eq!(first, run().await);
}
