//! What the status of a class needs from the rest of the provider.

use std::sync::Arc;

use futures::future::BoxFuture;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass};
use karpenter_cloud::CloudError;
use karpenter_model::instance_type::InstanceType;

use crate::api::ec2::PlacementGroup;
use crate::api::{AwsError, AwsFuture, Tags};

/// Why there are no images.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImagesError {
    /// The alias names a family that does not exist for this version of Kubernetes: nothing but a change helps.
    #[error("{0}")]
    UnsupportedAlias(String),
    /// The alias names nothing that is published.
    #[error("{0}")]
    NothingForAlias(String),
    #[error("{action}: {error}")]
    Aws { action: &'static str, error: AwsError },
}

/// What is wrong with `spec.kubelet`, as the condition says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletProblem {
    pub reason: &'static str,
    pub message: String,
}

/// Something that is still being found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotYet;

/// The launch template by which a launch is tried out. The class has its new status already.
#[derive(Debug, Clone, Copy)]
pub struct TemplateRequest<'a> {
    pub class: &'a EC2NodeClass,
    pub instance_type: &'a InstanceType,
    pub image_id: &'a str,
    /// `default` or `dedicated`.
    pub tenancy: &'a str,
    pub tags: &'a Tags,
}

pub trait Sources: Send + Sync + 'static {
    /// The images that the class selects, in the order of a status.
    fn images<'a>(&'a self, class: &'a EC2NodeClass) -> BoxFuture<'a, Result<Vec<AmiStatus>, ImagesError>>;

    /// The reservations that the class selects, by id.
    fn reservations<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Vec<CapacityReservationStatus>>;

    /// The placement group that the class selects; none where it selects none or there is none.
    fn placement_group<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Option<PlacementGroup>>;

    /// The range of service addresses of the cluster.
    fn cluster_cidr(&self) -> AwsFuture<'_, String>;

    /// What is wrong with `spec.kubelet`, expressions that are not allowed or do not compile included.
    fn kubelet_problem(&self, class: &EC2NodeClass) -> Option<KubeletProblem>;

    /// What becomes wrong when expressions of `spec.kubelet` meet the instance types there are.
    fn expression_problem<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Option<KubeletProblem>, NotYet>>;

    /// Everything that could be bought with the class.
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<InstanceType>>, CloudError>>;

    /// Makes sure that the launch template exists, for on-demand machines; its name.
    fn ensure_template<'a>(&'a self, request: TemplateRequest<'a>) -> AwsFuture<'a, String>;

    /// Deletes all launch templates of a class.
    fn delete_templates<'a>(&'a self, class_name: &'a str) -> AwsFuture<'a, ()>;
}
