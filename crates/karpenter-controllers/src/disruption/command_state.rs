//! The states of a command, from its validation to the deletion of its candidates, as a state machine without effects.
//!
//! A command is proposed, validated, and started: its candidates are tainted and its replacements created. When all
//! replacements are ready, the candidates are deleted. If a replacement is lost, or the command times out, it is rolled
//! back and the taints are removed. The steps are decided here and executed by [`super::execute`].
//!
//! Upstream: pkg/controllers/disruption/queue.go.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

/// The default delay between finding a command and its validation.
pub const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// How long a command may await a budget before it is dropped.
pub const BUDGET_WAIT_MAX: Duration = Duration::from_secs(60);
/// How often to check whether a budget is free. A deleted node triggers a check at once.
pub const BUDGET_POLL: Duration = Duration::from_secs(5);
/// The timeout of a command is `COMMAND_TIMEOUT_PER_NODE` for each candidate in progress, within this minimum and
/// maximum.
const COMMAND_TIMEOUT_MIN: Duration = Duration::from_secs(10 * 60);
const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);
const COMMAND_TIMEOUT_PER_NODE: Duration = Duration::from_millis(80);

/// The name and uid of a NodeClaim. The uid distinguishes it from other NodeClaims with the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    pub name: String,
    pub uid: String,
}

/// The state of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandState {
    /// The command was found and will be validated at `until`; nothing is written before that. With a
    /// `budget_deadline`, the command disrupts more nodes than the budgets allow, and waits for a free budget until
    /// then.
    Proposed { until: Timestamp, budget_deadline: Option<Timestamp> },
    /// Candidates are being tainted and replacements created.
    Starting,
    /// Candidates are tainted; replacements are not all ready.
    AwaitingReplacements { since: Timestamp, replacements: Vec<ClaimId> },
    /// Replacements are ready; candidates are being deleted.
    Deleting { since: Timestamp },
}

/// The observed state of a NodeClaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimObservation {
    Gone,
    /// The NodeClaim has a deletion timestamp.
    Deleting,
    /// Not initialized.
    NotReady,
    /// The node is initialized, or it is ready and only the registration gate keeps the unregistered taint, until the
    /// pods that the command moves to it are nominated.
    Ready,
}

/// Why a command is rolled back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackCause {
    #[error("replacement {0} was deleted")]
    ReplacementLost(String),
    #[error("command reached timeout after {0:?}")]
    TimedOut(Duration),
}

/// The next step of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandStep {
    /// Not due.
    Sleep {
        until: Timestamp,
    },
    /// The start of the command is in progress.
    InProgress,
    Validate,
    /// Report that these replacements are not ready yet.
    AwaitReplacements {
        pending: Vec<ClaimId>,
    },
    /// Delete these candidates.
    Delete {
        left: Vec<ClaimId>,
    },
    /// Remove the taints of these candidates.
    RollBack {
        left: Vec<ClaimId>,
        failure: RollbackCause,
    },
    Finish,
}

/// Decides the next step. `queued` is the number of candidates of all started commands.
pub fn next_step(
    state: &CommandState,
    candidates: &[ClaimId],
    observe_claim: impl Fn(&ClaimId) -> ClaimObservation,
    queued: usize,
    now: Timestamp,
) -> CommandStep {
    let started = match state {
        CommandState::Proposed { until, .. } if now < *until => return CommandStep::Sleep { until: *until },
        CommandState::Proposed { .. } => return CommandStep::Validate,
        CommandState::Starting => return CommandStep::InProgress,
        CommandState::AwaitingReplacements { since, .. } | CommandState::Deleting { since } => *since,
    };
    let left: Vec<ClaimId> = candidates
        .iter()
        .filter(|one| matches!(observe_claim(one), ClaimObservation::NotReady | ClaimObservation::Ready))
        .cloned()
        .collect();
    if left.is_empty() {
        return CommandStep::Finish;
    }
    let mut pending = Vec::new();
    if let CommandState::AwaitingReplacements { replacements, .. } = state {
        for one in replacements {
            match observe_claim(one) {
                ClaimObservation::Ready => {}
                ClaimObservation::NotReady => pending.push(one.clone()),
                ClaimObservation::Gone | ClaimObservation::Deleting => {
                    return CommandStep::RollBack {
                        left,
                        failure: RollbackCause::ReplacementLost(one.name.clone()),
                    };
                }
            }
        }
    }
    let age = since(now, started);
    if age > command_timeout(queued) {
        CommandStep::RollBack { left, failure: RollbackCause::TimedOut(age) }
    } else if pending.is_empty() {
        CommandStep::Delete { left }
    } else {
        CommandStep::AwaitReplacements { pending }
    }
}

/// The timeout of a command when this many candidates are in progress. More candidates need more time, because
/// providers throttle requests.
pub fn command_timeout(queued: usize) -> Duration {
    let nodes = u32::try_from(queued).unwrap_or(u32::MAX);
    COMMAND_TIMEOUT_PER_NODE.saturating_mul(nodes).clamp(COMMAND_TIMEOUT_MIN, COMMAND_TIMEOUT_MAX)
}
