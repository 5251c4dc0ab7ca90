//! Reads zonal shifts from ARC. ARC needs the ARN of the cluster, which is read from EKS.

use std::sync::{Arc, OnceLock};

use crate::api::zonal_shift::Shift;
use crate::api::{AwsError, Eks, ZonalShift};

/// Reads the shifts of one cluster. The cluster's ARN is read once, and all clones share it.
#[derive(Clone)]
pub struct ShiftSource {
    eks: Arc<dyn Eks>,
    api: Arc<dyn ZonalShift>,
    cluster: String,
    arn: Arc<OnceLock<String>>,
}

impl ShiftSource {
    pub fn new(eks: Arc<dyn Eks>, api: Arc<dyn ZonalShift>, cluster: &str) -> Self {
        Self { eks, api, cluster: cluster.to_owned(), arn: Arc::default() }
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// All shifts of the cluster, active and expired.
    pub async fn read(&self) -> Result<Vec<Shift>, AwsError> {
        let arn = match self.arn.get() {
            Some(arn) => arn,
            None => {
                let arn = self.eks.describe_cluster(&self.cluster).await?.arn;
                self.arn.get_or_init(|| arn)
            }
        };
        self.api.get_managed_resource(arn).await
    }
}
