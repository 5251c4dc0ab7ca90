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
        InterruptionQueue::new(world.handler.clone(), world.aws.apis().sqs, QUEUE, world.stop.clone());
    world.spawn(queue, InterruptionQueue::watch, RECEIVERS);
}

fn received(kind: &str) -> String {
    format!("karpenter_interruption_received_messages_total{{message_type=\"{kind}\"}}")
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_message_does_what_its_row_says() {
    let of_reservation = "EC2 Capacity Reservation Instance Interruption Warning";
    let rebalance = "EC2 Instance Rebalance Recommendation";
    let about = json!({"instance-id": "i-1"});
    // Body, kind, whether the claim ends, what is closed, and the event on claim and node.
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
        assert_eq!(world.is_ending("one").await, ends, "{kind}");
        assert!(!world.is_ending("other").await, "{kind}");
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
        // Nobody is in a hurry: draining has its time.
        let claim = world.get_claim("one").await.expect("held");
        let deadline = labels::ANNOTATION_TERMINATION_TIMESTAMP;
        assert!(!claim.metadata.annotations.unwrap_or_default().contains_key(deadline), "{kind}");
        world.stop.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_for_us_is_counted_and_deleted() {
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
    assert!(!world.is_ending("one").await);
    assert_eq!(world.messages_left(), 0);
    assert_eq!(world.metric(&received("malformed")), 3.0);
    assert_eq!(world.metric(&received("no_op")), 3.0);
    assert_eq!(world.metric(&received("spot_interrupted")), 1.0);
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_finds_everything_done() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    listen(&world);
    for _ in 0..3 {
        world.aws.send_message(QUEUE, spot("i-1"));
    }
    world.pass(SECOND).await;
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(SECOND).await;
    assert!(world.is_ending("one").await);
    assert_eq!(world.events().await.len(), 4, "each event once: {:?}", world.events().await);
    assert_eq!(world.metric(&received("spot_interrupted")), 4.0);
}

#[tokio::test(start_paused = true)]
async fn claims_of_other_providers_are_left_alone() {
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
    assert!(!world.is_ending("foreign").await);
    assert_eq!(world.messages_left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_worked_on_by_all_receivers_and_a_trickle_by_one() {
    let world = World::start().await;
    world.aws.set_latency(Duration::from_millis(100));
    listen(&world);
    world.pass(SECOND).await;
    for number in 0..400 {
        world.aws.send_message(QUEUE, spot(&format!("i-{number}")));
    }
    // One receiver alone would carry ten messages every 200 ms, which takes it 8 s.
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.messages_left(), 0);
    world.pass(Duration::from_secs(60)).await;
    world.aws.forget_calls();
    world.pass(Duration::from_secs(60)).await;
    let polls = world.aws.count(Call::ReceiveMessage);
    // A poll of the fake looks twice: when it begins to wait and when the wait is over.
    assert!((4..=8).contains(&polls), "{polls} looks in a quiet minute");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_not_there_is_asked_for_again_until_it_is() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    world.aws.world(|world| world.queues.clear());
    listen(&world);
    world.pass(Duration::from_secs(300)).await;
    let asked = world.aws.count(Call::GetQueueUrl);
    assert!((8..=14).contains(&asked), "asked {asked} times in five minutes");
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(Duration::from_secs(61)).await;
    assert!(world.is_ending("one").await);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_read_is_told_about_once_with_what_to_do() {
    let table = [
        ("AWS.SimpleQueueService.NonExistentQueue", "create the queue, or correct --interruption-queue"),
        ("QueueDoesNotExist", "create the queue, or correct --interruption-queue"),
        ("AccessDenied", "allow sqs:GetQueueUrl, sqs:ReceiveMessage and sqs:DeleteMessage"),
        ("ExpiredToken", "check the credentials of this process"),
        ("RequestThrottled", "it is tried again"),
        ("InternalFailure", "it is tried again"),
    ];
    for (code, advice) in table {
        let log = Log::listen();
        let world = World::start().await;
        world.claim("one", "i-1", json!({})).await;
        world.aws.fail_always(Call::GetQueueUrl, Some(AwsError::new(code, "words")));
        listen(&world);
        world.pass(Duration::from_secs(300)).await;
        let told = log.errors();
        let [line] = told.as_slice() else { panic!("{code}: not one line but {told:?}") };
        assert_eq!((line.field("queue"), line.field("error")), (QUEUE, &*format!("{code}: words")));
        let words = line.field("message");
        assert!(words.contains("cannot be read") && words.contains(advice), "{code}: {words}");
        world.aws.fail_always(Call::GetQueueUrl, None);
        world.aws.send_message(QUEUE, spot("i-1"));
        world.pass(Duration::from_secs(61)).await;
        assert!(world.is_ending("one").await, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_acted_on_comes_again() {
    let world = World::start().await;
    world.claim("one", "i-1", json!({})).await;
    listen(&world);
    // Messages are not deleted: SQS hands them out again once they are visible.
    let denied = AwsError::new("AccessDenied", "no");
    world.aws.fail_next(Call::DeleteMessage, [denied]);
    world.aws.send_message(QUEUE, spot("i-1"));
    world.pass(SECOND).await;
    assert!(world.is_ending("one").await);
    assert_eq!(world.messages_left(), 1);
    world.pass(Duration::from_secs(25)).await;
    assert_eq!(world.messages_left(), 0);
    assert_eq!(world.metric(&received("spot_interrupted")), 2.0);
}

#[tokio::test(start_paused = true)]
async fn one_claim_that_cannot_be_ended_holds_up_no_other() {
    // By a message about all of them, and by a look at their health.
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
        assert!(!world.is_ending("first").await && !world.is_ending("second").await, "{by_message}");
        assert!(world.is_ending("third").await, "{by_message}");
        if by_message {
            assert_eq!(world.messages_left(), 1, "it comes again");
        } else {
            assert_eq!(world.metric(&unhealthy("SystemStatus")), 3.0);
        }
        world.stop.stop();
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_stop_at_once_although_the_queue_would_let_them_wait() {
    let world = World::start().await;
    let queue =
        InterruptionQueue::new(world.handler.clone(), world.aws.apis().sqs, QUEUE, world.stop.clone());
    let keys = karpenter_cluster::reconcile::Queue::default();
    queue.watch(&keys);
    let running = tokio::spawn(karpenter_cluster::reconcile::run(
        std::sync::Arc::new(queue),
        keys,
        RECEIVERS,
        world.clock,
        world.stop.clone(),
    ));
    world.pass(SECOND).await;
    world.stop.stop();
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
async fn broken_machines_are_not_drained_and_retired_ones_are() {
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
    assert!(world.is_ending("broken").await && world.is_ending("retired").await);
    assert!(!world.is_ending("well").await);
    let broken = world.get_claim("broken").await.expect("held");
    assert_eq!(deadline(broken).as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(deadline(world.get_claim("retired").await.expect("held")), None);
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 1.0);
    assert_eq!(world.metric(&unhealthy("EventStatus")), 1.0);
    // Seen again and again, counted once; counted again after it was well.
    world.pass(Duration::from_secs(200)).await;
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 1.0);
    world.aws.world(|world| world.statuses.clear());
    world.pass(Duration::from_secs(61)).await;
    world.aws.world(|world| world.statuses = vec![sick("i-1", true, &[])]);
    world.pass(Duration::from_secs(61)).await;
    assert_eq!(world.metric(&unhealthy("SystemStatus")), 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_asked_for_ever_more_rarely_and_works_once_it_is_granted() {
    let world = World::start().await;
    world.claim("broken", "i-1", json!({})).await;
    world.aws.world(|world| world.statuses = vec![sick("i-1", true, &[])]);
    let denied = AwsError::new("UnauthorizedOperation", "You are not authorized");
    world.aws.fail_always(Call::DescribeInstanceStatus, Some(denied));
    let poller = InstanceStatusPoller::new(world.handler.clone(), world.aws.apis().ec2);
    world.spawn(poller, InstanceStatusPoller::watch, 1);
    world.pass(Duration::from_secs(3600)).await;
    // At 0, 1, 3, 7, 15, 31 and 61 minutes at the latest; three questions each.
    let asked = world.aws.count(Call::DescribeInstanceStatus);
    assert!((6..=21).contains(&asked), "asked {asked} times in an hour");
    world.aws.fail_always(Call::DescribeInstanceStatus, None);
    world.pass(Duration::from_secs(1801)).await;
    assert!(world.is_ending("broken").await);
}

#[tokio::test(start_paused = true)]
async fn a_namesake_that_was_made_meanwhile_is_left_alone() {
    let world = World::start().await;
    let first = world.claim("one", "i-1", json!({})).await;
    let api: Api<karpenter_api::types::NodeClaim> = Api::all(world.client.clone());
    // Gone and made anew before the store hears of it: deletion names the uid it means.
    let mut free = first.clone();
    free.metadata.finalizers = None;
    api.replace("one", &PostParams::default(), &free).await.expect("let go");
    api.delete("one", &Default::default()).await.expect("deleted");
    let mut anew = first;
    anew.metadata.resource_version = None;
    anew.metadata.uid = None;
    api.create(&PostParams::default(), &anew).await.expect("created");
    let _ =
        world.handler.handle(karpenter_aws::interruption::message::Kind::SpotInterrupted, "i-1", None).await;
    assert!(!world.is_ending("one").await);
}
