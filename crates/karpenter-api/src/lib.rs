//! The Kubernetes API of Karpenter: CRDs, validation of manifests as the API server and the controllers do it, serde types
//! of the kinds, and drift hashes. No client, no I/O (see ARCHITECTURE.md).

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
