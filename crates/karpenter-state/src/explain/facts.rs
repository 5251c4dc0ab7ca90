//! Facts about objects for explanations. Only fields that an explanation shows or a fix changes are read.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karpenter_api::budget::{UNLIMITED, try_allowed_disruptions};
use karpenter_api::types::{Budget, Condition, ConditionStatus, DisruptionReason, NodeClaim, NodePool};
use karpenter_disruption::budgets::remaining;
use karpenter_disruption::cluster::{Cluster, Reason};
use karpenter_explain::input::{BudgetFacts, ClaimFacts, Facts, NotReady, PodBudgetFacts, PoolFacts};
use karpenter_model::labels;
use karpenter_view::ObjectRef;
use serde::Serialize;
use serde_json::Value;

use super::workloads;
use crate::objects::Objects;
use crate::pods;
use crate::workloads::{name_of, namespace_of};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The objects as JSON. Objects that were read from JSON can be written as JSON.
pub(super) fn values<'a, T: Serialize + 'a>(objects: impl Iterator<Item = &'a T>) -> Vec<Value> {
    objects.filter_map(|one| serde_json::to_value(one).ok()).collect()
}

pub(super) fn of(objects: &Objects) -> Facts {
    let mut facts = Facts::default();
    workloads::add(objects, &mut facts);
    for pool in &objects.node_pools {
        facts.pools.insert(name_of(&pool.metadata).to_owned(), pool_facts(pool));
    }
    let ec2 = objects.ec2_node_classes.iter().map(|class| ("EC2NodeClass", name_of(&class.metadata)));
    let kwok = objects.kwok_node_classes.iter().map(|class| ("KWOKNodeClass", name_of(&class.metadata)));
    facts.node_classes = ec2.chain(kwok).map(|(kind, name)| ObjectRef::cluster_scoped(kind, name)).collect();
    facts.node_classes.sort();
    for claim in &objects.node_claims {
        facts.claims.insert(name_of(&claim.metadata).to_owned(), claim_facts(claim, objects));
    }
    for budget in &objects.pod_disruption_budgets {
        let name = format!("{}/{}", namespace_of(&budget.metadata), name_of(&budget.metadata));
        let spec = budget.spec.as_ref();
        let status = budget.status.as_ref();
        let unhealthy = status.map_or(0, |status| status.expected_pods - status.current_healthy);
        let value = PodBudgetFacts {
            max_unavailable: spec.and_then(|spec| spec.max_unavailable.as_ref()).map(text),
            min_available: spec.and_then(|spec| spec.min_available.as_ref()).map(text),
            unhealthy: u64::try_from(unhealthy).unwrap_or(0),
        };
        facts.pod_budgets.insert(name, value);
    }
    facts
}

fn text(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

fn pool_facts(pool: &NodePool) -> PoolFacts {
    let spec = &pool.spec.template.spec;
    let class = &spec.node_class_ref;
    let budgets = pool.spec.disruption.as_ref().and_then(|disruption| disruption.budgets.as_ref());
    let conditions = pool.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let ready = condition(conditions, "Ready").filter(|one| one.status != ConditionStatus::True);
    PoolFacts {
        node_class: (!class.name.is_empty()).then(|| ObjectRef::cluster_scoped(&class.kind, &class.name)),
        requirements: values(spec.requirements.iter()),
        budgets: budgets.into_iter().flatten().map(budget_facts).collect(),
        not_ready: ready.map(|one| NotReady {
            reason: one.reason.clone(),
            message: one.message.clone(),
            since_secs: transition(one),
        }),
    }
}

/// `allowed` depends on the time and the number of nodes; see [`add_cluster_facts`].
fn budget_facts(budget: &Budget) -> BudgetFacts {
    BudgetFacts {
        raw: serde_json::to_value(budget).unwrap_or_default(),
        nodes: budget.nodes.clone(),
        reasons: budget.reasons.as_ref().map(|reasons| reasons.iter().map(reason_text).collect()),
        schedule: budget.schedule.clone(),
        duration_secs: budget.duration.map(|duration| duration.nanos / NANOS_PER_SECOND),
        allowed: None,
    }
}

fn reason_text(reason: &DisruptionReason) -> String {
    match reason {
        DisruptionReason::Underutilized => Reason::Underutilized.as_str(),
        DisruptionReason::Empty => Reason::Empty.as_str(),
        DisruptionReason::Drifted => Reason::Drifted.as_str(),
        DisruptionReason::Unhealthy => Reason::Unhealthy.as_str(),
        DisruptionReason::Other(text) => text,
    }
    .to_owned()
}

fn condition<'a>(conditions: &'a [Condition], name: &str) -> Option<&'a Condition> {
    conditions.iter().find(|one| one.type_ == name)
}

fn transition(condition: &Condition) -> Option<i64> {
    condition.last_transition_time.as_ref().map(|time| time.0.as_second())
}

fn claim_facts(claim: &NodeClaim, objects: &Objects) -> ClaimFacts {
    let metadata = &claim.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let status = claim.status.as_ref();
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let reached = |name: &str| {
        condition(conditions, name).filter(|one| one.status == ConditionStatus::True).and_then(transition)
    };
    let waiting = ["Launched", "Registered", "Initialized"]
        .into_iter()
        .filter_map(|name| condition(conditions, name).filter(|one| one.status != ConditionStatus::True));
    let message = waiting.map(|one| one.message.clone()).find(|message| !message.is_empty());
    let node = status.and_then(|status| status.node_name.clone());
    let class = &claim.spec.node_class_ref;
    let nominated = objects.pods.iter().filter(|pod| {
        pods::node_name(pod).is_none()
            && pods::nominated_node(pod).is_some_and(|name| Some(name) == node.as_deref())
    });
    ClaimFacts {
        node_pool: label(labels::NODEPOOL),
        node_class: (!class.name.is_empty()).then(|| ObjectRef::cluster_scoped(&class.kind, &class.name)),
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price_per_hour: None,
        provider_id: status.and_then(|status| status.provider_id.clone()),
        created_secs: metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
        launched_secs: reached("Launched"),
        registered_secs: reached("Registered"),
        initialized_secs: reached("Initialized"),
        is_deleting: metadata.deletion_timestamp.is_some(),
        nominated_pods: nominated.count() as u64,
        node,
        message,
    }
}

/// Adds the prices of claims, and the number of nodes that each budget currently allows to be disrupted.
pub(super) fn add_cluster_facts(facts: &mut Facts, cluster: &Cluster, now: Option<Timestamp>) {
    for state_node in &cluster.state_nodes {
        if let Some(claim) = facts.claims.get_mut(&*state_node.claim) {
            claim.price_per_hour = Some(state_node.price_per_hour).filter(|price| *price > 0.0);
        }
    }
    let counts = remaining(cluster, Reason::Underutilized);
    for (name, pool) in &mut facts.pools {
        let nodes = counts.get(name.as_str()).map_or(0, |counts| counts.nodes as usize);
        for budget in &mut pool.budgets {
            let Ok(raw) = serde_json::from_value::<Budget>(budget.raw.clone()) else { continue };
            let raw = Budget { reasons: None, ..raw };
            let now_secs = now.map_or(0, Timestamp::as_second);
            let allowed = try_allowed_disruptions(&[raw], &DisruptionReason::Underutilized, now_secs, nodes);
            budget.allowed =
                allowed.ok().filter(|allowed| *allowed != UNLIMITED).and_then(|one| u64::try_from(one).ok());
        }
    }
}
