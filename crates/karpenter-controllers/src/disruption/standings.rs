//! For every node, why it is (not) being disrupted now, as the last pass saw it. For people who ask; nothing is ever
//! decided from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use karpenter_disruption::propose::{Proposal, Why};
use karpenter_state::FleetRound;
use serde::Serialize;

/// How it stands with one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub node_claim: String,
    pub node: Option<String>,
    pub node_pool: Option<String>,
    /// A word for programs.
    pub standing: String,
    /// A sentence for people.
    pub why: String,
    pub price_per_hour: f64,
    /// When it was looked at, and how new the newest object was that was looked at.
    pub at: Timestamp,
    pub revision: u64,
}

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Standings {
    shared: Arc<Mutex<BTreeMap<String, Entry>>>,
}

impl Standings {
    /// What a pass found out takes the place of what was known.
    pub(super) fn replace(&self, round: &FleetRound, proposal: &Proposal, at: Timestamp) {
        let fleet = &round.fleet;
        let entry = |standing: &karpenter_disruption::propose::Standing| {
            let machine = fleet.machines.get(standing.machine)?;
            let entry = Entry {
                node_claim: machine.claim.to_string(),
                node: machine.node.as_ref().map(ToString::to_string),
                node_pool: machine.pool.as_ref().map(ToString::to_string),
                standing: word(&standing.why),
                why: standing.why.to_string(),
                price_per_hour: machine.price_per_hour,
                at,
                revision: fleet.revision,
            };
            Some((machine.claim.to_string(), entry))
        };
        let entries = proposal.standings.iter().filter_map(entry).collect();
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    /// Everything, or what is known of the node or claim of that name; by claim.
    pub fn entries(&self, of: Option<&str>) -> Vec<Entry> {
        let entries = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |entry: &&Entry| {
            of.is_none_or(|name| entry.node.as_deref() == Some(name) || entry.node_claim == name)
        };
        entries.values().filter(is_meant).cloned().collect()
    }
}

/// The variant's own name: what its fields say is in the sentence.
fn word(why: &Why) -> String {
    let text = match why {
        Why::Blocked(blocked) => format!("{blocked:?}"),
        other => format!("{other:?}"),
    };
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}
