//! Kubernetes API surface: the CRDs, the manifest validation an API server and the controller would do, the
//! serde types of our kinds and the hashes derived from them. No client, no I/O (see ARCHITECTURE.md).

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
