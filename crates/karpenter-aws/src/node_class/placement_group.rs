//! The condition `PlacementGroupReady`.

use karpenter_api::types::PlacementGroupSelector;

use super::conditions::{ConditionResult, NewStatus, PLACEMENT_GROUP_READY, Recheck};
use super::remedy::failure;
use crate::api::AwsError;
use crate::api::ec2::PlacementGroup;

const NOT_FOUND: &str = "PlacementGroupNotFound";
const RESOLUTION_FAILED: &str = "PlacementGroupResolutionFailed";

pub(crate) fn evaluate(
    answer: Result<Option<PlacementGroup>, AwsError>,
    selector: Option<&PlacementGroupSelector>,
) -> ConditionResult {
    let condition = PLACEMENT_GROUP_READY;
    match (answer, selector) {
        (Ok(Some(_)), _) | (Ok(None), None) => ConditionResult::ready(condition, Recheck::OnChange),
        (Ok(None), Some(selector)) => {
            let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
            let selector = given(&selector.name).or_else(|| given(&selector.id)).unwrap_or_default();
            ConditionResult::not_ready(
                condition,
                NOT_FOUND,
                format!("Placement group {selector:?} not found"),
                "create the placement group in this region, or correct spec.placementGroupSelector",
                Recheck::OnChange,
            )
        }
        (Err(error), _) => {
            let failure = failure("ec2:DescribePlacementGroups", &error);
            let is_temporary = error.is_throttled() || error.is_transient();
            if is_temporary {
                return ConditionResult::not_checked(condition, RESOLUTION_FAILED, failure);
            }
            let message = "Failed to resolve placement group".to_owned();
            let new_status = NewStatus::False { reason: RESOLUTION_FAILED, message };
            ConditionResult { condition, new_status, recheck: Recheck::BackOff, failure: Some(failure) }
        }
    }
}
