//! Tests that exported metrics have the names, types and labels that the tables in docs/metrics.md state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplate};
use karpenter_api::labels;
use karpenter_api::types::{CapacityBuffer, NodePool};
use karpenter_aws::api::AwsError;
use karpenter_aws::api::ec2::{InstanceStatus, StatusCheck};
use karpenter_aws::call_metrics::CallRecord;
use karpenter_aws::fake::Call;
use karpenter_controllers::metrics::client::ClientMetrics;
use karpenter_controllers::operator::Options;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use super::world::{QUEUE, World};

const MINUTE: Duration = Duration::from_secs(60);

/// Names of upstream's controllers; `*` stands for the kind of an object.
const CONTROLLERS: &str = "capacitybuffer capacityreservation.capacitytype capacityreservation.expiration \
    cloudprovider.metrics disruption disruption.queue eviction-queue instance.garbagecollection \
    instanceprofile.garbagecollection interruption interruption.instancestatus metrics.nodepool node.health \
    node.hydration node.termination nodeclaim.consistency nodeclaim.disruption nodeclaim.expiration \
    nodeclaim.garbagecollection nodeclaim.hydration nodeclaim.lifecycle nodeclaim.podevents nodeclaim.reboot \
    nodeclaim.tagging nodeclass nodeclass.hash nodeoverlay.controller nodepool.counter nodepool.hash \
    nodepool.readiness operatorpkg.node.status operatorpkg.nodeclaim.status operatorpkg.nodepool.status \
    operatorpkg.capacitybuffer.status pod.deletioncost pod.deletioncost.queue providers.instancetype \
    providers.instancetype.capacity providers.pricing providers.ssm.invalidation providers.version provisioner \
    static.deprovisioning static.provisioning zonalshift";

/// The type and the labels of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Series {
    kind: String,
    labels: BTreeSet<String>,
}

/// The metrics in docs/metrics.md, each with whether it may have more labels than the row lists.
fn documented() -> BTreeMap<String, (Series, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the page");
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [name, kind, labels, _meaning, ""] = cells[..] else { return None };
        let is_label = |word: &&str| !["…", "–"].contains(word);
        let own = labels.split_whitespace().filter(is_label).map(str::to_owned).collect();
        let series = Series { kind: kind.to_owned(), labels: own };
        Some((name.trim_end_matches('`').to_owned(), (series, labels.ends_with('…'))))
    };
    text.lines().filter_map(row).collect()
}

/// Adds the series of one metrics page; all series of a metric must have the same labels.
fn read(page: &str, seen: &mut BTreeMap<String, Series>) {
    let mut current = (String::new(), String::new());
    for line in page.lines().filter(|line| !line.starts_with("# HELP ")) {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').expect("a name and a type");
            current = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, _) = line.rsplit_once(' ').expect("a series and a value");
        let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let names = labels.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name);
        let labels: BTreeSet<String> =
            names.filter(|name| !["le", "quantile"].contains(name)).map(str::to_owned).collect();
        let (name, kind) = current.clone();
        let found = Series { kind, labels };
        let before = seen.entry(name.clone()).or_insert_with(|| found.clone());
        assert_eq!(*before, found, "{name}");
    }
}

/// Gives objects a finalizer and deletes them, so that the series of terminating objects exist.
async fn keep_deleting(world: &World) {
    let kept = |metadata: &mut Value| {
        metadata["name"] = json!("kept");
        metadata["finalizers"] = json!(["example.com/keep"]);
    };
    let kind = GroupVersionKind::gvk(labels::AWS_GROUP, "v1", "EC2NodeClass");
    let classes: Api<DynamicObject> =
        Api::all_with(world.client.clone(), &ApiResource::from_gvk_with_plural(&kind, "ec2nodeclasses"));
    let mut class = serde_json::to_value(classes.get("default").await.expect("there")).expect("JSON");
    class["metadata"] = json!({});
    kept(&mut class["metadata"]);
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("created");
    classes.delete("kept", &DeleteParams::default()).await.expect("deleted");
    let pools: Api<NodePool> = Api::all(world.client.clone());
    let mut pool = serde_json::to_value(pools.get("default").await.expect("there")).expect("JSON");
    pool["metadata"] = json!({});
    kept(&mut pool["metadata"]);
    let pool = serde_json::from_value(pool).expect("a pool");
    pools.create(&PostParams::default(), &pool).await.expect("created");
    pools.delete("kept", &DeleteParams::default()).await.expect("deleted");
}

/// Counts requests, as the HTTP client of a process does. The client of this test has no socket and counts none.
async fn count_requests(world: &World) {
    let metrics = ClientMetrics::new(&Uri::from_static("https://10.0.0.1"));
    metrics.register(world.context().metrics.registry());
    let server = tower::service_fn(|_: http::Request<()>| async { Ok::<_, &str>(http::Response::new(())) });
    let request = http::Request::get("/api/v1/pods").body(()).expect("a request");
    metrics.layer(server).oneshot(request.clone()).await.expect("answered");
    (metrics.on_wait())(request.method(), request.uri(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn metrics_equal_documentation() {
    let mut world = World::start().await;
    let mut seen = BTreeMap::new();
    world.introduce().await;
    count_requests(&world).await;
    world.pass(MINUTE).await;
    let page = world.page();
    assert!(page.contains("_instance_type_cpu_cores{"), "{page}");
    assert!(!page.contains("_offering_"), "so many series are off by default");
    // Causes an event for every series: an insufficient capacity error, an unhealthy instance whose termination fails,
    // a warning, and an AWS call.
    world.aws.world(|cloud| cloud.is_spot_role_missing = true);
    daemon(&world).await;
    world.inflate(1).await;
    watch(&world, &mut seen, 12, 5).await;
    world.aws.world(|cloud| cloud.is_spot_role_missing = false);
    watch(&world, &mut seen, 10, 30).await;
    assert_eq!(world.running_pods().await, 2);
    let machine = world.machines().remove(0);
    world.aws.world(|cloud| cloud.statuses = vec![sick(&machine)]);
    world.aws.fail_next(Call::TerminateInstances, [(); 2].map(|()| AwsError::new("InternalError", "x")));
    keep_deleting(&world).await;
    watch(&world, &mut seen, 30, 3).await;
    let detail = json!({"instance-id": machine, "instance-action": "terminate"});
    let warning = json!({
        "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": world.clock.now(), "detail": detail,
    });
    world.aws.send_message(QUEUE, warning.to_string());
    watch(&world, &mut seen, 2, 60).await;
    let took = Duration::from_millis(20);
    let call = CallRecord { service: "EC2", action: "CreateFleet", status: 200, took };
    world.calls.record_attempt(call);
    world.calls.record_call(call, 1);
    begin_plan(&world).await;
    let page = world.page();
    read(&page, &mut seen);
    for declared in world.context().metrics.declared() {
        let labels = declared.labels.iter().cloned().collect();
        let declared = (declared.name.clone(), Series { kind: declared.kind.to_owned(), labels });
        let found = seen.entry(declared.0.clone()).or_insert_with(|| declared.1.clone());
        assert_eq!(*found, declared.1, "{}", declared.0);
    }
    check_controllers(&page);
    world.stop_karpenter().await;
    let feature_gates = "CapacityBuffer=true".parse().expect("gates");
    world.start_karpenter_with(Options { offering_metrics: true, feature_gates, ..Options::default() }).await;
    delete_buffer(&world).await;
    watch(&world, &mut seen, 1, 60).await;
    assert_eq!(differences(&seen), Vec::<String>::new());
}

/// Starts a planning run with a pending pod. Planning takes no simulated time, so the series of a run in progress would
/// not be exported otherwise.
async fn begin_plan(world: &World) {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let containers = json!([{"name": "main", "image": "pause"}]);
    let pod =
        json!({"metadata": {"name": "seen"}, "spec": {"schedulerName": "none", "containers": containers}});
    let pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod).await.expect("created");
    world.pass(Duration::from_secs(1)).await;
    let (context, now) = (world.context(), world.clock.now());
    let seen = context.stores.pods.list().into_iter().filter(|pod| &*pod.name == "seen").collect::<Vec<_>>();
    context.metrics.pods.acknowledge(seen.iter().map(|pod| &**pod), now);
    context.metrics.plans.begin("provisioner", 1, now);
}

/// Deletes a CapacityBuffer that has a finalizer, so that it stays terminating.
async fn delete_buffer(world: &World) {
    let template = json!({"metadata": {"name": "shape"}, "template": {"spec": {
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
    }}});
    let templates: Api<PodTemplate> = Api::namespaced(world.client.clone(), "default");
    let template = serde_json::from_value(template).expect("a template");
    templates.create(&PostParams::default(), &template).await.expect("created");
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "kept", "finalizers": ["example.com/keep"]},
        "spec": {"podTemplateRef": {"name": "shape"}, "replicas": 1},
    });
    let buffers: Api<CapacityBuffer> = Api::namespaced(world.client.clone(), "default");
    let buffer = serde_json::from_value(buffer).expect("a buffer");
    buffers.create(&PostParams::default(), &buffer).await.expect("created");
    world.pass(MINUTE).await;
    buffers.delete("kept", &DeleteParams::default()).await.expect("deleted");
}

/// Creates a DaemonSet, so that every node has a pod.
async fn daemon(world: &World) {
    let amounts = json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "20m"}});
    let daemon = json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "main", "image": "pause", "resources": amounts}]},
        },
    }});
    let daemons: Api<DaemonSet> = Api::namespaced(world.client.clone(), "default");
    let daemon = serde_json::from_value(daemon).expect("a daemon set");
    daemons.create(&PostParams::default(), &daemon).await.expect("created");
}

/// Reads the metrics page `times` times, waiting for some seconds in between.
async fn watch(world: &World, seen: &mut BTreeMap<String, Series>, times: usize, seconds: u64) {
    for _ in 0..times {
        world.pass(Duration::from_secs(seconds)).await;
        read(&world.page(), seen);
    }
}

fn sick(machine: &str) -> InstanceStatus {
    let check = StatusCheck {
        name: "reachability".to_owned(),
        status: "failed".to_owned(),
        impaired_since: "2026-01-01T11:00:00Z".parse().ok(),
    };
    InstanceStatus {
        instance_id: machine.to_owned(),
        system_checks: vec![check],
        ..InstanceStatus::default()
    }
}

/// The metrics that are exported but not documented, or documented but not exported.
fn differences(seen: &BTreeMap<String, Series>) -> Vec<String> {
    let documented = documented();
    let mut found = Vec::new();
    for (name, (series, has_more)) in &documented {
        let Some(real) = seen.get(name) else {
            found.push(format!("{name} is documented and not there"));
            continue;
        };
        let missing: Vec<_> = series.labels.difference(&real.labels).collect();
        let beyond: Vec<_> = real.labels.difference(&series.labels).collect();
        if real.kind != series.kind || !missing.is_empty() || beyond.is_empty() == *has_more {
            found.push(format!("{name} is a {} without {missing:?} and with {beyond:?}", real.kind));
        }
    }
    let undocumented = seen.keys().filter(|name| !documented.contains_key(*name));
    found.extend(undocumented.map(|name| format!("{name} is not documented")));
    found
}

/// Checks that the names of controllers are upstream's, except those that the documentation marks as ours.
fn check_controllers(page: &str) {
    let ours = ["pod.nomination", "nodeoverlay.prices", "launchtemplate.garbagecollection"];
    let known: BTreeSet<&str> = CONTROLLERS.split_whitespace().chain(ours).collect();
    let running: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("controller_runtime_active_workers{controller=\"")?.split('"').next()
        })
        .collect();
    assert!(running.len() > 25, "{running:?}");
    let unknown: Vec<_> = running.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // A series of cloud provider calls has the controller that makes the call as a label.
    let nameless = "karpenter_cloudprovider_duration_seconds_count{controller=\"\"";
    assert!(!page.contains(nameless), "{:?}", page.lines().find(|line| line.starts_with(nameless)));
}
