//! The recent changes of one kind, oldest first, up to a maximum number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::entry::{ChangeKind, Entry};

/// One committed change.
#[derive(Debug, Clone)]
pub struct Event {
    pub kind: ChangeKind,
    /// The object after the change. For a deletion, this is its last state, with the revision of the deletion.
    pub entry: Arc<Entry>,
    pub previous: Option<Arc<Entry>>,
}

/// The error that the requested revision is older than the history.
#[derive(Debug, PartialEq, Eq)]
pub struct HistoryLost {
    /// The oldest revision after which the history has all changes.
    pub oldest: u64,
}

#[derive(Debug)]
pub struct History {
    limit: usize,
    /// The history has all changes after this revision.
    oldest: u64,
    events: VecDeque<Event>,
}

impl History {
    pub fn new(limit: usize, oldest: u64) -> Self {
        Self { limit, oldest, events: VecDeque::new() }
    }

    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
        while self.events.len() > self.limit {
            if let Some(dropped) = self.events.pop_front() {
                self.oldest = dropped.entry.revision();
            }
        }
    }

    /// The revision of the newest change; without changes, the revision at which the history starts.
    pub fn newest(&self) -> u64 {
        self.events.back().map_or(self.oldest, |event| event.entry.revision())
    }

    pub fn after(&self, revision: u64, visible: u64, limit: usize) -> Result<Vec<Event>, HistoryLost> {
        if revision < self.oldest {
            return Err(HistoryLost { oldest: self.oldest });
        }
        let start = self.events.partition_point(|event| event.entry.revision() <= revision);
        Ok(self
            .events
            .range(start..)
            .take_while(|event| event.entry.revision() <= visible)
            .take(limit)
            .cloned()
            .collect())
    }

    /// For each key that changed after `revision`: the object that it had at `revision`.
    pub fn undo_to(&self, revision: u64) -> Result<BTreeMap<Box<str>, Option<Arc<Entry>>>, HistoryLost> {
        if revision < self.oldest {
            return Err(HistoryLost { oldest: self.oldest });
        }
        let mut before = BTreeMap::new();
        for event in self.events.iter().rev().take_while(|event| event.entry.revision() > revision) {
            before.insert(event.entry.key().into(), event.previous.clone());
        }
        Ok(before)
    }
}
