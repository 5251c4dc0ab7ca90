//! Explains one NodePool: whether it launches nodes, its cost and limits, and what blocks the consolidation of its nodes.

use std::collections::BTreeMap;

use karpenter_disruption::evaluate::evaluate;
use karpenter_disruption::prices::total_per_hour;
use karpenter_model::resources::NODES;
use karpenter_view::{BlockerSummary, LimitView, NodePoolDocument, ObjectRef, Resolution};

use crate::format::{counted, dollars, duration, money, quantity};
use crate::input::{Excluded, ExcludedPool, ExplainInput};
use crate::node::explain_at;
use crate::pod::{excluded_reason, is_placed_with};
use crate::{NotFound, meta};

/// The maximum number of nodes whose blockers are determined. Each node needs several simulations.
const NODES_ASKED_MAX: usize = 20;

/// Explains the NodePool with this name.
pub fn explain_node_pool(input: &ExplainInput, name: &str) -> Result<NodePoolDocument, NotFound> {
    let excluded = input.excluded(name);
    let pool =
        excluded.map(|one| &one.pool).or_else(|| input.problem.pools.iter().find(|one| &*one.name == name));
    let Some(pool) = pool else {
        return Err(NotFound { object: ObjectRef::cluster_scoped("NodePool", name) });
    };
    let types = match excluded {
        Some(excluded) => excluded.instance_types.clone(),
        None => input.problem.catalogs.get(pool.catalog).cloned().unwrap_or_default(),
    };
    let allowed = types.iter().filter(|one| one.requirements.intersects(&pool.requirements)).count();
    let state_nodes = input.cluster.state_nodes.iter().filter(|one| one.pool.as_deref() == Some(name));
    let state_nodes: Vec<_> = state_nodes.collect();
    let limits = pool.limits.iter().map(|(resource, limit)| LimitView {
        resource: resource.to_string(),
        used: quantity(resource, pool.usage.get(resource)),
        limit: quantity(resource, limit),
    });
    let mut document = NodePoolDocument {
        meta: meta(input),
        name: name.to_owned(),
        ready: excluded.is_none_or(|one| one.why == Excluded::Static),
        summary: String::new(),
        resolution: Resolution::ok(),
        reasons: Vec::new(),
        affected_pods: 0,
        affected_pod: None,
        nodes: state_nodes.len() as u64,
        cost_per_hour: money(total_per_hour(state_nodes.iter().map(|one| one.price_per_hour))),
        unpriced_nodes: state_nodes.iter().filter(|one| one.price_per_hour <= 0.0).count() as u64,
        limits: limits.collect(),
        blockers: Vec::new(),
        instance_types_allowed: allowed as u64,
        instance_types: types.len() as u64,
    };
    match excluded {
        Some(excluded) => explain_excluded(input, excluded, &mut document),
        None => explain_nodes(input, &mut document),
    }
    Ok(document)
}

fn explain_excluded(input: &ExplainInput, excluded: &ExcludedPool, document: &mut NodePoolDocument) {
    let reason = excluded_reason(input, excluded);
    let since = input.facts.pools.get(&document.name).and_then(|facts| facts.not_ready.as_ref()?.since_secs);
    let waited = since.zip(input.now_secs).map(|(since, now)| format!(" for {}", duration(now - since)));
    document.summary = match excluded.why {
        Excluded::NotReady => {
            let cause =
                reason.message.strip_prefix("not ready: ").unwrap_or("the condition Ready is not true");
            format!("not ready{}, {cause}", waited.unwrap_or_default())
        }
        Excluded::Static | Excluded::Deleting => reason.message.clone(),
    };
    document.resolution = match excluded.why {
        Excluded::NotReady => Resolution::blocked(),
        Excluded::Deleting => Resolution::in_progress(None),
        Excluded::Static => Resolution::ok(),
    };
    document.reasons.push(reason);
    if excluded.why != Excluded::NotReady {
        return;
    }
    let without = karpenter_scheduling::schedule(&input.problem);
    let problem = input.problem_with(excluded);
    for left in &without.unschedulable {
        let group = left.pods.group as usize;
        if is_placed_with(&problem, group)
            && let Some(pods) = input.problem.pods.get(group)
        {
            document.affected_pods += u64::from(left.pods.count);
            let name = pods.names.name(left.pods.start);
            document.affected_pod.get_or_insert(format!("{}/{name}", pods.spec.namespace));
        }
    }
}

fn explain_nodes(input: &ExplainInput, document: &mut NodePoolDocument) {
    let name = document.name.clone();
    let state_nodes = input.cluster.state_nodes.iter().enumerate();
    let nodes = state_nodes.filter(|(_, one)| one.pool.as_deref() == Some(&*name));
    let evaluation = evaluate(&input.cluster, &input.settings);
    let mut by_blocker: BTreeMap<String, BlockerSummary> = BTreeMap::new();
    let (mut savings, mut is_blocked) = (0_u64, false);
    for (index, _) in nodes.take(NODES_ASKED_MAX) {
        let explained = explain_at(input, index, &evaluation);
        savings += u64::from(explained.command.is_some());
        is_blocked |= explained.resolution.is == karpenter_view::ResolutionKind::Blocked;
        for reason in explained.chain.blockers {
            let key = format!("{} {}", reason.code, summary_key(&reason));
            by_blocker.entry(key).or_insert(BlockerSummary { reason, nodes: 0 }).nodes += 1;
        }
    }
    document.blockers = by_blocker.into_values().collect();
    document.blockers.sort_by_key(|one| std::cmp::Reverse(one.nodes));
    let nodes = counted(document.nodes, "node");
    let cost = dollars(document.cost_per_hour);
    let full: Vec<String> = document
        .limits
        .iter()
        .filter(|limit| limit.used == limit.limit && limit.resource != NODES)
        .map(|limit| format!("{} limit {} is reached", limit.resource, limit.limit))
        .collect();
    let what = match (document.nodes, savings, is_blocked) {
        (0, _, _) => "no nodes".to_owned(),
        (_, 0, true) => format!("{nodes}, {cost}, consolidation is blocked"),
        (_, 0, false) => format!("{nodes}, {cost}, no consolidation possible"),
        (_, count, _) => format!("{nodes}, {cost}, {} selected for disruption", counted(count, "node")),
    };
    document.summary = full.into_iter().fold(what, |text, limit| format!("{text}, {limit}"));
    document.resolution = match (savings, is_blocked) {
        (0, true) => Resolution::blocked(),
        (0, false) => Resolution::ok(),
        _ => Resolution::in_progress(None),
    };
}

/// The object that blocks. It distinguishes blockers with the same code.
fn summary_key(reason: &karpenter_view::Reason) -> String {
    let named = ["podDisruptionBudget", "nodePool", "resource", "pod"];
    let params = named.iter().filter_map(|name| reason.params.get(*name));
    params.map(|param| format!("{param:?}")).collect::<Vec<_>>().join(" ")
}
