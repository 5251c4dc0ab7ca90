//! The inputs of a class's status that other parts of the provider supply.

use std::sync::Arc;

use futures::future::BoxFuture;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass};
use karpenter_cloud::CloudError;
use karpenter_model::instance_type::InstanceType;

use crate::api::ec2::PlacementGroup;
use crate::api::{AwsError, AwsFuture, Tags};

/// Why AMIs could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImagesError {
    /// The alias names a family that does not exist for this Kubernetes version; not retried until the class changes.
    #[error("{0}")]
    UnsupportedAlias(String),
    /// No AMI is published for the alias.
    #[error("{0}")]
    NoAmiForAlias(String),
    #[error("{action}: {error}")]
    Aws { action: &'static str, error: AwsError },
}

/// Reason and message of the condition for an invalid `spec.kubelet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletProblem {
    pub reason: &'static str,
    pub message: String,
}

/// The instance types are not discovered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypesNotDiscovered;

/// The launch template of a dry run. The class has its new status already.
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
    /// The AMIs that the class selects, in the order of the status.
    fn images<'a>(&'a self, class: &'a EC2NodeClass) -> BoxFuture<'a, Result<Vec<AmiStatus>, ImagesError>>;

    /// The reservations that the class selects, by id.
    fn reservations<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Vec<CapacityReservationStatus>>;

    /// The placement group that the class selects; `None` if it selects none or the group does not exist.
    fn placement_group<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Option<PlacementGroup>>;

    /// The service CIDR of the cluster.
    fn cluster_cidr(&self) -> AwsFuture<'_, String>;

    /// The error in `spec.kubelet`, including expressions that are not allowed or do not compile; `None` if there is
    /// none.
    fn kubelet_problem(&self, class: &EC2NodeClass) -> Option<KubeletProblem>;

    /// The error of evaluating the expressions of `spec.kubelet` for the discovered instance types; `None` if there is
    /// none.
    fn expression_problem<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Option<KubeletProblem>, TypesNotDiscovered>>;

    /// The instance types that can be launched with the class.
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<InstanceType>>, CloudError>>;

    /// Ensures that the launch template for on-demand instances exists; returns its name.
    fn ensure_template<'a>(&'a self, request: TemplateRequest<'a>) -> AwsFuture<'a, String>;

    /// Deletes all launch templates of a class.
    fn delete_templates<'a>(&'a self, class_name: &'a str) -> AwsFuture<'a, ()>;
}
