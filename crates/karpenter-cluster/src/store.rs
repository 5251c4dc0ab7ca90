//! A store: the shared, ordered in-memory copy of the objects of a kind, kept current by a watch. It corresponds to an
//! informer in client-go.
//!
//! A process has one store per kind, which all controllers share. The store holds what the watch delivered, plus what
//! this process wrote and the watch has not delivered yet ([`Store::apply`]), so that a controller sees its own
//! writes at once. Fields that no controller reads are removed before an object is stored, so a stored object must
//! never be written back as a whole.

mod consistent_list;
pub mod protobuf;
mod raw_object;
pub mod skip_managed_fields;
mod untyped;
pub mod watch_failure;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures::{Stream, StreamExt};
use kube::api::ObjectMeta;
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::untyped::{AnyObject, IndexEntries, ObjectMap, typed};
use self::watch_failure::{WatchFailure, WatchFailures};

/// Namespace and name of an object; the namespace is empty for cluster-scoped objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(out, "{}", self.name)
        } else {
            write!(out, "{}/{}", self.namespace, self.name)
        }
    }
}

/// How a store reads the metadata of its kind, and which parts it keeps.
pub struct KindSpec<K> {
    pub key: fn(&K) -> ObjectKey,
    /// The resource version; 0 if it has none.
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
    /// The newest resource version of the watch: an absent object with an older version is deleted.
    seen_version: u64,
    list_in_progress: Option<ListInProgress>,
}

/// A list in progress.
#[derive(Default)]
struct ListInProgress {
    listed: BTreeSet<ObjectKey>,
    newest: u64,
    /// Objects that this process wrote during the list, with their versions. The list may be older.
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

    /// A store of all objects of the kind in the cluster, with the task of its watch.
    pub fn watch(
        client: &Client,
        trim: Trim<K>,
        indexes: &[(&'static str, IndexValues<K>)],
    ) -> (Self, JoinHandle<()>)
    where
        K: DeserializeOwned,
        K::DynamicType: Default,
    {
        Self::empty(trim, indexes).watch_into(client, |object: K| object)
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

    /// Starts the watch of a kind; `keep` converts each object to the stored type.
    pub fn watch_into<R>(
        self,
        client: &Client,
        keep: impl FnMut(R) -> K + Send + 'static,
    ) -> (Self, JoinHandle<()>)
    where
        R: Resource + DeserializeOwned + Send + 'static,
        R::DynamicType: Default,
    {
        self.watch_resource_into(client, &ApiResource::erase::<R>(&R::DynamicType::default()), keep)
    }

    /// Like [`Self::watch_into`], for a kind without a Rust type.
    pub fn watch_resource_into<R: DeserializeOwned + Send + 'static>(
        self,
        client: &Client,
        resource: &ApiResource,
        mut keep: impl FnMut(R) -> K + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        // A streamed list is many times faster than a paged one, and neither client nor server holds a whole page.
        let streamed = raw_object::streamed(&consistent_list::without_version(client), resource);
        let paged = raw_object::paged(client, resource);
        let store = self.clone();
        let task = tokio::spawn(async move {
            let events = streamed.map(|event| raw_object::read(event?, &mut keep));
            store.apply_events_until(events, |error| store.is_not_streamed(error)).await;
            let events = paged.map(|event| raw_object::read(event?, &mut keep));
            store.apply_events_until(events, |_| false).await;
        });
        (self, task)
    }

    /// Applies the events of a watch until the stream ends. The stream retries failures itself.
    pub async fn apply_events(self, events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send) {
        self.apply_events_until(events, |_| false).await;
    }

    /// Like [`Self::apply_events`], but returns at a failure for which `is_permanent` is true.
    async fn apply_events_until(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
        is_permanent: impl Fn(&watcher::Error) -> bool + Send,
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // `Init` only says that a list begins, so it does not end a failure.
                    if !matches!(event, Event::Init) {
                        self.shared.watch_failures.clear();
                    }
                    self.handle(event);
                }
                Err(error) if is_permanent(&error) => return,
                Err(error) => self.shared.watch_failures.record(&error, !self.is_synced()),
            }
        }
    }

    /// Calls `listener` with the current failure of the watch, if any, and with every later one.
    pub fn on_watch_failure(&self, listener: impl Fn(&WatchFailure) + Send + Sync + 'static) {
        self.shared.watch_failures.add_listener(Arc::new(listener));
    }

    /// The current failure of the watch.
    pub fn watch_failure(&self) -> Option<WatchFailure> {
        self.shared.watch_failures.last()
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
                // An object of the same name that this process created later is kept.
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
            // The response to an immediate deletion contains the object; only the watch shows that it is gone.
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

    /// Calls `observer` with all present objects and then with each change, on the task that applied it. Changes of
    /// one object may be delivered out of order, so an observer should only enqueue keys.
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
        // The sender lives as long as this handle.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the server does not support streamed lists: it is too old or the feature is disabled, and it rejects
    /// the request; or its storage does not support progress notifications, and it says so in the stream.
    fn is_not_streamed(&self, error: &watcher::Error) -> bool {
        match error {
            watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
            watcher::Error::WatchError(_) => !self.is_synced(),
            _ => false,
        }
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
