//! Reads the annotation with which a replacement describes its command, so that a restarted process can resume the
//! command.
//!
//! A command is resumed only if all its replacements exist, and every candidate that still exists has the taint and the
//! condition. Otherwise its taints are removed like all taints that belong to no command, and its replacements remain
//! as ordinary nodes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use karpenter_api::types::NodeClaim;
use karpenter_disruption::cluster::ConsolidationPolicy;
use karpenter_disruption::command::Method;
use karpenter_runtime::object::{is_deleting, name_of, uid_of};

use super::command_state::{ClaimId, command_timeout};
use crate::annotations::{ReplacementAnnotation, method, policy};

/// A resumed command has at least this much time left until its timeout, because no process observed the replacements
/// during the restart.
const REMAINING_TIMEOUT_MIN: Duration = Duration::from_secs(5 * 60);

/// A command that can be resumed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResumableCommand {
    pub(super) id: String,
    pub(super) method: Method,
    /// Candidates that still exist.
    pub(super) candidates: Vec<ClaimId>,
    pub(super) replacements: Vec<ClaimId>,
    pub(super) since: Timestamp,
    pub(super) termination_grace_period_secs: Option<i64>,
    pub(super) policies: BTreeMap<String, ConsolidationPolicy>,
    pub(super) condition: Option<String>,
}

/// The commands that are described by annotations and can be resumed. `is_marked` returns whether the claim has the
/// condition and its node the taint of a started command.
pub(super) fn resumable(
    claims: &[Arc<NodeClaim>],
    is_marked: impl Fn(&NodeClaim) -> bool,
    now: Timestamp,
) -> Vec<ResumableCommand> {
    let by_name: BTreeMap<&str, &Arc<NodeClaim>> =
        claims.iter().map(|claim| (name_of(&**claim), claim)).collect();
    let mut commands: BTreeMap<String, (ReplacementAnnotation, Vec<&Arc<NodeClaim>>)> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| !is_deleting(&***claim)) {
        let Some(annotation_value) = ReplacementAnnotation::read(claim) else { continue };
        let entry = commands
            .entry(annotation_value.command.clone())
            .or_insert_with(|| (annotation_value, Vec::new()));
        entry.1.push(claim);
    }
    let mut resumable_command = Vec::new();
    for (id, (annotation_value, replacements)) in commands {
        let left = annotation_value.claims.iter().filter_map(|(name, uid)| {
            let claim = by_name.get(name.as_str())?;
            (uid_of(&***claim) == uid && !is_deleting(&***claim)).then_some(*claim)
        });
        let left: Vec<&Arc<NodeClaim>> = left.collect();
        let is_whole = replacements.len() == annotation_value.launches
            && !left.is_empty()
            && left.iter().all(|claim| is_marked(claim));
        let Some(method) = method(&annotation_value.method).filter(|_| is_whole) else { continue };
        let id_of = |claim: &&Arc<NodeClaim>| ClaimId {
            name: name_of(&***claim).to_owned(),
            uid: uid_of(&***claim).to_owned(),
        };
        let created = replacements.iter().filter_map(|one| one.metadata.creation_timestamp.as_ref());
        let began = created.map(|time| time.0).min().unwrap_or(now);
        let earliest =
            now.checked_sub(command_timeout(0).saturating_sub(REMAINING_TIMEOUT_MIN)).unwrap_or(now);
        resumable_command.push(ResumableCommand {
            id,
            method,
            candidates: left.iter().map(id_of).collect(),
            replacements: replacements.iter().map(id_of).collect(),
            since: began.max(earliest),
            termination_grace_period_secs: annotation_value.termination_grace_period_secs,
            policies: annotation_value
                .policies
                .into_iter()
                .filter_map(|(pool, name)| Some((pool, policy(&name)?)))
                .collect(),
            condition: annotation_value.condition,
        });
    }
    resumable_command
}
