//! The condition `PlacementGroupReady`.

use karpenter_api::types::PlacementGroupSelector;

use super::conditions::{Finding, Next, PLACEMENT_GROUP_READY, Verdict};
use super::remedy::trouble;
use crate::api::AwsError;
use crate::api::ec2::PlacementGroup;

const NOT_FOUND: &str = "PlacementGroupNotFound";
const RESOLUTION_FAILED: &str = "PlacementGroupResolutionFailed";

pub(crate) fn judge(
    answer: Result<Option<PlacementGroup>, AwsError>,
    selector: Option<&PlacementGroupSelector>,
) -> Finding {
    let condition = PLACEMENT_GROUP_READY;
    match (answer, selector) {
        (Ok(Some(_)), _) | (Ok(None), None) => Finding::good(condition, Next::OnChange),
        (Ok(None), Some(selector)) => {
            let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
            let wanted = given(&selector.name).or_else(|| given(&selector.id)).unwrap_or_default();
            Finding::bad(
                condition,
                NOT_FOUND,
                format!("Placement group {wanted:?} not found"),
                "create the placement group in this region, or correct spec.placementGroupSelector",
                Next::OnChange,
            )
        }
        (Err(error), _) => {
            let trouble = trouble("ec2:DescribePlacementGroups", &error);
            let passes = error.is_throttled() || error.is_transient();
            if passes {
                // A group that was there does not vanish because EC2 is busy.
                return Finding::unseen(condition, RESOLUTION_FAILED, trouble);
            }
            let message = "Failed to resolve placement group".to_owned();
            let verdict = Verdict::False { reason: RESOLUTION_FAILED, message };
            Finding { condition, verdict, next: Next::BackOff, trouble: Some(trouble) }
        }
    }
}
