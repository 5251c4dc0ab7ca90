//! What is told about a look at the whole cluster: events, metrics and the standings of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use karpenter_disruption::command::Method;
use karpenter_disruption::explain::EventKind;
use karpenter_disruption::fleet::{ConsolidationPolicy, Reason};
use karpenter_disruption::propose::{MethodOutcome, Proposal, Standing, Why};
use karpenter_state::cost::unreadable_cost;
use karpenter_state::pod::Pod;
use karpenter_state::{AssembledFleet, ControlError, PoolBudgetError};

use crate::context::Context;
use crate::disruption::Disruption;
use crate::disruption::observe::deletion_costs;
use crate::disruption::order::Target;
use crate::events::ObjectEvent;
use crate::node::annotation_event;

const UNCONSOLIDATABLE_EVERY: Duration = Duration::from_secs(15 * 60);
const BUDGET_EVERY: Duration = Duration::from_secs(60);
/// Nodes that one pass tells about; the next pass tells about the next ones.
const TOLD_NODES_MAX: usize = 100;

impl Disruption {
    /// What one look at the cluster brought to light.
    pub(in crate::disruption) async fn tell_pass(
        &self,
        round: &AssembledFleet,
        proposal: &Proposal,
        took: &[(Method, Duration)],
    ) {
        let context = &self.context;
        let now = context.clock.now();
        context.standings.replace(round, proposal, now);
        let metrics = &context.metrics.disruption;
        let mut eligible: BTreeMap<Reason, usize> = BTreeMap::new();
        // The two methods of consolidation look at the same nodes.
        let counted = |outcome: &&MethodOutcome| outcome.method != Method::SingleNodeConsolidation;
        for outcome in proposal.outcomes.iter().filter(counted) {
            *eligible.entry(outcome.method.reason()).or_default() += outcome.candidates;
        }
        for (reason, nodes) in &eligible {
            metrics.eligible_nodes.with_label_values(&[reason.label()]).set(*nodes as i64);
        }
        for (method, took) in asked(proposal, took) {
            let series = [method.reason().label(), method.consolidation_type()];
            metrics.evaluation_duration.with_label_values(&series).observe(took.as_secs_f64());
        }
        for ((pool, reason), budget) in &proposal.budgets {
            let series = [&**pool, reason.label()];
            metrics.allowed_disruptions.with_label_values(&series).set(i64::from(budget.allowed));
            metrics.nodes_consuming_budgets.with_label_values(&series).set(i64::from(budget.disrupting));
        }
        let mut notices = budget_notices(self, proposal);
        notices.extend(self.unusable_notices(round));
        self.tell_rehearsals(round, proposal, &mut notices);
        let mut told = 0;
        for standing in &proposal.standings {
            if let Why::Unbalanced { score, .. } = standing.why
                && let Some(pool) =
                    round.fleet.machines.get(standing.machine).and_then(|one| one.pool.as_ref())
            {
                self.count_move(pool, ConsolidationPolicy::Balanced, "rejected");
                self.count_score(pool, score, "rejected");
            }
        }
        for standing in &proposal.standings {
            let about = standing_notices(&self.context, round, standing);
            if about.iter().any(|notice| context.recorder.is_due(notice)) {
                told += 1;
                notices.extend(about);
            }
            if told >= TOLD_NODES_MAX {
                break;
            }
        }
        self.publish(notices).await;
    }

    /// What annotations of pods on our nodes do, or that they do nothing.
    pub(in crate::disruption) async fn tell_annotations(
        &self,
        round: &AssembledFleet,
        annotated: &[Arc<Pod>],
    ) {
        let now = self.context.clock.now();
        let ours = our_nodes(round);
        let on_ours = annotated
            .iter()
            .filter(|pod| crate::pods::node_name(pod).is_some_and(|node| ours.contains(node)));
        let notices = on_ours.filter_map(|pod| annotation_event(pod, now));
        let notices = notices.map(|notice| notice.repeat_after(UNCONSOLIDATABLE_EVERY));
        let new = notices.filter(|notice| self.context.recorder.is_due(notice));
        self.publish(new.take(TOLD_NODES_MAX).collect()).await;
    }

    /// Pods on our nodes whose owners said what moving them costs, in vain. One line for all of them.
    pub(in crate::disruption) fn tell_costs(&self, round: &AssembledFleet, misvalued: &[Arc<Pod>]) {
        if misvalued.is_empty() {
            return;
        }
        let ours = our_nodes(round);
        let mut on_ours = misvalued
            .iter()
            .filter(|pod| crate::pods::node_name(pod).is_some_and(|node| ours.contains(node)));
        let Some(first) = on_ours.next() else { return };
        let Some((annotation, value)) = unreadable_cost(first, deletion_costs(&self.context)) else { return };
        let others = on_ours.count();
        if self.context.log_throttle.is_due("costs of pods", "", self.context.clock.now()) {
            tracing::warn!(
                pod = format!("{}/{}", first.namespace(), first.name),
                annotation,
                value,
                others,
                "the cost of moving a pod cannot be read and counts as 0; valid: a whole number of 32 bits"
            );
        }
    }

    /// Annotations and budgets that cannot be used are told on their pool, which is where they can be corrected.
    fn unusable_notices(&self, round: &AssembledFleet) -> Vec<ObjectEvent> {
        let pools = &self.context.stores.node_pools;
        let notice = |pool: &str, reason: &'static str, words: String| {
            let pool = pools.get("", pool)?;
            Some(ObjectEvent::warning(&*pool, reason, words).repeat_after(UNCONSOLIDATABLE_EVERY))
        };
        let controls = round.control_errors.iter();
        let controls =
            controls.map(|error: &ControlError| (&error.pool, error.event_reason(), error.to_string()));
        let budgets = round.budget_errors.iter();
        let budgets = budgets
            .map(|error: &PoolBudgetError| (&error.pool, "InvalidDisruptionBudget", error.to_string()));
        let notices: Vec<ObjectEvent> =
            controls.chain(budgets).filter_map(|(pool, reason, words)| notice(pool, reason, words)).collect();
        for notice in notices.iter().filter(|notice| self.context.recorder.is_due(notice)) {
            tracing::warn!("{}", notice.message);
        }
        notices
    }

    /// What would be done if pools were not on a dry run: told as often as what stands against a node.
    fn tell_rehearsals(&self, round: &AssembledFleet, proposal: &Proposal, notices: &mut Vec<ObjectEvent>) {
        let rehearsed = &self.context.metrics.disruption.rehearsed_nodes;
        rehearsed.reset();
        for rehearsal in &proposal.rehearsals {
            let reason = rehearsal.method.reason();
            for candidate in &rehearsal.candidates {
                rehearsed.with_label_values(&[&*candidate.pool, reason.label()]).inc();
            }
            let Some(order) = self.order(rehearsal, round) else { continue };
            let text = |target: &Target| {
                let what = order.describe_for("dry-run", target);
                format!("Would be disrupted, but its NodePool is on a dry run: {what}")
            };
            let about = self.about_targets(&order, "ConsolidationDryRun", text);
            let about: Vec<ObjectEvent> =
                about.into_iter().map(|notice| notice.repeat_after(UNCONSOLIDATABLE_EVERY)).collect();
            if about.iter().any(|notice| self.context.recorder.is_due(notice)) {
                self.record("would ", "dry-run", &order, round);
            }
            notices.extend(about);
        }
    }
}

fn our_nodes(round: &AssembledFleet) -> BTreeSet<&str> {
    round.fleet.machines.iter().filter_map(|machine| machine.node.as_deref()).collect()
}

/// The methods up to the first that found something: those after it only counted their candidates.
fn asked<'a>(proposal: &Proposal, took: &'a [(Method, Duration)]) -> &'a [(Method, Duration)] {
    let found = proposal.outcomes.iter().position(|outcome| outcome.commands > 0);
    found.and_then(|index| took.get(..=index)).unwrap_or(took)
}

/// Pools whose budgets let nothing through although there is something to disrupt.
fn budget_notices(disruption: &Disruption, proposal: &Proposal) -> Vec<ObjectEvent> {
    let wanted: BTreeSet<Reason> = proposal
        .outcomes
        .iter()
        .filter(|outcome| outcome.candidates > 0)
        .map(|outcome| outcome.method.reason())
        .collect();
    let blocking = proposal
        .budgets
        .iter()
        .filter(|((_, reason), budget)| wanted.contains(reason) && budget.is_blocking());
    blocking
        .filter_map(|((pool, reason), _)| {
            let pool = disruption.context.stores.node_pools.get("", pool)?;
            let reason = reason.as_str();
            let text =
                format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
            Some(ObjectEvent::normal(&*pool, "DisruptionBlocked", text).repeat_after(BUDGET_EVERY))
        })
        .collect()
}

/// A standing is told on the node and on the claim; that a whole pool is not repaired on the pool as well.
fn standing_notices(context: &Context, round: &AssembledFleet, standing: &Standing) -> Vec<ObjectEvent> {
    let Some(kind) = standing.event() else { return Vec::new() };
    let Some(host) = round.machines.get(standing.machine) else { return Vec::new() };
    let text = standing.why.to_string();
    let (reason, is_warning, every) = match kind {
        EventKind::DisruptionBlocked => ("DisruptionBlocked", false, crate::events::REPEAT_AFTER),
        EventKind::Unconsolidatable => ("Unconsolidatable", false, UNCONSOLIDATABLE_EVERY),
        EventKind::NodeRepairBlocked => ("NodeRepairBlocked", true, UNCONSOLIDATABLE_EVERY),
    };
    let claim = host.claim.as_deref().map(|claim| ObjectEvent::normal(claim, reason, text.clone()));
    let node = host.node.as_deref().map(|node| ObjectEvent::normal(node, reason, text.clone()));
    let pool = match &standing.why {
        Why::RepairHalted { pool } => context.stores.node_pools.get("", pool),
        _ => None,
    };
    let pool = pool.map(|pool| ObjectEvent::normal(&*pool, reason, text));
    let notices = node.into_iter().chain(claim).chain(pool);
    notices.map(|notice| ObjectEvent { is_warning, ..notice.repeat_after(every) }).collect()
}
