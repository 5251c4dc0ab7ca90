//! What every embedded cluster of these suites needs: its kinds, and one clock with everybody else.

use jiff::Timestamp;
use karpenter_api::crds;
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_cluster::clock::Clock;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// The API server's time is everybody's time.
pub(crate) struct OnTokio(pub(crate) Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

pub(crate) async fn define_kinds(client: &Client) {
    define(client, crds::all()).await;
}

pub(crate) async fn define(client: &Client, definitions: &[crds::Crd]) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for crd in definitions {
        let definition: Value = serde_saphyr::from_str(crd.yaml).expect("YAML");
        let parameters = PatchParams::apply("test").force();
        api.patch(crd.name, &parameters, &Patch::Apply(&definition)).await.expect("defined");
    }
}
