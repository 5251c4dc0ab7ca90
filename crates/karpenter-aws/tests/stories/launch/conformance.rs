use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use karpenter_api::types::{NodeClaim, Requirement};
use karpenter_cloud::conformance::{self, AsyncNewClaim};

use super::world::World;

struct Claims<'a>(&'a World);

impl AsyncNewClaim for Claims<'_> {
    fn new_claim<'a>(&'a mut self, requirements: Vec<Requirement>) -> BoxFuture<'a, NodeClaim> {
        let claim =
            self.0.claim_with(|claim| claim["spec"]["requirements"] = serde_json::json!(requirements));
        async move { claim }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn provider_conforms() {
    let world = World::new().await;
    // The conformance suite requests termination a hundred times, and each call takes 100 ms.
    world.cloud.world(|cloud| cloud.ends_after = Duration::from_secs(2));
    let mut claims = Claims(&world);
    let mut suite = conformance::World { cloud: &world.provider, pool: world.pool(), new_claim: &mut claims };
    conformance::check_all(&mut suite).await.unwrap();
}
