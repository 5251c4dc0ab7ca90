//! Builds NodeClaims from planned nodes. No other module creates NodeClaims.
//!
//! The child modules are shared by several controllers: [`node_limits`] (node limits of NodePools), [`reboot_request`]
//! (requests to reboot an instance), and [`hooks`] (callbacks of the NodeClaim lifecycle).
//!
//! A NodeClaim contains everything that a launch needs: a copy of the NodePool's template, and the instance types,
//! zones and capacity types of the plan as requirements. Upstream:
//! pkg/controllers/provisioning/scheduling/nodeclaimtemplate.go, `Provisioner.Create` in
//! pkg/controllers/provisioning/provisioner.go.

mod creation;
pub mod hooks;
pub mod node_limits;
pub mod reboot_request;
pub(crate) mod static_pools;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use karpenter_api::hash::{NODE_POOL_HASH_VERSION, node_pool_hash};
use karpenter_api::labels::{self, LabelRules, Provider};
use karpenter_api::types::{NodeClaim, NodeClaimSpec, NodePool, Requirement as ApiRequirement};
use karpenter_api::types::{Quantities, ResourceRequests};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::plan::PlannedNode;
use karpenter_model::problem::Problem;
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::ResourceList;

pub use creation::ClaimCreator;
pub(crate) use creation::values;

/// The NodeClaim for a planned node. `pool` is the NodePool object of the plan's NodePool.
pub fn claim_from_plan(problem: &Problem, planned: &PlannedNode, pool: &NodePool) -> NodeClaim {
    let catalog = problem
        .pools
        .get(planned.pool)
        .and_then(|pool| problem.catalogs.get(pool.catalog))
        .map_or(&[][..], |catalog| catalog.as_slice());
    let requirements = requirements(planned, catalog);
    let template = &pool.spec.template.spec;
    NodeClaim {
        metadata: ObjectMeta {
            labels: Some(node_labels(&requirements, &problem.well_known, pool)),
            annotations: Some(annotations(planned, pool)),
            ..owned_metadata(pool)
        },
        spec: NodeClaimSpec {
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            requirements: requirements.iter().flat_map(to_api_requirements).collect(),
            resources: Some(ResourceRequests { requests: Some(quantities(&planned.requests)) }),
            node_class_ref: template.node_class_ref.clone(),
            termination_grace_period: template.termination_grace_period,
            expire_after: template.expire_after.clone(),
        },
        ..NodeClaim::default()
    }
}

/// A NodeClaim of a static NodePool, built from its template alone.
pub fn claim_from_template(pool: &NodePool) -> NodeClaim {
    let template = &pool.spec.template.spec;
    let template_metadata = pool.spec.template.metadata.as_ref();
    let mut labels = custom_labels(pool);
    labels.extend(template_metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default());
    let class = &template.node_class_ref;
    labels.insert(labels::NODEPOOL.to_owned(), pool.metadata.name.clone().unwrap_or_default());
    labels.insert(labels::node_class_label(&class.group, &class.kind), class.name.clone());
    let is_stated = |key: &str| template.requirements.iter().any(|one| one.key == key);
    let of_labels = labels.iter().filter(|(key, _)| !is_stated(key)).map(|(key, value)| ApiRequirement {
        key: key.clone(),
        operator: Operator::In.as_str().to_owned(),
        values: vec![value.clone()],
        min_values: None,
    });
    let requirements = template.requirements.iter().cloned().chain(of_labels).collect();
    NodeClaim {
        metadata: ObjectMeta {
            labels: Some(labels),
            annotations: Some(pool_annotations(pool)),
            ..owned_metadata(pool)
        },
        spec: NodeClaimSpec {
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            requirements,
            resources: None,
            node_class_ref: class.clone(),
            termination_grace_period: template.termination_grace_period,
            expire_after: template.expire_after.clone(),
        },
        ..NodeClaim::default()
    }
}

/// For each user-defined label in the requirements of the template, one value that the requirements allow.
fn custom_labels(pool: &NodePool) -> BTreeMap<String, String> {
    let template = &pool.spec.template.spec;
    let provider = Provider::from_group(&template.node_class_ref.group);
    let rules = provider.map_or_else(LabelRules::for_all_providers, LabelRules::for_provider);
    let mut requirements = Requirements::new();
    for one in &template.requirements {
        if let Some(operator) = Operator::parse(&one.operator) {
            let key = rules.normalize(&one.key);
            requirements.add(Requirement::new(key, operator, one.values.iter().map(String::as_str)));
        }
    }
    let custom = requirements.iter().filter(|requirement| {
        let key = &*requirement.key;
        !rules.is_well_known(key) && rules.check_unrestricted(key).is_ok()
    });
    custom.filter_map(|one| Some((one.key.to_string(), one.any_value()?.to_string()))).collect()
}

/// Why a planned NodeClaim must not be created any more, because the NodePool has changed since; `None` if it may be
/// created.
pub fn check_still_launchable(
    current: &NodePool,
    planned_from: &NodePool,
    usage: &ResourceList,
) -> Option<String> {
    let name = current.metadata.name.as_deref().unwrap_or_default();
    if current.metadata.uid != planned_from.metadata.uid || current.metadata.deletion_timestamp.is_some() {
        return Some(format!("nodepool {name} is gone"));
    }
    if current.spec != planned_from.spec {
        return Some(format!("nodepool {name} has changed since the plan was made"));
    }
    let limits = current.spec.limits.iter().flatten();
    let limits = ResourceList::from_capacity(limits.map(|(name, limit)| (name.as_str(), limit)));
    let exceeded = limits.iter().find(|(resource, limit)| usage.get(resource) > *limit);
    exceeded.map(|(resource, limit)| {
        let quantity = |amount| ResourceList::quantity(resource, amount);
        format!(
            "{resource} resource usage of {} exceeds limit of {}",
            quantity(usage.get(resource)),
            quantity(limit)
        )
    })
}

fn owned_metadata(pool: &NodePool) -> ObjectMeta {
    let name = pool.metadata.name.clone().unwrap_or_default();
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        owner_references: Some(vec![OwnerReference {
            api_version: pool.api_version.clone(),
            kind: pool.kind.clone(),
            name,
            uid: pool.metadata.uid.clone().unwrap_or_default(),
            block_owner_deletion: Some(true),
            controller: None,
        }]),
        ..ObjectMeta::default()
    }
}

fn annotations(planned: &PlannedNode, pool: &NodePool) -> BTreeMap<String, String> {
    let mut annotations = pool_annotations(pool);
    let relaxed = planned.min_values_relaxed.to_string();
    annotations.insert(labels::ANNOTATION_MIN_VALUES_RELAXED.to_owned(), relaxed);
    annotations
}

/// The annotations of the template, and the hash of the NodePool.
fn pool_annotations(pool: &NodePool) -> BTreeMap<String, String> {
    let template = pool.spec.template.metadata.as_ref();
    let mut annotations = template.and_then(|metadata| metadata.annotations.clone()).unwrap_or_default();
    let own = [
        (labels::ANNOTATION_NODEPOOL_HASH, node_pool_hash(pool).to_string()),
        (labels::ANNOTATION_NODEPOOL_HASH_VERSION, NODE_POOL_HASH_VERSION.to_owned()),
    ];
    annotations.extend(own.map(|(key, value)| (key.to_owned(), value)));
    annotations
}

/// The labels of the template, of the NodePool and node class, and one value for each user-defined label.
fn node_labels(
    requirements: &Requirements,
    well_known: &BTreeSet<Arc<str>>,
    pool: &NodePool,
) -> BTreeMap<String, String> {
    let class = &pool.spec.template.spec.node_class_ref;
    let is_ours = |key: &str| {
        let domain = labels::label_domain(key);
        let is_within = |owner: &str| domain == owner || domain.ends_with(&format!(".{owner}"));
        is_within(labels::GROUP) || is_within(&class.group)
    };
    let mut result = BTreeMap::new();
    for requirement in requirements.iter() {
        let key = &*requirement.key;
        if well_known.contains(key) || key == labels::HOSTNAME || is_ours(key) {
            continue;
        }
        if let Some(value) = requirement.any_value() {
            result.insert(key.to_owned(), value.to_string());
        }
    }
    let template = pool.spec.template.metadata.as_ref();
    result.extend(template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default());
    result.insert(labels::NODEPOOL.to_owned(), pool.metadata.name.clone().unwrap_or_default());
    result.insert(labels::node_class_label(&class.group, &class.kind), class.name.clone());
    result.extend(provisioner_label(pool));
    result
}

/// The label `karpenter.sh/provisioner-name`, for NodePools that were derived from a Provisioner (v1alpha5). It is only
/// a label of the NodeClaim and not a requirement, because v1 rejects requirements with this key.
fn provisioner_label(pool: &NodePool) -> Option<(String, String)> {
    let provisioner = labels::provisioner_of(&pool.metadata)?;
    Some((labels::PROVISIONER_NAME.to_owned(), provisioner.to_owned()))
}

/// The requirements of a NodeClaim: those of the plan, and requirements with the names of the planned instance types
/// and with their available capacity types.
fn requirements(planned: &PlannedNode, catalog: &[InstanceType]) -> Requirements {
    let mut requirements = planned.requirements.clone();
    for key in [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED, labels::PROVISIONER_NAME] {
        requirements.remove(key);
    }
    let options: Vec<&InstanceType> =
        planned.instance_type_options.iter().filter_map(|index| catalog.get(*index)).collect();
    let capacity_types: BTreeSet<Arc<str>> = options
        .iter()
        .flat_map(|option| &option.offerings)
        .filter(|offering| offering.is_launchable() && offering.requirements.intersects(&requirements))
        .filter_map(|offering| offering.capacity_type().cloned())
        .collect();
    let min_values = |key: &str| requirements.get(key).and_then(|requirement| requirement.min_values);
    let names = options.iter().map(|option| option.name.clone());
    let types = Requirement::in_values(labels::INSTANCE_TYPE, names)
        .with_min_values(min_values(labels::INSTANCE_TYPE));
    let capacity = Requirement::in_values(labels::CAPACITY_TYPE, capacity_types)
        .with_min_values(min_values(labels::CAPACITY_TYPE));
    requirements.replace(types);
    if !capacity.values.is_empty() {
        requirements.replace(capacity);
    }
    requirements
}

/// A requirement in the form of the API: one entry per operator, with `minValues` on the first.
fn to_api_requirements(requirement: &Requirement) -> Vec<ApiRequirement> {
    let entry = |operator: Operator, values: Vec<String>| ApiRequirement {
        key: requirement.key.to_string(),
        operator: operator.as_str().to_owned(),
        values,
        min_values: None,
    };
    let mut entries = Vec::new();
    if let Some(bound) = requirement.gte {
        entries.push(entry(Operator::Gte, vec![bound.to_string()]));
    }
    if let Some(bound) = requirement.lte {
        entries.push(entry(Operator::Lte, vec![bound.to_string()]));
    }
    if entries.is_empty() || requirement.operator() != Operator::Exists {
        let values = requirement.values.iter().map(ToString::to_string).collect();
        entries.push(entry(requirement.operator(), values));
    }
    entries[0].min_values = requirement.min_values.map(i64::from);
    entries
}

fn quantities(requests: &ResourceList) -> Quantities {
    requests
        .iter()
        .filter(|(_, amount)| *amount != 0)
        .map(|(name, amount)| (name.to_string(), ResourceList::quantity(name, amount)))
        .collect()
}
