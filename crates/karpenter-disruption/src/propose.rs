//! One pass over a fleet: the methods in their order, the commands of the first that finds something, and for every
//! machine how it stands.
//!
//! Nothing is remembered between passes; what waits or runs already is part of the fleet.
//!
//! Upstream: pkg/controllers/disruption/controller.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budgets::Remaining;
use crate::command::{Command, Method};
pub use crate::explain::{Standing, Why};
use crate::fleet::{Fleet, Reason};
use crate::settings::Settings;

#[derive(Debug, Clone, Default)]
pub struct Proposal {
    /// To be carried out, all of one method, within all budgets together.
    pub commands: Vec<Command>,
    /// What would be done if pools were not on a dry run. Not to be carried out.
    pub rehearsals: Vec<Command>,
    /// One per machine, in the fleet's order.
    pub standings: Vec<Standing>,
    /// One per method that was asked, in order.
    pub outcomes: Vec<MethodOutcome>,
    /// Budgets as they stood before the pass, for gauges and for events on pools.
    pub budgets: BTreeMap<(Arc<str>, Reason), Remaining>,
}

/// What became of one method in a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodOutcome {
    pub method: Method,
    /// Nodes that it could have disrupted.
    pub candidates: usize,
    pub commands: usize,
    /// It would have found more if budgets allowed more: look again even if nothing changes.
    pub is_constrained_by_budgets: bool,
    /// What no fleet for the same pods can cost less than, where the method knows.
    pub lower_bound_per_hour: Option<f64>,
}

/// What to do now, and why not more.
pub fn propose(fleet: &Fleet, settings: &Settings) -> Proposal {
    let _ = (fleet, settings);
    Proposal::default()
}
