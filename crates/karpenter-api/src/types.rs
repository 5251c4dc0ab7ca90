//! The objects users and controllers exchange with the API server, as serde types: one file per kind.
//!
//! Reading is lenient: unknown fields are ignored, absent or null ones take their zero value, and values outside
//! an enum are kept as text, so that an object written by a newer version still loads. Nothing here judges a value;
//! the schema checks and [`crate::runtime`] do. Absent and empty maps or lists stay different wherever a hash sees
//! the difference.

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

/// Declares a top-level kind: the object with its type, metadata, spec and status, and how the API server names it.
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
