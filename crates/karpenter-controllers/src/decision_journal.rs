//! The most recent decisions: what was decided, why, from which state, and at what cost. They are served by
//! `/debug/decisions`.
//!
//! The journal is a ring buffer of limited size in memory. No controller reads it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

/// Default number of entries.
pub const ENTRIES_DEFAULT: usize = 512;

/// An entry as `/debug/decisions` returns it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// The number of the entry: starts at 1 and increases within a process, so that a client can request only entries
    /// that are newer than those it has read.
    pub number: u64,
    pub at: Timestamp,
    /// The controller that decided, for example `provisioning`.
    pub by: &'static str,
    /// The decision, as one sentence.
    pub what: String,
    /// The reasons, most important first.
    pub why: Vec<String>,
    /// The newest resource version that the decision is based on.
    pub revision: u64,
    /// The price per hour of all nodes with a known price before the decision; `cost_after_per_hour` is that after it.
    pub cost_before_per_hour: Option<f64>,
    pub cost_after_per_hour: Option<f64>,
    /// After a planner fault, the input of the planner as manifests that `karpenter plan -f` reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Arc<str>>,
}

/// A decision to record. The journal adds the number of the entry.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRecord {
    pub at: Timestamp,
    pub by: &'static str,
    pub what: String,
    pub why: Vec<String>,
    pub revision: u64,
    pub cost_before_per_hour: Option<f64>,
    pub cost_after_per_hour: Option<f64>,
}

/// Only this many of the newest entries keep the input of the planner.
const INPUTS_MAX: usize = 4;

/// Clones share the ring.
#[derive(Debug, Clone)]
pub struct DecisionJournal {
    shared: Arc<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<JournalEntry>,
    entries_max: usize,
    next: u64,
}

impl Default for DecisionJournal {
    fn default() -> Self {
        Self::with_capacity(ENTRIES_DEFAULT)
    }
}

impl DecisionJournal {
    pub fn with_capacity(entries_max: usize) -> Self {
        let ring = Ring { entries: VecDeque::new(), entries_max: entries_max.max(1), next: 1 };
        Self { shared: Arc::new(Mutex::new(ring)) }
    }

    /// Records and logs a decision. The oldest entry is removed if the journal is full.
    pub fn record(&self, decision: DecisionRecord) {
        self.record_with(decision, None);
    }

    /// Like [`Self::record`], with the input of the planner.
    pub fn record_with(&self, decision: DecisionRecord, input: Option<Arc<str>>) {
        tracing::info!(decision = decision.what, reasons = decision.why.join("; "), "recorded decision");
        let mut ring = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let number = ring.next;
        ring.next += 1;
        if ring.entries.len() >= ring.entries_max {
            ring.entries.pop_front();
        }
        let DecisionRecord { at, by, what, why, revision, cost_before_per_hour, cost_after_per_hour } =
            decision;
        ring.entries.push_back(JournalEntry {
            number,
            at,
            by,
            what,
            why,
            revision,
            cost_before_per_hour: cost_before_per_hour.map(without_negative_zero),
            cost_after_per_hour: cost_after_per_hour.map(without_negative_zero),
            input,
        });
        let with_input = ring.entries.iter_mut().rev().filter(|entry| entry.input.is_some());
        with_input.skip(INPUTS_MAX).for_each(|entry| entry.input = None);
    }

    /// The entries with a number above `after`, oldest first.
    pub fn entries_after(&self, after: u64) -> Vec<JournalEntry> {
        let ring = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        ring.entries.iter().filter(|entry| entry.number > after).cloned().collect()
    }
}

/// The sum of no prices is -0.0, which JSON shows.
fn without_negative_zero(cost_per_hour: f64) -> f64 {
    cost_per_hour + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_removed_and_numbers_increase() {
        let journal = DecisionJournal::with_capacity(2);
        for what in ["a", "b", "c"] {
            journal.record(DecisionRecord {
                at: Timestamp::UNIX_EPOCH,
                by: "test",
                what: what.to_owned(),
                why: Vec::new(),
                revision: 7,
                cost_before_per_hour: Some(std::iter::empty::<f64>().sum()),
                cost_after_per_hour: Some(1.5),
            });
        }
        let shown: Vec<_> =
            journal.entries_after(0).into_iter().map(|entry| (entry.number, entry.what)).collect();
        assert_eq!(shown, [(2, "b".to_owned()), (3, "c".to_owned())]);
        assert_eq!(journal.entries_after(2).len(), 1);
        let text = serde_json::to_value(&journal.entries_after(2)[0]).expect("JSON");
        assert_eq!(text["costAfterPerHour"], 1.5);
        assert_eq!(text["costBeforePerHour"].to_string(), "0.0");
        assert!(text.get("input").is_none());
        assert_eq!(text["at"], "1970-01-01T00:00:00Z");
    }
}
