//! Reads from a cluster the objects that the planner needs, as manifests. Only lists objects, and writes nothing.
//!
//! A kind that the cluster does not serve is left out. A kind that the user may not list is left out with a warning.

use std::path::Path;

use anyhow::{Context, Result, bail};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, TypeMeta};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::plan::input::Inputs;
use crate::{connect, diagnostics, install};

/// API group and version (empty group: core), kind, resource.
const KINDS: [(&str, &str, &str, &str); 24] = [
    ("karpenter.sh", "v1", "NodePool", "nodepools"),
    ("karpenter.sh", "v1", "NodeClaim", "nodeclaims"),
    ("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays"),
    ("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses"),
    ("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses"),
    ("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer", "capacitybuffers"),
    ("", "v1", "Node", "nodes"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Namespace", "namespaces"),
    ("", "v1", "Service", "services"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "v1", "PersistentVolume", "persistentvolumes"),
    ("", "v1", "PodTemplate", "podtemplates"),
    ("", "v1", "ReplicationController", "replicationcontrollers"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "ReplicaSet", "replicasets"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("batch", "v1", "Job", "jobs"),
    ("batch", "v1", "CronJob", "cronjobs"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses"),
    ("storage.k8s.io", "v1", "CSINode", "csinodes"),
];

/// Objects per request, as kubectl asks for them.
const PAGE_SIZE: u32 = 500;

/// The objects of the cluster of the kubeconfig, one text per page of a list. The names of the texts are those of the
/// resources.
pub(crate) fn read(kubeconfig: Option<&Path>) -> Result<Inputs> {
    install::runtime()?.block_on(async {
        let client = connect::client(kubeconfig).await?;
        let mut inputs = Inputs::default();
        for (group, version, kind, resource) in KINDS {
            let kind =
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), resource);
            match list(&client, &kind).await {
                Ok(pages) => {
                    let name = |text| (format!("cluster, {resource}"), text);
                    inputs.texts.extend(pages.into_iter().map(name));
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(kube::Error::Api(status)) if status.code == 403 => diagnostics::print_warning(&format!(
                    "{resource} are left out, so the explanation may be incomplete: {}",
                    status.message
                )),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot list {resource} of the cluster"));
                }
            }
        }
        if inputs.texts.is_empty() {
            bail!("the user of the kubeconfig may not list any object that Karpenter uses");
        }
        Ok(inputs)
    })
}

/// All objects of a kind as JSON documents of kind List.
async fn list(client: &Client, kind: &ApiResource) -> kube::Result<Vec<String>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    let types = TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() };
    let mut pages = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    loop {
        let mut page = api.list(&parameters).await?;
        for object in &mut page.items {
            // Lists have the type only once, and managed fields are a large part of an object.
            object.types = Some(types.clone());
            object.managed_fields_mut().clear();
        }
        let document = json!({"apiVersion": "v1", "kind": "List", "items": page.items});
        pages.push(document.to_string());
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters.continue_token = Some(token),
            Some(_) | None => return Ok(pages),
        }
    }
}
