//! One shared, ordered copy of the objects of a kind, fed by a watch.
//!
//! A process holds one store per kind and every controller reads the same one. A store holds what the server said
//! last, plus what this process wrote and the watch has not shown yet ([`Store::apply`]), so a controller that
//! created a pod counts it at once. Objects are readings: parts that nobody here looks at are dropped before they are
//! kept, so they must never be written back whole.

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

/// Namespace and name of an object; the namespace is empty for what belongs to none.
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

/// What a store has to know of an object of its kind.
pub struct KindSpec<K> {
    pub key: fn(&K) -> ObjectKey,
    /// 0 if it has none.
    pub version: fn(&K) -> u64,
    pub uid: fn(&K) -> Option<&str>,
    pub is_deleting: fn(&K) -> bool,
    /// Drops who wrote which field.
    pub strip: Trim<K>,
    /// Whether the newer one differs from the older only in what nobody looks at, such as its version. Then it is kept
    /// and nobody is told: heartbeats are most of what happens in a large cluster.
    pub is_equivalent: fn(&K, &K) -> bool,
    /// Lets the newer one share with the older what they have in common.
    pub reuse_shared_parts: fn(&mut K, &K),
}

impl<K> Clone for KindSpec<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for KindSpec<K> {}

impl<K: Resource> KindSpec<K> {
    /// As the metadata say.
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

/// What happened to an object.
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
    /// The object as it is now, or as it was last.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted { old } => old,
        }
    }

    /// The object before and after the change: one of them, or both.
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

/// The values under which an index finds an object.
pub type IndexValues<K> = fn(&K) -> Vec<String>;
/// Drops what nobody here reads.
pub type Trim<K> = fn(&mut K);
type Observer<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;

/// A handle to the shared copy; clones share it.
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
    /// The newest version that the watch has shown: whatever is older and absent is gone for good.
    seen_version: u64,
    listing: Option<Listing>,
}

/// A list under way.
#[derive(Default)]
struct Listing {
    listed: BTreeSet<ObjectKey>,
    newest: u64,
    /// What this process wrote meanwhile, with its version: the list may have been made before.
    written: BTreeMap<ObjectKey, u64>,
}

impl Listing {
    /// Whether an object that is kept is missing in the list, and not only because it is newer.
    fn lacks(&self, key: &ObjectKey) -> bool {
        !self.listed.contains(key) && self.written.get(key).is_none_or(|version| *version <= self.newest)
    }
}

impl<K> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    /// An empty store that somebody else feeds with [`Store::handle`] or [`Store::apply`].
    pub fn empty(trim: Trim<K>, indexes: &[(&'static str, IndexValues<K>)]) -> Self {
        Self::of(KindSpec::of_objects(), trim, indexes)
    }

    /// A store of all objects of the kind in the cluster, with the task that feeds it.
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
    /// An empty store of whatever is not kept as it comes from the server.
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
            listing: None,
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

    /// Starts the task that feeds it with all objects of a kind in the cluster, as `keep` keeps them.
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

    /// The same with a kind that has no type of its own.
    pub fn watch_resource_into<R: DeserializeOwned + Send + 'static>(
        self,
        client: &Client,
        resource: &ApiResource,
        mut keep: impl FnMut(R) -> K + Send + 'static,
    ) -> (Self, JoinHandle<()>) {
        // One object after the other, as the server has them at hand: many times faster than page by page, and neither
        // side holds a page.
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

    /// Takes in everything that a watch reports until the watch ends. Failures are retried by the stream itself.
    pub async fn apply_events(self, events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send) {
        self.apply_events_until(events, |_| false).await;
    }

    /// The same until a failure that trying again would not help.
    async fn apply_events_until(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send,
        is_permanent: impl Fn(&watcher::Error) -> bool + Send,
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // Every attempt to list begins with a word, whatever becomes of it.
                    if !matches!(event, Event::Init) {
                        self.shared.watch_failures.over();
                    }
                    self.handle(event);
                }
                Err(error) if is_permanent(&error) => return,
                Err(error) => self.shared.watch_failures.note(&error, !self.is_synced()),
            }
        }
    }

    /// Calls `listener` with every failure of the watch, and with the last one if it is not over.
    pub fn on_watch_failure(&self, listener: impl Fn(&WatchFailure) + Send + Sync + 'static) {
        self.shared.watch_failures.listen(Arc::new(listener));
    }

    /// What keeps the watch from working right now.
    pub fn watch_failure(&self) -> Option<WatchFailure> {
        self.shared.watch_failures.last()
    }

    /// Takes in one event of a watch.
    pub fn handle(&self, event: Event<K>) {
        let mut changes = Vec::new();
        let kind = self.shared.kind;
        let complete = matches!(event, Event::InitDone);
        match event {
            Event::Init => self.state().listing = Some(Listing::default()),
            Event::InitApply(mut object) => {
                self.prepare(&mut object);
                let mut state = self.state();
                let version = (kind.version)(&object);
                if let Some(listing) = &mut state.listing {
                    listing.listed.insert((kind.key)(&object));
                    listing.newest = listing.newest.max(version);
                }
                state.seen_version = state.seen_version.max(version);
                changes.extend(state.put(object));
            }
            Event::InitDone => {
                let mut state = self.state();
                if let Some(listing) = state.listing.take() {
                    let known = state.objects.keys().into_iter();
                    for key in known.filter(|key| listing.lacks(key)) {
                        changes.extend(state.take(&key));
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
                // A namesake that this process has already made anew stays.
                let replaced =
                    state.find(&key.namespace, &key.name).is_some_and(|kept| (kind.version)(&kept) > version);
                if !replaced {
                    changes.extend(state.take(&key));
                }
            }
        }
        self.notify_observers(&changes);
        if complete {
            self.shared.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// Takes in the server's answer to a write of this process. Ignored if the store already knows better.
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
            // A deletion that ended at once answers with the object; only the watch knows that it is gone.
            if !known && (kind.is_deleting)(&object) {
                return;
            }
            if let Some(listing) = &mut state.listing {
                listing.written.insert(key, version);
            }
            state.put(object)
        };
        self.notify_observers(&change.into_iter().collect::<Vec<_>>());
    }

    /// Forgets an object that this process deleted for good, unless it has been made anew meanwhile.
    pub fn forget(&self, namespace: &str, name: &str, uid: Option<&str>) {
        let change = {
            let mut state = self.state();
            match state.find(namespace, name) {
                Some(kept) if uid.is_none() || (self.shared.kind.uid)(&kept) == uid => {
                    state.take(&ObjectKey::new(namespace, name))
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

    /// All objects by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        let all = self.state().objects.all();
        all.iter().filter_map(typed).collect()
    }

    /// The objects of one namespace by name.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let all = self.state().objects.all_in(namespace);
        all.iter().filter_map(typed).collect()
    }

    /// What the index finds under a value, by namespace and name. Nothing if there is no such index.
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

    /// Everything present, then each change, in order. Ends only with the store.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        for new in state.objects.all().iter().filter_map(typed) {
            // The receiver is still in our hands.
            let _ = sender.send(Change::Applied { old: None, new });
        }
        state.subscribers.push(sender);
        receiver
    }

    /// Calls `observer` with everything present and then with each change, soon after it happened, on the task that
    /// brought it. Changes of one object may overtake each other, so an observer should only note what to look at.
    pub fn observe(&self, observer: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let observer: Observer<K> = Arc::new(observer);
        self.shared.observers.write().unwrap_or_else(PoisonError::into_inner).push(observer.clone());
        for object in self.list() {
            observer(&Change::Applied { old: None, new: object });
        }
    }

    /// The newest version of the kind that the watch has shown.
    pub fn revision(&self) -> u64 {
        self.state().seen_version
    }

    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until the first list has been taken in.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives as long as this handle.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the server does not stream what is there: it is too old or was told not to, and says so at once; or its
    /// storage cannot tell when all has been sent, and it says so in the stream.
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

    /// Keeps the object unless a newer version is kept already.
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

    fn take(&mut self, key: &ObjectKey) -> Option<Change<K>> {
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

/// For kinds of which every part is kept.
pub fn keep_all<K>(_: &mut K) {}

#[cfg(test)]
mod tests;
