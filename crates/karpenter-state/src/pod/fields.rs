//! Deserializes pods with only the fields of [`crate::fields`]. Most of a pod's text describes how containers are run,
//! mounted and probed, and deserializing that text took most of the time.

use k8s_openapi::api::core::v1::Pod as RawPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use crate::fields::Kept;

/// A pod of the API with only the kept fields set. API requests use this type instead of `Pod`.
#[derive(Debug, Clone)]
pub struct PodFields(pub RawPod);

impl k8s_openapi::Resource for PodFields {
    const API_VERSION: &'static str = RawPod::API_VERSION;
    const GROUP: &'static str = RawPod::GROUP;
    const KIND: &'static str = <RawPod as k8s_openapi::Resource>::KIND;
    const VERSION: &'static str = RawPod::VERSION;
    const URL_PATH_SEGMENT: &'static str = RawPod::URL_PATH_SEGMENT;
    type Scope = <RawPod as k8s_openapi::Resource>::Scope;
}

impl k8s_openapi::Metadata for PodFields {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl<'de> Deserialize<'de> for PodFields {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let json = <RawPod as Kept>::Json::deserialize(source)?;
        Ok(Self(RawPod::from_json(Some(json))))
    }
}
