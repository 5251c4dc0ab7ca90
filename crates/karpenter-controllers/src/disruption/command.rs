//! Commands from the first thought to the deletion, as a machine without effects.
//!
//! A method's candidates wait for a while; whoever still qualifies then is marked and deleted, the others are dropped.
//! One command per method may wait at a time. Other methods are added to [`Method`] and to its order.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_api::labels;
use karpenter_api::types::DisruptionReason;
use karpenter_cluster::clock::{since, until};

use super::budgets::{remaining, within};
use super::candidate::{Blocked, Candidate};
use super::emptiness;
use super::snapshot::{Machine, Snapshot};
use super::{IDLE_POLL, RETRY_POLL};

/// How long the cluster may change its mind.
pub const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// How long a deletion that does not succeed is tried before the nodes are opened again.
pub const RETRY_MAX: Duration = Duration::from_secs(600);

/// A way to find nodes that may go, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Emptiness,
}

impl Method {
    pub const ORDER: [Self; 1] = [Self::Emptiness];

    pub fn reason(self) -> DisruptionReason {
        match self {
            Self::Emptiness => DisruptionReason::Empty,
        }
    }

    /// The reason as conditions, events and budgets spell it.
    pub fn reason_text(self) -> &'static str {
        match self {
            Self::Emptiness => "Empty",
        }
    }

    /// The reason as metrics spell it.
    pub fn reason_label(self) -> &'static str {
        match self {
            Self::Emptiness => "empty",
        }
    }

    /// How long its candidates wait; `None` if they do not.
    fn validation_delay(self) -> Option<Duration> {
        match self {
            Self::Emptiness => Some(VALIDATION_DELAY),
        }
    }

    fn find(self, snapshot: &Snapshot, now: Timestamp) -> (Vec<Candidate>, Vec<Finding>) {
        match self {
            Self::Emptiness => emptiness::find(snapshot, now),
        }
    }
}

/// Where a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its candidates are looked at again then.
    Proposed { until: Timestamp },
    /// Its candidates are marked; their claims are being deleted.
    Deleting { since: Timestamp },
}

/// Nodes that are to go for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    pub method: Method,
    pub candidates: Vec<Candidate>,
    pub stage: Stage,
}

/// Something users should hear about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Blocked { claim: String, blocked: Blocked },
    NeverConsolidated { claim: String },
    BudgetExhausted { pool: String, reason: &'static str },
}

/// What one look leads to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// Commands that go on as they are, until the next look.
    pub keep: Vec<Command>,
    /// Mark these and delete their claims.
    pub start: Vec<Command>,
    /// The claims of these are still there and not deleting: try again.
    pub retry: Vec<Command>,
    /// These were tried for too long: open their nodes again.
    pub roll_back: Vec<Command>,
    /// Claims that carry a mark of ours which no command accounts for.
    pub restore: Vec<String>,
    pub findings: Vec<Finding>,
    pub wait: Duration,
}

/// Decides what to do now. Total, and without effects.
pub fn decide(snapshot: &Snapshot, commands: &[Command], now: Timestamp) -> Decision {
    let mut decision = Decision { wait: IDLE_POLL, ..Decision::default() };
    let mut has_proposal = BTreeSet::new();
    for command in commands {
        match command.stage {
            Stage::Proposed { until } if now < until => {
                has_proposal.insert(command.method);
                decision.keep.push(command.clone());
            }
            Stage::Proposed { .. } => decision.start.extend(validated(command, snapshot, now)),
            Stage::Deleting { since: started } => follow(command, started, snapshot, now, &mut decision),
        }
    }
    decision.restore = restore(snapshot, commands);
    if decision.start.is_empty() {
        propose(snapshot, &has_proposal, now, &mut decision);
    }
    if !decision.start.is_empty() {
        decision.wait = Duration::ZERO;
    }
    if !decision.retry.is_empty() {
        decision.wait = decision.wait.min(RETRY_POLL);
    }
    for command in &decision.keep {
        if let Stage::Proposed { until: deadline } = command.stage {
            decision.wait = decision.wait.min(until(now, deadline));
        }
    }
    decision
}

/// The first method that finds something has its way; the others are asked again when it has acted.
fn propose(snapshot: &Snapshot, busy: &BTreeSet<Method>, now: Timestamp, decision: &mut Decision) {
    for method in Method::ORDER.into_iter().filter(|method| !busy.contains(method)) {
        let (found, findings) = method.find(snapshot, now);
        decision.findings.extend(findings);
        let budgets = remaining(snapshot, &method.reason(), now);
        let wanted: BTreeSet<&String> = found.iter().map(|candidate| &candidate.pool).collect();
        let reason = method.reason_text();
        let exhausted = wanted
            .into_iter()
            .filter(|pool| budgets.get(*pool).is_some_and(|budget| budget.nodes > 0 && budget.allowed == 0))
            .map(|pool| Finding::BudgetExhausted { pool: pool.clone(), reason });
        decision.findings.extend(exhausted);
        let candidates = within(found, &budgets);
        if candidates.is_empty() {
            continue;
        }
        match method.validation_delay() {
            Some(delay) => {
                let until = now.checked_add(signed(delay)).unwrap_or(Timestamp::MAX);
                decision.keep.push(Command { method, candidates, stage: Stage::Proposed { until } });
            }
            None => {
                decision.start.push(Command { method, candidates, stage: Stage::Deleting { since: now } });
            }
        }
        return;
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// What is left of a proposal after its wait: candidates that would be found again, within today's budgets.
fn validated(command: &Command, snapshot: &Snapshot, now: Timestamp) -> Option<Command> {
    let (found, _) = command.method.find(snapshot, now);
    let still: Vec<Candidate> = found
        .into_iter()
        .filter(|candidate| command.candidates.iter().any(|proposed| proposed.uid == candidate.uid))
        .collect();
    let budgets = remaining(snapshot, &command.method.reason(), now);
    let candidates = within(still, &budgets);
    let stage = Stage::Deleting { since: now };
    (!candidates.is_empty()).then_some(Command { method: command.method, candidates, stage })
}

fn follow(
    command: &Command,
    started: Timestamp,
    snapshot: &Snapshot,
    now: Timestamp,
    decision: &mut Decision,
) {
    let is_left = |candidate: &&Candidate| {
        let machine = find(snapshot, candidate);
        machine.is_some_and(|machine| machine.claim.metadata.deletion_timestamp.is_none())
    };
    let left: Vec<Candidate> = command.candidates.iter().filter(is_left).cloned().collect();
    if left.is_empty() {
        return;
    }
    let left = Command { candidates: left, ..command.clone() };
    if since(now, started) > RETRY_MAX {
        decision.roll_back.push(left);
    } else {
        decision.retry.push(left);
    }
}

fn find<'a>(snapshot: &'a Snapshot, candidate: &Candidate) -> Option<&'a Machine> {
    let machine = snapshot.machines.iter().find(|machine| machine.name() == candidate.claim)?;
    (machine.claim.metadata.uid.as_deref() == Some(candidate.uid.as_str())).then_some(machine)
}

/// Marks that a process before this one left behind, or that a failed start did.
fn restore(snapshot: &Snapshot, commands: &[Command]) -> Vec<String> {
    let in_work: BTreeSet<&str> = commands
        .iter()
        .filter(|command| matches!(command.stage, Stage::Deleting { .. }))
        .flat_map(|command| command.candidates.iter().map(|candidate| candidate.claim.as_str()))
        .collect();
    let is_stray = |machine: &&Machine| {
        let is_node_leaving =
            machine.node.as_deref().is_some_and(|node| node.metadata.deletion_timestamp.is_some());
        !machine.is_leaving
            && !is_node_leaving
            && !machine.is_true("Rebooting")
            && !in_work.contains(machine.name())
            && (is_marked(machine) || machine.condition(DISRUPTION_REASON).is_some())
    };
    snapshot.machines.iter().filter(is_stray).map(|machine| machine.name().to_owned()).collect()
}

/// The condition that says why a claim goes.
pub const DISRUPTION_REASON: &str = "DisruptionReason";

fn is_marked(machine: &Machine) -> bool {
    let taints = machine.node.as_deref().and_then(|node| node.spec.as_ref()?.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == labels::TAINT_DISRUPTED))
}
