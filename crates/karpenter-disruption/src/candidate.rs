//! Which nodes may be disrupted at all, and what stands against the others.
//!
//! Whether there is a reason to disrupt a node is for the methods to say.
//!
//! Upstream: pkg/controllers/disruption/types.go (NewCandidate), pkg/controllers/state/statenode.go.

use std::fmt;
use std::sync::Arc;

use crate::command::Candidate;
use crate::fleet::Fleet;

/// How much a method has to respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Every pod's wishes count.
    Graceful,
    /// Pods' wishes count unless the claim bounds its drain.
    Eventual,
    /// A sick node is not kept by wishes about its node, nor by pods if the drain is bounded.
    Repair,
}

/// Why a node may not go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocked {
    /// Part of a command or of a proposal already; nobody is told.
    InCommand,
    RepairWithoutPool,
    NoNode,
    Rebooting,
    Leaving,
    NotRegistered,
    NotInitialized,
    Nominated,
    Annotated,
    NoPoolLabel,
    NoPool(Arc<str>),
    /// namespace/name of the pod.
    PodAnnotated(Arc<str>),
    /// namespace/name of the budget.
    PodBudget(Arc<str>),
    /// More than one budget selects a pod.
    PodBudgets(Vec<Arc<str>>),
    /// `karpenter.sh/do-not-repair`
    RepairVetoed,
    /// Pods stand against a repair whose drain nothing bounds.
    RepairUnbounded,
}

/// The words of upstream's event.
impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCommand => f.write_str("Candidate is already being disrupted"),
            Self::RepairWithoutPool => {
                f.write_str("repair requires a NodePool to construct and budget a safe replacement")
            }
            Self::NoNode => f.write_str("Nodeclaim does not have an associated node"),
            Self::Rebooting => f.write_str("Node is rebooting"),
            Self::Leaving => f.write_str("Node is deleting or marked for deletion"),
            Self::NotRegistered => f.write_str("Node isn't initialized nor registered"),
            Self::NotInitialized => f.write_str("Node isn't initialized"),
            Self::Nominated => f.write_str("Node is nominated for a pending pod"),
            Self::Annotated => {
                f.write_str("Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation")
            }
            Self::NoPoolLabel => {
                f.write_str("Node doesn't have required label (label=karpenter.sh/nodepool)")
            }
            Self::NoPool(pool) => write!(f, "NodePool not found (NodePool={pool})"),
            Self::PodAnnotated(pod) => {
                write!(f, "Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={pod})")
            }
            Self::PodBudget(budget) => {
                write!(f, "Pdb prevents pod evictions (PodDisruptionBudget=[{budget}])")
            }
            Self::PodBudgets(budgets) => {
                write!(
                    f,
                    "Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])",
                    budgets.join(" ")
                )
            }
            Self::RepairVetoed => {
                f.write_str("repair is blocked through the \"karpenter.sh/do-not-repair\" annotation")
            }
            Self::RepairUnbounded => {
                f.write_str("repair requires a termination grace period to bypass blocking pods")
            }
        }
    }
}

/// The machine as a candidate, or what stands against it first.
pub fn candidate(fleet: &Fleet, machine: usize, class: Class) -> Result<Candidate, Blocked> {
    let _ = (fleet, machine, class);
    Err(Blocked::InCommand)
}
