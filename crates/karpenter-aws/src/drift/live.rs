//! Supplies the inputs of the drift check from the other modules of the provider.

use std::sync::Arc;

use futures::FutureExt;
use karpenter_api::labels;
use karpenter_api::types::{EC2NodeClass, NodeClaim, NodePool};
use karpenter_cloud::{CloudError, CloudFuture};
use karpenter_controllers::events::{ObjectEvent, Recorder};
use karpenter_model::instance_type::InstanceType;
use karpenter_runtime::object::{is_deleting, label};

use super::{Facts, InstanceFacts, find};
use crate::instance_calls::instance_id;
use crate::instances::{self, Freshness, Instances};
use crate::node_class::Lookup;
use crate::node_class::readiness::FAILED_RESOLVING;
use crate::provider::{DriftSource, Objects, cloud_error};
use crate::types::InstanceTypes;

/// The modules from which the drift check gets its inputs.
#[derive(Clone)]
pub struct LiveDrift {
    pub objects: Arc<dyn Objects>,
    pub types: InstanceTypes,
    pub instances: Instances,
    pub recorder: Option<Recorder>,
    /// Whether the feature gate ReservedCapacity is on.
    pub reserved_capacity: bool,
}

impl LiveDrift {
    /// The node class of the NodeClaim's NodePool; `None` if either does not exist.
    async fn class_of(&self, claim: &NodeClaim) -> Option<Arc<EC2NodeClass>> {
        let pool = self.objects.pool(label(claim, labels::NODEPOOL)?)?;
        if is_deleting(&*pool) {
            return None;
        }
        match self.objects.class(&pool.spec.template.spec.node_class_ref.name) {
            Lookup::Found(class) if !is_deleting(&*class) => Some(class),
            Lookup::Found(_) | Lookup::Missing => {
                self.publish_unresolved(&pool).await;
                None
            }
            // The node class cannot be parsed, which its status reports.
            Lookup::Unreadable { .. } => None,
        }
    }

    async fn publish_unresolved(&self, pool: &NodePool) {
        if let Some(recorder) = &self.recorder {
            let notice = ObjectEvent::warning(pool, "FailedResolvingNodeClass", FAILED_RESOLVING);
            recorder.publish(notice.dedupe_by(pool.metadata.uid.as_deref().unwrap_or_default())).await;
        }
    }
}

impl DriftSource for LiveDrift {
    fn drift_reason<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        async move {
            let Some(class) = self.class_of(claim).await else { return Ok(None) };
            Ok(find(claim, &class, self).await?.map(|drift| drift.as_str().to_owned()))
        }
        .boxed()
    }
}

impl Facts for LiveDrift {
    fn instance_type<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: &'a EC2NodeClass,
    ) -> CloudFuture<'a, Option<InstanceType>> {
        async move {
            let types = self.types.list(class).await;
            let types = types.map_err(|error| CloudError::Transient { message: error.to_string() })?;
            let name = label(claim, labels::INSTANCE_TYPE).unwrap_or_default();
            Ok(types.iter().find(|one| &*one.name == name).cloned())
        }
        .boxed()
    }

    fn machine<'a>(&'a self, claim: &'a NodeClaim, is_fresh: bool) -> CloudFuture<'a, InstanceFacts> {
        async move {
            let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
            let Some(id) = provider_id.and_then(instance_id) else {
                return Err(CloudError::NotFound { message: "the nodeclaim has no instance".to_owned() });
            };
            let freshness = if is_fresh { Freshness::Fresh } else { Freshness::Cached };
            let found = self.instances.get(id, freshness).await.map_err(cloud_error)?;
            let found = instances::ProviderInstance::from_ec2(&found, self.reserved_capacity);
            Ok(InstanceFacts {
                security_group_ids: found.security_group_ids.into_iter().collect(),
                subnet_id: found.subnet_id,
                reservation_id: found.reservation.map(|reservation| reservation.id),
            })
        }
        .boxed()
    }

    fn placement_group_id<'a>(&'a self, class: &'a EC2NodeClass) -> CloudFuture<'a, Option<String>> {
        async move {
            let Some(selector) = &class.spec.placement_group_selector else { return Ok(None) };
            // If the EC2 query fails, the check for drift must be retried; the placement group must not count as
            // deleted.
            let group = self.types.placement_groups().find(selector).await.map_err(cloud_error)?;
            Ok(group.map(|group| group.id))
        }
        .boxed()
    }
}
