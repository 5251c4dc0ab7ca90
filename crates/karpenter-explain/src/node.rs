//! Explains one node: why it is or is not disrupted, every blocker, and what would be saved without them.

mod budget;
pub(crate) mod chain;
mod fix;
mod lift;

use karpenter_disruption::cluster::{Cluster, StateNode};
use karpenter_disruption::command::Command;
use karpenter_disruption::evaluate::{Evaluation, evaluate};
use karpenter_disruption::verdict::Verdict;
use karpenter_model::resources::{CPU, MEMORY};
use karpenter_view::{Chain, CommandView, NodeDocument, NodeSummary, ObjectRef, Reason, Resolution};

use self::chain::{NodeChain, chain};
use self::lift::Lift;
use crate::format::{dollars, duration, money, time};
use crate::input::ExplainInput;
use crate::reasons::of_verdict;
use crate::{NotFound, meta, outcome};

/// Explains the node with this name, or the node of the NodeClaim with this name.
pub fn explain_node(input: &ExplainInput, name: &str) -> Result<NodeDocument, NotFound> {
    let cluster = &input.cluster;
    let state_nodes = cluster.state_nodes.iter();
    let by_node = state_nodes.clone().position(|one| one.node.as_deref() == Some(name));
    let index = by_node.or_else(|| cluster.state_nodes.iter().position(|one| &*one.claim == name));
    let Some(index) = index else {
        return Err(NotFound { object: ObjectRef::cluster_scoped("Node", name) });
    };
    Ok(explain_at(input, index, &evaluate(cluster, &input.settings)))
}

/// Explains the node with this index in `Cluster::state_nodes`. `evaluation` is the evaluation of the whole cluster.
pub(crate) fn explain_at(input: &ExplainInput, index: usize, evaluation: &Evaluation) -> NodeDocument {
    let has_node = |command: &&Command| command.candidates.iter().any(|one| one.state_node == index);
    match evaluation.commands.iter().find(has_node) {
        Some(command) => selected(input, index, command),
        None => kept(input, index),
    }
}

fn document(input: &ExplainInput, index: usize, verdict: Reason) -> NodeDocument {
    let state_node = &input.cluster.state_nodes[index];
    let name = state_node.node.as_deref().unwrap_or(&state_node.claim);
    NodeDocument {
        meta: meta(input),
        node: ObjectRef::cluster_scoped("Node", name),
        facts: facts(&input.cluster, state_node),
        summary: String::new(),
        resolution: Resolution::ok(),
        verdict,
        chain: Chain::default(),
        command: None,
        rejected: None,
        budgets: Vec::new(),
    }
}

fn facts(cluster: &Cluster, state_node: &StateNode) -> NodeSummary {
    let text = |value: &Option<std::sync::Arc<str>>| value.as_ref().map(ToString::to_string);
    let node = state_node.at.and_then(|at| cluster.problem.nodes.get(at));
    let percent = |resource: &str| {
        let node = node?;
        let requested: i64 = node.pods.iter().map(|pod| pod.spec.requests.get(resource)).sum();
        let allocatable = node.allocatable.get(resource);
        (allocatable > 0).then(|| u64::try_from(requested.saturating_mul(100) / allocatable).unwrap_or(0))
    };
    NodeSummary {
        node_claim: state_node.claim.to_string(),
        node_pool: text(&state_node.pool),
        instance_type: text(&state_node.instance_type),
        zone: text(&state_node.zone),
        capacity_type: text(&state_node.capacity_type),
        price_per_hour: node
            .and_then(|node| node.price_per_hour)
            .filter(|price| price.is_finite())
            .map(money),
        cpu_percent: percent(CPU),
        memory_percent: percent(MEMORY),
        pods: state_node.pods.iter().filter(|pod| pod.is_reschedulable).count() as u64,
        created: (state_node.created_at_secs > 0).then(|| time(state_node.created_at_secs)),
    }
}

/// A node that is a candidate of a command.
fn selected(input: &ExplainInput, index: usize, command: &Command) -> NodeDocument {
    let verdict = Verdict::Chosen { method: command.method };
    let mut document = document(input, index, of_verdict(&verdict));
    document.resolution = Resolution::in_progress(None);
    document.summary = format!("selected for disruption: {}", command.method.reason().as_str());
    document.command = Some(CommandView {
        reason: command.method.reason().as_str().to_owned(),
        candidates: command.candidates.iter().map(|one| one.node.to_string()).collect(),
        outcome: outcome::of_command(&input.cluster, command),
    });
    document
}

fn kept(input: &ExplainInput, index: usize) -> NodeDocument {
    let cluster = &input.cluster;
    let found = chain(cluster, &input.settings, index);
    let NodeChain { steps, end } = &found;
    let first = steps.first().map(|step| &step.verdict).or(end.as_ref().err());
    let verdict = first.cloned().unwrap_or(Verdict::NotNow);
    let mut document = document(input, index, of_verdict(&verdict));
    document.chain.blockers = steps.iter().map(|step| fix::blocker(input, index, step)).collect();
    for step in steps {
        if let Lift::Budget { pool, reason } = &step.lift {
            document.budgets = budget::entries(input, pool, *reason);
        }
    }
    match end {
        Ok(end) => {
            let outcome = outcome::of_command(&end.0, &end.1);
            match steps.is_empty() {
                // The node could be disrupted if it were the only candidate, but another command has priority.
                true => document.rejected = Some(outcome),
                false => document.chain.result = Some(outcome),
            }
        }
        Err(verdict) => {
            if matches!(verdict, Verdict::BelowThreshold { .. }) {
                document.rejected = below_threshold(input, index, &found);
            }
            if !steps.is_empty() {
                document.chain.remaining = Some(of_verdict(verdict));
            }
        }
    }
    document.resolution = resolution(input, &found);
    document.summary = summary(&verdict, &document, input);
    document
}

/// The command that is rejected because its saving is below the threshold.
fn below_threshold(input: &ExplainInput, index: usize, found: &NodeChain) -> Option<karpenter_view::Outcome> {
    let (mut cluster, mut settings) = (input.cluster.clone(), input.settings.clone());
    for step in &found.steps {
        step.lift.apply(&mut cluster, &mut settings, index);
    }
    for pool in cluster.pools.values_mut() {
        pool.pool_policy.min_saving_ratio = 0.0;
        pool.pool_policy.min_saving_per_hour = 0.0;
    }
    let end = chain(&cluster, &settings, index).end.ok()?;
    Some(outcome::of_command(&end.0, &end.1))
}

/// A node is blocked only if removing the blockers saves money.
fn resolution(input: &ExplainInput, found: &NodeChain) -> Resolution {
    if found.end.is_err() {
        return match (&found.end, found.steps.last()) {
            (Err(verdict), _) if is_temporary(verdict) => Resolution::in_progress(None),
            _ => Resolution::ok(),
        };
    }
    let mut until: Option<i64> = None;
    for step in &found.steps {
        let passes = match &step.lift {
            Lift::Budget { pool, reason } => budget::opens(input, pool, *reason),
            lift => lift.passes(),
        };
        match passes {
            Some(at) => until = until.max(at),
            None => return Resolution::blocked(),
        }
    }
    Resolution::in_progress(until.map(time))
}

fn is_temporary(verdict: &Verdict) -> bool {
    use karpenter_disruption::candidate::Blocked;
    match verdict {
        Verdict::Blocked(blocked) => matches!(
            blocked,
            Blocked::InCommand
                | Blocked::Resting
                | Blocked::Rebooting
                | Blocked::Leaving
                | Blocked::NotRegistered
                | Blocked::NotInitialized
                | Blocked::NoNode
                | Blocked::Nominated
        ),
        _ => false,
    }
}

fn summary(verdict: &Verdict, document: &NodeDocument, input: &ExplainInput) -> String {
    use karpenter_disruption::candidate::Blocked;
    let until = |secs: i64| match input.now_secs {
        Some(now) => format!("in {}", duration(secs - now)),
        None => format!("at {}", time(secs)),
    };
    match verdict {
        Verdict::Blocked(Blocked::PodBudget(name)) => {
            format!("not consolidated, PodDisruptionBudget {name} allows no eviction")
        }
        Verdict::PodBudgetJoint { name, allowed, wanted } => {
            format!("not consolidated, PodDisruptionBudget {name} allows {allowed} of {wanted} evictions")
        }
        Verdict::Blocked(Blocked::PodAnnotated(pod)) => {
            format!("not disrupted, pod {pod} has karpenter.sh/do-not-disrupt")
        }
        Verdict::Blocked(Blocked::Annotated) => {
            "not disrupted, the node has karpenter.sh/do-not-disrupt".to_owned()
        }
        Verdict::BudgetExhausted { pool, .. } => {
            let opens = document.resolution.until.as_deref().map(|at| format!("budget opens at {at}"));
            let opens =
                opens.unwrap_or_else(|| format!("the budgets of NodePool {pool} allow no further node"));
            format!("candidate for consolidation, {opens}")
        }
        Verdict::Settling { until_secs: Some(at) } => {
            format!("not consolidated yet, consolidateAfter elapses {}", until(*at))
        }
        Verdict::CoolDown { until_secs } => {
            format!("not consolidated yet, the cool-down ends {}", until(*until_secs))
        }
        Verdict::NeverConsolidated { pool } => {
            format!("not consolidated, consolidateAfter of NodePool {pool} is Never")
        }
        Verdict::OnlyWhenEmpty { pool } => {
            format!("not consolidated, NodePool {pool} consolidates empty nodes only")
        }
        Verdict::SpotToSpotOff => "not consolidated, spot nodes are not replaced by spot nodes".to_owned(),
        Verdict::SpotToSpotInflexible { wanted, found } => format!(
            "not consolidated, a spot node is replaced only with {wanted} or more cheaper instance types, {found} are allowed"
        ),
        Verdict::BelowThreshold { saving_per_hour, wanted_per_hour } => format!(
            "not consolidated, the best command saves {}, the NodePool requires {}",
            dollars(*saving_per_hour),
            dollars(*wanted_per_hour)
        ),
        Verdict::NotCheaper { .. } | Verdict::Fine | Verdict::NeedsSeveralNodes { .. } => {
            match document.chain.blockers.first().filter(|_| document.chain.result.is_some()) {
                Some(blocker) if blocker.code == "Limit" => {
                    format!("not consolidated, the limit of {} prevents a replacement", limit_owner(blocker))
                }
                _ => "not consolidated, no cheaper placement of its pods exists".to_owned(),
            }
        }
        Verdict::Stays { .. } => {
            "not consolidated, it saves less than the price of moving its pods".to_owned()
        }
        Verdict::NotNow => "not consolidated now, another command has priority".to_owned(),
        Verdict::DryRun { .. } => {
            "not consolidated, the consolidation dry run of its NodePool is on".to_owned()
        }
        other => {
            let text = other.to_string();
            format!("not disrupted: {text}")
        }
    }
}

fn limit_owner(blocker: &Reason) -> String {
    match blocker.params.get("nodePool") {
        Some(karpenter_view::Param::Text(name)) => format!("NodePool {name}"),
        _ => "its NodePool".to_owned(),
    }
}
