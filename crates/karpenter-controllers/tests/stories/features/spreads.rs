//! Tests of the default topology spread constraints of kube-scheduler.

use k8s_openapi::api::core::v1::Service;
use karpenter_api::scheduler_config::SchedulerConfig;
use karpenter_controllers::operator::Options;
use serde_json::json;

use crate::features::world::{World, create};

const CONFIG: &str = "podTopologySpread: {defaultConstraints: [\
    {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}]}";

async fn start(config: &str) -> World {
    let scheduler_config = SchedulerConfig::parse(config).expect("a valid configuration");
    World::start(Options { scheduler_config, ..Options::default() }).await
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_workload_are_spread_as_by_the_scheduler() {
    for (config, is_spread) in [("", false), (CONFIG, true)] {
        let world = start(config).await;
        world.deployment("web", 4).await;
        world.sleep(3).await;
        assert_eq!(world.claims().await.len() == 4, is_spread, "{config:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_without_owner_are_spread_only_if_a_service_selects_them() {
    for has_service in [false, true] {
        let world = start(CONFIG).await;
        if has_service {
            let ports = json!([{"port": 80}]);
            let service =
                json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}});
            create(&world.namespaced::<Service>(), service).await;
        }
        for number in 0..4 {
            let mut pod = json!({"metadata": {"name": format!("p{number}"), "labels": {"app": "web"}}});
            pod["spec"] = crate::features::world::pod_spec();
            create(&world.namespaced::<k8s_openapi::api::core::v1::Pod>(), pod).await;
        }
        world.sleep(3).await;
        assert_eq!(world.claims().await.len() == 4, has_service);
    }
}
