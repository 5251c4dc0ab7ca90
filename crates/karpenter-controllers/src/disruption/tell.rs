//! What is told about commands: events, metrics and the journal.

mod logged;
mod pass;

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_cluster::controllers::context::label;
use karpenter_disruption::balanced;
use karpenter_disruption::command::Command;
use karpenter_disruption::fleet::{ConsolidationPolicy, Reason};
use karpenter_disruption::validate::Rejection;
use karpenter_state::AssembledFleet;

use super::Disruption;
use super::flight::{ClaimId, Failure, Seen, Stage};
use super::flights::Flight;
use super::observe::see;
use super::order::{Order, Target};
use crate::decision_journal;
use crate::events::ObjectEvent;

const CONCURRENT_WRITES_MAX: usize = 16;

impl Disruption {
    async fn publish(&self, notices: Vec<ObjectEvent>) {
        stream::iter(notices)
            .for_each_concurrent(CONCURRENT_WRITES_MAX, |notice| self.context.recorder.publish(notice))
            .await;
    }

    pub(super) async fn tell_proposed(&self, flight: &Flight) {
        let order = &flight.order;
        if order.method.reason() != Reason::Underutilized {
            return;
        }
        let savings = order.saving_per_hour();
        let text = |target: &Target| {
            let what = order.describe_for(&flight.id, target);
            format!("Consolidation candidate: {what} (savings: ${savings:.2})")
        };
        self.publish(self.about_targets(order, "ConsolidationCandidate", text)).await;
    }

    /// How pools with policy Balanced judge a move that is about to be proposed.
    pub(super) async fn tell_scores(&self, command: &Command, order: &Order, round: &AssembledFleet) {
        if order.method.reason() != Reason::Underutilized {
            return;
        }
        let fleet = &round.fleet;
        for pool in order.pools() {
            let policy = fleet.pools.get(pool).map(|one| one.policy).unwrap_or_default();
            self.count_move(pool, policy, "approved");
        }
        let scores = balanced::scores(fleet, &balanced::totals(fleet), command);
        let mut notices = Vec::new();
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
            if order.targets.len() == 1 {
                notices.extend(self.about_targets(order, "ConsolidationApproved", |_| text.clone()));
            } else if let Some(pool) = self.context.stores.node_pools.get("", &pool) {
                notices.push(ObjectEvent::normal(&*pool, "ConsolidationApproved", text));
            }
        }
        self.publish(notices).await;
    }

    fn count_move(&self, pool: &str, policy: ConsolidationPolicy, decision: &str) {
        let moves = &self.context.metrics.disruption.moves;
        moves.with_label_values(&[decision, pool, &format!("{policy:?}")]).inc();
    }

    /// Only pools with policy Balanced have scores.
    fn count_score(&self, pool: &str, score: f64, decision: &str) {
        let scores = &self.context.metrics.disruption.score;
        scores.with_label_values(&[decision, pool, "Balanced"]).observe(score);
    }

    pub(super) async fn tell_rejected(&self, flight: &Flight, rejection: &Rejection) {
        let order = &flight.order;
        tracing::debug!(command = flight.id, %rejection, "abandoning disruption attempt due to validation");
        self.count_refused(order, order.targets.len());
        let savings = order.saving_per_hour();
        let text = |target: &Target| {
            let what = order.describe_for(&flight.id, target);
            format!("Consolidation rejected: {what}, reason: {} (savings: ${savings:.2})", rejection.reason())
        };
        self.publish(self.about_targets(order, "ConsolidationRejected", text)).await;
        self.record_kept("for now", &flight.id, order, format!("second look: {rejection}"));
    }

    /// Empty nodes that a second look takes out of a command, which begins without them. Those that stand by wait on.
    pub(super) fn count_left_out(&self, flight: &Flight, order: &Order) {
        if flight.standby_until().is_none() {
            self.count_refused(order, flight.order.targets.len().saturating_sub(order.targets.len()));
        }
    }

    fn count_refused(&self, order: &Order, nodes: usize) {
        let failed = &self.context.metrics.disruption.failed_validations;
        failed.with_label_values(&[order.method.consolidation_type()]).inc_by(nodes as u64);
    }

    /// A line of the journal about nodes that were to go and do not.
    fn record_kept(&self, mood: &str, id: &str, order: &Order, why: String) {
        let nodes: Vec<&str> = order.targets.iter().map(|target| target.id.name.as_str()).collect();
        self.context.journal.record(decision_journal::DecisionRecord {
            at: self.context.clock.now(),
            by: "disruption",
            what: format!("keep {} nodes {mood}: {}", nodes.len(), nodes.join(", ")),
            why: vec![why, format!("command {id}")],
            revision: crate::provisioning::revision(&self.context.stores),
            cost_before_per_hour: None,
            cost_after_per_hour: None,
        });
    }

    pub(super) fn tell_started(&self, id: &str, order: &Order, round: &AssembledFleet) {
        let metrics = &self.context.metrics.disruption;
        let (decision, reason) = (order.decision.label(), order.method.reason().label());
        let kind = order.method.consolidation_type();
        metrics.decisions.with_label_values(&[decision, reason, kind]).inc();
        for pool in order.pools() {
            metrics.decisions_by_pool.with_label_values(&[pool, decision, reason, kind]).inc();
            if !order.terminate_first_reason.is_empty() {
                let series = [pool, reason, order.terminate_first_reason];
                metrics.terminate_first_decisions.with_label_values(&series).inc();
            }
        }
        self.record("", id, order, round);
    }

    /// A line of the journal about a command.
    fn record(&self, mood: &str, id: &str, order: &Order, round: &AssembledFleet) {
        let price_now: f64 = round.fleet.machines.iter().map(|machine| machine.price_per_hour).sum();
        let nodes: Vec<&str> = order.targets.iter().map(|target| target.id.name.as_str()).collect();
        let launches = match order.launches.len() {
            0 => String::new(),
            count => format!(", launch {count} in their place"),
        };
        let pods: usize = order.targets.iter().map(|target| target.pods).sum();
        self.context.journal.record(decision_journal::DecisionRecord {
            at: self.context.clock.now(),
            by: "disruption",
            what: format!(
                "{mood}{} {} nodes: {}{launches}",
                order.decision.label(),
                nodes.len(),
                nodes.join(", ")
            ),
            why: vec![
                format!("reason {}", order.method.reason().as_str()),
                format!("saves {:.4} $ per hour", order.saving_per_hour()),
                format!("moves {pods} pods, {} of them with a place", order.moves.len()),
                format!("command {id}"),
            ],
            revision: round.fleet.revision,
            cost_before_per_hour: Some(price_now),
            cost_after_per_hour: Some(price_now - order.saving_per_hour()),
        });
    }

    /// Tells of the replacements, and of those that are waited for.
    pub(super) async fn tell_waiting(&self, order: &Order, pending: &[ClaimId]) {
        let mut notices = self.launching(order, pending);
        notices.extend(self.claims(pending).map(|claim| {
            let text = "Waiting on readiness to continue disruption";
            ObjectEvent::normal(&*claim, "DisruptionWaitingReadiness", text)
        }));
        self.publish(notices).await;
    }

    pub(super) async fn tell_launched(&self, order: &Order, replacements: &[ClaimId]) {
        self.publish(self.launching(order, replacements)).await;
    }

    fn launching(&self, order: &Order, replacements: &[ClaimId]) -> Vec<ObjectEvent> {
        let text = format!("Launching NodeClaim: {}", order.method.reason().as_str());
        self.claims(replacements)
            .map(|claim| ObjectEvent::normal(&*claim, "DisruptionLaunching", text.clone()))
            .collect()
    }

    fn claims(&self, ids: &[ClaimId]) -> impl Iterator<Item = Arc<NodeClaim>> {
        ids.iter().filter_map(|id| self.context.stores.node_claims.get("", &id.name))
    }

    pub(super) async fn tell_terminating(&self, order: &Order, target: &Target, claim: &NodeClaim) {
        let reason = order.method.reason().as_str();
        let mut notices = vec![ObjectEvent::normal(
            claim,
            "DisruptionTerminating",
            format!("Disrupting NodeClaim: {reason}"),
        )];
        if let Some(node) = self.context.stores.nodes.get("", &target.node) {
            let text = format!("Disrupting Node: {reason}");
            notices.push(ObjectEvent::normal(&*node, "DisruptionTerminating", text));
        }
        self.publish(notices).await;
    }

    pub(super) fn count_disrupted(&self, order: &Order, target: &Target, claim: &NodeClaim) {
        let metrics = &self.context.metrics;
        let reason = order.method.reason();
        let capacity_type = label(claim, labels::CAPACITY_TYPE).unwrap_or_default();
        let policy = match order.method.consolidation_type() {
            "" => "",
            _ => policy_label(target.policy),
        };
        let own = claim.spec.termination_grace_period.map(|period| period.nanos);
        let mode = termination_mode(own);
        let series = [reason.label(), target.pool.as_str(), capacity_type, policy, mode];
        metrics.nodeclaims_disrupted.with_label_values(&series).inc();
        metrics.disruption.pods_initiated.with_label_values(&series).inc_by(target.pods as u64);
        if let Some(repair) = &target.repair
            && reason == Reason::Unhealthy
        {
            let condition = snake_case(repair.condition.split('/').next().unwrap_or_default());
            let image =
                claim.status.as_ref().and_then(|status| status.image_id.as_deref()).unwrap_or_default();
            let mode = termination_mode(order.termination_grace_period_secs.or(own));
            let series = [condition.as_str(), target.pool.as_str(), capacity_type, image, mode];
            metrics.nodeclaims_unhealthy_disrupted.with_label_values(&series).inc();
        }
    }

    pub(super) fn tell_failed(&self, flight: &Flight, failure: &Failure) {
        let order = &flight.order;
        let replacements = match &flight.stage {
            Stage::Waiting { replacements, .. } => replacements.as_slice(),
            _ => &[],
        };
        let is_lost = |id: &&ClaimId| see(&self.context, id) != Seen::Ready;
        let lost = replacements.iter().filter(is_lost).count();
        let series =
            [order.decision.label(), order.method.reason().label(), order.method.consolidation_type()];
        self.context.metrics.disruption.queue_failures.with_label_values(&series).inc_by(lost as u64);
        tracing::error!(
            command = flight.id,
            error = %failure,
            "failed terminating nodes while executing a disruption command"
        );
        self.record_kept("after all", &flight.id, order, failure.to_string());
    }

    /// The same words on every target's node and claim.
    fn about_targets(
        &self,
        order: &Order,
        reason: &'static str,
        text: impl Fn(&Target) -> String,
    ) -> Vec<ObjectEvent> {
        let stores = &self.context.stores;
        let mut notices = Vec::new();
        for target in &order.targets {
            let text = text(target);
            let claim = stores.node_claims.get("", &target.id.name);
            notices.extend(claim.map(|claim| ObjectEvent::normal(&*claim, reason, text.clone())));
            let node = stores.nodes.get("", &target.node);
            notices.extend(node.map(|node| ObjectEvent::normal(&*node, reason, text)));
        }
        notices
    }
}

fn policy_label(policy: ConsolidationPolicy) -> &'static str {
    match policy {
        ConsolidationPolicy::WhenEmpty => "when_empty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        ConsolidationPolicy::Balanced => "balanced",
    }
}

/// By the bound of the drain, in whatever unit.
fn termination_mode(bound: Option<i64>) -> &'static str {
    match bound {
        None => "graceful",
        Some(bound) if bound > 0 => "eventual",
        Some(_) => "forceful",
    }
}

/// As upstream spells types of conditions in metrics: `KWOKUnhealthy` is `kwok_unhealthy`.
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
    fn words_of_conditions_are_separated() {
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
