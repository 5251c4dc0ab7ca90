//! For every node, why it is (not) being disrupted now, as the last pass saw it. For people who ask; nothing is ever
//! decided from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::command::Method;
use karpenter_disruption::evaluate::{Evaluation, NodeVerdict, Verdict};
use karpenter_state::AssembledCluster;
use serde::Serialize;

use super::command_state::after;

/// How it stands with one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictEntry {
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
    /// What stood against the node alone when it was last asked, where this pass has no words for the single node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<SingleNodeVerdict>,
}

/// An answer of an earlier pass about one node by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SingleNodeVerdict {
    pub standing: String,
    pub why: String,
    pub at: Timestamp,
    pub revision: u64,
}

/// Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Verdicts {
    shared: Arc<Mutex<BTreeMap<String, VerdictEntry>>>,
    requests: Arc<Mutex<VerdictRequests>>,
}

/// Names of nodes and claims that people have asked about.
#[derive(Debug, Default)]
struct VerdictRequests {
    /// With when that is forgotten.
    until: BTreeMap<String, Timestamp>,
    /// Nobody has looked since.
    is_new: bool,
}

/// How long passes look for an answer to what was asked.
const REQUEST_TTL: Duration = Duration::from_secs(5 * 60);
/// Questions at a time.
const REQUESTS_MAX: usize = 5;

impl Verdicts {
    /// What a pass found out takes the place of what was known.
    pub(super) fn replace(&self, assembled: &AssembledCluster, evaluation: &Evaluation, at: Timestamp) {
        let cluster = &assembled.cluster;
        let mut known = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let fine = no_command_message(cluster, evaluation);
        let entry = |standing: &NodeVerdict| {
            let state_node = cluster.state_nodes.get(standing.state_node)?;
            let is_unexplained = is_unexplained(standing);
            let entry = VerdictEntry {
                node_claim: state_node.claim.to_string(),
                node: state_node.node.as_ref().map(ToString::to_string),
                node_pool: state_node.pool.as_ref().map(ToString::to_string),
                standing: code(&standing.verdict),
                why: if is_unexplained { fine.clone() } else { standing.verdict.to_string() },
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

    /// Somebody wants to know more about a node or claim than that nothing was found for it: the next pass that has
    /// nothing to do asks about it by itself.
    pub fn request(&self, name: &str, now: Timestamp) {
        let is_unexplained = self.entries(Some(name)).iter().any(|entry| entry.standing == "Fine");
        let mut requests = self.requests();
        requests.until.retain(|_, until| now < *until);
        if is_unexplained && requests.until.len() < REQUESTS_MAX {
            requests.is_new |= requests.until.insert(name.to_owned(), after(now, REQUEST_TTL)).is_none();
        }
    }

    /// Whether there is a question that no pass has looked at.
    pub(super) fn has_new_request(&self) -> bool {
        self.requests().is_new
    }

    /// What is asked about; to be looked at now.
    pub(super) fn take_requests(&self, now: Timestamp) -> BTreeSet<String> {
        let mut requests = self.requests();
        requests.is_new = false;
        requests.until.retain(|_, until| now < *until);
        requests.until.keys().cloned().collect()
    }

    fn requests(&self) -> MutexGuard<'_, VerdictRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, or what is known of the node or claim of that name; by claim.
    pub fn entries(&self, of: Option<&str>) -> Vec<VerdictEntry> {
        let entries = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |entry: &&VerdictEntry| {
            of.is_none_or(|name| entry.node.as_deref() == Some(name) || entry.node_claim == name)
        };
        entries.values().filter(is_meant).cloned().collect()
    }
}

/// Whether a plan for all nodes together found nothing for this one, and nobody has asked about it alone.
fn is_unexplained(standing: &NodeVerdict) -> bool {
    standing.verdict == Verdict::Fine && standing.method == Some(Method::Rebalance)
}

/// What it means that nothing was found for a node when all nodes were planned for together.
fn no_command_message(cluster: &Cluster, evaluation: &Evaluation) -> String {
    let price: f64 = cluster.state_nodes.iter().map(|state_node| state_node.price_per_hour).sum();
    let bound = evaluation.outcomes.iter().find_map(|outcome| outcome.lower_bound_per_hour);
    let bound = bound.map(|bound| format!("; no fleet for these pods costs less than {bound:.4}"));
    format!(
        "No move that takes this node away, alone or with others, was found to save enough for its trouble; all \
         nodes together cost {price:.4} $/h{}",
        bound.unwrap_or_default()
    )
}

/// What an entry says about its node alone, said by itself or remembered.
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

/// What the question about one node alone is answered with. Whatever else stood against a node stood against it at the
/// time, and is told again as long as it does.
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

/// The variant's own name: what its fields say is in the sentence.
fn code(why: &Verdict) -> String {
    let text = match why {
        Verdict::Blocked(blocked) => format!("{blocked:?}"),
        other => format!("{other:?}"),
    };
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}
