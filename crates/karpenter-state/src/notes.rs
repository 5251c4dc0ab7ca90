//! Notes about objects that were left out of a problem, and about assumptions where the input has no
//! information.

use std::fmt;

use karpenter_api::error::one_line;

use crate::controls::ControlError;
use crate::convert::pool::PoolLeftOut;

/// A note about an input that can still be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The input has no NodePool.
    NoNodePools,
    PoolLeftOut {
        pool: String,
        why: PoolLeftOut,
    },
    /// Nodes of the NodePool exist, but a plan launches no further ones.
    PoolLaunchesNothing {
        pool: String,
        why: PoolLeftOut,
    },
    /// The input lacks the NodeClaims of these nodes of a NodePool, so the claims are assumed.
    ClaimsAssumed {
        count: u32,
    },
    /// The node class of the NodePool is not in the input.
    NodeClassMissing {
        pool: String,
        kind: String,
        name: String,
    },
    /// A setting of a node class could not be parsed and is ignored.
    SettingSkipped {
        node_class: String,
        path: String,
        why: String,
    },
    /// Pods with scheduling gates are not planned.
    GatedPods {
        count: u32,
    },
    /// Pods that are already nominated for a node.
    NominatedPods {
        count: u32,
    },
    /// Pods on nodes that are not in the input.
    PodsOnUnknownNodes {
        count: u32,
    },
    /// Pods on nodes that are being deleted; they have to be rescheduled.
    DisplacedPods {
        count: u32,
    },
    /// Claims that are not launched yet, so that their size is unknown.
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
    /// Pods whose cost annotation is not a number.
    CostsUnreadable {
        pods: Vec<String>,
    },
    /// The buffer could not be resolved.
    BufferLeftOut {
        buffer: String,
        why: String,
    },
    /// An invalid annotation of a NodePool.
    AnnotationUnusable(ControlError),
    /// Overlays that conflict with another one of the same weight.
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
                write!(f, "nodepool {pool} launches no nodes for rescheduled pods: it {why}")
            }
            Self::ClaimsAssumed { count } => {
                write!(
                    f,
                    "{count} node{} of a nodepool without a nodeclaim in the input: assumed to be initialized, not drifted, and without pod events since the newest pod started",
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
                let have = if *count == 1 { "has" } else { "have" };
                write!(f, "{count} pod{} on nodes being deleted {have} to be rescheduled", plural(count))
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
                write!(f, "cost annotations that are not 32-bit integers count as 0: {}", shortened(pods))
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
