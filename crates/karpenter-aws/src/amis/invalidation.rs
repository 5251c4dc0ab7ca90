//! Drops cached values of `latest` SSM parameters if their AMI is deprecated, so that the parameters are read again.
//!
//! Values are cached for a day. Without this module, an AMI could be launched for up to a day after it was withdrawn.
//!
//! Upstream: `pkg/controllers/providers/ssm/invalidation`

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue};

use super::Amis;
use crate::api::AwsError;
use crate::api::ec2::{Image, ImageQuery};

const PERIOD: Duration = Duration::from_secs(30 * 60);

/// The parameters whose AMI is deprecated, given the parameters that change with releases and their values.
fn outdated<'a>(
    parameters: &'a BTreeMap<String, String>,
    images: &[Image],
    now: Timestamp,
) -> Vec<(&'a str, &'a str)> {
    let is_deprecated = |id: &str| {
        let image = images.iter().find(|image| image.id == id);
        image.and_then(|image| image.deprecated_at).is_some_and(|time| time.as_second() <= now.as_second())
    };
    let outdated = parameters.iter().filter(|(_, id)| is_deprecated(id));
    outdated.map(|(name, id)| (name.as_str(), id.as_str())).collect()
}

impl Amis {
    /// Drops the cached values of outdated parameters; returns how many were dropped.
    pub async fn expire_outdated(&self) -> Result<usize, AwsError> {
        let parameters = self.shared.parameters.mutable();
        let mut ids: Vec<String> = parameters.values().cloned().collect();
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return Ok(0);
        }
        let query = ImageQuery { ids, ..ImageQuery::default() };
        let images = self.shared.ec2.describe_images(&query).await?;
        let outdated = outdated(&parameters, &images, self.shared.clock.now());
        for (name, value) in &outdated {
            tracing::info!(
                parameter = name,
                image = value,
                "ami is deprecated, invalidating cached ssm parameter"
            );
            self.shared.parameters.expire(name, value);
        }
        Ok(outdated.len())
    }
}

/// Runs every 30 minutes.
pub struct AmiInvalidation {
    amis: Amis,
}

impl AmiInvalidation {
    pub fn new(amis: Amis) -> Self {
        Self { amis }
    }

    pub fn watch(&self, queue: &Queue) {
        queue.add(ObjectKey::new("", "all"));
    }
}

impl Reconcile for AmiInvalidation {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        // A failure has no consequences: the controller runs again in 30 minutes, and cached values expire anyway.
        if let Err(error) = self.amis.expire_outdated().await {
            tracing::error!(%error, "failed to check ssm parameters for deprecated amis");
        }
        Ok(Requeue::After(PERIOD))
    }
}
