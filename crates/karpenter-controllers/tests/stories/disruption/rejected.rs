//! Tests of commands that fail validation: the node and the NodeClaim that had the event about the candidate get an
//! event about the failure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::disruption::support::{anti_affinity, consolidate_soon, oversized_node, set_disruption};
use crate::disruption::world::World;

#[tokio::test(start_paused = true)]
async fn rejected_command_is_reported_on_node_and_claim_with_the_reason() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        oversized_node(&world).await;
        set_disruption(&world, consolidate_soon()).await;
        let about = |events: &[(String, String)]| -> BTreeSet<String> {
            events.iter().map(|(name, _)| name.clone()).collect()
        };
        let proposed = async || world.events("ConsolidationCandidate").await;
        let proposed = world.until("a candidate event", proposed, |events| about(events).len() == 2).await;
        // Before the validation, the test sets an annotation that protects the pod from disruption.
        let pod = world.pods().await[0].metadata.name.clone().unwrap_or_default();
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        world.api::<Pod>().patch(&pod, &PatchParams::default(), &Patch::Merge(keep)).await.expect("patched");
        let rejected = async || world.events("ConsolidationRejected").await;
        let rejected = world.until("a rejected event", rejected, |events| about(events).len() == 2).await;
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
async fn empty_node_dropped_at_validation_is_counted() {
    for mode in ["cost", "compat"] {
        let world = if mode == "cost" { World::start().await } else { World::compat().await };
        world.pool(json!({"consolidateAfter": "Never"}), json!({})).await;
        world.deploy("web", 2, 900, anti_affinity()).await;
        world.until_running("web", 2).await;
        world.until_settled(2).await;
        world.delete_deployment("web").await;
        world.until_running("web", 0).await;
        // Both nodes can be consolidated at the same time.
        world.sleep(60).await;
        set_disruption(&world, consolidate_soon()).await;
        let verdicts = &world.operator.context().verdicts;
        let proposed =
            async || verdicts.entries(None).iter().filter(|entry| entry.standing == "InCommand").count();
        world.until("a command", proposed, |count| *count == 2).await;
        // Before the validation, the test sets an annotation that protects one of the two nodes from disruption.
        let node = world.nodes().await[0].metadata.name.clone().unwrap_or_default();
        let keep = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        world.merge::<Node>(&node, keep).await;
        world.until_settled(1).await;
        let failed = "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"empty\"}";
        assert_eq!(world.metric(failed), Some(1.0), "{mode}");
        world.stop().await;
    }
}
