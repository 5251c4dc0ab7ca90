//! Tests of `--legacy-node-repair`.

use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::{REBOOT_REQUIRED, UNHEALTHY};
use serde_json::json;

use crate::repair::world::{World, gates};

#[tokio::test(start_paused = true)]
async fn unhealthy_node_is_terminated_without_regard_to_budgets_and_do_not_disrupt() {
    let options = Options { legacy_node_repair: true, ..gates("NodeRepair=true") };
    let world = World::start(options).await;
    world.pool("general", json!({"disruption": {"budgets": [{"nodes": "0"}]}})).await;
    let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    world.spread("web", 5, keep).await;
    let claims: Vec<String> = world.claims().await.into_keys().collect();
    let (first, second) = (&claims[0], &claims[1]);
    let node = world.node_of(first).await;
    // Policies with the action `Reboot` are ignored.
    let other = world.node_of(second).await;
    world.kwok.inject_condition(&other, REBOOT_REQUIRED, "True", "Injected").await.expect("written");
    world.kwok.inject_condition(&node, UNHEALTHY, "True", "Injected").await.expect("written");
    world.after(29).await;
    assert!(world.claim(first).await.is_some());
    world.until("the claim is deleted", async || world.claim(first).await, Option::is_none).await;
    world.until_running(5).await;
    assert!(world.claim(second).await.is_some());
    let metrics = &world.operator.context().metrics;
    let series = ["unhealthy", "general", "on-demand", "", "graceful"];
    assert_eq!(metrics.nodeclaims_disrupted.with_label_values(&series).get(), 1);
    assert_eq!(metrics.disruption.pods_initiated.with_label_values(&series).get(), 1);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn repair_stops_above_20_percent_unhealthy_nodes() {
    let options = Options { legacy_node_repair: true, ..gates("NodeRepair=true") };
    let world = World::start(options).await;
    world.pool("general", json!({})).await;
    world.spread("web", 5, json!({})).await;
    let claims: Vec<String> = world.claims().await.into_keys().collect();
    for claim in &claims[..2] {
        let node = world.node_of(claim).await;
        world.kwok.inject_condition(&node, UNHEALTHY, "True", "Injected").await.expect("written");
    }
    world.after(120).await;
    assert_eq!(world.claims().await.len(), 5);
    let events = world.events("NodeRepairBlocked").await;
    assert!(!events.is_empty());
    world.kwok.remove_condition(&world.node_of(&claims[0]).await, UNHEALTHY).await.expect("written");
    world.until("the other claim is deleted", async || world.claim(&claims[1]).await, Option::is_none).await;
    world.stop().await;
}

mod policies {
    //! Tests of the check of repair policies at start.

    use std::collections::BTreeSet;
    use std::sync::Arc;

    use karpenter_api::types::{NodeClaim, NodePool};
    use karpenter_cloud::{
        CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind, RepairAction, RepairPolicy,
    };
    use karpenter_model::instance_type::InstanceType;

    pub(super) struct Policies(pub(super) Vec<RepairPolicy>);

    fn nothing<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
        Box::pin(std::future::ready(Err(CloudError::NotFound { message: String::new() })))
    }

    impl CloudProvider for Policies {
        fn name(&self) -> &'static str {
            "toy"
        }

        fn node_class_kinds(&self) -> Vec<NodeClassKind> {
            Vec::new()
        }

        fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
            BTreeSet::new()
        }

        fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
            nothing()
        }

        fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
            nothing()
        }

        fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
            nothing()
        }

        fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
            nothing()
        }

        fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
            nothing()
        }

        fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
            nothing()
        }

        fn repair_policies(&self) -> Vec<RepairPolicy> {
            self.0.clone()
        }
    }

    pub(super) fn without_fallback() -> RepairPolicy {
        RepairPolicy {
            condition_type: "Ready".to_owned(),
            condition_status: "False".to_owned(),
            reason_regex: ".*".to_owned(),
            toleration_secs: 0,
            termination_grace_period_secs: None,
            priority: 0,
            action: RepairAction::Replace,
        }
    }
}

#[test]
fn invalid_repair_policies_are_an_error_at_start() {
    let on = gates("NodeRepair=true");
    let legacy = Options { legacy_node_repair: true, ..on.clone() };
    let none = policies::Policies(Vec::new());
    let wrong = policies::Policies(vec![policies::without_fallback()]);
    let check = |cloud: &policies::Policies, options: &Options| {
        Operator::check(cloud, options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(check(&none, &on).contains("but toy defines none"), "{}", check(&none, &on));
    assert!(check(&wrong, &on).contains("no policy is the fallback"), "{}", check(&wrong, &on));
    for options in [legacy, gates("")] {
        assert_eq!((check(&none, &options), check(&wrong, &options)), (String::new(), String::new()));
    }
}
