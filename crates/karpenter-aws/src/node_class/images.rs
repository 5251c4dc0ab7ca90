//! The condition `AMIsReady`.

use std::time::Duration;

use karpenter_api::types::AmiStatus;

use super::conditions::{AMIS_READY, ConditionResult, Failure, Recheck};
use super::remedy::failure;
use super::sources::ImagesError;

const NOT_FOUND: &str = "AMINotFound";
const UNSUPPORTED_ALIAS: &str = "UnsupportedAlias";
const RESOLUTION_FAILED: &str = "AMIsResolutionFailed";

/// How often the AMIs of a node class are resolved again.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// How often AMIs are resolved again while no AMI matches. EC2 sends no notification when tags change.
const PERIOD_WITHOUT: Duration = Duration::from_secs(60);

/// The result for the condition, and the new list of AMIs for the status; if `None`, the status keeps its list.
pub(crate) fn evaluate(
    answer: Result<Vec<AmiStatus>, ImagesError>,
) -> (ConditionResult, Option<Vec<AmiStatus>>) {
    match answer {
        Ok(images) if images.is_empty() => {
            let result = ConditionResult::not_ready(
                AMIS_READY,
                NOT_FOUND,
                "AMISelector did not match any AMIs",
                "correct spec.amiSelectorTerms, or tag or share an image so that they match",
                Recheck::After(PERIOD_WITHOUT),
            );
            (result, Some(images))
        }
        Ok(images) => (ConditionResult::ready(AMIS_READY, Recheck::After(PERIOD)), Some(images)),
        Err(ImagesError::UnsupportedAlias(message)) => {
            let remedy = "choose another alias in spec.amiSelectorTerms";
            (
                ConditionResult::not_ready(AMIS_READY, UNSUPPORTED_ALIAS, message, remedy, Recheck::OnChange),
                None,
            )
        }
        Err(ImagesError::NoAmiForAlias(error)) => {
            let remedy = "check the version in the alias, and that images are published for this Kubernetes"
                .to_owned();
            (ConditionResult::not_checked(AMIS_READY, RESOLUTION_FAILED, Failure { error, remedy }), None)
        }
        Err(ImagesError::Aws { action, error }) => {
            (ConditionResult::not_checked(AMIS_READY, RESOLUTION_FAILED, failure(action, &error)), None)
        }
    }
}
