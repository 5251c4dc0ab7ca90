//! Persists the move history, so that it survives a restart. A NodePool with a maximum of moves per hour gets an
//! annotation with the number of moved pods per minute. Claims of NodePools with a cool-down get an annotation with the
//! time of the move; replacements have this time in their replacement annotation.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use karpenter_api::labels::{
    ANNOTATION_CONSOLIDATION_COOL_DOWN, ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR, ANNOTATION_PODS_MOVED,
    ANNOTATION_PODS_MOVED_AT,
};
use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_disruption::cluster::Reason;
use karpenter_runtime::object::{annotation, name_of};
use karpenter_state::controls::controls;
use karpenter_state::move_annotations::{moved_onto_at, moves_text, pods_moved};
use serde_json::json;

use super::Disruption;
use super::observe::{find_pool, pool_label};
use super::resolved_command::{MoveTarget, ResolvedCommand};
use crate::writes;

const CONCURRENT_WRITES_MAX: usize = 16;

impl Disruption {
    /// Counts the pods that a command is about to move. The count is persisted before the command starts: after a crash
    /// it may be too high, but never too low.
    pub(super) async fn count_moves(&self, resolved: &ResolvedCommand, now: Timestamp) -> Result<(), String> {
        let moved = pods_moved_by_pool(resolved);
        for (pool, pods) in &moved {
            self.reads.state.count_moves(pool, *pods, now);
        }
        for name in moved.keys() {
            let bounded =
                |pool: &NodePool| annotation(pool, ANNOTATION_CONSOLIDATION_MAX_MOVES_PER_HOUR).is_some();
            let Some(pool) = find_pool(&self.reads, name).filter(|pool| bounded(pool)) else { continue };
            // Commands are counted one after the other, so that the last write contains the moves of all of them.
            let _turn = self.move_count_lock.lock().await;
            let written = moves_text(&self.reads.state.move_history().by_minute(name, now));
            let patch = json!({"metadata": {"annotations": {ANNOTATION_PODS_MOVED: written}}});
            if let Err(error) =
                writes::merge(&self.writes.client, &self.reads.stores.node_pools, &*pool, patch).await
            {
                self.uncount_moves(resolved, now);
                return Err(format!("writing moved pods of nodepool {name}: {error}"));
            }
        }
        Ok(())
    }

    /// Subtracts the moves of a command that did not start.
    pub(super) fn uncount_moves(&self, resolved: &ResolvedCommand, at: Timestamp) {
        for (pool, pods) in pods_moved_by_pool(resolved) {
            self.reads.state.uncount_moves(pool, pods, at);
        }
    }

    /// Annotates the claims of existing nodes that receive moved pods with the time of the move. Failures are only
    /// logged, because this process has the time in memory.
    pub(super) async fn annotate_move_targets(&self, resolved: &ResolvedCommand, now: Timestamp) {
        let cools_down = |claim: &NodeClaim| {
            let pool = find_pool(&self.reads, pool_label(claim));
            pool.is_some_and(|pool| annotation(&*pool, ANNOTATION_CONSOLIDATION_COOL_DOWN).is_some())
        };
        let mut hosts: Vec<&str> = Vec::new();
        for one in &resolved.moves {
            if let MoveTarget::Host(name) = &one.to {
                hosts.push(name);
            }
        }
        hosts.sort_unstable();
        hosts.dedup();
        let claims = hosts.into_iter().filter_map(|name| self.reads.stores.node_claims.get("", name));
        let claims: Vec<_> = claims.filter(|claim| cools_down(claim)).collect();
        stream::iter(claims)
            .for_each_concurrent(CONCURRENT_WRITES_MAX, |claim| async move {
                let patch = json!({"metadata": {"annotations": {ANNOTATION_PODS_MOVED_AT: now.to_string()}}});
                let written =
                    writes::merge(&self.writes.client, &self.reads.stores.node_claims, &*claim, patch).await;
                if let Err(error) = written {
                    tracing::warn!(nodeclaim = name_of(&*claim), %error, "failed annotating nodeclaim with moved pods");
                }
            })
            .await;
    }

    /// Loads the move history of earlier processes.
    pub(super) fn load_move_history(&self) {
        for pool in self.reads.stores.node_pools.list() {
            for (at, pods) in pods_moved(&pool) {
                self.reads.state.count_moves(name_of(&*pool), pods, at);
            }
        }
        for claim in self.reads.stores.node_claims.list() {
            if let Some(at) = moved_onto_at(&claim) {
                self.reads.state.restore_moved_onto(name_of(&*claim), at);
            }
        }
    }

    /// Keeps the move history for the longest cool-down of any NodePool.
    pub(super) fn retain_move_history(&self) {
        let pools = self.reads.stores.node_pools.list();
        let longest = pools.iter().map(|pool| controls(pool).0.cool_down_secs).max();
        self.reads.state.keep_moves_for(longest.unwrap_or(0));
    }
}

/// Pods that the command moves for consolidation, by the NodePool that they leave.
fn pods_moved_by_pool(resolved: &ResolvedCommand) -> BTreeMap<&str, u32> {
    let mut by_pool: BTreeMap<&str, u32> = BTreeMap::new();
    if resolved.method.reason() == Reason::Underutilized {
        for candidate in &resolved.candidates {
            *by_pool.entry(&candidate.pool).or_default() += u32::try_from(candidate.pods).unwrap_or(u32::MAX);
        }
    }
    by_pool.retain(|_, pods| *pods > 0);
    by_pool
}
