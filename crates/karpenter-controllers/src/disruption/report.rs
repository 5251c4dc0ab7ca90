//! Reports commands of disruption as events, metrics, log lines and entries of the decision journal.

mod evaluation;
mod start_log;

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::balanced;
use karpenter_disruption::cluster::{ConsolidationPolicy, Reason};
use karpenter_disruption::command::Command;
use karpenter_disruption::validate::Rejection;
use karpenter_runtime::object::label;
use karpenter_state::AssembledCluster;

use super::Disruption;
use super::command_queue::ActiveCommand;
use super::command_state::{ClaimId, ClaimObservation, CommandState, RollbackCause};
use super::observe::observe_claim;
use super::resolved_command::{Candidate, ResolvedCommand};
use crate::decision_journal;
use crate::events::ObjectEvent;

const CONCURRENT_WRITES_MAX: usize = 16;

impl Disruption {
    async fn publish(&self, events: Vec<ObjectEvent>) {
        stream::iter(events)
            .for_each_concurrent(CONCURRENT_WRITES_MAX, |event| self.writes.recorder.publish(event))
            .await;
    }

    pub(super) async fn report_candidates(&self, active: &ActiveCommand) {
        let resolved = &active.resolved;
        if resolved.method.reason() != Reason::Underutilized {
            return;
        }
        let savings = resolved.saving_per_hour();
        let text = |candidate: &Candidate| {
            let what = resolved.describe_for(&active.id, candidate);
            format!("Consolidation candidate: {what} (savings: ${savings:.2})")
        };
        self.publish(self.candidate_events(resolved, "ConsolidationCandidate", text)).await;
    }

    /// Reports the scores of a new command by which NodePools with policy Balanced accept or reject it.
    pub(super) async fn report_scores(
        &self,
        command: &Command,
        resolved: &ResolvedCommand,
        assembled: &AssembledCluster,
    ) {
        if resolved.method.reason() != Reason::Underutilized {
            return;
        }
        let cluster = &assembled.cluster;
        for pool in resolved.pools() {
            let policy = cluster.pools.get(pool).map(|one| one.policy).unwrap_or_default();
            self.count_move(pool, policy, "approved");
        }
        let scores = balanced::scores(cluster, &balanced::totals(cluster), command);
        let mut events = Vec::new();
        for (pool, score) in scores {
            self.count_score(&pool, score.value(), "approved");
            let text = format!(
                "score {:.2} >= threshold {:.2} (k: {}, savings {:.1}%, disruption {:.1}%)",
                score.value(),
                score.threshold(),
                score.k,
                score.savings_share * 100.0,
                score.disruption_share * 100.0,
            );
            if resolved.candidates.len() == 1 {
                events.extend(self.candidate_events(resolved, "ConsolidationApproved", |_| text.clone()));
            } else if let Some(pool) = self.reads.stores.node_pools.get("", &pool) {
                events.push(ObjectEvent::normal(&*pool, "ConsolidationApproved", text));
            }
        }
        self.publish(events).await;
    }

    fn count_move(&self, pool: &str, policy: ConsolidationPolicy, decision: &str) {
        let moves = &self.writes.metrics.disruption.moves;
        moves.with_label_values(&[decision, pool, &format!("{policy:?}")]).inc();
    }

    /// Only NodePools with policy Balanced have scores.
    fn count_score(&self, pool: &str, score: f64, decision: &str) {
        let scores = &self.writes.metrics.disruption.score;
        scores.with_label_values(&[decision, pool, "Balanced"]).observe(score);
    }

    pub(super) async fn report_rejected(&self, active: &ActiveCommand, rejection: &Rejection) {
        let resolved = &active.resolved;
        tracing::debug!(command = active.id, %rejection, "abandoning disruption attempt due to validation");
        self.count_refused(resolved, resolved.candidates.len());
        let savings = resolved.saving_per_hour();
        let text = |candidate: &Candidate| {
            let what = resolved.describe_for(&active.id, candidate);
            format!("Consolidation rejected: {what}, reason: {} (savings: ${savings:.2})", rejection.reason())
        };
        self.publish(self.candidate_events(resolved, "ConsolidationRejected", text)).await;
        self.record_not_disrupted("do not disrupt", &active.id, resolved, format!("validation: {rejection}"));
    }

    /// Counts the nodes that validation removed from a command of Emptiness as failed validations. Nodes of a command
    /// that awaits a budget are not counted, because the rest of the command continues to await it.
    pub(super) fn count_left_out(&self, active: &ActiveCommand, resolved: &ResolvedCommand) {
        if active.budget_deadline().is_none() {
            self.count_refused(
                resolved,
                active.resolved.candidates.len().saturating_sub(resolved.candidates.len()),
            );
        }
    }

    fn count_refused(&self, resolved: &ResolvedCommand, nodes: usize) {
        let failed = &self.writes.metrics.disruption.failed_validations;
        failed.with_label_values(&[resolved.method.consolidation_type()]).inc_by(nodes as u64);
    }

    /// Records in the journal that a command was dropped or rolled back.
    fn record_not_disrupted(&self, mood: &str, id: &str, resolved: &ResolvedCommand, why: String) {
        let nodes: Vec<&str> =
            resolved.candidates.iter().map(|candidate| candidate.id.name.as_str()).collect();
        self.journal.record(decision_journal::DecisionRecord {
            at: self.reads.clock.now(),
            by: "disruption",
            what: format!("{mood} {} nodes: {}", nodes.len(), nodes.join(", ")),
            why: vec![why, format!("command {id}")],
            revision: self.reads.stores.revision(),
            cost_before_per_hour: None,
            cost_after_per_hour: None,
        });
    }

    pub(super) fn report_command_started(
        &self,
        id: &str,
        resolved: &ResolvedCommand,
        assembled: &AssembledCluster,
    ) {
        let metrics = &self.writes.metrics.disruption;
        let (decision, reason) = (resolved.decision.label(), resolved.method.reason().label());
        let kind = resolved.method.consolidation_type();
        metrics.decisions.with_label_values(&[decision, reason, kind]).inc();
        for pool in resolved.pools() {
            metrics.decisions_by_pool.with_label_values(&[pool, decision, reason, kind]).inc();
            if !resolved.terminate_first_reason.is_empty() {
                let series = [pool, reason, resolved.terminate_first_reason];
                metrics.terminate_first_decisions.with_label_values(&series).inc();
            }
        }
        self.record("", id, resolved, assembled);
    }

    /// Records a command in the journal.
    fn record(&self, mood: &str, id: &str, resolved: &ResolvedCommand, assembled: &AssembledCluster) {
        let price_now: f64 =
            assembled.cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum();
        let nodes: Vec<&str> =
            resolved.candidates.iter().map(|candidate| candidate.id.name.as_str()).collect();
        let launches = match resolved.replacements.len() {
            0 => String::new(),
            count => format!(", launch {count} replacements"),
        };
        let pods: usize = resolved.candidates.iter().map(|candidate| candidate.pods).sum();
        self.journal.record(decision_journal::DecisionRecord {
            at: self.reads.clock.now(),
            by: "disruption",
            what: format!(
                "{mood}{} {} nodes: {}{launches}",
                resolved.decision.label(),
                nodes.len(),
                nodes.join(", ")
            ),
            why: vec![
                format!("reason {}", resolved.method.reason().as_str()),
                format!("saves {:.4} $ per hour", resolved.saving_per_hour()),
                format!("reschedules {pods} pods, {} of them with a planned node", resolved.moves.len()),
                format!("command {id}"),
            ],
            revision: assembled.cluster.revision,
            cost_before_per_hour: Some(price_now),
            cost_after_per_hour: Some(price_now - resolved.saving_per_hour()),
        });
    }

    /// Publishes events about replacements that are launched, but not ready.
    pub(super) async fn report_waiting_readiness(&self, resolved: &ResolvedCommand, pending: &[ClaimId]) {
        let mut events = self.launching(resolved, pending);
        events.extend(self.claims(pending).map(|claim| {
            let text = "Waiting on readiness to continue disruption";
            ObjectEvent::normal(&*claim, "DisruptionWaitingReadiness", text)
        }));
        self.publish(events).await;
    }

    pub(super) async fn report_launching(&self, resolved: &ResolvedCommand, replacements: &[ClaimId]) {
        self.publish(self.launching(resolved, replacements)).await;
    }

    fn launching(&self, resolved: &ResolvedCommand, replacements: &[ClaimId]) -> Vec<ObjectEvent> {
        let text = format!("Launching NodeClaim: {}", resolved.method.reason().as_str());
        self.claims(replacements)
            .map(|claim| ObjectEvent::normal(&*claim, "DisruptionLaunching", text.clone()))
            .collect()
    }

    fn claims(&self, ids: &[ClaimId]) -> impl Iterator<Item = Arc<NodeClaim>> {
        ids.iter().filter_map(|id| self.reads.stores.node_claims.get("", &id.name))
    }

    pub(super) async fn report_terminating(
        &self,
        resolved: &ResolvedCommand,
        candidate: &Candidate,
        claim: &NodeClaim,
    ) {
        let reason = resolved.method.reason().as_str();
        let mut events = vec![ObjectEvent::normal(
            claim,
            "DisruptionTerminating",
            format!("Disrupting NodeClaim: {reason}"),
        )];
        if let Some(node) = self.reads.stores.nodes.get("", &candidate.node) {
            let text = format!("Disrupting Node: {reason}");
            events.push(ObjectEvent::normal(&*node, "DisruptionTerminating", text));
        }
        self.publish(events).await;
    }

    pub(super) fn count_disrupted(
        &self,
        resolved: &ResolvedCommand,
        candidate: &Candidate,
        claim: &NodeClaim,
    ) {
        let metrics = &self.writes.metrics;
        let reason = resolved.method.reason();
        let capacity_type = label(claim, labels::CAPACITY_TYPE).unwrap_or_default();
        let policy = match resolved.method.consolidation_type() {
            "" => "",
            _ => policy_label(candidate.policy),
        };
        let own = claim.spec.termination_grace_period.map(|period| period.nanos);
        let mode = termination_mode(own);
        let series = [reason.label(), candidate.pool.as_str(), capacity_type, policy, mode];
        metrics.nodeclaims_disrupted.with_label_values(&series).inc();
        metrics.disruption.pods_initiated.with_label_values(&series).inc_by(candidate.pods as u64);
        if let Some(repair) = &candidate.repair
            && reason == Reason::Unhealthy
        {
            let condition = snake_case(repair.condition.split('/').next().unwrap_or_default());
            let image =
                claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default();
            let mode = termination_mode(resolved.termination_grace_period_secs.or(own));
            let series = [condition.as_str(), candidate.pool.as_str(), capacity_type, image, mode];
            metrics.nodeclaims_unhealthy_disrupted.with_label_values(&series).inc();
        }
    }

    pub(super) fn report_rolled_back(&self, active: &ActiveCommand, failure: &RollbackCause) {
        let resolved = &active.resolved;
        let replacements = match &active.state {
            CommandState::AwaitingReplacements { replacements, .. } => replacements.as_slice(),
            _ => &[],
        };
        let is_lost = |id: &&ClaimId| observe_claim(&self.reads, id) != ClaimObservation::Ready;
        let lost = replacements.iter().filter(is_lost).count();
        let series = [
            resolved.decision.label(),
            resolved.method.reason().label(),
            resolved.method.consolidation_type(),
        ];
        self.writes.metrics.disruption.queue_failures.with_label_values(&series).inc_by(lost as u64);
        tracing::error!(
            command = active.id,
            error = %failure,
            "failed terminating nodes while executing a disruption command"
        );
        self.record_not_disrupted("roll back disruption of", &active.id, resolved, failure.to_string());
    }

    /// Creates the same event for the Node and for the NodeClaim of each candidate.
    fn candidate_events(
        &self,
        resolved: &ResolvedCommand,
        reason: &'static str,
        text: impl Fn(&Candidate) -> String,
    ) -> Vec<ObjectEvent> {
        let stores = &self.reads.stores;
        let mut events = Vec::new();
        for candidate in &resolved.candidates {
            let text = text(candidate);
            let claim = stores.node_claims.get("", &candidate.id.name);
            events.extend(claim.map(|claim| ObjectEvent::normal(&*claim, reason, text.clone())));
            let node = stores.nodes.get("", &candidate.node);
            events.extend(node.map(|node| ObjectEvent::normal(&*node, reason, text)));
        }
        events
    }
}

fn policy_label(policy: ConsolidationPolicy) -> &'static str {
    match policy {
        ConsolidationPolicy::WhenEmpty => "when_empty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        ConsolidationPolicy::Balanced => "balanced",
    }
}

/// The termination mode in metrics, by the sign of the termination grace period; its unit does not matter.
fn termination_mode(bound: Option<i64>) -> &'static str {
    match bound {
        None => "graceful",
        Some(bound) if bound > 0 => "eventual",
        Some(_) => "forceful",
    }
}

/// Condition types as upstream spells them in metrics: `KWOKUnhealthy` becomes `kwok_unhealthy`.
fn snake_case(text: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    let mut result = String::new();
    for (at, character) in all.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| all.get(at));
        let begins_word = before.is_some_and(|one| one.is_ascii_lowercase() || one.is_ascii_digit())
            || (before.is_some() && all.get(at + 1).is_some_and(char::is_ascii_lowercase));
        if character.is_ascii_uppercase() && begins_word && before != Some(&'_') {
            result.push('_');
        }
        result.push(character.to_ascii_lowercase());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_types_become_snake_case() {
        let cases = [
            ("Ready", "ready"),
            ("KWOKUnhealthy", "kwok_unhealthy"),
            ("NetworkUnavailable", "network_unavailable"),
            ("PIDPressure", "pid_pressure"),
        ];
        for (text, expected) in cases {
            assert_eq!(snake_case(text), expected);
        }
    }
}
