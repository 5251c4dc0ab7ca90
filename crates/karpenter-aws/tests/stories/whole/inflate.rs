use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::assembly::StartError;
use karpenter_aws::call_metrics::CallRecord;
use karpenter_aws::fake::Call;
use karpenter_aws::options::AwsOptions;
use serde_json::json;

use super::world::{QUEUE, World};

const MINUTE: Duration = Duration::from_secs(60);

fn condition(class: &serde_json::Value, kind: &str) -> String {
    let conditions = class.pointer("/status/conditions").and_then(|list| list.as_array()).cloned();
    let conditions = conditions.unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.map_or("missing".to_owned(), |condition| {
        format!("{} {}", condition["status"].as_str().unwrap_or_default(), condition["message"])
    })
}

#[tokio::test(start_paused = true)]
async fn ten_pods_interruption_and_scale_down() {
    let world = World::start().await;
    world.introduce().await;
    world.pass(MINUTE).await;
    let class = world.class().await;
    assert!(condition(&class, "Ready").starts_with("True"), "{:#}", class["status"]);

    world.inflate(10).await;
    world.pass(3 * MINUTE).await;
    assert_eq!(world.running_pods().await, 10);
    let machines = world.machines();
    assert!(!machines.is_empty());
    let claims = world.claims().await;
    assert_eq!(claims.len(), machines.len());
    // The instance has all the tags that Karpenter sets.
    let tags = world.aws.world(|world| world.instances[&machines[0]].instance.tags.clone());
    for key in ["Name", "karpenter.sh/nodeclaim", "karpenter.sh/nodepool", "eks:eks-cluster-name"] {
        assert!(tags.contains_key(key), "{key}: {tags:?}");
    }
    let took = Duration::from_millis(20);
    world.calls.record_call(CallRecord { service: "EC2", action: "CreateFleet", status: 200, took }, 1);
    let page = world.page();
    for series in [
        "aws_sdk_go_request_total{action=\"CreateFleet\",code=\"200\",service=\"EC2\"} 1",
        "karpenter_cloudprovider_batcher_batch_size_count{batcher=\"create_fleet\"}",
        "karpenter_cloudprovider_instance_type_cpu_cores{instance_type=\"m5.large\"}",
        "controller_runtime_max_concurrent_reconciles{controller=\"interruption\"}",
    ] {
        assert!(page.contains(series), "{series}");
    }

    let detail = json!({"instance-id": machines[0], "instance-action": "terminate"});
    let warning = json!({
        "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": world.clock.now(), "detail": detail,
    });
    world.aws.send_message(QUEUE, warning.to_string());
    // All pods run on other nodes when EC2 terminates the instance, two minutes after its warning.
    world.pass(2 * MINUTE).await;
    assert_eq!(world.running_pods().await, 10);
    assert!(!world.machines().contains(&machines[0]));

    world.inflate(0).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.machines(), Vec::<String>::new());
    assert!(world.claims().await.is_empty());
    // Some time after their last use, launch templates are deleted.
    world.pass(5 * MINUTE).await;
    assert!(world.aws.world(|world| world.launch_templates.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn instances_of_crashed_process_are_terminated() {
    let mut world = World::start().await;
    world.introduce().await;
    world.pass(MINUTE).await;
    world.inflate(5).await;
    world.pass(3 * MINUTE).await;
    let known = world.machines();
    world.stop_karpenter().await;
    // The instance is not recorded in its NodeClaim, as after a crash during the launch.
    let lost = world.aws.world(|world| {
        let mut lost = world.instances[&known[0]].clone();
        lost.instance.id = world.next_id("i");
        let id = lost.instance.id.clone();
        world.instances.insert(id.clone(), lost);
        id
    });
    world.start_karpenter().await;
    world.pass(MINUTE).await;
    assert!(!world.machines().contains(&lost));
    assert_eq!(world.machines(), known);
    assert_eq!(world.running_pods().await, 5);
}

#[tokio::test(start_paused = true)]
async fn start_error_has_a_hint() {
    let mut world = World::start().await;
    world.stop_karpenter().await;
    let table = [
        (Call::CheckAccess, AwsError::new("UnauthorizedOperation", "no"), "karpenter bootstrap aws"),
        (Call::CheckAccess, AwsError::new("ExpiredToken", "old"), "credentials"),
        (Call::DescribeCluster, AwsError::new("ResourceNotFoundException", "no"), "--cluster-endpoint"),
        (Call::DescribeInstanceTypes, AwsError::unreachable("down"), "discover instance types"),
    ];
    for (call, error, expected) in table {
        world.aws.fail_always(call, Some(error));
        let refused: Result<_, StartError> = world.assemble().await;
        let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(expected), "{call:?}: {text:?}");
        world.aws.fail_always(call, None);
    }
    assert!(world.assemble().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn throttling_does_not_prevent_start() {
    let mut world = World::start().await;
    world.stop_karpenter().await;
    let busy = || AwsError::new("ThrottlingException", "Rate exceeded");
    // Columns: call, how often it is throttled. The cluster's endpoint is read before its version.
    for (call, refusals) in [
        (Call::CheckAccess, 3),
        (Call::DescribeCluster, 1),
        (Call::DescribeCluster, 4),
        (Call::DescribeInstanceTypes, 2),
        (Call::DescribeInstanceTypeOfferings, 2),
    ] {
        for cluster_endpoint in ["", "https://cluster.example"] {
            world.aws.fail_next(call, (0..refusals).map(|_| busy()));
            let options = AwsOptions {
                eks_control_plane: true,
                cluster_endpoint: cluster_endpoint.to_owned(),
                ..AwsOptions::default()
            };
            let started = world.assemble_with(options).await;
            assert!(started.is_ok(), "{call:?} {refusals} {cluster_endpoint}: {:?}", started.err());
        }
    }
}
