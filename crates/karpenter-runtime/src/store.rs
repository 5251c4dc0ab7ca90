//! A store: the shared, ordered in-memory copy of the objects of a kind, kept current by a watch. It corresponds to an
//! informer in client-go.
//!
//! A process has one store per kind, which all controllers share. The store holds what the watch delivered, plus what
//! this process wrote and the watch has not delivered yet ([`Store::apply`]), so that a controller sees its own
//! writes at once. Fields that no controller reads are removed before an object is stored, so a stored object must
//! never be written back as a whole.

mod untyped;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kube::Resource;
use kube::runtime::watcher::Event;
use tokio::sync::{mpsc, watch};

use self::untyped::{AnyObject, IndexEntries, ObjectMap, typed};
use crate::object::ObjectKey;
use crate::watch::failure::WatchFailures;

/// How a store reads the metadata of its objects, which fields it removes, and how it compares two versions of an
/// object.
pub struct KindSpec<K> {
    pub key: fn(&K) -> ObjectKey,
    /// The resource version of an object; 0 if it has none.
    pub version: fn(&K) -> u64,
    pub uid: fn(&K) -> Option<&str>,
    pub is_deleting: fn(&K) -> bool,
    /// Removes `managedFields`.
    pub strip: Trim<K>,
    /// Whether two versions differ only in fields that no controller reads, such as the resource version. The newer
    /// one is stored, but observers are not notified: heartbeats are most of the changes in a large cluster.
    pub is_equivalent: fn(&K, &K) -> bool,
    /// Lets the newer version share equal parts with the older one.
    pub reuse_shared_parts: fn(&mut K, &K),
}

impl<K> Clone for KindSpec<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for KindSpec<K> {}

impl<K: Resource> KindSpec<K> {
    /// The spec of a kind with standard Kubernetes metadata.
    pub fn of_objects() -> Self {
        Self {
            key: |object| ObjectKey::of(object.meta()),
            version: |object| {
                let version = object.meta().resource_version.as_deref();
                version.and_then(|version| version.parse().ok()).unwrap_or(0)
            },
            uid: |object| object.meta().uid.as_deref(),
            is_deleting: |object| object.meta().deletion_timestamp.is_some(),
            strip: |object| object.meta_mut().managed_fields = None,
            is_equivalent: |_, _| false,
            reuse_shared_parts: |_, _| {},
        }
    }
}

/// A change of an object.
#[derive(Debug)]
pub enum Change<K> {
    Applied { old: Option<Arc<K>>, new: Arc<K> },
    Deleted { old: Arc<K> },
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied { old, new } => Self::Applied { old: old.clone(), new: new.clone() },
            Self::Deleted { old } => Self::Deleted { old: old.clone() },
        }
    }
}

impl<K> Change<K> {
    /// The current object, or the last version of a deleted one.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { old } => old,
        }
    }

    /// The versions before and after the change.
    pub fn both(&self) -> impl Iterator<Item = &Arc<K>> {
        let (old, new) = match self {
            Self::Applied { old, new } => (old.as_ref(), Some(new)),
            Self::Deleted { old } => (Some(old), None),
        };
        old.into_iter().chain(new)
    }

    pub fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }
}

/// The index values of an object.
pub type IndexValues<K> = fn(&K) -> Vec<String>;
/// Removes fields that no controller reads.
pub type Trim<K> = fn(&mut K);
type Observer<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// A handle to a store. Clones share the store.
pub struct Store<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<K> {
    state: Mutex<State<K>>,
    observers: RwLock<Vec<Observer<K>>>,
    synced: watch::Sender<bool>,
    watch_failures: WatchFailures,
    kind: KindSpec<K>,
    trim: Trim<K>,
}

struct Index<K> {
    name: &'static str,
    values: IndexValues<K>,
    entries: IndexEntries,
}

struct State<K> {
    kind: KindSpec<K>,
    objects: ObjectMap,
    indexes: Vec<Index<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
    /// The newest resource version that the watch delivered. If an object with an older version is absent, it was
    /// deleted.
    seen_version: u64,
    list_in_progress: Option<ListInProgress>,
}

/// A list in progress.
#[derive(Default)]
struct ListInProgress {
    listed: BTreeSet<ObjectKey>,
    newest: u64,
    /// Objects that this process wrote while the list was in progress, with their versions. The list may have been read
    /// before these writes.
    written: BTreeMap<ObjectKey, u64>,
}

impl ListInProgress {
    /// Whether a stored object is missing in the list although it is not newer than the list.
    fn is_missing(&self, key: &ObjectKey) -> bool {
        !self.listed.contains(key) && self.written.get(key).is_none_or(|version| *version <= self.newest)
    }
}

impl<K> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    /// An empty store; the caller fills it with [`Store::handle`] or [`Store::apply`].
    pub fn empty(trim: Trim<K>, indexes: &[(&'static str, IndexValues<K>)]) -> Self {
        Self::of(KindSpec::of_objects(), trim, indexes)
    }
}

impl<K: Send + Sync + 'static> Store<K> {
    /// An empty store of a type that is converted from the API object.
    pub fn of(kind: KindSpec<K>, trim: Trim<K>, indexes: &[(&'static str, IndexValues<K>)]) -> Self {
        let indexes = indexes
            .iter()
            .map(|(name, values)| Index { name, values: *values, entries: IndexEntries::default() })
            .collect();
        let state = State {
            kind,
            objects: ObjectMap::default(),
            indexes,
            subscribers: Vec::new(),
            seen_version: 0,
            list_in_progress: None,
        };
        let shared = Shared {
            state: Mutex::new(state),
            observers: RwLock::new(Vec::new()),
            synced: watch::Sender::new(false),
            watch_failures: WatchFailures::default(),
            kind,
            trim,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Applies an event of a watch.
    pub fn handle(&self, event: Event<K>) {
        let mut changes = Vec::new();
        let kind = self.shared.kind;
        let complete = matches!(event, Event::InitDone);
        match event {
            Event::Init => self.state().list_in_progress = Some(ListInProgress::default()),
            Event::InitApply(mut object) => {
                self.prepare(&mut object);
                let mut state = self.state();
                let version = (kind.version)(&object);
                if let Some(list_in_progress) = &mut state.list_in_progress {
                    list_in_progress.listed.insert((kind.key)(&object));
                    list_in_progress.newest = list_in_progress.newest.max(version);
                }
                state.seen_version = state.seen_version.max(version);
                changes.extend(state.put(object));
            }
            Event::InitDone => {
                let mut state = self.state();
                if let Some(list_in_progress) = state.list_in_progress.take() {
                    let known = state.objects.keys().into_iter();
                    for key in known.filter(|key| list_in_progress.is_missing(key)) {
                        changes.extend(state.remove(&key));
                    }
                }
            }
            Event::Apply(mut object) => {
                self.prepare(&mut object);
                let mut state = self.state();
                state.seen_version = state.seen_version.max((kind.version)(&object));
                changes.extend(state.put(object));
            }
            Event::Delete(object) => {
                let mut state = self.state();
                let version = (kind.version)(&object);
                state.seen_version = state.seen_version.max(version);
                let key = (kind.key)(&object);
                // If this process created another object with the same name later, that object is kept.
                let replaced =
                    state.find(&key.namespace, &key.name).is_some_and(|kept| (kind.version)(&kept) > version);
                if !replaced {
                    changes.extend(state.remove(&key));
                }
            }
        }
        self.notify_observers(&changes);
        if complete {
            self.shared.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// Applies the response to a write of this process, unless the store has a newer version.
    pub fn apply(&self, mut object: K) {
        self.prepare(&mut object);
        let change = {
            let mut state = self.state();
            let kind = self.shared.kind;
            let version = (kind.version)(&object);
            let key = (kind.key)(&object);
            let known = state.find(&key.namespace, &key.name).is_some();
            if !known && version <= state.seen_version && version > 0 {
                return;
            }
            // The API server's response to an immediate deletion still contains the object; only the watch shows that
            // it is gone.
            if !known && (kind.is_deleting)(&object) {
                return;
            }
            if let Some(list_in_progress) = &mut state.list_in_progress {
                list_in_progress.written.insert(key, version);
            }
            state.put(object)
        };
        self.notify_observers(&change.into_iter().collect::<Vec<_>>());
    }

    /// Removes an object that this process deleted, unless a new object of that name exists.
    pub fn forget(&self, namespace: &str, name: &str, uid: Option<&str>) {
        let change = {
            let mut state = self.state();
            match state.find(namespace, name) {
                Some(kept) if uid.is_none() || (self.shared.kind.uid)(&kept) == uid => {
                    state.remove(&ObjectKey::new(namespace, name))
                }
                _ => None,
            }
        };
        self.notify_observers(&change.into_iter().collect::<Vec<_>>());
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.state().find(namespace, name)
    }

    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.get(&key.namespace, &key.name)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        let all = self.state().objects.all();
        all.iter().filter_map(typed).collect()
    }

    /// The objects of one namespace, ordered by name.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let all = self.state().objects.all_in(namespace);
        all.iter().filter_map(typed).collect()
    }

    /// The objects with this value in the index, by namespace and name. Empty if there is no such index.
    pub fn by(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let found: Vec<AnyObject> = {
            let state = self.state();
            let index = state.indexes.iter().find(|candidate| candidate.name == index);
            index.map(|index| index.entries.get(value)).unwrap_or_default()
        };
        found.iter().filter_map(typed).collect()
    }

    pub fn len(&self) -> usize {
        self.state().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all present objects, then each change in order. Ends only with the store.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        for new in state.objects.all().iter().filter_map(typed) {
            // The receiver has not been dropped.
            let _ = sender.send(Change::Applied { old: None, new });
        }
        state.subscribers.push(sender);
        receiver
    }

    /// Calls `observer` with all present objects and then with each change, in the task that applied the change.
    /// Changes of one object may be delivered out of order, so an observer should only enqueue keys.
    pub fn observe(&self, observer: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let observer: Observer<K> = Arc::new(observer);
        self.shared.observers.write().unwrap_or_else(PoisonError::into_inner).push(observer.clone());
        for object in self.list() {
            observer(&Change::Applied { old: None, new: object });
        }
    }

    /// The newest resource version that the watch delivered.
    pub fn revision(&self) -> u64 {
        self.state().seen_version
    }

    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives as long as this handle, so waiting cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    pub(crate) fn watch_failures(&self) -> &WatchFailures {
        &self.shared.watch_failures
    }

    fn prepare(&self, object: &mut K) {
        (self.shared.kind.strip)(object);
        (self.shared.trim)(object);
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_observers(&self, changes: &[Change<K>]) {
        if changes.is_empty() {
            return;
        }
        let observers = self.shared.observers.read().unwrap_or_else(PoisonError::into_inner).clone();
        for change in changes {
            for observer in &observers {
                observer(change);
            }
        }
    }
}

impl<K: Send + Sync + 'static> State<K> {
    fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        typed(self.objects.get(namespace, name)?)
    }

    /// Stores the object unless a newer version is stored.
    fn put(&mut self, mut object: K) -> Option<Change<K>> {
        let key = (self.kind.key)(&object);
        let old = self.find(&key.namespace, &key.name);
        if let Some(old) = &old {
            let version = (self.kind.version)(&object);
            let same = (self.kind.version)(old) >= version && version > 0;
            if same {
                return None;
            }
            self.unindex(&key, old);
            (self.kind.reuse_shared_parts)(&mut object, old);
        }
        let new = Arc::new(object);
        let kept: AnyObject = new.clone();
        for index in &mut self.indexes {
            index.entries.insert((index.values)(&new), &key, &kept);
        }
        self.objects.insert(key, kept);
        if old.as_ref().is_some_and(|old| (self.kind.is_equivalent)(old, &new)) {
            return None;
        }
        let change = Change::Applied { old, new };
        self.publish(&change);
        Some(change)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Change<K>> {
        let old = typed(&self.objects.remove(key)?)?;
        self.unindex(key, &old);
        let change = Change::Deleted { old };
        self.publish(&change);
        Some(change)
    }

    fn unindex(&mut self, key: &ObjectKey, old: &K) {
        for index in &mut self.indexes {
            index.entries.remove((index.values)(old), key);
        }
    }

    fn publish(&mut self, change: &Change<K>) {
        self.subscribers.retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// Keeps all fields.
pub fn keep_all<K>(_: &mut K) {}

#[cfg(test)]
mod tests;
