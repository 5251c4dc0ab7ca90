//! A cloud provider with kwok's generic instance types that cannot launch instances.

use std::collections::BTreeSet;
use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_catalog::kwok;
use karpenter_cloud::{CloudError, CloudFuture, CloudProvider, Instance, NodeClassKind};
use karpenter_model::instance_type::InstanceType;

pub(crate) struct Shop {
    types: Arc<Vec<InstanceType>>,
}

impl Default for Shop {
    fn default() -> Self {
        Self { types: Arc::new(kwok::generic()) }
    }
}

fn not_supported<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
    Box::pin(std::future::ready(Err(CloudError::NotFound { message: "not supported".to_owned() })))
}

impl CloudProvider for Shop {
    fn name(&self) -> &'static str {
        "shop"
    }

    fn node_class_kinds(&self) -> Vec<NodeClassKind> {
        vec![NodeClassKind {
            group: "karpenter.kwok.sh",
            version: "v1alpha1",
            kind: "KWOKNodeClass",
            plural: "kwoknodeclasses",
        }]
    }

    fn well_known_labels(&self) -> BTreeSet<Arc<str>> {
        kwok::well_known_labels(&self.types)
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Instance> {
        not_supported()
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        not_supported()
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        not_supported()
    }

    fn list(&self) -> CloudFuture<'_, Vec<Instance>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<Vec<InstanceType>>> {
        Box::pin(std::future::ready(Ok(self.types.clone())))
    }

    fn drift_reason<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
