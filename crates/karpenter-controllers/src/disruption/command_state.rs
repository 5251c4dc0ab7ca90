//! The way of a command from the first thought to the end of its nodes, as a node without effects.
//!
//! A proposal waits, is looked at again, and starts: its nodes are closed and what takes their place is asked for. When
//! all of that is ready the old claims are deleted; when some of it is lost, or it takes too long, the nodes are opened
//! again. What a stage leads to is decided here and nowhere else; who carries it out is not.

#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_cluster::clock::since;

/// How long a proposal rests before it is looked at again, unless somebody says otherwise.
pub const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// How long a proposal that is due may wait for budgets to open before it is forgotten and thought over again.
pub const BUDGET_WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks at whether budgets have opened, unless a node is seen to be gone.
pub const BUDGET_POLL: Duration = Duration::from_secs(5);
/// Bounds of how long a command may take, and what every node that is under way adds.
const COMMAND_TIMEOUT_MIN: Duration = Duration::from_secs(10 * 60);
const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);
const COMMAND_TIMEOUT_PER_NODE: Duration = Duration::from_millis(80);

/// A claim that is meant, whatever else comes to bear its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    pub name: String,
    pub uid: String,
}

/// Where a command stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandState {
    /// Nothing has been written. Looked at again then. With a deadline it is one of those that wait for nodes of
    /// others to be gone before there is a budget for them.
    Proposed { until: Timestamp, budget_deadline: Option<Timestamp> },
    /// Its nodes are being closed and its replacements created by whoever started it.
    Starting,
    /// Its nodes are closed; its replacements are coming up.
    AwaitingReplacements { since: Timestamp, replacements: Vec<ClaimId> },
    /// Its replacements are ready; the claims of its nodes are being deleted.
    Deleting { since: Timestamp },
}

/// What is seen of a claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimObservation {
    Gone,
    /// Deleted, and not gone yet.
    Deleting,
    /// Not initialised yet.
    NotReady,
    /// Initialised, or kept closed only for the pods that are to be moved there.
    Ready,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackCause {
    #[error("replacement {0} was deleted")]
    ReplacementLost(String),
    #[error("command reached timeout after {0:?}")]
    TimedOut(Duration),
}

/// What has to be done about a command now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandStep {
    /// Nothing before then.
    Sleep {
        until: Timestamp,
    },
    /// Somebody is at it.
    InProgress,
    Validate,
    /// Tell that these replacements are waited for.
    AwaitReplacements {
        pending: Vec<ClaimId>,
    },
    /// Delete these of its claims.
    Delete {
        left: Vec<ClaimId>,
    },
    /// Open the nodes of these of its claims again.
    RollBack {
        left: Vec<ClaimId>,
        failure: RollbackCause,
    },
    Finish,
}

/// What to do about a command. `queued` is the number of nodes in all commands that have started.
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

/// How long a command may take while so many nodes are under way: clouds are slower when much is asked of them.
pub fn command_timeout(queued: usize) -> Duration {
    let nodes = u32::try_from(queued).unwrap_or(u32::MAX);
    COMMAND_TIMEOUT_PER_NODE.saturating_mul(nodes).clamp(COMMAND_TIMEOUT_MIN, COMMAND_TIMEOUT_MAX)
}

/// The moment `wait` from now.
pub fn after(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}
