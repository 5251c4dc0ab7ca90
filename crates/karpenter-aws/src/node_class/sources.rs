//! The inputs for the status of a node class that other modules of the provider supply.

use std::sync::Arc;

use futures::future::BoxFuture;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass};
use karpenter_cloud::CloudError;
use karpenter_model::instance_type::InstanceType;

use crate::api::ec2::PlacementGroup;
use crate::api::{AwsError, AwsFuture, Tags};

/// Why the AMIs of a node class could not be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImagesError {
    /// The alias names a family that has no AMIs for this Kubernetes version. This is not retried until the node class
    /// changes.
    #[error("{0}")]
    UnsupportedAlias(String),
    /// No AMI is published for the alias.
    #[error("{0}")]
    NoAmiForAlias(String),
    #[error("{action}: {error}")]
    Aws { action: &'static str, error: AwsError },
}

/// Why `spec.kubelet` is invalid, as reason and message of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletProblem {
    pub reason: &'static str,
    pub message: String,
}

/// The error of a request that needs instance types before they are discovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypesNotDiscovered;

/// The inputs for the launch template of a dry run. The node class in it already has its new status.
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
    /// The AMIs that the node class selects, in the order in which the status lists them.
    fn images<'a>(&'a self, class: &'a EC2NodeClass) -> BoxFuture<'a, Result<Vec<AmiStatus>, ImagesError>>;

    /// The capacity reservations that the node class selects, sorted by id.
    fn reservations<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Vec<CapacityReservationStatus>>;

    /// The placement group that the node class selects; `None` if the node class selects none or the group does not
    /// exist.
    fn placement_group<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Option<PlacementGroup>>;

    /// The service CIDR of the cluster.
    fn cluster_cidr(&self) -> AwsFuture<'_, String>;

    /// The error in `spec.kubelet`, which may be an expression that is not allowed or does not compile; `None` if there
    /// is no error.
    fn kubelet_problem(&self, class: &EC2NodeClass) -> Option<KubeletProblem>;

    /// The error of evaluating the expressions in `spec.kubelet` for the discovered instance types; `None` if all of
    /// them have values.
    fn expression_problem<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Option<KubeletProblem>, TypesNotDiscovered>>;

    /// The instance types that can be launched with the node class.
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<InstanceType>>, CloudError>>;

    /// Ensures that the node class's launch template for on-demand instances exists; returns the name of the template.
    fn ensure_template<'a>(&'a self, request: TemplateRequest<'a>) -> AwsFuture<'a, String>;

    /// Deletes all launch templates of a node class from EC2.
    fn delete_templates<'a>(&'a self, class_name: &'a str) -> AwsFuture<'a, ()>;
}
