//! A registration hook for partition placement groups: a node is registered only after its partition number is known.
//!
//! The caller copies labels to the node from its own copy of the NodeClaim. So a NodeClaim to which the hook has just
//! written the partition must wait as well: the hook succeeds only for a copy that has the label.

use std::time::Duration;

use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cloud::{CloudError, CloudFuture, HookAnswer, RegistrationHook};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::instance_calls::instance_id;
use crate::instances::{Freshness, Instances, ProviderInstance};

const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Writing the label changes the NodeClaim, which triggers a reconcile; this delay is only a fallback.
const ASK_AGAIN_AFTER_WRITING: Duration = Duration::from_secs(1);

/// Makes registration wait for the partition number, and writes the number as a label of the NodeClaim.
pub struct PartitionHook {
    pub instances: Instances,
    pub client: Client,
}

/// Whether the NodeClaim needs a partition number that is not known yet.
fn is_open(claim: &NodeClaim) -> bool {
    let labels = claim.metadata.labels.as_ref();
    let partition = labels.and_then(|labels| labels.get(labels::AWS_PLACEMENT_GROUP_PARTITION));
    partition.is_some_and(String::is_empty)
}

impl PartitionHook {
    async fn find(&self, claim: &NodeClaim) -> Result<HookAnswer, CloudError> {
        if !is_open(claim) {
            return Ok(HookAnswer::Ready);
        }
        let not_yet = HookAnswer::NotYet { ask_again_after: Some(ASK_AGAIN_AFTER) };
        let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
        let Some(id) = provider_id.and_then(instance_id) else { return Ok(not_yet) };
        let found = self.instances.get(id, Freshness::Fresh).await.map_err(super::cloud_error)?;
        let Some(partition) = ProviderInstance::from_ec2(&found, true).partition else { return Ok(not_yet) };
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let patch =
            json!({"metadata": {"labels": {labels::AWS_PLACEMENT_GROUP_PARTITION: partition.to_string()}}});
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        match claims.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(HookAnswer::NotYet { ask_again_after: Some(ASK_AGAIN_AFTER_WRITING) }),
            Err(error) => {
                Err(CloudError::Transient { message: format!("labelling nodeclaim {name}, {error}") })
            }
        }
    }
}

impl RegistrationHook for PartitionHook {
    fn name(&self) -> &str {
        "placement-group"
    }

    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer> {
        Box::pin(self.find(claim))
    }
}
