//! The command loop: executes the next step of every started command, and removes taints and conditions that belong to no
//! command.
//!
//! Upstream: pkg/controllers/disruption/queue.go.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::Repair;
use karpenter_disruption::command::Decision;
use karpenter_runtime::object::{is_deleting, name_of};
use karpenter_state::claim::{DISRUPTION_REASON, REBOOTING, condition, is_true};

use super::command_queue::ActiveCommand;
use super::command_state::{ClaimId, CommandState, CommandStep, next_step};
use super::observe::{self, observe_claim};
use super::resolved_command::{Candidate, ResolvedCommand};
use super::resume::{ResumableCommand, resumable};
use super::{Disruption, IDLE_POLL, RETRY_POLL};
use crate::planner_input;

impl Disruption {
    pub(super) async fn advance(&self) -> Duration {
        if !planner_input::disruption::is_synced(&self.reads) {
            return RETRY_POLL;
        }
        if !self.command_queue().is_resumed {
            self.resume();
        }
        let (command_queue, queued) = {
            let command_queue = self.command_queue();
            (command_queue.started(), command_queue.queued())
        };
        for active in &command_queue {
            self.step(active, queued).await;
        }
        let is_clean = self.remove_stray_taints().await;
        let is_idle = is_clean && self.command_queue().started().is_empty();
        if is_idle { IDLE_POLL } else { RETRY_POLL }
    }

    async fn step(&self, active: &ActiveCommand, queued: usize) {
        let now = self.reads.clock.now();
        let resolved = &active.resolved;
        let step =
            next_step(&active.state, &resolved.ids(), |id| observe_claim(&self.reads, id), queued, now);
        match step {
            // The evaluation loop validates commands and starts them, so the command loop does nothing here.
            CommandStep::Sleep { .. } | CommandStep::InProgress | CommandStep::Validate => {}
            CommandStep::AwaitReplacements { pending } => {
                self.report_waiting_readiness(resolved, &pending).await
            }
            CommandStep::Delete { left } => {
                if let CommandState::AwaitingReplacements { since, replacements } = &active.state {
                    self.report_launching(resolved, replacements).await;
                    let state = CommandState::Deleting { since: *since };
                    self.command_queue().update(active.number, resolved.clone(), state);
                }
                self.delete(resolved, &left).await;
            }
            CommandStep::RollBack { left, failure } => {
                self.command_queue().fail(active, now);
                self.roll_back(active, &left, &failure).await;
                self.command_queue().remove(active.number);
            }
            CommandStep::Finish => {
                tracing::debug!(command = active.id, "command succeeded");
                self.command_queue().remove(active.number);
            }
        }
    }

    /// Resumes the commands that an earlier process started.
    fn resume(&self) {
        self.load_move_history();
        let now = self.reads.clock.now();
        let claims = self.reads.stores.node_claims.list();
        let is_ours = |claim: &Arc<NodeClaim>| self.reads.is_managed(&claim.spec.node_class_ref);
        let claims: Vec<Arc<NodeClaim>> = claims.into_iter().filter(is_ours).collect();
        let is_marked = |claim: &NodeClaim| {
            is_true(claim, DISRUPTION_REASON)
                && self.reads.stores.nodes_of(claim).iter().any(|node| has_disrupted_taint(node))
        };
        for resumable in resumable(&claims, is_marked, now) {
            tracing::info!(command = resumable.id, "resumed disruption command");
            let names = resumable.candidates.iter().map(|id| id.name.as_str());
            self.reads.state.start_command(names, [], now);
            let resolved = Arc::new(self.resolved_from(&resumable));
            let ResumableCommand { id, since, replacements, .. } = resumable;
            self.command_queue().add_with_id(
                id,
                resolved,
                CommandState::AwaitingReplacements { since, replacements },
                None,
            );
        }
        self.command_queue().is_resumed = true;
    }

    fn resolved_from(&self, resumable: &ResumableCommand) -> ResolvedCommand {
        let candidate = |id: &ClaimId| {
            let claim = self.reads.stores.node_claims.get("", &id.name);
            let node = claim.as_ref().and_then(|claim| claim.status.as_ref()?.node_name.clone());
            let node = node.unwrap_or_default();
            let pool = claim.as_deref().map(observe::pool_label).unwrap_or_default().to_owned();
            Candidate {
                id: id.clone(),
                policy: resumable.policies.get(&pool).copied().unwrap_or_default(),
                pods: self.reads.stores.reschedulable_pods_on(&node),
                repair: resumable.condition.as_deref().map(repair_of),
                node,
                pool,
            }
        };
        ResolvedCommand {
            method: resumable.method,
            decision: Decision::Replace,
            candidates: resumable.candidates.iter().map(candidate).collect(),
            replacements: Vec::new(),
            moves: Vec::new(),
            price_before_per_hour: 0.0,
            price_after_per_hour: 0.0,
            termination_grace_period_secs: resumable.termination_grace_period_secs,
            terminate_first_reason: "",
        }
    }

    /// Removes taints and conditions that an earlier process or a failed start left on candidates. Returns `false` if
    /// some of them remain.
    async fn remove_stray_taints(&self) -> bool {
        let started = self.command_queue().started_candidates();
        let mut is_clean = true;
        for claim in self.reads.stores.node_claims.list() {
            let name = name_of(&*claim);
            let is_going = is_deleting(&*claim)
                || is_true(&claim, "InstanceTerminating")
                || is_true(&claim, REBOOTING)
                || self.reads.state.is_marked_for_deletion(name);
            if is_going || started.contains(name) || !self.reads.is_managed(&claim.spec.node_class_ref) {
                continue;
            }
            let nodes = self.reads.stores.nodes_of(&claim);
            if nodes.iter().any(|node| is_deleting(&**node)) {
                continue;
            }
            let is_marked = condition(&claim, DISRUPTION_REASON).is_some()
                || nodes.iter().any(|node| has_disrupted_taint(node));
            if is_marked && self.untaint_candidate(name).await.is_err() {
                is_clean = false;
            }
        }
        is_clean
    }
}

/// The repair of a resumed command. The annotation contains only the condition, so all other fields are placeholders.
fn repair_of(condition: &str) -> Repair {
    Repair {
        condition: condition.into(),
        is_reboot: false,
        termination_grace_period_secs: None,
        score: 0.0,
        is_vetoed: false,
    }
}

fn has_disrupted_taint(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == labels::TAINT_DISRUPTED)
}
