//! Tests of launch templates from an EC2NodeClass to the EC2 calls.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karpenter_api::labels;
use karpenter_aws::fake::Call;
use karpenter_cloud::CloudProvider;
use serde_json::json;
use tokio::time::advance;

use super::world::{Setup, World};

const TYPE: &str = labels::INSTANCE_TYPE;

fn user_data(world: &World) -> Vec<String> {
    let templates = world.templates();
    let decoded = templates.iter().map(|data| STANDARD.decode(&data.user_data).unwrap());
    decoded.map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_template_per_pod_capacity() {
    let world = World::new().await;
    // The pod capacities of the instance types are 29, 58 and 29, so there are two templates.
    world.launch(&[(TYPE, &["m5.large", "m5.xlarge", "c5.large"])]).await.unwrap();
    let mut pods: Vec<String> = user_data(&world)
        .iter()
        .map(|text| text.lines().find(|line| line.contains("maxPods")).unwrap().trim().to_owned())
        .collect();
    pods.sort();
    assert_eq!(pods, ["maxPods: 29", "maxPods: 58"]);
    let fleet = world.fleets().pop().unwrap();
    assert_eq!(fleet.launch_template_configs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn fixed_max_pods_shares_one_template() {
    let world = World::new().await;
    world.change_class(|class| class["spec"]["kubelet"] = json!({"maxPods": 42}));
    world.launch(&[(TYPE, &["m5.large", "m5.xlarge"])]).await.unwrap();
    assert_eq!(world.templates().len(), 1);
    assert!(user_data(&world)[0].contains("maxPods: 42"));
}

#[tokio::test(start_paused = true)]
async fn user_data_has_cluster_labels_and_taints() {
    let world = World::new().await;
    world.change_class(|class| class["spec"]["userData"] = json!("#!/bin/bash\necho mine"));
    let claim = world.claim_with(|claim| {
        claim["metadata"]["labels"]["team"] = json!("a");
        claim["spec"]["taints"] = json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
        claim["spec"]["startupTaints"] = json!([{"key": "starting", "effect": "NoExecute"}]);
    });
    world.provider.create(&claim).await.unwrap();
    let text = user_data(&world).remove(0);
    for part in [
        "echo mine",
        "name: cluster",
        "https://cluster.eks.example",
        "10.100.0.0/16",
        "10.100.0.10",
        "team=a",
        "karpenter.sh/capacity-type=spot",
        "karpenter.sh/do-not-sync-taints=true",
        "dedicated",
        "starting",
        "karpenter.sh/unregistered",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(text.find("echo mine") < text.find("NodeConfig"), "the user data of the class comes first");
}

#[tokio::test(start_paused = true)]
async fn custom_family_uses_user_data_unchanged() {
    let world = World::new().await;
    world.change_class(|class| {
        class["spec"]["amiFamily"] = json!("Custom");
        class["spec"]["userData"] = json!("anything at all");
    });
    world.launch(&[(TYPE, &["m5.large"])]).await.unwrap();
    assert_eq!(user_data(&world), ["anything at all"]);
    assert!(world.templates()[0].block_device_mappings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn ipv6_clusters() {
    let world = World::with(Setup { dns_ip: Some("fd30::a"), ..Setup::default() }).await;
    world.change_class(|class| class["spec"]["ipPrefixCount"] = json!(1));
    world.launch(&[(TYPE, &["m5.large"])]).await.unwrap();
    let interface = world.templates()[0].network_interfaces[0].clone();
    assert_eq!((interface.ipv6_prefix_count, interface.ipv4_prefix_count), (Some(1), None));
    assert_eq!((interface.primary_ipv6, interface.ipv6_address_count), (Some(true), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn templates_are_shared_and_deleted_when_unused() {
    let world = World::new().await;
    for _ in 0..3 {
        world.launch(&[(TYPE, &["m5.large"])]).await.unwrap();
    }
    assert_eq!(world.cloud.count(Call::CreateLaunchTemplate), 1);
    let other =
        world.claim_with(|claim| claim["metadata"]["labels"]["karpenter.sh/nodepool"] = json!("other"));
    world.provider.create(&other).await.unwrap();
    assert!(world.cloud.count(Call::CreateLaunchTemplate) > 1, "another pool has tags of its own");
    advance(Duration::from_secs(61)).await;
    world.provider.launcher().templates().sweep().await;
    assert!(world.cloud.world(|cloud| cloud.launch_templates.is_empty()));
    assert!(world.launch(&[(TYPE, &["m5.large"])]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn hundred_launches_run_concurrently() {
    let world = World::new().await;
    world.cloud.set_latency(Duration::from_millis(500));
    let started = tokio::time::Instant::now();
    let launches = (0..100).map(|_| world.launch(&[(TYPE, &["m5.large"])]));
    futures::future::try_join_all(launches).await.unwrap();
    // A lookup, a creation and a fleet take half a second each; the rest is the batching window.
    assert_eq!(started.elapsed(), Duration::from_millis(1535));
    assert_eq!(world.cloud.calls().len(), 3);
}

/// Each launch is in its own NodePool, so no two share a template or a fleet, which is the worst case.
#[tokio::test(start_paused = true)]
async fn thousand_launches_use_limited_threads_and_connections() {
    const LAUNCHES: usize = 1000;
    let world = World::new().await;
    world.cloud.set_latency(Duration::from_millis(500));
    let of_pool = |number: usize| {
        world.claim_with(|claim| {
            claim["metadata"]["labels"]["karpenter.sh/nodepool"] = json!(format!("pool-{number}"));
            claim["spec"]["requirements"] = json!([{"key": TYPE, "operator": "In", "values": ["m5.large"]}]);
        })
    };
    let claims: Vec<_> = (0..LAUNCHES).map(of_pool).collect();
    let here = std::thread::current().id();
    let launches = claims.iter().map(|claim| async {
        let machine = world.provider.create(claim).await;
        assert_eq!(std::thread::current().id(), here);
        machine
    });
    let machines = futures::future::try_join_all(launches).await.unwrap();
    let ids: std::collections::BTreeSet<&str> =
        machines.iter().map(|machine| machine.provider_id.as_str()).collect();
    assert_eq!(ids.len(), LAUNCHES);
    assert_eq!(world.cloud.count(Call::CreateFleet), LAUNCHES);
    assert_eq!(world.cloud.count(Call::CreateLaunchTemplate), LAUNCHES);
    // At most fifty templates and a hundred fleets are requested at the same time.
    let most = world.cloud.concurrent_calls_max();
    assert!((50..=150).contains(&most), "{most} calls at once");
}

#[tokio::test(start_paused = true)]
async fn user_data_size_is_exported() {
    let world = World::new().await;
    world.launch(&[(TYPE, &["m5.large"])]).await.unwrap();
    let error = world.metrics.user_data_bytes.with_label_values(&["default"]).get();
    assert_eq!(error, i64::try_from(user_data(&world)[0].len()).unwrap());
    world.change_class(|class| {
        class["spec"]["userData"] = json!(format!("#!/bin/bash\n# {}", "x".repeat(20_000)))
    });
    let error = world.launch(&[(TYPE, &["m5.large"])]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Error getting launch template configs: Rendered user data exceeds the EC2 user data size limit"
    );
    // The metric series of a deleted node class is removed.
    world.launcher.forget_class("default").await.unwrap();
    assert!(world.cloud.world(|cloud| cloud.launch_templates.is_empty()));
    let series = prometheus::core::Collector::collect(&world.metrics.user_data_bytes);
    assert!(series.iter().all(|family| family.get_metric().is_empty()), "{series:?}");
}
