//! For every node, why it is (not) being disrupted now, as the last pass saw it. For people who ask; nothing is ever
//! decided from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::propose::{Proposal, Why};
use karpenter_state::FleetRound;
use serde::Serialize;

use super::flight::after;

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
    asked: Arc<Mutex<Asked>>,
}

/// Names of nodes and claims that people have asked about.
#[derive(Debug, Default)]
struct Asked {
    /// With when that is forgotten.
    until: BTreeMap<String, Timestamp>,
    /// Nobody has looked since.
    is_new: bool,
}

/// How long passes look for an answer to what was asked.
const ASKED_FOR: Duration = Duration::from_secs(5 * 60);
/// Questions at a time.
const ASKED_MAX: usize = 5;

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

    /// Somebody wants to know more about a node or claim than that nothing was found for it: the next pass that has
    /// nothing to do asks about it by itself.
    pub fn ask(&self, name: &str, now: Timestamp) {
        let is_unexplained = self.entries(Some(name)).iter().any(|entry| entry.standing == "Fine");
        let mut asked = self.asked();
        asked.until.retain(|_, until| now < *until);
        if is_unexplained && asked.until.len() < ASKED_MAX {
            asked.is_new |= asked.until.insert(name.to_owned(), after(now, ASKED_FOR)).is_none();
        }
    }

    /// Whether there is a question that no pass has looked at.
    pub(super) fn is_asked(&self) -> bool {
        self.asked().is_new
    }

    /// What is asked about; to be looked at now.
    pub(super) fn wanted(&self, now: Timestamp) -> BTreeSet<String> {
        let mut asked = self.asked();
        asked.is_new = false;
        asked.until.retain(|_, until| now < *until);
        asked.until.keys().cloned().collect()
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
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
