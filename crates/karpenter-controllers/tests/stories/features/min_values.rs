//! Pools that want a choice of several values, where it cannot be had in full.

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_controllers::operator::Options;
use karpenter_controllers::operator::options::MinValuesPolicy;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::features::world::World;

const TYPE: &str = "node.kubernetes.io/instance-type";
const FAMILY: &str = "karpenter.kwok.sh/instance-family";
const CPU: &str = "karpenter.kwok.sh/instance-cpu";

/// A pool of six types, of three families and two sizes, that wants so many of each; and a pod that asks for so much.
async fn claims_for(policy: MinValuesPolicy, wanted: [u32; 3], cpu: &str) -> Vec<NodeClaim> {
    let world = World::start(Options { min_values_policy: policy, ..Options::default() }).await;
    let [types, families, sizes] = wanted;
    let requirements = json!([
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": TYPE, "operator": "Exists", "minValues": types},
        {"key": FAMILY, "operator": "In", "values": ["c", "s", "m"], "minValues": families},
        {"key": CPU, "operator": "In", "values": ["4", "8"], "minValues": sizes},
    ]);
    let patch = Patch::Merge(json!({"spec": {"template": {"spec": {"requirements": requirements}}}}));
    world.all::<NodePool>().patch("default", &PatchParams::default(), &patch).await.expect("patched");
    world.pod("web", json!({"cpu": cpu})).await;
    world.pass(30).await;
    world.claims().await
}

/// What the claim asks for: how many values of a key there are to choose from, and how many at least.
fn choice(claim: &NodeClaim, key: &str) -> (usize, Option<i64>) {
    let asked = claim.spec.requirements.iter().find(|one| one.key == key);
    asked.map_or((0, None), |asked| (asked.values.len(), asked.min_values))
}

fn relaxed(claim: &NodeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get("karpenter.sh/nodeclaim-min-values-relaxed").map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_met_is_lowered_to_what_there_is() {
    // Only the three types of eight CPUs hold the pod.
    let claims = claims_for(MinValuesPolicy::BestEffort, [10, 3, 2], "5").await;
    let [claim] = &claims[..] else { panic!("one claim, not {claims:#?}") };
    assert_eq!(choice(claim, TYPE), (3, Some(3)), "of ten");
    assert_eq!(choice(claim, FAMILY), (3, Some(3)), "as wanted");
    assert_eq!(choice(claim, CPU), (2, Some(1)), "of two");
    assert_eq!(relaxed(claim), Some("true"));
}

#[tokio::test(start_paused = true)]
async fn what_can_be_met_stays_as_it_is() {
    for policy in [MinValuesPolicy::BestEffort, MinValuesPolicy::Strict] {
        let claims = claims_for(policy, [5, 3, 2], "1").await;
        let [claim] = &claims[..] else { panic!("one claim, not {claims:#?}") };
        assert_eq!(choice(claim, TYPE), (6, Some(5)), "{policy:?}");
        assert_eq!(choice(claim, FAMILY), (3, Some(3)), "{policy:?}");
        assert_eq!(choice(claim, CPU), (2, Some(2)), "{policy:?}");
        assert_eq!(relaxed(claim), Some("false"), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lowered_where_that_is_not_allowed() {
    assert_eq!(claims_for(MinValuesPolicy::Strict, [10, 3, 2], "5").await, []);
}
