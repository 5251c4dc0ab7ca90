use std::time::Duration;

use karpenter_api::labels;
use karpenter_aws::api::AwsError;
use karpenter_aws::api::ec2::{InstanceStatus, ScheduledEvent, StatusCheck};
use karpenter_aws::fake::Call;
use karpenter_aws::instance_status::InstanceStatusPoller;
use karpenter_aws::interruption::queue::{InterruptionQueue, RECEIVERS};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::world::{EPOCH, QUEUE, World};
use crate::log::Log;

const SECOND: Duration = Duration::from_secs(1);

fn message(source: &str, detail_type: &str, detail: Value) -> String {
    json!({
        "version": "0", "id": "1", "account": "1", "region": "us-west-2", "time": EPOCH, "resources": [],
        "source": source, "detail-type": detail_type, "detail": detail,
    })
    .to_string()
}

fn spot(instance_id: &str) -> String {
    let detail = json!({"instance-id": instance_id, "instance-action": "terminate"});
    message("aws.ec2", "EC2 Spot Instance Interruption Warning", detail)
}

fn state(instance_id: &str, state: &str) -> String {
    let detail = json!({"instance-id": instance_id, "state": state});
    message("aws.ec2", "EC2 Instance State-change Notification", detail)
}

fn health(instance_ids: &[&str]) -> String {
    let entities: Vec<Value> = instance_ids.iter().map(|id| json!({"entityValue": id})).collect();
    let detail =
        json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities});
    message("aws.health", "AWS Health Event", detail)
}

fn listen(world: &World) {
    let queue =
        InterruptionQueue::new(world.handler.clone(), world.aws.apis().sqs, QUEUE, world.shutdown.clone());
    world.spawn(queue, InterruptionQueue::watch, RECEIVERS);
}

fn received(kind: &str) -> String {
    format!("karpenter_interruption_received_messages_total{{message_type=\"{kind}\"}}")
}

#[tokio::test(start_paused = true)]
async fn each_message_kind_has_its_effect() {
    let of_reservation = "EC2 Capacity Reservation Instance Interruption Warning";
    let rebalance = "EC2 Instance Rebalance Recommendation";
    let about = json!({"instance-id": "i-1"});
    // Columns: message body, message kind, whether the NodeClaim is deleted, what becomes unavailable, and the event
    // for NodeClaim and Node.
    let table: Vec<(String, &str, bool, &[&str], &str)> = vec![
        (spot("i-1"), "spot_interrupted", true, &["m5.large in us-west-2a"], "SpotInterrupted"),
        (state("i-1", "stopping"), "instance_stopped", true, &[], "InstanceStopping"),
        (state("i-1", "shutting-down"), "instance_terminated", true, &[], "InstanceTerminating"),
        (health(&["i-9", "i-1"]), "scheduled_change", true, &[], "InstanceUnhealthy"),
        (
            message("aws.ec2", of_reservation, about.clone()),
            "capacity_reservation_interrupted",
            true,
            &["cr-1"],
            "CapacityReservationInstanceInterrupted",
        ),
        (
            message("aws.ec2", rebalance, about),
            "rebalance_recommendation",
            false,
            &[],
            "SpotRebalanceRecommendation",
        ),
    ];
    for (body, kind, ends, closed, reason) in table {
        let world = World::start().await;
        let reserved = json!({labels::AWS_CAPACITY_RESERVATION_ID: "cr-1"});
        world.claim("one", "i-1", reserved).await;
        world.claim("other", "i-2", json!({})).await;
        listen(&world);
        world.aws.send_message(QUEUE, body);
        world.pass(SECOND).await;
        assert_eq!(world.is_terminating("one").await, ends, "{kind}");
        assert!(!world.is_terminating("other").await, "{kind}");
        assert_eq!(world.closed.all(), closed, "{kind}");
        let mut expected = vec![format!("NodeClaim one {reason}"), format!("Node one {reason}")];
        if ends {
            let reason = "TerminatingOnInterruption";
            expected.extend([format!("NodeClaim one {reason}"), format!("Node one {reason}")]);
        }
        expected.sort();
        assert_eq!(world.events().await, expected, "{kind}");
        assert_eq!(world.messages_left(), 0, "{kind}");
        assert_eq!(world.metric(&received(kind)), 1.0, "{kind}");
        assert_eq!(world.metric("karpenter_interruption_deleted_messages_total"), 1.0, "{kind}");
        assert_eq!(
            world.metric("karpenter_interruption_message_queue_duration_seconds_count"),
            1.0,
            "{kind}"
        );
        let disrupted = format!(
            "karpenter_nodeclaims_disrupted_total{{capacity_type=\"spot\",consolidation_policy=\"\",\
             nodepool=\"default\",reason=\"{kind}\",termination_mode=\"graceful\"}}"
        );
        assert_eq!(world.metric(&disrupted) == 1.0, ends, "{kind}");
        // There is no termination deadline, so the drain is not limited in time.
        let claim = world.get_claim("one").await.expect("held");
        let deadline = labels::ANNOTATION_TERMINATION_TIMESTAMP;
        assert!(!claim.metadata.annotations.unwrap_or_default().contains_key(deadline), "{kind}");
        world.shutdown.request();
    }
}

#[tokio::test(start_paused = true)]
async fn irrelevant_messages_are_counted_and_deleted() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    let bodies = [
        "".to_owned(),
        "not JSON".to_owned(),
        "[".repeat(100_000),
        spot("../../i-1"),
        state("i-1", "running"),
        message("aws.s3", "Object Created", json!({})),
        spot("i-404"),
    ];
    for body in bodies {
        world.aws.send_message(QUEUE, body);
    }
    listen(&world);
    world.pass(SECOND).await;
    assert!(!world.is_terminating("one").await);
    assert_eq!(world.messages_left(), 0);
    assert_eq!(world.metric(&received("malformed")), 3.0);
    assert_eq!(world.metric(&received("no_op")), 3.0);
    assert_eq!(world.metric(&received("spot_interrupted")), 1.0);
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn repeated_message_is_idempotent() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    listen(&world);
    for _ in 0..3 {
        world.aws.send_message(QUEUE, spot("i-1"));
    }
    world.pass(SECOND).await;
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(SECOND).await;
    assert!(world.is_terminating("one").await);
    assert_eq!(world.events().await.len(), 4, "each event once: {:?}", world.events().await);
    assert_eq!(world.metric(&received("spot_interrupted")), 4.0);
}

#[tokio::test(start_paused = true)]
async fn claims_of_other_providers_are_not_deleted() {
    let world = World::start().await;
    let foreign = json!({
        "metadata": {"name": "foreign", "finalizers": ["x/y"]},
        "spec": {"nodeClassRef": {"group": "other.sh", "kind": "Thing", "name": "x"}, "requirements": []},
        "status": {"providerID": "aws:///us-west-2a/i-1"},
    });
    world.create::<karpenter_api::types::NodeClaim>(foreign).await;
    listen(&world);
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(SECOND).await;
    assert!(!world.is_terminating("foreign").await);
    assert_eq!(world.messages_left(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_receivers_handle_a_burst_and_one_an_idle_queue() {
    let world = World::start().await;
    world.aws.set_latency(Duration::from_millis(100));
    listen(&world);
    world.pass(SECOND).await;
    for number in 0..400 {
        world.aws.send_message(QUEUE, spot(&format!("i-{number}")));
    }
    // One receiver alone would need 8 s, because it receives ten messages every 200 ms.
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.messages_left(), 0);
    world.pass(Duration::from_secs(60)).await;
    world.aws.forget_calls();
    world.pass(Duration::from_secs(60)).await;
    let polls = world.aws.count(Call::ReceiveMessage);
    // During a long poll, the fake checks for messages twice: at the beginning and at the end.
    assert!((4..=8).contains(&polls), "{polls} receives in a minute without messages");
}

#[tokio::test(start_paused = true)]
async fn missing_queue_is_retried_until_it_exists() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    world.aws.world(|world| world.queues.clear());
    listen(&world);
    world.pass(Duration::from_secs(300)).await;
    let asked = world.aws.count(Call::GetQueueUrl);
    assert!((8..=14).contains(&asked), "asked {asked} times in five minutes");
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(Duration::from_secs(61)).await;
    assert!(world.is_terminating("one").await);
}

#[tokio::test(start_paused = true)]
async fn unreadable_queue_is_logged_once_with_advice() {
    let table = [
        ("AWS.SimpleQueueService.NonExistentQueue", "create the queue, or correct --interruption-queue"),
        ("QueueDoesNotExist", "create the queue, or correct --interruption-queue"),
        ("AccessDenied", "allow sqs:GetQueueUrl, sqs:ReceiveMessage and sqs:DeleteMessage"),
        ("ExpiredToken", "check the credentials of this process"),
        ("RequestThrottled", "none: the call is retried"),
        ("InternalFailure", "none: the call is retried"),
    ];
    for (code, advice) in table {
        let log = Log::listen();
        let world = World::start().await;
        world.claim("one", "i-1", json!({})).await;
        world.aws.fail_always(Call::GetQueueUrl, Some(AwsError::new(code, "words")));
        listen(&world);
        world.pass(Duration::from_secs(300)).await;
        let logged = log.errors();
        let [line] = logged.as_slice() else { panic!("{code}: not one line but {logged:?}") };
        assert_eq!((line.field("queue"), line.field("error")), (QUEUE, &*format!("{code}: words")));
        assert_eq!(line.field("message"), "failed to read interruption queue");
        assert!(line.field("advice").contains(advice), "{code}: {line:?}");
        world.aws.fail_always(Call::GetQueueUrl, None);
        world.aws.send_message(QUEUE, spot("i-1"));
        world.pass(Duration::from_secs(61)).await;
        assert!(world.is_terminating("one").await, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn unhandled_message_is_received_again() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    listen(&world);
    // The messages cannot be deleted, so SQS returns them again when they become visible.
    let denied = AwsError::new("AccessDenied", "no");
    world.aws.fail_next(Call::DeleteMessage, [denied]);
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(SECOND).await;
    assert!(world.is_terminating("one").await);
    assert_eq!(world.messages_left(), 1);
    world.pass(Duration::from_secs(25)).await;
    assert_eq!(world.messages_left(), 0);
    assert_eq!(world.metric(&received("spot_interrupted")), 2.0);
}

#[tokio::test(start_paused = true)]
async fn failed_deletion_does_not_block_other_claims() {
    // First, one message for all instances causes the deletions, then the status of the instances.
    for by_message in [true, false] {
        let world = World::start().await;
        for (name, id) in [("first", "i-1"), ("second", "i-2"), ("third", "i-3")] {
            world.claim(name, id, json!({})).await;
        }
        world.refuse_writes_of("first");
        world.refuse_writes_of("second");
        if by_message {
            listen(&world);
            world.aws.send_message(QUEUE, health(&["i-1", "i-2", "i-3"]));
        } else {
            let statuses = ["i-1", "i-2", "i-3"].map(|id| sick(id, true, &[]));
            world.aws.world(|world| world.statuses = statuses.into());
            let poller = InstanceStatusPoller::new(world.handler.clone(), world.aws.apis().ec2);
            world.spawn(poller, InstanceStatusPoller::watch, 1);
        }
        world.pass(SECOND).await;
        assert!(
            !world.is_terminating("first").await && !world.is_terminating("second").await,
            "{by_message}"
        );
        assert!(world.is_terminating("third").await, "{by_message}");
        if by_message {
            assert_eq!(world.messages_left(), 1, "it is received again");
        } else {
            assert_eq!(world.metric(&unhealthy("SystemStatus")), 3.0);
        }
        world.shutdown.request();
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_stop_immediately_during_long_poll() {
    let world = World::start().await;
    let queue =
        InterruptionQueue::new(world.handler.clone(), world.aws.apis().sqs, QUEUE, world.shutdown.clone());
    let keys = karpenter_runtime::queue::Queue::default();
    queue.watch(&keys);
    let running = tokio::spawn(karpenter_runtime::worker::run(
        std::sync::Arc::new(queue),
        keys,
        RECEIVERS,
        world.clock,
        world.shutdown.clone(),
    ));
    world.pass(SECOND).await;
    world.shutdown.request();
    let ended = tokio::time::timeout(SECOND, running).await;
    assert!(ended.is_ok_and(|ended| ended.is_ok()));
}

fn sick(instance_id: &str, system: bool, events: &[&str]) -> InstanceStatus {
    let check = StatusCheck {
        name: "reachability".to_owned(),
        status: "failed".to_owned(),
        impaired_since: "2026-01-01T11:00:00Z".parse().ok(),
    };
    let event = |code: &&str| ScheduledEvent { code: (*code).to_owned(), ..ScheduledEvent::default() };
    InstanceStatus {
        instance_id: instance_id.to_owned(),
        system_checks: if system { vec![check] } else { Vec::new() },
        events: events.iter().map(event).collect(),
        ..InstanceStatus::default()
    }
}

fn unhealthy(category: &str) -> String {
    format!("karpenter_interruption_instance_status_unhealthy_total{{category=\"{category}\"}}")
}

#[tokio::test(start_paused = true)]
async fn impaired_instances_are_not_drained_and_retired_ones_are() {
    let world = World::start().await;
    for (name, id) in [("broken", "i-1"), ("retired", "i-2"), ("well", "i-3")] {
        world.claim(name, id, json!({})).await;
    }
    world.aws.world(|world| {
        world.statuses = vec![
            sick("i-1", true, &[]),
            sick("i-2", false, &["instance-retirement"]),
            sick("i-404", true, &[]),
        ];
    });
    let poller = InstanceStatusPoller::new(world.handler.clone(), world.aws.apis().ec2);
    world.spawn(poller, InstanceStatusPoller::watch, 1);
    world.pass(SECOND).await;
    let deadline = |claim: karpenter_api::types::NodeClaim| {
        claim.metadata.annotations.unwrap_or_default().get(labels::ANNOTATION_TERMINATION_TIMESTAMP).cloned()
    };
    assert!(world.is_terminating("broken").await && world.is_terminating("retired").await);
    assert!(!world.is_terminating("well").await);
    let broken = world.get_claim("broken").await.expect("held");
    assert_eq!(deadline(broken).as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(deadline(world.get_claim("retired").await.expect("held")), None);
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 1.0);
    assert_eq!(world.metric(&unhealthy("EventStatus")), 1.0);
    // While an instance is reported as unhealthy it is counted once; after it was healthy in between, it is counted
    // again.
    world.pass(Duration::from_secs(200)).await;
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 1.0);
    world.aws.world(|world| world.statuses.clear());
    world.pass(Duration::from_secs(61)).await;
    world.aws.world(|world| world.statuses = vec![sick("i-1", true, &[])]);
    world.pass(Duration::from_secs(61)).await;
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 2.0);
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_retried_with_back_off_until_granted() {
    let world = World::start().await;
    world.claim("broken", "i-1", json!({})).await;
    world.aws.world(|world| world.statuses = vec![sick("i-1", true, &[])]);
    let denied = AwsError::new("UnauthorizedOperation", "You are not authorized");
    world.aws.fail_always(Call::DescribeInstanceStatus, Some(denied));
    let poller = InstanceStatusPoller::new(world.handler.clone(), world.aws.apis().ec2);
    world.spawn(poller, InstanceStatusPoller::watch, 1);
    world.pass(Duration::from_secs(3600)).await;
    // The back-off makes queries at 0, 1, 3, 7, 15, 31 and 61 minutes at the latest, and three of them each time.
    let asked = world.aws.count(Call::DescribeInstanceStatus);
    assert!((6..=21).contains(&asked), "asked {asked} times in an hour");
    world.aws.fail_always(Call::DescribeInstanceStatus, None);
    world.pass(Duration::from_secs(1801)).await;
    assert!(world.is_terminating("broken").await);
}

#[tokio::test(start_paused = true)]
async fn recreated_claim_of_same_name_is_not_deleted() {
    let world = World::start().await;
    let first = world.claim("one", "i-1", json!({})).await;
    let api: Api<karpenter_api::types::NodeClaim> = Api::all(world.client.clone());
    // A NodeClaim is deleted and created again before the store is updated. The deletion request has the uid of the
    // first object.
    let mut free = first.clone();
    free.metadata.finalizers = None;
    api.replace("one", &PostParams::default(), &free).await.expect("let go");
    api.delete("one", &Default::default()).await.expect("deleted");
    let mut recreated = first;
    recreated.metadata.resource_version = None;
    recreated.metadata.uid = None;
    api.create(&PostParams::default(), &recreated).await.expect("created");
    let _ =
        world.handler.handle(karpenter_aws::interruption::message::Kind::SpotInterrupted, "i-1", None).await;
    assert!(!world.is_terminating("one").await);
}
