//! The verdicts of the last evaluation, one for each node, served by `/debug/standings`. No decision depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{Evaluation, NodeVerdict, Verdict};
use karpenter_runtime::clock::after;
use karpenter_state::AssembledCluster;
use serde::Serialize;

/// The verdict for one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictEntry {
    pub node_claim: String,
    pub node: Option<String>,
    pub node_pool: Option<String>,
    /// The code of the verdict, for programs; unlike the text, it is stable.
    pub standing: String,
    /// The verdict as a text for users.
    pub why: String,
    pub price_per_hour: f64,
    /// When the evaluation took place, and in the next field the revision of the objects that it read.
    pub at: Timestamp,
    pub revision: u64,
    /// If the evaluation has no verdict for this node considered alone: the latest such verdict of an earlier
    /// evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<SingleNodeVerdict>,
}

/// The verdict of an earlier evaluation that considered only this node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SingleNodeVerdict {
    pub standing: String,
    pub why: String,
    pub at: Timestamp,
    pub revision: u64,
}

/// Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Verdicts {
    shared: Arc<Mutex<BTreeMap<String, VerdictEntry>>>,
    requests: Arc<Mutex<VerdictRequests>>,
}

/// The nodes and NodeClaims for which users requested a verdict.
#[derive(Debug, Default)]
struct VerdictRequests {
    /// When each request expires, by the name of the Node or NodeClaim that it asks about.
    until: BTreeMap<String, Timestamp>,
    /// Whether a request was added since the last evaluation.
    is_new: bool,
}

/// For this long, evaluations compute the requested verdict again.
const REQUEST_TTL: Duration = Duration::from_secs(5 * 60);
/// The maximum number of requests that have not expired; further requests are ignored.
const REQUESTS_MAX: usize = 5;

impl Verdicts {
    /// Replaces the verdicts with those of an evaluation.
    pub(crate) fn replace(&self, assembled: &AssembledCluster, evaluation: &Evaluation, at: Timestamp) {
        let cluster = &assembled.cluster;
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = |standing: &NodeVerdict| {
            let state_node = cluster.state_nodes.get(standing.state_node)?;
            let is_unexplained = is_unexplained(standing);
            let entry = VerdictEntry {
                node_claim: state_node.claim.to_string(),
                node: state_node.node.as_ref().map(ToString::to_string),
                node_pool: state_node.pool.as_ref().map(ToString::to_string),
                standing: code(&standing.verdict),
                why: standing.verdict.to_string(),
                price_per_hour: state_node.price_per_hour,
                at,
                revision: cluster.revision,
                alone: known.get(&*state_node.claim).filter(|_| is_unexplained).and_then(alone),
            };
            Some((state_node.claim.to_string(), entry))
        };
        let entries = evaluation.verdicts.iter().filter_map(entry).collect();
        *known = entries;
    }

    /// Requests that an evaluation considers this Node or NodeClaim alone, if no command was found for it. The next
    /// evaluation that finds no commands computes the verdict.
    pub fn request(&self, name: &str, now: Timestamp) {
        let is_unexplained =
            self.entries(Some(name)).iter().any(|entry| UNEXPLAINED.contains(&entry.standing.as_str()));
        let mut requests = self.requests();
        requests.until.retain(|_, until| now < *until);
        if is_unexplained && requests.until.len() < REQUESTS_MAX {
            requests.is_new |= requests.until.insert(name.to_owned(), after(now, REQUEST_TTL)).is_none();
        }
    }

    /// Whether there is a request that no evaluation has answered yet.
    pub(crate) fn has_new_request(&self) -> bool {
        self.requests().is_new
    }

    /// The names in all requests that have not expired. The caller computes verdicts for them.
    pub(crate) fn take_requests(&self, now: Timestamp) -> BTreeSet<String> {
        let mut requests = self.requests();
        requests.is_new = false;
        requests.until.retain(|_, until| now < *until);
        requests.until.keys().cloned().collect()
    }

    fn requests(&self) -> MutexGuard<'_, VerdictRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The verdicts of all nodes sorted by claim, or that of the node or claim with this name.
    pub fn entries(&self, of: Option<&str>) -> Vec<VerdictEntry> {
        let entries = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |entry: &&VerdictEntry| {
            of.is_none_or(|name| entry.node.as_deref() == Some(name) || entry.node_claim == name)
        };
        entries.values().filter(is_meant).cloned().collect()
    }
}

/// Whether rebalance keeps the node because of its objective, and the node was not explained on its own.
fn is_unexplained(standing: &NodeVerdict) -> bool {
    standing.verdict.is_unexplained() && standing.method == Some(Method::Rebalance)
}

/// The verdict for the node considered alone: the one in this entry, or else the latest earlier one.
fn alone(entry: &VerdictEntry) -> Option<SingleNodeVerdict> {
    let is_answer = ANSWERS.contains(&entry.standing.as_str());
    let own = is_answer.then(|| SingleNodeVerdict {
        standing: entry.standing.clone(),
        why: entry.why.clone(),
        at: entry.at,
        revision: entry.revision,
    });
    own.or_else(|| entry.alone.clone())
}

/// Codes of verdicts that state only that the objective keeps the node; see [`Verdict::is_unexplained`].
const UNEXPLAINED: [&str; 2] = ["Fine", "Stays"];

/// Codes of verdicts that exist only for a node considered alone. Other verdicts are repeated by every evaluation while
/// they apply.
const ANSWERS: [&str; 8] = [
    "WouldNotFit",
    "NeedsSeveralNodes",
    "NotCheaper",
    "TooFewTypes",
    "SpotToSpotOff",
    "SpotToSpotInflexible",
    "BelowThreshold",
    "Unbalanced",
];

/// The code of a verdict: the name of the enum variant without its fields.
fn code(why: &Verdict) -> String {
    let text = match why {
        Verdict::Blocked(blocked) => format!("{blocked:?}"),
        other => format!("{other:?}"),
    };
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}
