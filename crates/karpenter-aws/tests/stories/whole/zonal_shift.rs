use std::collections::BTreeSet;
use std::time::Duration;

use karpenter_aws::api::AwsError;
use karpenter_aws::api::zonal_shift::Shift;
use karpenter_aws::fake::Call;
use karpenter_aws::options::AwsOptions;
use karpenter_controllers::operator::Options;

use super::world::World;
use crate::log::Log;

const MINUTE: Duration = Duration::from_secs(60);

fn failures(log: &Log) -> Vec<String> {
    let lines = log.errors().into_iter();
    lines.map(|line| line.field("message").to_owned()).filter(|text| text.contains("zonal shifts")).collect()
}

#[tokio::test(start_paused = true)]
async fn denied_zonal_shift_read_is_retried() {
    let mut world = World::start().await;
    world.stop_karpenter().await;
    let denied = AwsError::new("AccessDeniedException", "not authorized to perform: GetManagedResource");
    world.aws.fail_always(Call::GetManagedResource, Some(denied));
    // ARC shifts traffic away from all zones except the first one.
    world.aws.world(|world| {
        let zones: BTreeSet<String> =
            world.subnets.values().filter_map(|subnet| subnet.zone_id.clone()).collect();
        let shifted = zones.into_iter().skip(1).map(|away_from_zone_id| Shift {
            away_from_zone_id,
            is_applied: true,
            started_at: None,
            expires_at: None,
        });
        world.shifts = shifted.collect();
    });
    let log = Log::listen();
    let options = AwsOptions { enable_zonal_shift: true, ..AwsOptions::default() };
    let assembly = world.assemble_with(options).await.expect("a denied call is no reason not to start");
    assert_eq!(failures(&log), ["failed to read zonal shifts at start, retrying"]);
    world.start_assembled(assembly, Options::default()).await;
    world.introduce().await;
    world.pass(MINUTE).await;
    assert_eq!(failures(&log).len(), 2, "logged once, not with every attempt: {:?}", failures(&log));

    world.aws.fail_always(Call::GetManagedResource, None);
    world.pass(Duration::from_secs(11)).await;
    world.inflate(10).await;
    world.pass(3 * MINUTE).await;
    assert_eq!(world.running_pods().await, 10);
    let zones: BTreeSet<Option<String>> = world
        .aws
        .world(|world| world.instances.values().map(|machine| machine.instance.zone_id.clone()).collect());
    let first =
        world.aws.world(|world| world.subnets.values().filter_map(|subnet| subnet.zone_id.clone()).min());
    assert_eq!(zones, BTreeSet::from([first]));
}
