use std::time::Duration;

use tokio::time::{Instant, advance};

use super::*;
use crate::api::ec2::*;
use crate::api::sqs::ReceiveMessages;
use crate::api::{Ec2, ErrorKind, Iam, Sqs, Tags};

const REGION: &str = "us-west-2";

fn cloud() -> Arc<FakeAws> {
    FakeAws::new(Clock::starting_at(Timestamp::UNIX_EPOCH), REGION)
}

async fn template(cloud: &FakeAws, name: &str, data: LaunchTemplateData) {
    let request = CreateLaunchTemplate { name: name.to_owned(), data, tags: Tags::new() };
    cloud.create_launch_template(&request).await.unwrap();
}

fn offer(instance_type: &str, subnet: &str) -> FleetOverride {
    FleetOverride {
        instance_type: instance_type.to_owned(),
        subnet_id: Some(subnet.to_owned()),
        ..FleetOverride::default()
    }
}

fn fleet(target: TargetCapacityType, count: i32, overrides: Vec<FleetOverride>) -> CreateFleet {
    let tags = Tags::from([("karpenter.sh/nodepool".to_owned(), "default".to_owned())]);
    CreateFleet {
        launch_template_configs: vec![FleetLaunchTemplate {
            launch_template_name: "lt".to_owned(),
            overrides,
        }],
        target,
        total_target_capacity: count,
        spot_allocation_strategy: None,
        on_demand_allocation_strategy: None,
        reservation_types: Vec::new(),
        context: None,
        tag_specifications: vec![TagSpecification { resource_type: "instance".to_owned(), tags }],
        is_dry_run: false,
    }
}

fn types(answer: &FleetAnswer) -> Vec<(&str, usize)> {
    answer.instances.iter().map(|bought| (bought.instance_type.as_str(), bought.instance_ids.len())).collect()
}

fn codes(answer: &FleetAnswer) -> Vec<&str> {
    answer.errors.iter().map(|error| error.error.code.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn fleet_launches_cheapest_override_and_continues_after_insufficient_capacity() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    let overrides = vec![offer("m5.xlarge", "subnet-a"), offer("m5.large", "subnet-a")];
    cloud.world(|world| {
        let pool = ("m5.large".to_owned(), format!("{REGION}a"), "on-demand".to_owned());
        world.pool_capacity.insert(pool, 1);
    });
    let answer = cloud.create_fleet(&fleet(TargetCapacityType::OnDemand, 3, overrides)).await.unwrap();
    assert_eq!(types(&answer), [("m5.large", 1), ("m5.xlarge", 2)]);
    assert_eq!(codes(&answer), ["InsufficientInstanceCapacity"]);
    assert_eq!(cloud.world(|world| world.subnets["subnet-a"].available_ip_count), 3997);
}

#[tokio::test(start_paused = true)]
async fn fleet_may_launch_fewer_instances_than_requested() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    cloud.world(|world| world.fleet_instances_max = Some(2));
    let request = fleet(TargetCapacityType::OnDemand, 5, vec![offer("m5.large", "subnet-a")]);
    assert_eq!(types(&cloud.create_fleet(&request).await.unwrap()), [("m5.large", 2)]);
}

#[tokio::test(start_paused = true)]
async fn spot_instance_has_spot_request_and_needs_service_linked_role() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    let request = fleet(TargetCapacityType::Spot, 1, vec![offer("m5.large", "subnet-a")]);
    cloud.create_fleet(&request).await.unwrap();
    let machines = cloud.describe_instances(&InstanceQuery::default()).await.unwrap();
    assert!(machines[0].spot_instance_request_id.as_deref().unwrap().starts_with("sir-"));
    assert_eq!(machines[0].lifecycle.as_deref(), Some("spot"));
    cloud.world(|world| world.is_spot_role_missing = true);
    let answer = cloud.create_fleet(&request).await.unwrap();
    assert_eq!(codes(&answer), ["AuthFailure.ServiceLinkedRoleCreationNotPermitted"]);
    assert!(answer.instances.is_empty());
}

#[tokio::test(start_paused = true)]
async fn fleet_fails_without_free_addresses_offering_or_launch_template() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    cloud.world(|world| world.subnets.get_mut("subnet-a").unwrap().available_ip_count = 0);
    let request = |overrides| fleet(TargetCapacityType::OnDemand, 1, overrides);
    let answer = cloud.create_fleet(&request(vec![offer("m5.large", "subnet-a")])).await.unwrap();
    assert_eq!(codes(&answer), ["InsufficientFreeAddressesInSubnet"]);
    let answer = cloud.create_fleet(&request(vec![offer("zz.large", "subnet-b")])).await.unwrap();
    assert_eq!(codes(&answer), ["Unsupported"]);
    let mut gone = request(vec![offer("m5.large", "subnet-b")]);
    gone.launch_template_configs[0].launch_template_name = "gone".to_owned();
    let error = cloud.create_fleet(&gone).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::LaunchTemplateNotFound);
}

#[tokio::test(start_paused = true)]
async fn reservation_launches_at_most_its_available_count() {
    let cloud = cloud();
    let reservation = CapacityReservation {
        id: "cr-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: format!("{REGION}a"),
        state: "active".to_owned(),
        total_count: 1,
        available_count: 1,
        ..CapacityReservation::default()
    };
    cloud.world(|world| world.reservations.insert("cr-1".to_owned(), reservation));
    let only = CapacityReservationSpec {
        preference: "capacity-reservations-only".to_owned(),
        target_id: Some("cr-1".to_owned()),
    };
    template(&cloud, "lt", LaunchTemplateData { capacity_reservation: Some(only), ..Default::default() })
        .await;
    let request = fleet(TargetCapacityType::OnDemand, 2, vec![offer("m5.large", "subnet-a")]);
    let answer = cloud.create_fleet(&request).await.unwrap();
    assert_eq!(types(&answer), [("m5.large", 1)]);
    assert_eq!(codes(&answer), ["ReservationCapacityExceeded"]);
    let id = answer.instances[0].instance_ids[0].clone();
    cloud.terminate_instances(&[id]).await.unwrap();
    advance(Duration::from_secs(60)).await;
    let query = ReservationQuery { ids: vec!["cr-1".to_owned()], ..Default::default() };
    assert_eq!(cloud.describe_capacity_reservations(&query).await.unwrap()[0].available_count, 1);
}

#[tokio::test(start_paused = true)]
async fn spread_placement_group_holds_seven_instances_per_zone() {
    let cloud = cloud();
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        strategy: "spread".to_owned(),
        state: "available".to_owned(),
        ..PlacementGroup::default()
    };
    cloud.world(|world| world.placement_groups.insert("pg-1".to_owned(), group));
    let placement = PlacementSpec { group_id: Some("pg-1".to_owned()), ..PlacementSpec::default() };
    template(&cloud, "lt", LaunchTemplateData { placement, ..Default::default() }).await;
    let request = fleet(TargetCapacityType::OnDemand, 8, vec![offer("m5.large", "subnet-a")]);
    let answer = cloud.create_fleet(&request).await.unwrap();
    assert_eq!(types(&answer), [("m5.large", 7)]);
    assert!(answer.errors[0].error.is_spread_placement_group_full());
}

#[tokio::test(start_paused = true)]
async fn instance_state_follows_the_clock() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    cloud.world(|world| world.visible_after = Duration::from_secs(5));
    let request = fleet(TargetCapacityType::OnDemand, 1, vec![offer("m5.large", "subnet-a")]);
    let id = cloud.create_fleet(&request).await.unwrap().instances[0].instance_ids[0].clone();
    let query = InstanceQuery { ids: vec![id.clone()], ..InstanceQuery::default() };
    assert!(cloud.describe_instances(&query).await.unwrap_err().is_not_found());
    advance(Duration::from_secs(5)).await;
    let state = async || cloud.describe_instances(&query).await.unwrap()[0].state;
    assert_eq!(state().await, InstanceState::Pending);
    advance(Duration::from_secs(15)).await;
    assert_eq!(state().await, InstanceState::Running);
    let changes = cloud.terminate_instances(std::slice::from_ref(&id)).await.unwrap();
    assert_eq!(changes[0].current, InstanceState::ShuttingDown);
    advance(Duration::from_secs(40)).await;
    assert_eq!(state().await, InstanceState::Terminated);
    let alive = InstanceQuery { states: InstanceState::ALIVE.to_vec(), ..query.clone() };
    assert_eq!(cloud.describe_instances(&alive).await.unwrap(), []);
    advance(Duration::from_secs(3600)).await;
    assert!(cloud.describe_instances(&query).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn one_unknown_instance_id_fails_the_whole_call() {
    let cloud = cloud();
    template(&cloud, "lt", LaunchTemplateData::default()).await;
    let request = fleet(TargetCapacityType::OnDemand, 1, vec![offer("m5.large", "subnet-a")]);
    let id = cloud.create_fleet(&request).await.unwrap().instances[0].instance_ids[0].clone();
    let ids = [id.clone(), "i-0".to_owned()];
    assert!(cloud.terminate_instances(&ids).await.unwrap_err().is_not_found());
    assert!(cloud.create_tags(&ids, &Tags::new()).await.unwrap_err().is_not_found());
    let query = InstanceQuery {
        tags: vec![crate::api::TagFilter::exists("karpenter.sh/nodepool")],
        ..Default::default()
    };
    assert_eq!(cloud.describe_instances(&query).await.unwrap()[0].id, id, "it was not terminated");
}

#[tokio::test(start_paused = true)]
async fn faults_are_returned_in_order_and_calls_are_counted() {
    let cloud = cloud();
    let throttled = || AwsError::new("RequestLimitExceeded", "slow down");
    cloud.fail_next(Call::DescribeSubnets, [throttled(), throttled()]);
    cloud.fail_always(Call::DescribeImages, Some(AwsError::new("UnauthorizedOperation", "no")));
    let subnets = SubnetQuery::default();
    assert!(cloud.describe_subnets(&subnets).await.unwrap_err().is_throttled());
    assert!(cloud.describe_subnets(&subnets).await.unwrap_err().is_throttled());
    assert_eq!(cloud.describe_subnets(&subnets).await.unwrap().len(), 4);
    for _ in 0..3 {
        assert!(cloud.describe_images(&ImageQuery::default()).await.unwrap_err().is_unauthorized());
    }
    cloud.fail_always(Call::DescribeImages, None);
    assert!(cloud.describe_images(&ImageQuery::default()).await.is_ok());
    assert_eq!((cloud.count(Call::DescribeSubnets), cloud.count(Call::DescribeImages)), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn received_message_is_hidden_for_visibility_timeout() {
    let cloud = cloud();
    cloud.world(|world| world.queues.insert("cluster".to_owned(), Vec::new()));
    let queue_url = cloud.get_queue_url("cluster").await.unwrap();
    let request = ReceiveMessages {
        queue_url: queue_url.clone(),
        messages_max: 10,
        visibility_timeout_secs: 20,
        wait_secs: 20,
    };
    let sender = Arc::clone(&cloud);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        sender.send_message("cluster", "hello");
    });
    let started = Instant::now();
    let received = cloud.receive_messages(&request).await.unwrap();
    assert_eq!((received[0].body.as_str(), started.elapsed().as_secs()), ("hello", 3));
    assert_eq!(
        cloud.receive_messages(&request).await.unwrap()[0].receive_count,
        2,
        "visible again after 20 s"
    );
    let again = cloud.receive_messages(&request).await.unwrap();
    let handles = [again[0].receipt_handle.clone()];
    assert_eq!(cloud.delete_messages(&queue_url, &handles).await.unwrap(), []);
    assert_eq!(cloud.receive_messages(&request).await.unwrap(), []);
    assert!(cloud.get_queue_url("other").await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn instance_profile_holds_one_role_and_is_deleted_only_without_roles() {
    let cloud = cloud();
    let request = crate::api::iam::CreateInstanceProfile {
        name: "p".to_owned(),
        path: "/a/b/".to_owned(),
        tags: Tags::new(),
    };
    cloud.create_instance_profile(&request).await.unwrap();
    assert!(cloud.create_instance_profile(&request).await.unwrap_err().is_already_exists());
    assert!(cloud.add_role_to_instance_profile("p", "unknown").await.unwrap_err().is_not_found());
    cloud.add_role_to_instance_profile("p", "KarpenterNodeRole-cluster").await.unwrap();
    assert_eq!(cloud.get_instance_profile("p").await.unwrap().roles, ["KarpenterNodeRole-cluster"]);
    assert_eq!(cloud.delete_instance_profile("p").await.unwrap_err().code, "DeleteConflict");
    cloud.remove_role_from_instance_profile("p", "KarpenterNodeRole-cluster").await.unwrap();
    assert_eq!(cloud.list_instance_profiles("/a/").await.unwrap().len(), 1);
    cloud.delete_instance_profile("p").await.unwrap();
    assert!(cloud.get_instance_profile("p").await.unwrap_err().is_not_found());
}
