//! What is asked of AWS, in our own vocabulary: one narrow trait per service, plain requests and answers, and errors
//! that say what kind of no they are.
//!
//! A call answers with everything: reading page after page, retrying what may be retried, and signing are the
//! implementor's business. Nothing here decides anything about Karpenter.

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

/// An answer of AWS that takes a while.
pub type AwsFuture<'a, T> = BoxFuture<'a, Result<T, AwsError>>;

/// All services together.
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
