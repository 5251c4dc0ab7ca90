//! Serde types of the kinds, one file per kind.
//!
//! Deserialization is lenient, so that objects of newer versions can be read: unknown fields are ignored, absent and
//! null fields get the zero value, and unknown enum values are kept as strings. Validation is done by the schemas and
//! [`crate::runtime`]. If a hash distinguishes an absent map or list from an empty one, so does the type.

mod capacity_buffer;
mod ec2_node_class;
mod kwok_node_class;
mod node_claim;
mod node_overlay;
mod node_pool;
mod shared;
#[cfg(test)]
mod tests;

pub use capacity_buffer::*;
pub use ec2_node_class::*;
pub use kwok_node_class::*;
pub use node_claim::*;
pub use node_overlay::*;
pub use node_pool::*;
pub use shared::*;

/// Declares a top-level kind: its struct with metadata, spec and status, and its resource name in the API.
macro_rules! kubernetes_object {
    ($(#[$doc:meta])* $name:ident, $group:literal, $version:literal, $plural:literal, $scope:ident, $spec:ty, $status:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            pub api_version: String,
            pub kind: String,
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            pub spec: $spec,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl Default for $name {
            fn default() -> Self {
                use k8s_openapi::Resource;
                Self {
                    api_version: Self::API_VERSION.to_owned(),
                    kind: Self::KIND.to_owned(),
                    metadata: Default::default(),
                    spec: Default::default(),
                    status: None,
                }
            }
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}
use kubernetes_object;
