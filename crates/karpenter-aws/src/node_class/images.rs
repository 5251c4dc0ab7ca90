//! The condition `AMIsReady`.

use std::time::Duration;

use karpenter_api::types::AmiStatus;

use super::conditions::{AMIS_READY, Finding, Next, Trouble};
use super::remedy::trouble;
use super::sources::ImagesError;

const NOT_FOUND: &str = "AMINotFound";
const UNSUPPORTED_ALIAS: &str = "UnsupportedAlias";
const RESOLUTION_FAILED: &str = "AMIsResolutionFailed";

const PERIOD: Duration = Duration::from_secs(5 * 60);
/// Tags may be added to images without anybody telling us.
const PERIOD_WITHOUT: Duration = Duration::from_secs(60);

/// What an answer means, and what the status lists then; `None` leaves the list as it is.
pub(crate) fn judge(answer: Result<Vec<AmiStatus>, ImagesError>) -> (Finding, Option<Vec<AmiStatus>>) {
    match answer {
        Ok(images) if images.is_empty() => {
            let finding = Finding::bad(
                AMIS_READY,
                NOT_FOUND,
                "AMISelector did not match any AMIs",
                "correct spec.amiSelectorTerms, or tag or share an image so that they match",
                Next::After(PERIOD_WITHOUT),
            );
            (finding, Some(images))
        }
        Ok(images) => (Finding::good(AMIS_READY, Next::After(PERIOD)), Some(images)),
        Err(ImagesError::UnsupportedAlias(message)) => {
            let remedy = "choose another alias in spec.amiSelectorTerms";
            (Finding::bad(AMIS_READY, UNSUPPORTED_ALIAS, message, remedy, Next::OnChange), None)
        }
        Err(ImagesError::NothingForAlias(error)) => {
            let remedy = "check the version in the alias, and that images are published for this Kubernetes"
                .to_owned();
            (Finding::unseen(AMIS_READY, RESOLUTION_FAILED, Trouble { error, remedy }), None)
        }
        Err(ImagesError::Aws { action, error }) => {
            (Finding::unseen(AMIS_READY, RESOLUTION_FAILED, trouble(action, &error)), None)
        }
    }
}
