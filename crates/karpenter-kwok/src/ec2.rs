//! Sets every EC2NodeClass to ready on a cluster without EC2, so that manifests for AWS can be used unchanged. Subnets,
//! security groups and AMIs are not resolved.

use karpenter_api::types::EC2NodeClass;
use karpenter_cloud::NodeClassKind;
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store, keep_all};
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

pub const EC2_NODE_CLASS_KIND: NodeClassKind = NodeClassKind {
    group: "karpenter.k8s.aws",
    version: "v1",
    kind: "EC2NodeClass",
    plural: "ec2nodeclasses",
};

/// The controller that sets the condition `Ready` of every EC2NodeClass to true.
pub struct Ec2Classes {
    client: Client,
    clock: Clock,
    store: Store<EC2NodeClass>,
    watching: JoinHandle<()>,
}

impl Ec2Classes {
    /// Starts to watch EC2NodeClasses, whose CRD must be installed.
    pub async fn start(client: Client, clock: Clock) -> Self {
        let (store, watching) = Store::<EC2NodeClass>::watch(&client, keep_all, &[]);
        store.synced().await;
        Self { client, clock, store, watching }
    }

    pub fn watch(&self, queue: &Queue) {
        for class in self.store.list() {
            queue.add(ObjectKey::of(&class.metadata));
        }
        let to = queue.clone();
        self.store.observe(move |change: &Change<EC2NodeClass>| {
            if !change.is_deleted() {
                to.add(ObjectKey::of(&change.object().metadata));
            }
        });
    }
}

impl Drop for Ec2Classes {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Reconcile for Ec2Classes {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let Some(class) = self.store.get_key(key) else { return Ok(Requeue::No) };
        let conditions = class.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Ready") {
            return Ok(Requeue::No);
        }
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "observedGeneration": class.metadata.generation,
            "lastTransitionTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({"metadata": {"uid": class.uid()}, "status": {"conditions": [ready]}});
        let api: Api<EC2NodeClass> = Api::all(self.client.clone());
        match api.patch_status(&class.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => self.store.apply(written),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(Requeue::No)
    }
}
