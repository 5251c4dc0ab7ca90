//! Finds nodes to disrupt, and executes the commands within the budgets of their NodePools.
//!
//! There are two loops, which share the list of commands. The evaluation loop takes a snapshot of the cluster and
//! decides with pure functions which nodes are disrupted and what replaces them (`karpenter_disruption`). The command
//! loop executes started commands to their end ([`command_state`]). Neither loop sleeps while it handles a command: a
//! command that has to wait has a state with a deadline. [`crate::node`] drains the nodes.
//!
//! Commands are held in memory. Annotations on replacements let a restarted process resume a command; a command that
//! cannot be resumed is rolled back. The move history is persisted in annotations where a NodePool limits moves or has
//! a cool-down ([`persist_moves`]).
//!
//! Upstream: pkg/controllers/disruption.

mod advance;
mod command_queue;
pub mod command_state;
mod evaluate;
mod execute;
mod faults;
pub(crate) mod observe;
mod persist_moves;
mod pod_churn;
mod report;
mod resolved_command;
mod resume;
mod trigger;
mod validate;
mod watchdog;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use karpenter_api::types::NodeClaim;
use karpenter_disruption::settings::{Mode, Settings as Rules};
use karpenter_model::problem;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::Change;
use karpenter_runtime::worker::{Reconcile, Requeue};

use self::command_queue::CommandQueue;
use self::pod_churn::PodChurn;
use self::trigger::EvaluationTrigger;
use self::watchdog::EvaluationWatchdog;
use crate::claims::ClaimCreator;
use crate::decision_journal::DecisionJournal;
use crate::inputs::{Reads, Writes};
use crate::planner_input::PlannerReader;
use crate::settings::{FeatureGates, Settings};
use crate::state::node_limit_grants::NodeLimitGrants;
use crate::state::verdicts::Verdicts;

pub use self::command_state::VALIDATION_DELAY;
pub use self::faults::Inspect;
pub use crate::annotations::ANNOTATION_REPLACES;
use crate::annotations::is_replacement;

/// How often both loops run if no command is in progress and no input is missing.
pub const IDLE_POLL: Duration = Duration::from_secs(10);
/// How often both loops run while a command is in progress, an input is missing, or something is retried.
pub const RETRY_POLL: Duration = Duration::from_secs(1);
/// The result of an evaluation is used for at most this long, even if the cluster does not change.
pub const REEVALUATE_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

/// The parts of the operator that disruption uses.
pub struct Inputs {
    pub reads: Reads,
    pub writes: Writes,
    pub reader: PlannerReader,
    pub creator: ClaimCreator,
    pub node_limit_grants: NodeLimitGrants,
    pub journal: DecisionJournal,
    /// Why each node is or is not disrupted.
    pub verdicts: Verdicts,
}

/// The disruption controller: the evaluation loop and the command loop, which are reconciled by two queues. There is
/// one instance per process.
pub struct Disruption {
    reads: Reads,
    writes: Writes,
    reader: PlannerReader,
    creator: ClaimCreator,
    node_limit_grants: NodeLimitGrants,
    journal: DecisionJournal,
    verdicts: Verdicts,
    rules: Rules,
    validation_delay: Duration,
    command_queue: Arc<Mutex<CommandQueue>>,
    trigger: EvaluationTrigger,
    pod_churn: PodChurn,
    watchdog: EvaluationWatchdog,
    commands: OnceLock<Queue>,
    /// Held while this process writes the number of moved pods to a NodePool, so that commands are counted one after
    /// the other.
    move_count_lock: tokio::sync::Mutex<()>,
    suspects: Mutex<faults::Suspects>,
    inspect: Option<Inspect>,
}

impl Disruption {
    pub fn new(inputs: Inputs) -> Self {
        let Inputs { reads, writes, reader, creator, node_limit_grants, journal, verdicts } = inputs;
        let rules = rules(&reader.settings, &reader.gates);
        Self {
            reads,
            writes,
            reader,
            creator,
            node_limit_grants,
            journal,
            verdicts,
            rules,
            validation_delay: VALIDATION_DELAY,
            command_queue: Arc::default(),
            trigger: EvaluationTrigger::default(),
            pod_churn: PodChurn::default(),
            watchdog: EvaluationWatchdog::default(),
            commands: OnceLock::new(),
            move_count_lock: tokio::sync::Mutex::new(()),
            suspects: Mutex::default(),
            inspect: None,
        }
    }

    /// Calls `inspect` with every cluster before its evaluation.
    pub fn inspected_by(mut self, inspect: Inspect) -> Self {
        self.inspect = Some(inspect);
        self
    }

    /// Replaces the delay between finding a command and its validation.
    pub fn with_validation_delay(mut self, delay: Duration) -> Self {
        self.validation_delay = delay;
        self
    }

    /// Registers the evaluation loop and the command loop with the same queue.
    pub fn watch(&self, queue: &Queue) {
        self.watch_apart(queue, queue);
    }

    /// Registers the evaluation loop with the queue `evaluations` and the command loop with the queue `commands`.
    pub fn watch_apart(&self, evaluations: &Queue, commands: &Queue) {
        let _ = self.commands.set(commands.clone());
        self.trigger.watch(&self.reads.stores);
        self.pod_churn.watch(&self.reads.stores, self.reads.clock);
        let trigger = self.trigger.clone();
        self.creator.overlays.on_change(move || trigger.record_change());
        let trigger = self.trigger.clone();
        self.reads.state.on_buffer_hosts_changed(move || trigger.record_change());
        commands.add(commands_key());
        evaluations.add(evaluation_key());
        // A change of a replacement triggers the command loop at once, before other controllers react to the change.
        let to = commands.clone();
        self.reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            let is_replacement = is_replacement(change.object());
            let is_lost = change.is_deleted() || change.object().metadata.deletion_timestamp.is_some();
            if is_replacement && (is_lost || becomes_ready(change)) {
                to.add(commands_key());
            }
        });
        // The deletion of a NodeClaim may free a budget, so commands that await a budget are validated again. When no
        // NodeClaim is being deleted any more, the cluster is evaluated for further commands.
        let (to, stores) = (evaluations.clone(), self.reads.stores.clone());
        let (command_queue, clock) = (self.command_queue.clone(), self.reads.clock);
        self.reads.stores.node_claims.observe(move |change: &Change<NodeClaim>| {
            let is_going = |claim: &Arc<NodeClaim>| claim.metadata.deletion_timestamp.is_some();
            if change.is_deleted() {
                let is_awaited = lock(&command_queue).budget_may_be_free(clock.now());
                if is_awaited || !stores.node_claims.list().iter().any(is_going) {
                    to.add(evaluation_key());
                }
            }
        });
    }

    /// Runs the command loop, because a command started.
    fn wake_command_loop(&self) {
        if let Some(queue) = self.commands.get() {
            queue.add(commands_key());
        }
    }

    fn command_queue(&self) -> MutexGuard<'_, CommandQueue> {
        lock(&self.command_queue)
    }

    fn suspects(&self) -> MutexGuard<'_, faults::Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(command_queue: &Mutex<CommandQueue>) -> MutexGuard<'_, CommandQueue> {
    command_queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reconcile for Disruption {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let wait = if *key == commands_key() { self.advance().await } else { self.evaluate().await };
        Ok(Requeue::After(wait))
    }
}

fn commands_key() -> ObjectKey {
    ObjectKey::new("", "commands")
}

fn evaluation_key() -> ObjectKey {
    ObjectKey::new("", "evaluation")
}

fn becomes_ready(change: &Change<NodeClaim>) -> bool {
    let is_ready =
        |claim: &NodeClaim| karpenter_state::claim::is_true(claim, karpenter_state::claim::INITIALIZED);
    match change {
        Change::Applied { old, new } => is_ready(new) && !old.as_deref().is_some_and(is_ready),
        Change::Deleted { .. } => false,
    }
}

/// The planner rules that follow from settings and feature gates.
fn rules(settings: &Settings, gates: &FeatureGates) -> Rules {
    let planner = &settings.planner;
    Rules {
        mode: match planner.mode {
            problem::Mode::Cost => Mode::Cost,
            problem::Mode::Compat => Mode::Compat,
        },
        spot_to_spot: gates.spot_to_spot_consolidation,
        terminate_first_drift: gates.terminate_first_drift,
        terminate_first_repair: gates.terminate_first_repair,
        effort: planner.effort,
        saving_ratio: settings.saving_ratio,
    }
}
