//! Executes the steps of commands: taints and conditions, replacements, deletions, and rollback.
//!
//! All writes are idempotent. If a write fails, the next step of the command repeats it; a taint that could not be
//! removed is removed together with other taints that belong to no command.
//!
//! Upstream: pkg/controllers/disruption/queue.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use karpenter_api::labels;
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_disruption::cluster::Reason;
use karpenter_disruption::command::{Decision, Method};
use karpenter_disruption::settings::Mode;
use karpenter_runtime::clock::after;
use karpenter_runtime::object::{annotation, is_conflict, name_of, uid_of};
use karpenter_runtime::watch::skip_managed_fields::WithoutManagedFields;
use karpenter_state::AssembledCluster;
use karpenter_state::claim::{DISRUPTION_REASON, change_conditions, condition, provider_id};
use kube::api::Api;
use serde_json::json;

use super::Disruption;
use super::command_queue::ActiveCommand;
use super::command_state::{ClaimId, CommandState, RollbackCause};
use super::resolved_command::{Candidate, MoveTarget, ResolvedCommand};
use crate::annotations::{
    ANNOTATION_REPLACES, ReplacementAnnotation, is_replacement, method_name, policy_name,
};
use crate::claims::node_limits::reserve_nodes;
use crate::claims::reboot_request;
use crate::stores::BY_PROVIDER_ID;
use crate::{claims, writes};

/// How many objects are written at once.
const CONCURRENT_WRITES_MAX: usize = 16;
/// The maximum number of attempts to taint a node that other clients change at the same time.
const MARK_ATTEMPTS_MAX: u32 = 4;

impl Disruption {
    /// Starts a command: taints its candidates, creates its replacements, and records both in the cluster state.
    /// Returns `false` if the command could not start; taints that it already set are removed later.
    pub(super) async fn start(&self, active: ActiveCommand, assembled: &AssembledCluster) -> bool {
        let ActiveCommand { number, id, resolved, .. } = active;
        self.log_start(&id, &resolved);
        if resolved.decision == Decision::Reboot {
            let has_begun = self.reboot(&resolved).await;
            if has_begun {
                self.report_command_started(&id, &resolved, assembled);
            }
            self.command_queue().remove(number);
            return has_begun;
        }
        let counted_at = self.reads.clock.now();
        let prepared = match self.count_moves(&resolved, counted_at).await {
            Ok(()) => {
                self.prepare(&id, &resolved).await.inspect_err(|_| self.uncount_moves(&resolved, counted_at))
            }
            Err(why) => Err(why),
        };
        match prepared {
            Ok((resolved, replacements)) => {
                let resolved = Arc::new(resolved);
                let now = self.start_command(&resolved, &replacements);
                self.annotate_move_targets(&resolved, now).await;
                self.report_command_started(&id, &resolved, assembled);
                let state = if replacements.is_empty() {
                    // The candidates are deleted here, before the command loop sees the command; otherwise their
                    // deletion would be counted twice.
                    self.delete(&resolved, &resolved.ids()).await;
                    CommandState::Deleting { since: now }
                } else {
                    CommandState::AwaitingReplacements { since: now, replacements }
                };
                self.command_queue().update(number, resolved, state);
                self.wake_command_loop();
                true
            }
            Err(why) => {
                tracing::error!(command = id, error = why, "failed disrupting candidates");
                for candidate in &resolved.candidates {
                    // If untainting fails, the taint is removed later, together with other taints that belong to no
                    // command.
                    let _ = self.untaint_candidate(&candidate.id.name).await;
                }
                self.command_queue().remove(number);
                false
            }
        }
    }

    /// Taints candidates and creates replacements. Returns the command with the candidates that could be tainted.
    async fn prepare(
        &self,
        id: &str,
        resolved: &ResolvedCommand,
    ) -> Result<(ResolvedCommand, Vec<ClaimId>), String> {
        let reason = resolved.method.reason();
        let marked: Vec<Result<Candidate, String>> = stream::iter(resolved.candidates.clone())
            .map(|candidate| self.marked(candidate, reason))
            .buffered(CONCURRENT_WRITES_MAX)
            .collect()
            .await;
        let failed = marked.iter().find_map(|one| one.as_ref().err()).cloned();
        let candidates: Vec<Candidate> = marked.into_iter().filter_map(Result::ok).collect();
        if let Some(failed) = failed.filter(|_| !resolved.replacements.is_empty() || candidates.is_empty()) {
            return Err(failed);
        }
        let replacements = self.launch(id, resolved).await?;
        let is_left = |uid: &str| candidates.iter().any(|candidate| candidate.id.uid == uid);
        let lost: BTreeSet<&str> = resolved
            .candidates
            .iter()
            .filter(|candidate| !is_left(&candidate.id.uid))
            .map(|candidate| candidate.node.as_str())
            .collect();
        let mut moves = resolved.moves.clone();
        moves.retain(|one| crate::pods::node_name(&one.pod).is_none_or(|node| !lost.contains(node)));
        Ok((ResolvedCommand { candidates, moves, ..resolved.clone() }, replacements))
    }

    async fn marked(&self, candidate: Candidate, reason: Reason) -> Result<Candidate, String> {
        let mut tries = 1;
        loop {
            match self.mark(&candidate, reason).await {
                Ok(true) => return Ok(candidate),
                Ok(false) => return Err(format!("node {} not found", candidate.node)),
                // The conflict may be caused by a mere heartbeat of the node, so the write is retried.
                Err(error) if is_conflict(&error) && tries < MARK_ATTEMPTS_MAX => {
                    tries += 1;
                    self.read_again(&candidate).await;
                }
                Err(error) => return Err(format!("tainting node {}: {error}", candidate.node)),
            }
        }
    }

    /// Updates the node and claim of a candidate in the stores from the API server. Errors are ignored, because the
    /// write that follows fails with the same error.
    async fn read_again(&self, candidate: &Candidate) {
        let nodes: Api<WithoutManagedFields<Node>> = Api::all(self.writes.client.clone());
        if let Ok(Some(WithoutManagedFields(node))) = nodes.get_opt(&candidate.node).await {
            self.reads.stores.nodes.apply(node);
        }
        let claims: Api<WithoutManagedFields<NodeClaim>> = Api::all(self.writes.client.clone());
        if let Ok(Some(WithoutManagedFields(claim))) = claims.get_opt(&candidate.id.name).await {
            self.reads.stores.node_claims.apply(claim);
        }
    }

    /// Taints the node and sets the condition of the claim. Returns `false` if the node or the claim no longer exists.
    async fn mark(&self, candidate: &Candidate, reason: Reason) -> kube::Result<bool> {
        let Some((claim, node)) = self.find(candidate) else { return Ok(false) };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        if !taints.iter().any(|taint| taint.key == labels::TAINT_DISRUPTED && taint.effect == "NoSchedule") {
            let others = taints.into_iter().filter(|taint| taint.key != labels::TAINT_DISRUPTED);
            let disrupted = Taint {
                key: labels::TAINT_DISRUPTED.to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            let patch = json!({"spec": {"taints": others.chain([disrupted]).collect::<Vec<_>>()}});
            writes::merge_unchanged(&self.writes.client, &self.reads.stores.nodes, &*node, patch).await?;
        }
        let mut wanted = (*claim).clone();
        let text = reason.as_str();
        change_conditions(&mut wanted, self.reads.clock.now(), |set| {
            set.set_true_with_reason(DISRUPTION_REASON, text, text)
        });
        let claims = &self.reads.stores.node_claims;
        writes::status_unchanged(&self.writes.client, claims, &*claim, &claim.status, &wanted.status).await?;
        Ok(true)
    }

    /// Creates all replacements. If one creation fails, the command does not start, and the replacements that exist
    /// already remain as ordinary nodes.
    async fn launch(&self, id: &str, resolved: &ResolvedCommand) -> Result<Vec<ClaimId>, String> {
        if resolved.replacements.is_empty() {
            return Ok(Vec::new());
        }
        let current = self.current_pools(resolved).await?;
        for launch in &resolved.replacements {
            let name = name_of(&*launch.pool);
            let refusal = match current.get(name) {
                Some(pool) => claims::check_still_launchable(pool, &launch.pool, &launch.usage),
                None => Some(format!("nodepool {name} not found")),
            };
            if let Some(why) = refusal {
                return Err(why);
            }
        }
        let fixed = resolved.replacements.iter().filter(|launch| launch.is_static);
        let mut wanted: BTreeMap<&str, (&NodePool, u32)> = BTreeMap::new();
        for launch in fixed {
            wanted.entry(name_of(&*launch.pool)).or_insert((&*launch.pool, 0)).1 += 1;
        }
        // The grants under node limits are kept until the new claims exist and count towards the limits themselves.
        let mut places = Vec::new();
        for (name, (pool, count)) in wanted {
            let place = reserve_nodes(&self.reads, &self.node_limit_grants, pool, count);
            if place.granted() < count {
                return Err(format!("nodepool {name} is at its node limit"));
            }
            places.push(place);
        }
        let annotation_value = ReplacementAnnotation {
            command: id.to_owned(),
            method: method_name(resolved.method),
            launches: resolved.replacements.len(),
            claims: resolved.candidates.iter().map(|one| (one.id.name.clone(), one.id.uid.clone())).collect(),
            termination_grace_period_secs: resolved.termination_grace_period_secs,
            policies: match resolved.method.consolidation_type() {
                "" => BTreeMap::new(),
                _ => resolved
                    .candidates
                    .iter()
                    .map(|one| (one.pool.clone(), policy_name(one.policy)))
                    .collect(),
            },
            condition: resolved
                .candidates
                .iter()
                .find_map(|one| Some(one.repair.as_ref()?.condition.to_string())),
        };
        let text = annotation_value.text();
        let annotated = resolved.replacements.iter().map(|launch| {
            let mut claim = launch.claim.clone();
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(ANNOTATION_REPLACES.to_owned(), text.clone());
            claim
        });
        let annotated: Vec<NodeClaim> = annotated.collect();
        self.creator.launch_backoff.lock().begin_pass();
        let creator = &self.creator;
        let created: Vec<kube::Result<NodeClaim>> = stream::iter(annotated)
            .map(|claim| async move { creator.create(&claim).await })
            .buffered(CONCURRENT_WRITES_MAX)
            .collect()
            .await;
        drop(places);
        let mut ids = Vec::new();
        let mut failed = None;
        for one in created {
            match one {
                Ok(claim) => ids.push(id_of(&claim)),
                Err(error) => failed = Some(format!("launching replacement nodeclaim: {error}")),
            }
        }
        match failed {
            None => Ok(ids),
            Some(why) => {
                self.release_replacements(&ids).await;
                Err(why)
            }
        }
    }

    /// The NodePools of the replacements, read from the API server.
    async fn current_pools(&self, resolved: &ResolvedCommand) -> Result<BTreeMap<String, NodePool>, String> {
        let api = Api::<NodePool>::all(self.writes.client.clone());
        let mut current = BTreeMap::new();
        let names: BTreeSet<&str> =
            resolved.replacements.iter().map(|launch| name_of(&*launch.pool)).collect();
        for name in names {
            let pool = api.get_opt(name).await.map_err(|error| format!("nodepool {name}: {error}"))?;
            current.extend(pool.map(|pool| (name.to_owned(), pool)));
        }
        Ok(current)
    }

    /// Records in the cluster state that the candidates are marked for deletion and that their pods have reservations.
    /// Called only after the replacements are created: otherwise provisioning would launch more nodes for these pods.
    fn start_command(&self, resolved: &ResolvedCommand, replacements: &[ClaimId]) -> Timestamp {
        let now = self.reads.clock.now();
        let moves: Vec<(&karpenter_state::pod::Pod, &str)> = resolved
            .moves
            .iter()
            .filter_map(|one| match &one.to {
                MoveTarget::Host(name) => Some((&*one.pod, name.as_str())),
                MoveTarget::Replacement(index) => {
                    replacements.get(*index).map(|id| (&*one.pod, id.name.as_str()))
                }
            })
            .collect();
        // Compat mode protects the target nodes of moved pods from disruption for a while, as upstream does. In cost
        // mode, the pod reservations have this effect.
        if self.rules.mode == Mode::Compat {
            let expires = after(now, crate::settings::nomination_ttl(self.reader.settings.batch_max));
            moves.iter().for_each(|(_, host)| self.reads.state.nominate_node(host, expires));
        }
        self.reads.state.start_command(
            resolved.candidates.iter().map(|one| one.id.name.as_str()),
            moves,
            now,
        );
        // The waiting time for pod churn starts again only for commands of rebalance, whose moves were planned as one.
        // If drift commands restarted it, constant drift would postpone rebalance forever.
        if resolved.method == Method::Rebalance && !resolved.moves.is_empty() {
            self.pod_churn.restart(now);
        }
        now
    }

    async fn reboot(&self, resolved: &ResolvedCommand) -> bool {
        let mut has_begun = false;
        let (reads, client, repairs) = (&self.reads, &self.writes.client, &self.reader.node_health.repairs);
        for candidate in &resolved.candidates {
            let Some((claim, _)) = self.find(candidate) else { continue };
            let condition = candidate.repair.as_ref().map_or("", |repair| &repair.condition);
            let bound = resolved.termination_grace_period_secs;
            match reboot_request::commit(reads, client, &repairs.history, &claim, condition, bound).await {
                Ok(true) => {
                    has_begun = true;
                    self.count_disrupted(resolved, candidate, &claim);
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(nodeclaim = name_of(&*claim), %error, "failed requesting reboot")
                }
            }
        }
        has_begun
    }

    /// Deletes the candidates in `left`. The next step of the command retries deletions that failed.
    pub(super) async fn delete(&self, resolved: &ResolvedCommand, left: &[ClaimId]) {
        let candidates = resolved.candidates.iter().filter(|candidate| left.contains(&candidate.id));
        stream::iter(candidates)
            .for_each_concurrent(CONCURRENT_WRITES_MAX, |candidate| async move {
                if let Err(error) = self.delete_one(resolved, candidate).await {
                    tracing::warn!(nodeclaim = candidate.id.name, %error, "failed deleting disrupted nodeclaim");
                }
            })
            .await;
    }

    async fn delete_one(&self, resolved: &ResolvedCommand, candidate: &Candidate) -> kube::Result<()> {
        let claims = &self.reads.stores.node_claims;
        let Some(claim) = claims.get("", &candidate.id.name) else { return Ok(()) };
        if uid_of(&*claim) != candidate.id.uid || claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if let Some(bound) = resolved.termination_grace_period_secs {
            let deadline = self.reads.clock.now().checked_add(SignedDuration::from_secs(bound));
            self.set_termination_deadline(&claim, deadline.unwrap_or(Timestamp::MAX)).await?;
        }
        writes::delete(&self.writes.client, claims, &*claim).await?;
        self.count_disrupted(resolved, candidate, &claim);
        self.report_terminating(resolved, candidate, &claim).await;
        Ok(())
    }

    /// Sets the termination deadline of a claim unless it has an earlier one.
    async fn set_termination_deadline(&self, claim: &NodeClaim, deadline: Timestamp) -> kube::Result<()> {
        let key = labels::ANNOTATION_TERMINATION_TIMESTAMP;
        let present = annotation(claim, key).and_then(|text| text.parse::<Timestamp>().ok());
        if present.is_some_and(|present| present <= deadline) {
            return Ok(());
        }
        // The deadline is truncated to whole seconds, as in upstream.
        let deadline = Timestamp::from_second(deadline.as_second()).unwrap_or(deadline);
        let patch = json!({"metadata": {"annotations": {key: deadline.to_string()}}});
        writes::merge_unchanged(&self.writes.client, &self.reads.stores.node_claims, claim, patch).await?;
        Ok(())
    }

    /// Rolls the command back: removes reservations, marks for deletion, and taints. The replacements remain as
    /// ordinary nodes.
    pub(super) async fn roll_back(&self, active: &ActiveCommand, left: &[ClaimId], failure: &RollbackCause) {
        let state = &self.reads.state;
        for id in left {
            state.unmark_for_deletion(&id.name);
        }
        for one in &active.resolved.moves {
            state.remove_reservation(crate::pods::uid_of(&one.pod));
        }
        self.trigger.reset();
        self.report_rolled_back(active, failure);
        if let CommandState::AwaitingReplacements { replacements, .. } = &active.state {
            self.release_replacements(replacements).await;
        }
        for id in left {
            // If untainting fails, the taint is removed later, together with other taints that belong to no command.
            let _ = self.untaint_candidate(&id.name).await;
        }
    }

    /// Removes the annotation from replacements, so that no process resumes the command.
    async fn release_replacements(&self, replacements: &[ClaimId]) {
        let claims = &self.reads.stores.node_claims;
        for id in replacements {
            let Some(claim) = claims.get("", &id.name).filter(|claim| is_replacement(claim)) else {
                continue;
            };
            let patch = json!({"metadata": {"annotations": {ANNOTATION_REPLACES: null}}});
            if let Err(error) = writes::merge(&self.writes.client, claims, &*claim, patch).await {
                tracing::warn!(nodeclaim = id.name, %error, "failed removing annotation of replacement");
            }
        }
    }

    /// Removes the taint from the node and the condition from the claim.
    pub(super) async fn untaint_candidate(&self, claim: &str) -> kube::Result<()> {
        let Some(claim) = self.reads.stores.node_claims.get("", claim) else { return Ok(()) };
        let id = provider_id(&claim).unwrap_or_default();
        for node in self.reads.stores.nodes.by(BY_PROVIDER_ID, id) {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            let left: Vec<&Taint> =
                taints.iter().filter(|taint| taint.key != labels::TAINT_DISRUPTED).collect();
            if left.len() < taints.len() {
                let patch = json!({"spec": {"taints": left}});
                writes::merge_unchanged(&self.writes.client, &self.reads.stores.nodes, &*node, patch).await?;
            }
        }
        if condition(&claim, DISRUPTION_REASON).is_some() {
            let mut wanted = (*claim).clone();
            // Nothing depends on this condition, so it can be removed.
            let _ =
                change_conditions(&mut wanted, self.reads.clock.now(), |set| set.clear(DISRUPTION_REASON));
            let claims = &self.reads.stores.node_claims;
            writes::status_unchanged(&self.writes.client, claims, &*claim, &claim.status, &wanted.status)
                .await?;
        }
        Ok(())
    }

    /// The current claim and node of a candidate; `None` if the claim no longer exists or if another claim has its
    /// name.
    fn find(&self, candidate: &Candidate) -> Option<(Arc<NodeClaim>, Arc<Node>)> {
        let stores = &self.reads.stores;
        let claim = stores.node_claims.get("", &candidate.id.name)?;
        let is_meant = uid_of(&*claim) == candidate.id.uid && claim.metadata.deletion_timestamp.is_none();
        let node = stores.nodes.get("", &candidate.node)?;
        is_meant.then_some((claim, node))
    }
}

pub(super) fn id_of(claim: &NodeClaim) -> ClaimId {
    ClaimId { name: name_of(claim).to_owned(), uid: uid_of(claim).to_owned() }
}
