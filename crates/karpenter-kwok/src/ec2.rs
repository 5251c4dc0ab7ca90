//! EC2NodeClasses on a cluster without EC2: every one of them is said to be ready, so that manifests written for AWS
//! run as they are. Nothing that a class selects is looked for, because there is nothing to find.

use karpenter_api::types::EC2NodeClass;
use karpenter_cloud::NodeClassKind;
use karpenter_cluster::clock::Clock;
use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, Mirror, ObjectKey, keep_all};
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

/// Says of every EC2NodeClass that it is ready.
pub struct Ec2Classes {
    client: Client,
    clock: Clock,
    mirror: Mirror<EC2NodeClass>,
    watching: JoinHandle<()>,
}

impl Ec2Classes {
    /// Begins to watch the classes, whose definition must be there.
    pub async fn start(client: Client, clock: Clock) -> Self {
        let (mirror, watching) = Mirror::<EC2NodeClass>::watch(&client, keep_all, &[]);
        mirror.synced().await;
        Self { client, clock, mirror, watching }
    }

    pub fn watch(&self, queue: &Queue) {
        for class in self.mirror.list() {
            queue.add(ObjectKey::of(&class.metadata));
        }
        let to = queue.clone();
        self.mirror.observe(move |change: &Change<EC2NodeClass>| {
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
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let Some(class) = self.mirror.get_key(key) else { return Ok(After::Done) };
        let conditions = class.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Ready") {
            return Ok(After::Done);
        }
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "observedGeneration": class.metadata.generation,
            "lastTransitionTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({"metadata": {"uid": class.uid()}, "status": {"conditions": [ready]}});
        let api: Api<EC2NodeClass> = Api::all(self.client.clone());
        match api.patch_status(&class.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(written) => self.mirror.apply(written),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(After::Done)
    }
}
