//! When the image behind a `latest` parameter is deprecated, the parameter is read again before its time.
//!
//! Values hold for a day; an image that its publisher takes back must not be launched for that long.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::ObjectKey;

use super::Amis;
use crate::api::AwsError;
use crate::api::ec2::{Image, ImageQuery};

const PERIOD: Duration = Duration::from_secs(30 * 60);

/// The parameters, with their values, whose image is deprecated. `parameters` are those that may change.
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
    /// How many parameters will be read again.
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
                "the image is deprecated; the parameter is read again"
            );
            self.shared.parameters.expire(name, value);
        }
        Ok(outdated.len())
    }
}

/// Looks every half hour.
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
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<After> {
        // Nothing is lost: what is not looked at now is looked at next time, and values end by themselves.
        if let Err(error) = self.amis.expire_outdated().await {
            tracing::error!(%error, "images behind parameters could not be looked at");
        }
        Ok(After::Again(PERIOD))
    }
}
