//! Names on the metrics page that dashboards of upstream's ask for.

use std::collections::BTreeSet;
use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::call_metrics::CallTold;
use karpenter_aws::fake::Call;
use karpenter_controllers::operator::Options;
use serde_json::json;

use super::world::{QUEUE, World};

const MINUTE: Duration = Duration::from_secs(60);

/// Every series of the provider: name and labels.
const SERIES: &[(&str, &[&str])] = &[
    ("aws_sdk_go_request_attempt_duration_seconds", &["action", "code", "service"]),
    ("aws_sdk_go_request_attempt_total", &["action", "code", "service"]),
    ("aws_sdk_go_request_duration_seconds", &["action", "code", "service"]),
    ("aws_sdk_go_request_retry_count", &["action", "code", "service"]),
    ("aws_sdk_go_request_total", &["action", "code", "service"]),
    ("karpenter_cloudprovider_batcher_batch_size", &["batcher"]),
    ("karpenter_cloudprovider_batcher_batch_time_seconds", &["batcher"]),
    (
        "karpenter_cloudprovider_instance_launch_failures_total",
        &["capacity_type", "reason", "zone", "zone_id"],
    ),
    ("karpenter_cloudprovider_instance_termination_failures_total", &["zone", "zone_id"]),
    ("karpenter_cloudprovider_instance_type_cpu_cores", &["instance_type"]),
    ("karpenter_cloudprovider_instance_type_memory_bytes", &["instance_type"]),
    ("karpenter_cloudprovider_instance_type_offering_available", &["capacity_type", "instance_type", "zone"]),
    (
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
        &["capacity_type", "instance_type", "zone"],
    ),
    ("karpenter_ec2nodeclasses_userdata_bytes", &["nodeclass"]),
    ("karpenter_interruption_deleted_messages_total", &[]),
    ("karpenter_interruption_message_queue_duration_seconds", &[]),
    ("karpenter_interruption_received_messages_total", &["message_type"]),
];

/// Labels of the first line of a series; histograms have more than one line.
fn labels_of(page: &str, name: &str) -> Option<BTreeSet<String>> {
    let line = page.lines().filter(|line| !line.starts_with('#')).find(|line| {
        let written = line.split(['{', ' ']).next().unwrap_or_default();
        ["", "_count"].iter().any(|end| written.strip_suffix(end) == Some(name))
    })?;
    let Some((_, rest)) = line.split_once('{') else { return Some(BTreeSet::new()) };
    let inside = rest.rsplit_once('}').map_or("", |(inside, _)| inside);
    let names =
        inside.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
    Some(names.collect())
}

#[tokio::test(start_paused = true)]
async fn the_page_has_the_names_that_dashboards_ask_for() {
    let mut world = World::start().await;
    world.introduce().await;
    world.pass(MINUTE).await;
    let page = world.metrics();
    assert!(page.contains("_instance_type_cpu_cores{"), "{page}");
    assert!(!page.contains("_offering_"), "nobody has asked for so many series");
    world.stop_karpenter().await;
    world.start_karpenter_with(Options { offering_metrics: true, ..Options::default() }).await;
    world.pass(MINUTE).await;
    // One of everything that is counted: a refused offer, a machine that would not end, a warning, a call.
    world.aws.world(|cloud| cloud.is_spot_role_missing = true);
    world.inflate(1).await;
    world.pass(MINUTE).await;
    world.aws.world(|cloud| cloud.is_spot_role_missing = false);
    world.pass(5 * MINUTE).await;
    assert_eq!(world.running_pods().await, 1);
    let machine = world.machines().remove(0);
    world.aws.fail_next(Call::TerminateInstances, [(); 2].map(|()| AwsError::new("InternalError", "x")));
    let detail = json!({"instance-id": machine, "instance-action": "terminate"});
    let warning = json!({
        "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": world.clock.now(), "detail": detail,
    });
    world.aws.send_message(QUEUE, warning.to_string());
    world.pass(3 * MINUTE).await;
    let took = Duration::from_millis(20);
    let told = CallTold { service: "EC2", action: "CreateFleet", status: 200, took };
    world.calls.tell_attempt(told);
    world.calls.tell_request(told, 1);
    let page = world.metrics();
    for (name, labels) in SERIES {
        let expected: BTreeSet<String> = labels.iter().map(ToString::to_string).collect();
        assert_eq!(labels_of(&page, name), Some(expected), "{name}");
    }
}
