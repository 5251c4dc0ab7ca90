//! Installs or updates the CustomResourceDefinitions of the embedded cluster.

use anyhow::{Context, Result};
use karpenter_api::crds;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};

/// The field manager of the objects that `up` installs.
const MANAGER: &str = "karpenter-up";

/// Applies all CustomResourceDefinitions, those of the v1alpha5 API only on request; existing ones are updated.
pub(crate) async fn definitions(client: &Client, with_legacy: bool) -> Result<()> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let legacy = if with_legacy { crds::legacy() } else { &[] };
    for crd in crds::all().iter().chain(legacy) {
        let definition: serde_json::Value = serde_saphyr::from_str(crd.yaml)
            .with_context(|| format!("the definition of {} is not YAML", crd.kind))?;
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch(crd.name, &parameters, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("the definition of {} was rejected", crd.kind))?;
    }
    Ok(())
}
