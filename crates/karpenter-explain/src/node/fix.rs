//! The fix of a removable blocker of a node, and the reason that names it.

use std::sync::Arc;

use karpenter_disruption::cluster::Cluster;
use karpenter_view::{Fix, ObjectRef, PatchType, Reason};
use serde_json::{Value, json};

use super::budget;
use super::chain::{Step, evictions};
use super::lift::Lift;
use crate::format::quantity;
use crate::input::ExplainInput;
use crate::pod::fix::limit_fix;
use crate::reasons::{of_verdict, reason};

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DRY_RUN: &str = "karpenter.sh/consolidation-dry-run";

/// The reason of a step, with its fix.
pub(crate) fn blocker(input: &ExplainInput, index: usize, step: &Step) -> Reason {
    let cluster = &input.cluster;
    let mut blocker = match &step.lift {
        Lift::Limit { pool, resource, amount } => limit(cluster, pool, resource, *amount),
        Lift::PodBudget { name, .. } => pod_budget(input, index, name, step),
        _ => of_verdict(&step.verdict),
    };
    blocker.fix = fix(input, index, &step.lift);
    blocker
}

fn limit(cluster: &Cluster, pool: &Arc<str>, resource: &str, amount: Option<i64>) -> Reason {
    let of_pool = cluster.problem.pools.iter().find(|one| one.name == *pool);
    let (limit, used) = of_pool.map_or((0, 0), |pool| (pool.limits.get(resource), pool.usage.get(resource)));
    let mut params = vec![
        ("nodePool", (&**pool).into()),
        ("resource", resource.into()),
        ("limit", quantity(resource, limit).into()),
        ("used", quantity(resource, used).into()),
    ];
    let mut message = format!(
        "NodePool {pool}: {resource} limit {}, {} used",
        quantity(resource, limit),
        quantity(resource, used)
    );
    if let Some(amount) = amount {
        let required = quantity(resource, amount - used);
        message = format!("{message}, replacements require {required} while the node exists");
        params.push(("required", required.into()));
    }
    reason("Limit", &params, message)
}

fn pod_budget(input: &ExplainInput, index: usize, name: &str, step: &Step) -> Reason {
    let mut reason = of_verdict(&step.verdict);
    let facts = input.facts.pod_budgets.get(name).cloned().unwrap_or_default();
    let rule = match (&facts.max_unavailable, &facts.min_available) {
        (Some(max), _) => format!("maxUnavailable {max}"),
        (None, Some(min)) => format!("minAvailable {min}"),
        (None, None) => "no eviction is allowed now".to_owned(),
    };
    let pods = u64::from(evictions(&input.cluster, index, name));
    reason.params.insert("podsOnNode".to_owned(), pods.into());
    let which = match pods {
        1 => "1 of its pods is on this node".to_owned(),
        pods => format!("{pods} of its pods are on this node"),
    };
    reason.message = format!("PodDisruptionBudget {name}: {rule}; {which}");
    reason
}

fn fix(input: &ExplainInput, index: usize, lift: &Lift) -> Option<Fix> {
    let state_node = &input.cluster.state_nodes[index];
    let of_pool = |pool: &str, text: String, patch: Value| {
        merge(text, ObjectRef::cluster_scoped("NodePool", pool), patch)
    };
    Some(match lift {
        Lift::PodBudget { name, allowed } => {
            let facts = input.facts.pod_budgets.get(&**name).cloned().unwrap_or_default();
            let (namespace, short) = name.split_once('/').unwrap_or(("default", name));
            let unavailable = u64::from(allowed.unwrap_or(1)).saturating_add(facts.unhealthy);
            let text =
                format!("set spec.maxUnavailable of PodDisruptionBudget {name} to {unavailable} or more");
            let spec = match facts.min_available {
                Some(_) => json!({"maxUnavailable": unavailable, "minAvailable": null}),
                None => json!({"maxUnavailable": unavailable}),
            };
            let object = ObjectRef::namespaced("PodDisruptionBudget", namespace, short);
            merge(text, object, json!({"spec": spec}))
        }
        Lift::NodeAnnotation => {
            let name = state_node.node.as_deref().unwrap_or(&state_node.claim);
            merge(
                format!("remove the annotation {DO_NOT_DISRUPT} of Node {name}"),
                ObjectRef::cluster_scoped("Node", name),
                json!({"metadata": {"annotations": {DO_NOT_DISRUPT: null}}}),
            )
        }
        Lift::PodAnnotation { pod } => {
            let (namespace, short) = pod.split_once('/').unwrap_or(("default", pod));
            let owner = input.facts.pods.get(&**pod).map(|facts| &facts.owner);
            let text = match owner.filter(|owner| owner.kind == "Job") {
                Some(job) => format!("wait until {job} completes, or remove {DO_NOT_DISRUPT} from Pod {pod}"),
                None => format!("remove the annotation {DO_NOT_DISRUPT} of Pod {pod}"),
            };
            merge(
                text,
                ObjectRef::namespaced("Pod", namespace, short),
                json!({"metadata": {"annotations": {DO_NOT_DISRUPT: null}}}),
            )
        }
        Lift::ConsolidateAfter { pool } => of_pool(
            pool,
            format!("set spec.disruption.consolidateAfter of NodePool {pool} to 0s or another duration"),
            json!({"spec": {"disruption": {"consolidateAfter": "0s"}}}),
        ),
        Lift::ConsolidationPolicy { pool } => of_pool(
            pool,
            format!("set spec.disruption.consolidationPolicy of NodePool {pool} to WhenEmptyOrUnderutilized"),
            json!({"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized"}}}),
        ),
        Lift::Budget { pool, reason } => {
            let (text, patch) = budget::fix(input, pool, *reason)?;
            of_pool(pool, text, patch)
        }
        Lift::DryRun { pool } => of_pool(
            pool,
            format!("remove the annotation {DRY_RUN} of NodePool {pool}"),
            json!({"metadata": {"annotations": {DRY_RUN: null}}}),
        ),
        Lift::Limit { pool, resource, amount } => limit_fix(pool, resource, *amount),
        Lift::SpotToSpot => Fix {
            text: "enable the feature gate SpotToSpotConsolidation of the controller".to_owned(),
            object: None,
            patch: None,
            patch_type: None,
        },
        // These blockers disappear by themselves after some time, so they have no fix.
        Lift::Settled { .. } | Lift::CooledDown { .. } | Lift::MovesPerHour { .. } => return None,
    })
}

fn merge(text: String, object: ObjectRef, patch: Value) -> Fix {
    Fix { text, object: Some(object), patch: Some(patch), patch_type: Some(PatchType::Merge) }
}
