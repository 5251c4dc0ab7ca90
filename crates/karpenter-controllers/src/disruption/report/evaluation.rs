//! Reports an evaluation: verdicts, events and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use karpenter_disruption::cluster::{ConsolidationPolicy, Reason};
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{Evaluation, MethodOutcome, NodeVerdict, Verdict};
use karpenter_disruption::verdict::EventKind;
use karpenter_state::cost::unreadable_cost;
use karpenter_state::pod::Pod;
use karpenter_state::{AssembledCluster, ControlError, PoolBudgetError};

use crate::disruption::Disruption;
use crate::disruption::resolved_command::Candidate;
use crate::events::ObjectEvent;
use crate::evictions::annotation_event;
use crate::inputs::Reads;

const UNCONSOLIDATABLE_EVERY: Duration = Duration::from_secs(15 * 60);
const BUDGET_EVERY: Duration = Duration::from_secs(60);
/// The maximum number of nodes for which a pass publishes events. Events of other nodes follow in later passes.
const REPORTED_NODES_MAX: usize = 100;

impl Disruption {
    /// Reports the result of an evaluation: stores the verdicts, sets the gauges, and publishes events.
    pub(in crate::disruption) async fn report_evaluation(
        &self,
        assembled: &AssembledCluster,
        evaluation: &Evaluation,
        took: &[(Method, Duration)],
    ) {
        let now = self.reads.clock.now();
        self.verdicts.replace(assembled, evaluation, now);
        let metrics = &self.writes.metrics.disruption;
        let mut eligible: BTreeMap<Reason, usize> = BTreeMap::new();
        // Single-node consolidation is left out, because it has the same candidates as multi-node consolidation.
        let counted = |outcome: &&MethodOutcome| outcome.method != Method::SingleNodeConsolidation;
        for outcome in evaluation.outcomes.iter().filter(counted) {
            *eligible.entry(outcome.method.reason()).or_default() += outcome.candidates;
        }
        for (reason, nodes) in &eligible {
            metrics.eligible_nodes.with_label_values(&[reason.label()]).set(*nodes as i64);
        }
        for (method, took) in asked(evaluation, took) {
            let series = [method.reason().label(), method.consolidation_type()];
            metrics.evaluation_duration.with_label_values(&series).observe(took.as_secs_f64());
        }
        for ((pool, reason), budget) in &evaluation.budgets {
            let series = [&**pool, reason.label()];
            metrics.allowed_disruptions.with_label_values(&series).set(i64::from(budget.allowed));
            metrics.nodes_consuming_budgets.with_label_values(&series).set(i64::from(budget.disrupting));
        }
        let mut events = budget_events(self, evaluation);
        events.extend(self.invalid_config_events(assembled));
        self.report_dry_run_commands(assembled, evaluation, &mut events);
        let mut reported_nodes = 0;
        for standing in &evaluation.verdicts {
            if let Verdict::Unbalanced { score, .. } = standing.verdict
                && let Some(pool) =
                    assembled.cluster.state_nodes.get(standing.state_node).and_then(|one| one.pool.as_ref())
            {
                self.count_move(pool, ConsolidationPolicy::Balanced, "rejected");
                self.count_score(pool, score, "rejected");
            }
        }
        for standing in &evaluation.verdicts {
            let about = verdict_events(&self.reads, assembled, standing);
            if about.iter().any(|event| self.writes.recorder.is_due(event)) {
                reported_nodes += 1;
                events.extend(about);
            }
            if reported_nodes >= REPORTED_NODES_MAX {
                break;
            }
        }
        self.publish(events).await;
    }

    /// Publishes events about pods whose do-not-disrupt annotation has a duration or is invalid.
    pub(in crate::disruption) async fn report_pod_annotations(
        &self,
        assembled: &AssembledCluster,
        annotated: &[Arc<Pod>],
    ) {
        let now = self.reads.clock.now();
        let ours = our_nodes(assembled);
        let on_ours = annotated
            .iter()
            .filter(|pod| crate::pods::node_name(pod).is_some_and(|node| ours.contains(node)));
        let events = on_ours.filter_map(|pod| annotation_event(pod, now));
        let events = events.map(|event| event.repeat_after(UNCONSOLIDATABLE_EVERY));
        let new = events.filter(|event| self.writes.recorder.is_due(event));
        self.publish(new.take(REPORTED_NODES_MAX).collect()).await;
    }

    /// Logs which pods have an invalid deletion cost, in one line.
    pub(in crate::disruption) fn report_unreadable_costs(
        &self,
        assembled: &AssembledCluster,
        pods_with_unreadable_cost: &[Arc<Pod>],
    ) {
        if pods_with_unreadable_cost.is_empty() {
            return;
        }
        let ours = our_nodes(assembled);
        let mut on_ours = pods_with_unreadable_cost
            .iter()
            .filter(|pod| crate::pods::node_name(pod).is_some_and(|node| ours.contains(node)));
        let Some(first) = on_ours.next() else { return };
        let Some((annotation, value)) = unreadable_cost(first, self.reader.gates.deletion_costs()) else {
            return;
        };
        let others = on_ours.count();
        if self.writes.log_throttle.is_due("pod deletion cost", "", self.reads.clock.now()) {
            tracing::warn!(
                pod = format!("{}/{}", first.namespace(), first.name),
                annotation,
                value,
                others,
                "invalid deletion cost of pod counts as 0; valid: a 32-bit integer"
            );
        }
    }

    /// Events on NodePools that have invalid annotations or budgets.
    fn invalid_config_events(&self, assembled: &AssembledCluster) -> Vec<ObjectEvent> {
        let pools = &self.reads.stores.node_pools;
        let event = |pool: &str, reason: &'static str, words: String| {
            let pool = pools.get("", pool)?;
            Some(ObjectEvent::warning(&*pool, reason, words).repeat_after(UNCONSOLIDATABLE_EVERY))
        };
        let controls = assembled.control_errors.iter();
        let controls =
            controls.map(|error: &ControlError| (&error.pool, error.event_reason(), error.to_string()));
        let budgets = assembled.budget_errors.iter();
        let budgets = budgets
            .map(|error: &PoolBudgetError| (&error.pool, "InvalidDisruptionBudget", error.to_string()));
        let events: Vec<ObjectEvent> =
            controls.chain(budgets).filter_map(|(pool, reason, words)| event(pool, reason, words)).collect();
        for event in events.iter().filter(|event| self.writes.recorder.is_due(event)) {
            tracing::warn!("{}", event.message);
        }
        events
    }

    /// Reports the commands that the consolidation dry run found. Their events are repeated as rarely as events about
    /// nodes that cannot be consolidated.
    fn report_dry_run_commands(
        &self,
        assembled: &AssembledCluster,
        evaluation: &Evaluation,
        events: &mut Vec<ObjectEvent>,
    ) {
        let rehearsed = &self.writes.metrics.disruption.rehearsed_nodes;
        rehearsed.reset();
        for dry_run_command in &evaluation.dry_run_commands {
            let reason = dry_run_command.method.reason();
            for candidate in &dry_run_command.candidates {
                rehearsed.with_label_values(&[&*candidate.pool, reason.label()]).inc();
            }
            let Some(resolved) = self.resolve(dry_run_command, assembled) else { continue };
            let text = |candidate: &Candidate| {
                let what = resolved.describe_for("dry-run", candidate);
                format!("Would be disrupted without the consolidation dry run: {what}")
            };
            let about = self.candidate_events(&resolved, "ConsolidationDryRun", text);
            let about: Vec<ObjectEvent> =
                about.into_iter().map(|event| event.repeat_after(UNCONSOLIDATABLE_EVERY)).collect();
            if about.iter().any(|event| self.writes.recorder.is_due(event)) {
                self.record("would ", "dry-run", &resolved, assembled);
            }
            events.extend(about);
        }
    }
}

fn our_nodes(assembled: &AssembledCluster) -> BTreeSet<&str> {
    assembled.cluster.state_nodes.iter().filter_map(|state_node| state_node.node.as_deref()).collect()
}

/// The durations of the methods that were evaluated. Methods after the first one that found commands were not
/// evaluated.
fn asked<'a>(evaluation: &Evaluation, took: &'a [(Method, Duration)]) -> &'a [(Method, Duration)] {
    let found = evaluation.outcomes.iter().position(|outcome| outcome.commands > 0);
    found.and_then(|index| took.get(..=index)).unwrap_or(took)
}

/// Events for NodePools that have candidates although their budgets allow no disruption.
fn budget_events(disruption: &Disruption, evaluation: &Evaluation) -> Vec<ObjectEvent> {
    let wanted: BTreeSet<Reason> = evaluation
        .outcomes
        .iter()
        .filter(|outcome| outcome.candidates > 0)
        .map(|outcome| outcome.method.reason())
        .collect();
    let blocking = evaluation
        .budgets
        .iter()
        .filter(|((_, reason), budget)| wanted.contains(reason) && budget.is_blocking());
    blocking
        .filter_map(|((pool, reason), _)| {
            let pool = disruption.reads.stores.node_pools.get("", pool)?;
            let reason = reason.as_str();
            let text =
                format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
            Some(ObjectEvent::normal(&*pool, "DisruptionBlocked", text).repeat_after(BUDGET_EVERY))
        })
        .collect()
}

/// The events of a verdict: on the node and the claim, and if node repair stopped in the NodePool, on the NodePool.
fn verdict_events(reads: &Reads, assembled: &AssembledCluster, standing: &NodeVerdict) -> Vec<ObjectEvent> {
    let Some(kind) = standing.event() else { return Vec::new() };
    let Some(host) = assembled.state_nodes.get(standing.state_node) else { return Vec::new() };
    let text = standing.verdict.to_string();
    let (reason, is_warning, every) = match kind {
        EventKind::DisruptionBlocked => ("DisruptionBlocked", false, crate::events::REPEAT_AFTER),
        EventKind::Unconsolidatable => ("Unconsolidatable", false, UNCONSOLIDATABLE_EVERY),
        EventKind::NodeRepairBlocked => ("NodeRepairBlocked", true, UNCONSOLIDATABLE_EVERY),
    };
    let claim = host.claim.as_deref().map(|claim| ObjectEvent::normal(claim, reason, text.clone()));
    let node = host.node.as_deref().map(|node| ObjectEvent::normal(node, reason, text.clone()));
    let pool = match &standing.verdict {
        Verdict::RepairHalted { pool } => reads.stores.node_pools.get("", pool),
        _ => None,
    };
    let pool = pool.map(|pool| ObjectEvent::normal(&*pool, reason, text));
    let events = node.into_iter().chain(claim).chain(pool);
    events.map(|event| ObjectEvent { is_warning, ..event.repeat_after(every) }).collect()
}
