//! A command that refers to objects and names, not to indexes into a snapshot. So it stays valid after the snapshot of
//! its evaluation is dropped. Decides nothing.

use std::sync::Arc;

use karpenter_api::types::{NodeClaim, NodePool};
use karpenter_disruption::cluster::{ConsolidationPolicy, Repair};
use karpenter_disruption::command::{Command, Decision, Destination, Method};
use karpenter_disruption::static_drift::terminate_first_reason;
use karpenter_model::resources::ResourceList;
use karpenter_runtime::object::name_of;
use karpenter_state::pod::Pod;
use karpenter_state::{AssembledCluster, Host};

use super::command_state::ClaimId;
use crate::claims;

/// A command as it is executed.
#[derive(Debug, Clone)]
pub(super) struct ResolvedCommand {
    pub(super) method: Method,
    pub(super) decision: Decision,
    pub(super) candidates: Vec<Candidate>,
    pub(super) replacements: Vec<Replacement>,
    pub(super) moves: Vec<PodMove>,
    pub(super) price_before_per_hour: f64,
    pub(super) price_after_per_hour: f64,
    /// The termination grace period that the command sets on its candidates.
    pub(super) termination_grace_period_secs: Option<i64>,
    /// Why candidates are deleted before their replacements are launched, if they are.
    pub(super) terminate_first_reason: &'static str,
}

/// A node that the command deletes.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: ClaimId,
    pub(super) node: String,
    pub(super) pool: String,
    pub(super) policy: ConsolidationPolicy,
    /// Number of pods that have to be rescheduled.
    pub(super) pods: usize,
    pub(super) repair: Option<Repair>,
}

/// A NodeClaim that the command creates.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    pub(super) claim: NodeClaim,
    /// The NodePool, and in the next field the usage of its limits when the command was planned.
    pub(super) pool: Arc<NodePool>,
    pub(super) usage: ResourceList,
    /// Whether the replacement is for a static NodePool, whose limits are checked at launch.
    pub(super) is_static: bool,
}

#[derive(Debug, Clone)]
pub(super) struct PodMove {
    pub(super) pod: Arc<Pod>,
    pub(super) to: MoveTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MoveTarget {
    /// The name of a claim, or of a node without a claim.
    Host(String),
    /// Index into the command's replacements.
    Replacement(usize),
}

impl ResolvedCommand {
    /// Resolves a command; `None` if it refers to an object that is not in the snapshot.
    pub(super) fn read(
        command: &Command,
        assembled: &AssembledCluster,
        find_pool: impl Fn(&str) -> Option<Arc<NodePool>>,
    ) -> Option<Self> {
        let cluster = &assembled.cluster;
        let mut candidates = Vec::new();
        for candidate in &command.candidates {
            let state_node = cluster.state_nodes.get(candidate.state_node)?;
            candidates.push(Candidate {
                id: ClaimId { name: candidate.claim.to_string(), uid: candidate.uid.to_string() },
                node: candidate.node.to_string(),
                pool: candidate.pool.to_string(),
                policy: cluster.pools.get(&candidate.pool).map(|pool| pool.policy).unwrap_or_default(),
                pods: state_node.pods.iter().filter(|one| one.is_reschedulable).count(),
                repair: state_node.repair.clone(),
            });
        }
        let mut moves = Vec::new();
        for (from, to) in &command.moves {
            let pod = assembled.pods_by_node.get(from.node as usize)?.get(from.pod as usize)?.clone();
            let to = match to {
                Destination::New(launch) => MoveTarget::Replacement(*launch),
                Destination::Existing(node) => MoveTarget::Host(host_name(assembled.hosts.get(*node)?)?),
            };
            moves.push(PodMove { pod, to });
        }
        let replacements = match (&command.static_pool, command.decision) {
            (Some(name), Decision::Replace) => {
                let pool = find_pool(name)?;
                let launch = || Replacement {
                    claim: claims::claim_from_template(&pool),
                    pool: pool.clone(),
                    usage: ResourceList::default(),
                    is_static: true,
                };
                command.candidates.iter().map(|_| launch()).collect()
            }
            _ => planned_replacements(command, assembled)?,
        };
        Some(Self {
            method: command.method,
            decision: command.decision,
            candidates,
            replacements,
            moves,
            price_before_per_hour: command.price_before_per_hour,
            price_after_per_hour: command.price_after_per_hour,
            termination_grace_period_secs: command.termination_grace_period_secs,
            terminate_first_reason: match command.decision {
                Decision::TerminateFirst => terminate_first_reason(cluster, command),
                Decision::Delete | Decision::Replace | Decision::Reboot => "",
            },
        })
    }

    pub(super) fn ids(&self) -> Vec<ClaimId> {
        self.candidates.iter().map(|candidate| candidate.id.clone()).collect()
    }

    pub(super) fn saving_per_hour(&self) -> f64 {
        match self.decision {
            // A reboot saves nothing, because the instance remains.
            Decision::Reboot => 0.0,
            Decision::Delete | Decision::Replace | Decision::TerminateFirst => {
                self.price_before_per_hour - self.price_after_per_hour
            }
        }
    }

    /// The names of the candidates' NodePools, sorted and without duplicates.
    pub(super) fn pools(&self) -> Vec<&str> {
        let mut pools: Vec<&str> = self.candidates.iter().map(|candidate| candidate.pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// The description of the command in logs and events, as upstream words it.
    pub(super) fn describe(&self, id: &str) -> String {
        let nodes: Vec<&str> = self.candidates.iter().map(|candidate| candidate.node.as_str()).collect();
        let replacements = match self.replacements.len() {
            0 => String::new(),
            1 => " -> [1 replacement]".to_owned(),
            many => format!(" -> [{many} replacements]"),
        };
        format!(
            "{}/{id}: {}: nodepools=[{}]: [{}]{replacements} (savings: ${:.2})",
            self.method.reason().as_str(),
            self.decision.label(),
            self.pools().join(","),
            nodes.join(", "),
            self.saving_per_hour(),
        )
    }

    /// The description of the command for the events of one candidate. If the command has several candidates, only the
    /// number of the others is stated.
    pub(super) fn describe_for(&self, id: &str, candidate: &Candidate) -> String {
        match self.candidates.len() {
            0 | 1 => self.describe(id),
            many => {
                format!("{}: [{}] (part of {many}-node consolidation)", self.decision.label(), candidate.node)
            }
        }
    }
}

fn planned_replacements(command: &Command, assembled: &AssembledCluster) -> Option<Vec<Replacement>> {
    let problem = &assembled.cluster.problem;
    let launch = |planned: &karpenter_model::plan::PlannedNode| {
        let pool = assembled.pools.get(planned.pool)?.clone();
        let usage = problem.pools.get(planned.pool)?.usage.clone();
        Some(Replacement {
            claim: claims::claim_from_plan(problem, planned, &pool),
            pool,
            usage,
            is_static: false,
        })
    };
    command.replacements.iter().map(launch).collect()
}

/// The name of the NodeClaim of a host, or of its Node if it has no NodeClaim.
fn host_name(host: &Host) -> Option<String> {
    let claim = host.claim.as_deref().map(name_of);
    claim.or_else(|| host.node.as_deref().map(name_of)).map(str::to_owned)
}
