//! A cloud that sells kwok's generic instance types and never launches anything by itself.

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

fn nothing_here<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
    Box::pin(std::future::ready(Err(CloudError::NotFound { message: "nothing is sold here".to_owned() })))
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
        nothing_here()
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        nothing_here()
    }

    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, Instance> {
        nothing_here()
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
