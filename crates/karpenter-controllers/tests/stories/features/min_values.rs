//! Tests of NodePools with `minValues` that cannot be met in full.

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_controllers::operator::Options;
use karpenter_controllers::operator::options::MinValuesPolicy;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::features::world::World;

const TYPE: &str = "node.kubernetes.io/instance-type";
const FAMILY: &str = "karpenter.kwok.sh/instance-family";
const CPU: &str = "karpenter.kwok.sh/instance-cpu";

/// Creates a NodePool with these `minValues`, which has six instance types of three families and two sizes, and a pod
/// with this CPU request. Returns the NodeClaims.
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
    world.sleep(30).await;
    world.claims().await
}

/// The number of values that the NodeClaim allows for the key, and the `minValues` of this requirement.
fn choice(claim: &NodeClaim, key: &str) -> (usize, Option<i64>) {
    let asked = claim.spec.requirements.iter().find(|one| one.key == key);
    asked.map_or((0, None), |asked| (asked.values.len(), asked.min_values))
}

fn relaxed(claim: &NodeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get("karpenter.sh/nodeclaim-min-values-relaxed").map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn unsatisfiable_min_values_are_lowered_to_what_is_available() {
    // Only the three instance types with eight CPUs fit the pod.
    let claims = claims_for(MinValuesPolicy::BestEffort, [10, 3, 2], "5").await;
    let [claim] = &claims[..] else { panic!("one claim, not {claims:#?}") };
    assert_eq!(choice(claim, TYPE), (3, Some(3)), "of ten");
    assert_eq!(choice(claim, FAMILY), (3, Some(3)), "not lowered");
    assert_eq!(choice(claim, CPU), (2, Some(1)), "of two");
    assert_eq!(relaxed(claim), Some("true"));
}

#[tokio::test(start_paused = true)]
async fn satisfiable_min_values_are_kept() {
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
async fn min_values_are_not_lowered_with_strict_policy() {
    assert_eq!(claims_for(MinValuesPolicy::Strict, [10, 3, 2], "5").await, []);
}
