//! The AWS provider: EC2NodeClasses, instance types, launches, instances and interruptions on EC2.
//!
//! The crate does not depend on the AWS SDK: [`api`] defines the AWS calls as traits, `karpenter-aws-sdk` implements
//! them with the SDK, and `fake` implements them in memory. Decisions are pure functions in their own files; code that
//! calls AWS, caches or waits is kept small.

pub mod amis;
pub mod api;
pub mod assembly;
pub mod batcher;
pub mod cache;
pub mod call_metrics;
pub mod cluster_facts;
pub mod drift;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod garbage_collection;
pub mod instance_calls;
pub mod instance_status;
pub mod instances;
pub mod interruption;
pub mod kubelet;
pub mod launch;
pub mod node_class;
pub mod options;
pub mod permissions;
pub mod placement_groups;
pub mod pricing;
pub mod profiles;
pub mod provider;
pub mod reservations;
pub mod reserved_claims;
pub mod security_groups;
pub mod single_flight;
pub mod subnets;
pub mod tagging;
pub mod types;
pub mod unavailable;
pub mod version;
pub mod zonal_shift;
