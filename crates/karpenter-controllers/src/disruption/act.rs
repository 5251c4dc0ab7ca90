//! The writes of the loop: marks on nodes and claims, deletions, and what is told about them.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::conditions::{ConditionSet, NODE_CLAIM_CONDITIONS};
use karpenter_api::labels;
use karpenter_api::types::{ConsolidationPolicy, NodeClaim};
use karpenter_cluster::controllers::context::{label, uid_of};
use serde_json::json;

use super::candidate::Candidate;
use super::command::{Command, DISRUPTION_REASON, Decision, Finding, Method, Stage};
use super::snapshot::Snapshot;
use super::{Disruption, RETRY_POLL};
use crate::events::Notice;
use crate::journal;
use crate::mirrors::BY_PROVIDER_ID;
use crate::writes;

/// How many nodes are written at once.
const AT_ONCE: usize = 16;
const BUDGET_NOTICE_EVERY: Duration = Duration::from_secs(60);
const NEVER_NOTICE_EVERY: Duration = Duration::from_secs(15 * 60);

impl Disruption {
    /// Carries a decision out. Failures are not the end of it: what is left undone is found by the next look.
    pub(super) async fn act(&self, snapshot: &Snapshot, decision: Decision, now: Timestamp) -> Duration {
        let mut wait = decision.wait;
        for claim in &decision.restore {
            if self.open_again(claim).await.is_err() {
                wait = wait.min(RETRY_POLL);
            }
        }
        for command in &decision.roll_back {
            for candidate in &command.candidates {
                self.context.state.unmark_leaving(&candidate.claim);
                if self.open_again(&candidate.claim).await.is_err() {
                    wait = wait.min(RETRY_POLL);
                }
            }
        }
        let mut commands = decision.keep;
        for command in decision.start {
            commands.extend(self.start(command, now).await);
        }
        for command in decision.retry {
            self.delete(&command).await;
            commands.push(command);
        }
        if commands.iter().any(|command| matches!(command.stage, Stage::Deleting { .. })) {
            wait = wait.min(RETRY_POLL);
        }
        *self.commands() = commands;
        stream::iter(decision.findings.iter().flat_map(|finding| notices(snapshot, finding)))
            .for_each_concurrent(AT_ONCE, |notice| self.context.recorder.publish(notice))
            .await;
        wait
    }

    /// Marks the candidates, then deletes the claims of those that could be marked.
    async fn start(&self, command: Command, now: Timestamp) -> Option<Command> {
        let method = command.method;
        let marked: Vec<Candidate> = stream::iter(command.candidates.clone())
            .map(|candidate| self.marked(candidate, method))
            .buffered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        if marked.is_empty() {
            return None;
        }
        for candidate in &marked {
            self.context.state.mark_leaving(&candidate.claim);
        }
        let command = Command { candidates: marked, ..command };
        self.record(&command, now);
        self.delete(&command).await;
        Some(command)
    }

    async fn marked(&self, candidate: Candidate, method: Method) -> Option<Candidate> {
        // A candidate that cannot be marked now will be found again.
        let is_marked = self.mark(&candidate, method).await.unwrap_or(false);
        is_marked.then_some(candidate)
    }

    /// Closes the node and says why. False if there is nothing to mark any more.
    async fn mark(&self, candidate: &Candidate, method: Method) -> kube::Result<bool> {
        let Some((claim, node)) = self.find(candidate) else { return Ok(false) };
        let context = &self.context;
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        if !taints.iter().any(|taint| taint.key == labels::TAINT_DISRUPTED && taint.effect == "NoSchedule") {
            let others = taints.into_iter().filter(|taint| taint.key != labels::TAINT_DISRUPTED);
            let disrupted = Taint {
                key: labels::TAINT_DISRUPTED.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            let patch = json!({"spec": {"taints": others.chain([disrupted]).collect::<Vec<_>>()}});
            writes::merge_unchanged(&context.client, &context.mirrors.nodes, &*node, patch).await?;
        }
        let old = claim.status.clone().unwrap_or_default();
        let mut new = old.clone();
        let reason = method.reason_text();
        let now = context.clock.now();
        ConditionSet::open(NODE_CLAIM_CONDITIONS, &claim.metadata, &mut new.conditions, now)
            .set_true_with_reason(DISRUPTION_REASON, reason, reason);
        let claims = &context.mirrors.node_claims;
        writes::status_unchanged(&context.client, claims, &*claim, &old, &new).await?;
        Ok(true)
    }

    async fn delete(&self, command: &Command) {
        stream::iter(&command.candidates)
            .for_each_concurrent(AT_ONCE, |candidate| self.delete_one(candidate, command))
            .await;
    }

    async fn delete_one(&self, candidate: &Candidate, command: &Command) {
        let context = &self.context;
        let Some((claim, node)) = self.find(candidate) else { return };
        if writes::delete(&context.client, &context.mirrors.node_claims, &*claim).await.is_err() {
            return;
        }
        let reason = command.method.reason_text();
        let told = [
            Notice::normal(&*node, "DisruptionTerminating", format!("Disrupting Node: {reason}")),
            Notice::normal(&*claim, "DisruptionTerminating", format!("Disrupting NodeClaim: {reason}")),
        ];
        for notice in told {
            context.recorder.publish(notice).await;
        }
        let capacity_type = label(&*claim, labels::CAPACITY_TYPE).unwrap_or_default();
        let policy = policy_label(&candidate.policy);
        let mode = termination_mode(&claim);
        let series = [command.method.reason_label(), &candidate.pool, capacity_type, policy, mode];
        context.metrics.nodeclaims_disrupted.with_label_values(&series).inc();
    }

    /// Takes off what a command put on.
    async fn open_again(&self, claim: &str) -> kube::Result<()> {
        let context = &self.context;
        let Some(claim) = context.mirrors.node_claims.get("", claim) else { return Ok(()) };
        let id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref()).unwrap_or_default();
        for node in context.mirrors.nodes.by(BY_PROVIDER_ID, id) {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            let left: Vec<&Taint> =
                taints.iter().filter(|taint| taint.key != labels::TAINT_DISRUPTED).collect();
            if left.len() < taints.len() {
                let patch = json!({"spec": {"taints": left}});
                writes::merge_unchanged(&context.client, &context.mirrors.nodes, &*node, patch).await?;
            }
        }
        let old = claim.status.clone().unwrap_or_default();
        let mut new = old.clone();
        let now = context.clock.now();
        let mut set = ConditionSet::open(NODE_CLAIM_CONDITIONS, &claim.metadata, &mut new.conditions, now);
        // Nothing depends on this condition, so it can be cleared.
        if set.clear(DISRUPTION_REASON).unwrap_or(false) {
            let claims = &context.mirrors.node_claims;
            writes::status_unchanged(&context.client, claims, &*claim, &old, &new).await?;
        }
        Ok(())
    }

    /// The candidate's objects as they are now, if they still are and are not on their way out.
    fn find(&self, candidate: &Candidate) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
        let mirrors = &self.context.mirrors;
        let claim = mirrors.node_claims.get("", &candidate.claim)?;
        let is_meant = uid_of(&*claim) == candidate.uid && claim.metadata.deletion_timestamp.is_none();
        let node = mirrors.nodes.get("", &candidate.node)?;
        is_meant.then_some((claim, node))
    }

    fn record(&self, command: &Command, now: Timestamp) {
        let names: Vec<&str> = command.candidates.iter().map(|candidate| candidate.claim.as_str()).collect();
        let saved: f64 = command.candidates.iter().map(|candidate| candidate.price_per_hour).sum();
        let claims = self.context.mirrors.node_claims.list();
        let versions = claims.iter().filter_map(|claim| claim.metadata.resource_version.as_deref());
        self.context.journal.record(journal::Decision {
            at: now,
            by: "disruption",
            what: format!("delete {} nodes: {}", names.len(), names.join(", ")),
            why: vec![
                format!("reason {}", command.method.reason_text()),
                format!("saves {saved:.4} $ per hour"),
            ],
            revision: versions.filter_map(|version| version.parse().ok()).max().unwrap_or(0),
            cost_before_per_hour: None,
            cost_after_per_hour: None,
        });
    }
}

fn policy_label(policy: &ConsolidationPolicy) -> &'static str {
    match policy {
        ConsolidationPolicy::WhenEmpty => "when_empty",
        ConsolidationPolicy::WhenEmptyOrUnderutilized => "when_empty_or_underutilized",
        ConsolidationPolicy::Balanced => "balanced",
        ConsolidationPolicy::Other(_) => "",
    }
}

fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim.spec.termination_grace_period {
        None => "graceful",
        Some(period) if period.nanos > 0 => "eventual",
        Some(_) => "forceful",
    }
}

/// A finding about a machine is told on its node and on its claim.
fn notices(snapshot: &Snapshot, finding: &Finding) -> Vec<Notice> {
    let on_machine = |claim: &str, reason: &'static str, message: &str| {
        let machine = snapshot.machines.iter().find(|machine| machine.name() == claim);
        let Some(machine) = machine else { return Vec::new() };
        let mut notices = vec![Notice::normal(&*machine.claim, reason, message)];
        notices.extend(machine.node.as_deref().map(|node| Notice::normal(node, reason, message)));
        notices
    };
    match finding {
        Finding::Blocked { claim, blocked } if blocked.is_told() => {
            on_machine(claim, "DisruptionBlocked", &blocked.to_string())
        }
        Finding::Blocked { .. } => Vec::new(),
        Finding::NeverConsolidated { claim } => {
            let machine = snapshot.machines.iter().find(|machine| machine.name() == *claim);
            let pool = machine.and_then(|machine| machine.pool()).unwrap_or_default();
            let message = format!("NodePool {pool:?} has consolidation disabled");
            let told = on_machine(claim, "Unconsolidatable", &message);
            told.into_iter().map(|notice| notice.repeat_after(NEVER_NOTICE_EVERY)).collect()
        }
        Finding::BudgetExhausted { pool, reason } => {
            let Some(pool) = snapshot.pools.get(pool) else { return Vec::new() };
            let message =
                format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
            let notice = Notice::normal(&*pool.pool, "DisruptionBlocked", message);
            vec![notice.repeat_after(BUDGET_NOTICE_EVERY)]
        }
    }
}
