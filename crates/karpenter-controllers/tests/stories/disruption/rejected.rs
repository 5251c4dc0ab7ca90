//! A proposal that does not stand a second look is told where it was told before.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::disruption::support::{allow, apart, quick, too_large};
use crate::disruption::world::World;

#[tokio::test(start_paused = true)]
async fn what_is_not_done_after_all_is_told_on_node_and_claim_with_the_reason() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        too_large(&world).await;
        allow(&world, quick()).await;
        let about = |told: &[(String, String)]| -> BTreeSet<String> {
            told.iter().map(|(name, _)| name.clone()).collect()
        };
        let proposed = async || world.events("ConsolidationCandidate").await;
        let proposed = world.until("a proposal", proposed, |told| about(told).len() == 2).await;
        // While the proposal rests, the owner of the pod forbids to move it.
        let pod = world.pods().await[0].metadata.name.clone().unwrap_or_default();
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        world.api::<Pod>().patch(&pod, &PatchParams::default(), &Patch::Merge(keep)).await.expect("patched");
        let rejected = async || world.events("ConsolidationRejected").await;
        let rejected = world.until("a refusal", rejected, |told| about(told).len() == 2).await;
        assert_eq!(about(&rejected), about(&proposed), "{mode}");
        for (_, text) in &rejected {
            let (what, rest) = text.split_once(", reason: ").expect(text);
            let (reason, savings) = rest.split_once(" (savings: $").expect(text);
            assert!(what.starts_with("Consolidation rejected: "), "{text}");
            assert!(!reason.is_empty() && savings.ends_with(')'), "{text}");
        }
        assert_eq!(world.decisions(), Vec::<String>::new());
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_node_that_is_left_out_of_a_command_is_counted() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
        world.deploy("web", 2, 900, apart()).await;
        world.until_running("web", 2).await;
        world.until_settled(2).await;
        world.delete_deployment("web").await;
        world.until_running("web", 0).await;
        // Both are due at the same time.
        world.sleep(60).await;
        allow(&world, quick()).await;
        let standings = &world.operator.context().standings;
        let proposed =
            async || standings.entries(None).iter().filter(|entry| entry.standing == "InCommand").count();
        world.until("a proposal", proposed, |count| *count == 2).await;
        // While it rests, one of the two is to stay.
        let node = world.nodes().await[0].metadata.name.clone().unwrap_or_default();
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        world.merge::<Node>(&node, keep).await;
        world.until_settled(1).await;
        let failed = "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"}";
        assert_eq!(world.metric(failed), Some(1.0), "{mode}");
        world.stop().await;
    }
}
