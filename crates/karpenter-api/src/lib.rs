//! The Kubernetes API of Karpenter: CRDs, validation of manifests as by the API server and the controllers, serde types
//! of the kinds, and drift hashes. The crate has no Kubernetes client and no I/O (see ARCHITECTURE.md).

pub mod budget;
pub mod cel;
pub mod conditions;
pub mod crds;
pub mod error;
pub mod hash;
pub mod labels;
pub mod manifest;
pub mod pod_requests;
pub mod runtime;
pub mod scheduler_config;
pub mod schema;
pub mod types;
pub mod validate;
