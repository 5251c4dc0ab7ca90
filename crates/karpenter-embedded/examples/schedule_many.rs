//! Measures the scheduler: `schedule_many [nodes] [pods]` schedules generated pods on an empty cluster, first the
//! decisions only, then through an API server in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_embedded::scheduler::{Decision, Settings, Snapshot, Sources, run, schedule_one};
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::worker::Shutdown;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("generated objects are well-formed")
}

fn node(index: usize) -> Node {
    let name = format!("node-{index:05}");
    read(json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", index % 3)}},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    }))
}

/// Of four pods one is plain, one has a topology spread over zones, one has anti-affinity to its app, one has preferred
/// affinity.
fn pod(index: usize) -> Pod {
    let app = format!("app-{}", index % 20);
    let selector = json!({"matchLabels": {"app": app}});
    let (zone, host) = ("topology.kubernetes.io/zone", "kubernetes.io/hostname");
    let mut spec = match index % 4 {
        0 => json!({}),
        1 => json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": zone,
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]}),
        2 => json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": host, "labelSelector": selector}]}}}),
        _ => json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": {"topologyKey": zone, "labelSelector": selector}}]}}}),
    };
    spec["schedulerName"] = json!("default-scheduler");
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    spec["containers"] = json!([{"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]);
    read(json!({"metadata": {"name": format!("pod-{index:06}"), "namespace": "default",
        "uid": format!("uid-{index}"), "labels": {"app": app}}, "spec": spec}))
}

fn decisions_alone(nodes: usize, pods: usize) {
    let mut snapshot = Snapshot::new();
    (0..nodes).for_each(|index| snapshot.apply_node(&node(index)));
    let started = Instant::now();
    let mut bound = 0;
    for index in 0..pods {
        let pod = pod(index);
        snapshot.apply_pod(&pod);
        let key = ObjectKey::of(&pod.metadata);
        let Some(info) = snapshot.pod(&key).cloned() else { continue };
        if let Decision::Bind { node, volumes } = schedule_one(&mut snapshot, &info) {
            snapshot.assume(&key, &node, &volumes);
            bound += 1;
        }
    }
    let took = started.elapsed();
    println!(
        "decisions only: {bound} of {pods} pods on {nodes} nodes in {took:.2?}, {:.0?} each",
        took / pods.max(1) as u32
    );
}

async fn through_the_server(nodes: usize, pods: usize) -> Result<(), Error> {
    let client = Client::new(ApiServer::new(Config::default()), "default");
    let nodes_api: Api<Node> = Api::all(client.clone());
    for index in 0..nodes {
        nodes_api.create(&PostParams::default(), &node(index)).await?;
    }
    let pods_api: Api<Pod> = Api::default_namespaced(client.clone());
    for index in 0..pods {
        pods_api.create(&PostParams::default(), &pod(index)).await?;
    }
    let (sources, watches) = Sources::watch(&client);
    let shutdown = Shutdown::default();
    let started = Instant::now();
    let scheduler =
        tokio::spawn(run(client, sources.clone(), Clock::system(), Settings::default(), shutdown.clone()));
    let settled = |pod: &Arc<Pod>| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    while sources.pods.list().iter().filter(|pod| settled(pod)).count() < pods {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if started.elapsed() > Duration::from_secs(120) {
            break;
        }
    }
    let took = started.elapsed();
    let bound =
        pods_api.list(&ListParams::default()).await?.items.into_iter().map(Arc::new).filter(settled).count();
    println!("through the API server: {bound} of {pods} pods on {nodes} nodes bound in {took:.2?}");
    shutdown.request();
    let _ = scheduler.await;
    watches.iter().for_each(|watch| watch.abort());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let nodes: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let pods: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    decisions_alone(nodes, pods);
    through_the_server(nodes, pods).await?;
    Ok(())
}
