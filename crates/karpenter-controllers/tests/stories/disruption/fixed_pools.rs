//! Pools of fixed size: their drifted nodes are replaced from the template, within budget and limit.

use std::time::Duration;

use serde_json::json;

use crate::disruption::support::drift;
use crate::disruption::world::{World, is_closed, is_initialized, label};

#[tokio::test(start_paused = true)]
async fn drifted_nodes_of_a_fixed_pool_are_replaced_within_its_limit() {
    let world = World::start_with(|options| options.feature_gates.static_capacity = true).await;
    let spec = json!({"replicas": 4, "limits": {"nodes": "5"}, "disruption": {"budgets": [{"nodes": "3"}]}});
    world.pool_of(spec).await;
    world.until_settled(4).await;
    let before = world.claim_names().await;
    drift(&world).await;
    let (mut claims_max, mut closed_max) = (0, 0);
    loop {
        let claims = world.claims().await;
        let nodes = world.nodes().await;
        claims_max = claims_max.max(claims.len());
        closed_max = closed_max.max(nodes.iter().filter(|node| is_closed(node)).count());
        let is_new = claims.iter().all(|one| label(one, "generation") == "second" && is_initialized(one));
        if is_new && claims.len() == 4 && nodes.len() == 4 {
            break;
        }
        assert!(world.seconds() < 900, "{:#?}", world.decisions());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(claims_max, 5, "never more than the limit: {:#?}", world.decisions());
    assert_eq!(closed_max, 1, "one at a time, because the limit leaves one place");
    assert!(world.claim_names().await.is_disjoint(&before));
    world.sleep(600).await;
    assert_eq!(world.claims().await.len(), 4);
    assert!(world.nodes().await.iter().all(|node| !is_closed(node)));
    world.stop().await;
}
