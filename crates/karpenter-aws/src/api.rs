//! The AWS calls that the provider makes: one trait per service with only the methods in use, plain request and
//! response types, and errors classified by kind.
//!
//! Every method returns the complete result: the implementation of the trait does pagination, retries and signing. This
//! module contains no logic of Karpenter.

pub mod ec2;
pub mod eks;
mod error;
pub mod iam;
pub mod pricing;
pub mod sqs;
pub mod ssm;
mod tags;
pub mod zonal_shift;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use ec2::Ec2;
pub use eks::Eks;
pub use error::{AwsError, ErrorKind};
pub use iam::Iam;
pub use pricing::Pricing;
pub use sqs::Sqs;
pub use ssm::Ssm;
pub use tags::{TagFilter, Tags, tag_filters};
pub use zonal_shift::ZonalShift;

/// The future of an AWS call.
pub type AwsFuture<'a, T> = BoxFuture<'a, Result<T, AwsError>>;

/// One client for each AWS service that the provider calls.
#[derive(Clone)]
pub struct AwsApis {
    pub ec2: Arc<dyn Ec2>,
    pub iam: Arc<dyn Iam>,
    pub ssm: Arc<dyn Ssm>,
    pub sqs: Arc<dyn Sqs>,
    pub pricing: Arc<dyn Pricing>,
    pub eks: Arc<dyn Eks>,
    pub zonal_shift: Arc<dyn ZonalShift>,
}
