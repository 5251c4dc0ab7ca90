//! The store of objects. It has one revision counter and, for each kind, an ordered map of objects and a bounded
//! history of changes.
//!
//! The store decides the order of commits. It does not apply defaults, validate or authorize. A watch reads the history
//! at its own pace, so a slow watch needs no memory. If changes that the watch still needs were dropped from the
//! history, the store returns [`HistoryLost`].

mod entry;
mod history;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::selector::SelectableFields;

pub use entry::{ChangeKind, Draft, Entry, frame_of, key};
pub use history::{Event, History, HistoryLost};

/// The name of the map of a kind, such as `pods` or `deployments.apps`. All versions of a kind share the map.
pub type StorageId = Arc<str>;

/// Why the store rejected a write.
#[derive(Debug)]
pub enum WriteRefused {
    /// The write is a create, but an object with this key exists.
    Exists,
    /// The write is an update or delete, but there is no object with this key.
    Missing,
    /// The write is an update or delete, but the stored object does not have the expected revision.
    Changed(Arc<Entry>),
}

/// The objects of one kind as they were at one revision.
#[derive(Debug)]
pub struct Snapshot {
    pub revision: u64,
    pub entries: Vec<Arc<Entry>>,
}

/// Which objects a list or watch covers, by their keys.
#[derive(Debug, Clone, Default)]
pub struct Range {
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// If set, only the object with this key is covered.
    pub key: Option<String>,
    /// If set, only objects with later keys are covered, as for the next page of a list.
    pub after: Option<String>,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Box<str>, Arc<Entry>>,
    history: History,
    visible: watch::Sender<u64>,
}

impl Table {
    fn new(history_limit: usize, floor: u64, revision: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: History::new(history_limit, floor),
            visible: watch::Sender::new(revision),
        }
    }
}

#[derive(Debug)]
struct Inner {
    revision: u64,
    /// The history lacks changes of this kind before this revision.
    floor: u64,
    tables: BTreeMap<StorageId, Table>,
}

/// Receives every commit, in order, while the store is locked. Implementations must not block.
pub trait CommitSink: Send + Sync {
    fn committed(&self, storage: &StorageId, entry: &Entry, deleted: bool);
}

pub struct Store {
    inner: Mutex<Inner>,
    history_limit: usize,
    sink: Option<Arc<dyn CommitSink>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Store {
    pub fn new(history_limit: usize, sink: Option<Arc<dyn CommitSink>>) -> Self {
        let inner = Inner { revision: 1, floor: 0, tables: BTreeMap::new() };
        Self { inner: Mutex::new(inner), history_limit: history_limit.max(1), sink }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every critical section leaves the maps consistent, so a poisoned lock can be used.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// The number of stored objects of a kind.
    pub fn count(&self, storage: &StorageId) -> usize {
        self.lock().tables.get(storage).map_or(0, |table| table.objects.len())
    }

    pub fn get(&self, storage: &StorageId, key: &str) -> Option<Arc<Entry>> {
        self.lock().tables.get(storage)?.objects.get(key).cloned()
    }

    pub fn create(&self, storage: &StorageId, draft: Draft) -> Result<Arc<Entry>, WriteRefused> {
        let mut inner = self.lock();
        if inner.tables.get(storage).is_some_and(|table| table.objects.contains_key(draft.key())) {
            return Err(WriteRefused::Exists);
        }
        Ok(self.commit(&mut inner, storage, ChangeKind::Added, draft))
    }

    /// Replaces the stored object if its revision is `expected`.
    pub fn update(
        &self,
        storage: &StorageId,
        expected: u64,
        draft: Draft,
    ) -> Result<Arc<Entry>, WriteRefused> {
        let mut inner = self.lock();
        check(&inner, storage, draft.key(), expected)?;
        Ok(self.commit(&mut inner, storage, ChangeKind::Modified, draft))
    }

    /// Removes the stored object if its revision is `expected`. `last` is the object that the `DELETED` event contains.
    pub fn delete(
        &self,
        storage: &StorageId,
        expected: u64,
        last: Draft,
    ) -> Result<Arc<Entry>, WriteRefused> {
        let mut inner = self.lock();
        check(&inner, storage, last.key(), expected)?;
        Ok(self.commit(&mut inner, storage, ChangeKind::Deleted, last))
    }

    fn commit(&self, inner: &mut Inner, storage: &StorageId, kind: ChangeKind, draft: Draft) -> Arc<Entry> {
        let (before, floor) = (inner.revision, inner.floor);
        inner.revision += 1;
        let entry = Arc::new(draft.commit(kind, inner.revision));
        let table = inner
            .tables
            .entry(storage.clone())
            .or_insert_with(|| Table::new(self.history_limit, floor, before));
        let previous = match kind {
            ChangeKind::Deleted => table.objects.remove(entry.key()),
            _ => table.objects.insert(entry.key().into(), entry.clone()),
        };
        table.history.push(Event { kind, entry: entry.clone(), previous });
        match &self.sink {
            Some(sink) => sink.committed(storage, &entry, kind == ChangeKind::Deleted),
            None => {
                table.visible.send_replace(entry.revision());
            }
        }
        entry
    }

    /// Makes changes up to `revision` visible to watches. It is called by a sink that first writes commits to disk.
    pub fn publish(&self, revision: u64) {
        for table in self.lock().tables.values() {
            if table.history.newest() > *table.visible.borrow() {
                table.visible.send_replace(revision.min(table.history.newest()));
            }
        }
    }

    /// Stores an object with the revision that it had before the restart, without a watch event.
    pub fn restore(&self, storage: &StorageId, revision: u64, draft: Option<Draft>, key: &str) {
        let mut inner = self.lock();
        inner.revision = inner.revision.max(revision);
        let table = inner
            .tables
            .entry(storage.clone())
            .or_insert_with(|| Table::new(self.history_limit, revision, revision));
        match draft {
            Some(draft) => {
                let entry = Arc::new(draft.commit(ChangeKind::Modified, revision));
                table.objects.insert(entry.key().into(), entry);
            }
            None => {
                table.objects.remove(key);
            }
        }
    }

    /// All objects of all kinds, and the current revision.
    pub fn all_entries(&self) -> (u64, Vec<(StorageId, Arc<Entry>)>) {
        let inner = self.lock();
        let mut entries = Vec::new();
        for (storage, table) in &inner.tables {
            entries.extend(table.objects.values().map(|entry| (storage.clone(), entry.clone())));
        }
        (inner.revision, entries)
    }

    /// Ends the restore; the history of changes starts at this revision.
    pub fn finish_restore(&self, revision: u64) {
        let mut inner = self.lock();
        inner.revision = inner.revision.max(revision);
        let newest = inner.revision;
        inner.floor = newest;
        for table in inner.tables.values_mut() {
            table.history = History::new(self.history_limit, newest);
            table.visible.send_replace(newest);
        }
    }

    /// Updates the selectable fields of stored objects, after the CRD of their kind changed.
    pub fn reindex(&self, storage: &StorageId, selectable: &SelectableFields) {
        let mut inner = self.lock();
        let Some(table) = inner.tables.get_mut(storage) else { return };
        for entry in table.objects.values_mut() {
            if let Some(changed) = entry.reindexed(selectable) {
                *entry = Arc::new(changed);
            }
        }
    }

    /// The current objects that `range` covers.
    pub fn list(&self, storage: &StorageId, range: &Range) -> Snapshot {
        let inner = self.lock();
        let entries = match inner.tables.get(storage) {
            Some(table) => select(&table.objects, range).cloned().collect(),
            None => Vec::new(),
        };
        Snapshot { revision: inner.revision, entries }
    }

    /// The objects that `range` covered at `revision`.
    pub fn list_at(
        &self,
        storage: &StorageId,
        range: &Range,
        revision: u64,
    ) -> Result<Snapshot, HistoryLost> {
        let inner = self.lock();
        let Some(table) = inner.tables.get(storage) else {
            return Ok(Snapshot { revision, entries: Vec::new() });
        };
        if table.history.newest() <= revision {
            let entries = select(&table.objects, range).cloned().collect();
            return Ok(Snapshot { revision, entries });
        }
        let undone = table.history.undo_to(revision)?;
        let mut objects: BTreeMap<Box<str>, Arc<Entry>> =
            select(&table.objects, range).map(|entry| (entry.key().into(), entry.clone())).collect();
        for (key, before) in undone {
            if !range.contains(&key) {
                continue;
            }
            match before {
                Some(entry) => objects.insert(key, entry),
                None => objects.remove(&key),
            };
        }
        Ok(Snapshot { revision, entries: objects.into_values().collect() })
    }

    /// A channel that wakes watches. Its value is the newest revision of this kind that watches may read.
    pub fn subscribe(&self, storage: &StorageId) -> watch::Receiver<u64> {
        let mut inner = self.lock();
        let (floor, revision) = (inner.floor, inner.revision);
        inner
            .tables
            .entry(storage.clone())
            .or_insert_with(|| Table::new(self.history_limit, floor, revision))
            .visible
            .subscribe()
    }

    /// The current revision, if a watch at `position` has sent every change of this kind; `None` if it has not.
    pub fn caught_up(&self, storage: &StorageId, position: u64) -> Option<u64> {
        let inner = self.lock();
        let newest = inner.tables.get(storage).map_or(0, |table| table.history.newest());
        (newest <= position).then_some(inner.revision)
    }

    /// The changes after `revision`, oldest first, but not more than `limit`.
    pub fn events_after(
        &self,
        storage: &StorageId,
        revision: u64,
        visible: u64,
        limit: usize,
    ) -> Result<Vec<Event>, HistoryLost> {
        let inner = self.lock();
        match inner.tables.get(storage) {
            Some(table) => table.history.after(revision, visible, limit),
            None => Ok(Vec::new()),
        }
    }
}

fn check(inner: &Inner, storage: &StorageId, key: &str, expected: u64) -> Result<(), WriteRefused> {
    match inner.tables.get(storage).and_then(|table| table.objects.get(key)) {
        None => Err(WriteRefused::Missing),
        Some(entry) if entry.revision() != expected => Err(WriteRefused::Changed(entry.clone())),
        Some(_) => Ok(()),
    }
}

impl Range {
    pub fn contains(&self, key: &str) -> bool {
        let in_namespace = self.namespace.is_empty()
            || key.strip_prefix(self.namespace.as_str()).is_some_and(|rest| rest.starts_with('/'));
        in_namespace
            && self.key.as_deref().is_none_or(|only| only == key)
            && self.after.as_deref().is_none_or(|after| key > after)
    }
}

fn select<'a>(
    objects: &'a BTreeMap<Box<str>, Arc<Entry>>,
    range: &'a Range,
) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
    if let Some(only) = &range.key {
        return Box::new(objects.get(only.as_str()).into_iter().filter(|entry| range.contains(entry.key())));
    }
    let prefix = if range.namespace.is_empty() { String::new() } else { format!("{}/", range.namespace) };
    let start = match &range.after {
        Some(after) if *after >= prefix => Bound::Excluded(after.clone().into_boxed_str()),
        _ => Bound::Included(prefix.clone().into_boxed_str()),
    };
    Box::new(
        objects
            .range::<Box<str>, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| entry),
    )
}
