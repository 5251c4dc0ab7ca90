//! Nodes on which nothing runs that would have to run elsewhere.

use std::sync::Arc;

use jiff::Timestamp;

use super::candidate::{Candidate, candidate, is_quiet, pool_of};
use super::command::Finding;
use super::cost::reschedule_cost;
use super::snapshot::{Machine, Snapshot};

/// Candidates that are empty and have been left alone long enough, dearest first; and what stands against others.
pub fn find(snapshot: &Snapshot, now: Timestamp) -> (Vec<Candidate>, Vec<Finding>) {
    let mut candidates = Vec::new();
    let mut findings = Vec::new();
    for machine in &snapshot.machines {
        let Some(pool) = pool_of(machine, snapshot).filter(|pool| !pool.is_static()) else { continue };
        if machine.is_leaving || !machine.is_initialized() || !is_empty(machine) {
            continue;
        }
        match is_quiet(machine, pool, now) {
            None => {
                findings.push(Finding::NeverConsolidated { claim: machine.name().to_owned() });
                continue;
            }
            Some(false) => continue,
            Some(true) => {}
        }
        match candidate(machine, snapshot, now) {
            Ok(found) => candidates.push(found),
            Err(blocked) => findings.push(Finding::Blocked { claim: machine.name().to_owned(), blocked }),
        }
    }
    candidates.sort_by(|one, other| {
        other.savings_ratio().total_cmp(&one.savings_ratio()).then_with(|| one.claim.cmp(&other.claim))
    });
    (candidates, findings)
}

/// Pods that are worth nothing to their owner do not make a node worth keeping.
pub fn is_empty(machine: &Machine) -> bool {
    reschedule_cost(machine.pods.iter().map(Arc::as_ref)) <= 1.0
}
