//! Tests of nodes whose pods have the annotation do-not-disrupt, some for a duration and some without limit.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::disruption::support::drift;
use crate::disruption::world::{World, has_disrupted_taint};

/// A drifted node must not be disrupted before the longest protection of its pods has ended.
#[tokio::test(start_paused = true)]
async fn node_is_protected_for_the_longest_do_not_disrupt_of_its_pods() {
    for is_for_good in [false, true] {
        let world = World::start().await;
        let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]});
        world.pool(disruption, json!({})).await;
        let mut wishes = vec![("one", "1m"), ("two", "2m")];
        if is_for_good {
            wishes.push(("ever", "true"));
        }
        for (name, wish) in &wishes {
            let annotations = json!({"karpenter.sh/do-not-disrupt": wish});
            world.deploy(name, 1, 250, json!({"metadata": {"annotations": annotations}})).await;
        }
        let mut started = world.clock.now();
        for (name, _) in &wishes {
            let pod = world.until_running(name, 1).await.remove(0);
            started = pod.status.and_then(|status| status.start_time).expect("it started").0;
        }
        world.until_settled(1).await;
        drift(&world).await;
        let since_start = || world.clock.now().duration_since(started).as_secs();
        let tainted = async || world.nodes().await.iter().any(has_disrupted_taint);
        while since_start() < 115 {
            assert!(!tainted().await, "after {} s", since_start());
            world.sleep(1).await;
        }
        if is_for_good {
            world.sleep(3600).await;
            assert!(!tainted().await);
            let verdicts = world.operator.context().verdicts.entries(None);
            assert_eq!(verdicts[0].standing, "PodAnnotated", "{verdicts:?}");
            let pods = world.until_running("ever", 1).await;
            let name = pods[0].metadata.name.clone().expect("a name");
            let patch = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": null}}});
            let api = world.api::<Pod>();
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
            let began = world.seconds();
            world.until("the node is tainted", &tainted, |tainted| *tainted).await;
            assert!(world.seconds() - began <= 15, "{}", world.seconds() - began);
        } else {
            world.until("the node is tainted", &tainted, |tainted| *tainted).await;
            assert!((119..=135).contains(&since_start()), "{}", since_start());
        }
        world.until("the old node is removed", tainted, |tainted| !*tainted).await;
        world.until_settled(1).await;
        world.stop().await;
    }
}
