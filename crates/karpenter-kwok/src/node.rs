//! Converts between an instance and its Node object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, Quantities};
use karpenter_cloud::Instance;
use karpenter_model::requirements::{Operator, Requirements};
use karpenter_model::resources::ResourceList;

use crate::choice::Choice;
use crate::naming;

pub const PROVIDER_ID_PREFIX: &str = "kwok://";
/// The key of the annotation and label by which kwok selects its nodes.
pub const KWOK_NODE: &str = "kwok.x-k8s.io/node";
pub const KWOK_NODE_VALUE: &str = "fake";
/// The label that names the kwok process that simulates the node, if there are several processes.
pub const PARTITION_LABEL: &str = "kwok-partition";
pub const PARTITION_VALUE: &str = "a";
/// The label with the node's price per hour, which eks-node-viewer reads.
pub const PRICE_LABEL: &str = "eks-node-viewer/instance-price";

/// Builds the Node of an instance that was launched for the NodeClaim.
///
/// The NodeClaim owns the Node, so that the Node is garbage collected with the NodeClaim even if its launch was never
/// recorded. The Node's capacity is that of the instance type, plus requested resources that the type lacks (devices).
pub(crate) fn build(claim: &NodeClaim, choice: Choice<'_>) -> Node {
    let metadata = &claim.metadata;
    let claim_name = metadata.name.clone().unwrap_or_default();
    let uid = metadata.uid.clone().unwrap_or_default();
    let name = naming::node_of(claim);
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.insert(KWOK_NODE.to_owned(), KWOK_NODE_VALUE.to_owned());
    let requested = claim.spec.resources.as_ref().and_then(|resources| resources.requests.clone());
    let requested = requested.unwrap_or_default();
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels_of(claim, choice)),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: claim.api_version.clone(),
                kind: claim.kind.clone(),
                name: claim_name,
                uid,
                block_owner_deletion: Some(true),
                controller: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("{PROVIDER_ID_PREFIX}{name}")),
            taints: Some(vec![Taint {
                key: labels::TAINT_UNREGISTERED.to_owned(),
                effect: "NoExecute".to_owned(),
                ..Taint::default()
            }]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(texts(&requested, &choice.instance_type.capacity_of(choice.offering))),
            allocatable: Some(texts(&requested, &choice.instance_type.allocatable_of(choice.offering))),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    }
}

fn labels_of(claim: &NodeClaim, choice: Choice<'_>) -> BTreeMap<String, String> {
    let mut found = claim.metadata.labels.clone().unwrap_or_default();
    for requirement in &claim.spec.requirements {
        if let ("In", [value]) = (requirement.operator.as_str(), requirement.values.as_slice()) {
            found.insert(requirement.key.clone(), value.clone());
        }
    }
    found.insert(labels::INSTANCE_TYPE.to_owned(), choice.instance_type.name.to_string());
    add_single_values(&mut found, &choice.instance_type.requirements);
    add_single_values(&mut found, &choice.offering.requirements);
    let own = [
        (PRICE_LABEL, format!("{:.6}", choice.offering.price_per_hour)),
        (PARTITION_LABEL, PARTITION_VALUE.to_owned()),
        (labels::HOSTNAME, claim.metadata.name.clone().unwrap_or_default()),
        (KWOK_NODE, KWOK_NODE_VALUE.to_owned()),
    ];
    found.extend(own.map(|(key, value)| (key.to_owned(), value)));
    found
}

fn add_single_values(found: &mut BTreeMap<String, String>, requirements: &Requirements) {
    for requirement in requirements.iter() {
        if let (Operator::In, Some(value)) = (requirement.operator(), requirement.single_value()) {
            found.insert(requirement.key.to_string(), value.to_string());
        }
    }
}

/// The amounts of the instance type, plus those requested resources that the type lacks.
fn texts(requested: &Quantities, amounts: &ResourceList) -> BTreeMap<String, Text> {
    let mut found: BTreeMap<String, Text> =
        requested.iter().map(|(name, quantity)| (name.clone(), Text(quantity.to_string()))).collect();
    for (name, amount) in amounts.iter() {
        found.insert(name.to_string(), Text(ResourceList::quantity(name, amount).to_string()));
    }
    found
}

/// Converts a Node to the instance that it stands for.
pub(crate) fn instance(node: &Node) -> Instance {
    let read = |amounts: Option<&BTreeMap<String, Text>>| -> Quantities {
        let amounts = amounts.into_iter().flatten();
        amounts.filter_map(|(name, text)| Some((name.clone(), text.0.parse().ok()?))).collect()
    };
    let status = node.status.as_ref();
    let mut annotations = node.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(KWOK_NODE.to_owned(), KWOK_NODE_VALUE.to_owned());
    Instance {
        provider_id: provider_id(node).unwrap_or_default().to_owned(),
        image_id: None,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations,
        capacity: read(status.and_then(|status| status.capacity.as_ref())),
        allocatable: read(status.and_then(|status| status.allocatable.as_ref())),
        is_terminating: node.metadata.deletion_timestamp.is_some(),
    }
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}
