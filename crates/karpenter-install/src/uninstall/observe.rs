//! Reads all objects that the uninstallation needs.

use kube::Client;
use serde_json::Value;

use super::plan::Seen;
use crate::install::{definition_kind, installed};
use crate::kinds::{
    self, DEFINITION, EC2_NODE_CLASS, KWOK_NODE_CLASS, Kind, NODE, NODE_CLAIM, NODE_POOL, NODE_TEMPLATE,
    PROVISIONER, entry, is_held,
};
use crate::{Error, controllers, leases};

pub(super) async fn observe(client: &Client, name: &str) -> Result<Seen, Error> {
    let mut classes = all(client, EC2_NODE_CLASS).await?;
    classes.extend(all(client, KWOK_NODE_CLASS).await?);
    let mut old = all(client, PROVISIONER).await?;
    old.extend(all(client, NODE_TEMPLATE).await?);
    let mut definitions = all(client, DEFINITION).await?;
    definitions.retain(|definition| definition_kind(definition).is_some());
    Ok(Seen {
        installed: installed(client, name).await?,
        controllers: controllers::find(client).await?,
        leases: leases::find(client).await?,
        pools: all(client, NODE_POOL).await?,
        claims: all(client, NODE_CLAIM).await?,
        nodes: nodes(client).await?,
        classes,
        old,
        definitions,
    })
}

pub(super) async fn all(client: &Client, kind: Kind) -> Result<Vec<Value>, Error> {
    kinds::list(client, kind, "")
        .await
        .map_err(Error::api(format!("cannot list objects of kind {}", kind.kind)))
}

pub(super) async fn nodes(client: &Client) -> Result<Vec<Value>, Error> {
    let mut nodes = all(client, NODE).await?;
    nodes.retain(|node| {
        entry(node, "/metadata/labels", karpenter_api::labels::NODEPOOL).is_some() || is_held(node)
    });
    Ok(nodes)
}

/// The object as a manifest that a user could apply again.
pub(super) fn as_manifest(object: &Value) -> Value {
    let mut manifest = object.clone();
    if let Some(map) = manifest.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // The controller or kubectl sets these annotations again, so they are removed.
            annotations.retain(|key, _| {
                !key.ends_with("-hash") && !key.ends_with("-hash-version") && !key.starts_with("kubectl.")
            });
        }
    }
    manifest
}
