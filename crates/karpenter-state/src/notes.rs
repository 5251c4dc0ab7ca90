//! What was left out of a problem, and what was assumed where the input said nothing.

use std::fmt;

use karpenter_api::error::one_line;

use crate::controls::ControlError;
use crate::convert::pool::PoolLeftOut;

/// One remark about an input that is otherwise usable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The input has no NodePool at all.
    NoNodePools,
    PoolLeftOut {
        pool: String,
        why: PoolLeftOut,
    },
    /// The pool's nodes are there, but it gets no more of them from a plan.
    PoolLaunchesNothing {
        pool: String,
        why: PoolLeftOut,
    },
    /// Nodes of a pool without a NodeClaim in the input.
    ClaimsAssumed {
        count: u32,
    },
    /// The pool's NodeClass is not in the input.
    NodeClassMissing {
        pool: String,
        kind: String,
        name: String,
    },
    /// A setting of a NodeClass was not understood and is taken as not given.
    SettingSkipped {
        node_class: String,
        path: String,
        why: String,
    },
    /// Pods with scheduling gates wait for someone else.
    GatedPods {
        count: u32,
    },
    /// Pods that already have a node in prospect, after preemption.
    NominatedPods {
        count: u32,
    },
    /// Pods on nodes that are not in the input.
    PodsOnUnknownNodes {
        count: u32,
    },
    /// Pods on nodes being deleted that need another place.
    DisplacedPods {
        count: u32,
    },
    /// Claims that have not been launched yet, so that their size is unknown.
    UnlaunchedClaims {
        names: Vec<String>,
    },
    PriorityClassesMissing {
        names: Vec<String>,
    },
    /// DaemonSets whose pods use resource claims: no capacity is reserved for them.
    DaemonSetsWithClaims {
        names: Vec<String>,
    },
    /// Pods whose annotation about the cost of moving them is no number.
    CostsUnreadable {
        pods: Vec<String>,
    },
    /// It is not known what pods the buffer stands for.
    BufferLeftOut {
        buffer: String,
        why: String,
    },
    /// An annotation of a pool that cannot be used as it is.
    AnnotationUnusable(ControlError),
    /// Overlays that contradict another one of the same weight.
    NodeOverlaysConflicting {
        names: Vec<String>,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: &u32| if *count == 1 { "" } else { "s" };
        match self {
            Self::NoNodePools => f.write_str("the input has no nodepool"),
            Self::PoolLeftOut { pool, why } => write!(f, "nodepool {pool} is left out: it {why}"),
            Self::PoolLaunchesNothing { pool, why } => {
                write!(f, "nodepool {pool} launches nothing for pods that move: it {why}")
            }
            Self::ClaimsAssumed { count } => {
                write!(
                    f,
                    "{count} node{} of a nodepool without a nodeclaim in the input: taken as initialised, not drifted, and quiet since the newest pod came",
                    plural(count)
                )
            }
            Self::NodeClassMissing { pool, kind, name } => {
                write!(
                    f,
                    "{} {} of nodepool {pool} is not in the input; defaults are used",
                    one_line(kind),
                    one_line(name)
                )
            }
            Self::SettingSkipped { node_class, path, why } => {
                write!(f, "{node_class}: {path} is not used: {}", one_line(why))
            }
            Self::GatedPods { count } => {
                write!(f, "{count} pod{} with scheduling gates left out", plural(count))
            }
            Self::NominatedPods { count } => {
                write!(f, "{count} pod{} left out: a node is already nominated", plural(count))
            }
            Self::PodsOnUnknownNodes { count } => {
                write!(f, "{count} pod{} left out: on nodes that are not in the input", plural(count))
            }
            Self::DisplacedPods { count } => {
                let need = if *count == 1 { "needs" } else { "need" };
                write!(f, "{count} pod{} on nodes being deleted {need} another place", plural(count))
            }
            Self::UnlaunchedClaims { names } => {
                write!(f, "nodeclaims not launched yet are left out: {}", shortened(names))
            }
            Self::PriorityClassesMissing { names } => {
                write!(f, "priority classes not in the input count as the default: {}", shortened(names))
            }
            Self::DaemonSetsWithClaims { names } => {
                write!(
                    f,
                    "requests of daemonsets that use resource claims are not counted: {}",
                    shortened(names)
                )
            }
            Self::CostsUnreadable { pods } => {
                write!(
                    f,
                    "annotations about the cost of moving a pod count as 0 where they are no whole number of 32 bits: {}",
                    shortened(pods)
                )
            }
            Self::BufferLeftOut { buffer, why } => {
                write!(f, "capacitybuffer {} is left out: {}", one_line(buffer), one_line(why))
            }
            Self::AnnotationUnusable(error) => write!(f, "{error}"),
            Self::NodeOverlaysConflicting { names } => {
                write!(f, "nodeoverlays not applied, in conflict with others: {}", shortened(names))
            }
        }
    }
}

fn shortened(names: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown = names.iter().take(SHOWN_MAX).map(|name| one_line(name)).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} others"),
    }
}
