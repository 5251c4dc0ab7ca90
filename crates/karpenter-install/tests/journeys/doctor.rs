//! Tests of `doctor` on a cluster without faults, and on a cluster whose controller is stopped.

use crate::world::{World, bad};
use karpenter_install::doctor::Level;
use karpenter_install::install::Choices;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn doctor_reports_healthy_cluster_and_stopped_controller() {
    let world = World::start().await;
    let found = world.examine().await;
    let missing = bad(&found);
    assert!(missing.iter().any(|line| line.contains("nodepools.karpenter.sh is missing")), "{missing:?}");
    assert!(missing.iter().any(|line| line.contains("no active controller")), "{missing:?}");

    world
        .install(&World::settings(), &Choices { wait: Some(Duration::from_secs(120)), ..Choices::default() })
        .await
        .expect("installed");
    let karpenter = world.run_karpenter().await;
    world.apply_workload().await;
    world.until("nodes", async || world.registered().await).await;
    world.clock.sleep(Duration::from_secs(30)).await;
    let found = world.examine().await;
    assert_eq!(bad(&found), Vec::<String>::new());
    let permissions = found.iter().find(|finding| finding.check == "permissions").expect("reported");
    assert!(permissions.message.contains("karpenter/karpenter has all"), "{permissions:?}");

    // The controller is stopped, then a user deletes a NodeClaim.
    world.scale_to_zero("karpenter", "karpenter").await;
    world.end_karpenter(karpenter).await;
    world.clock.sleep(Duration::from_secs(60)).await;
    let claims = world.list("karpenter.sh", "v1", "NodeClaim").await;
    let name = claims[0]["metadata"]["name"].as_str().expect("text");
    world.delete("karpenter.sh", "v1", "NodeClaim", name).await;
    let found = world.examine().await;
    let lines = bad(&found);
    assert!(lines.iter().any(|line| line.contains("no active controller")), "{lines:?}");
    let left = found.iter().find(|finding| finding.check == "finalizers").expect("reported");
    assert_eq!(left.level, Level::Fail, "{left:?}");
    assert!(left.message.contains(name), "{left:?}");
}
