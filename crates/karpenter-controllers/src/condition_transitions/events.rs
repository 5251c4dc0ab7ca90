//! Events about conditions that changed and finalizers that went, in upstream's words. They say nothing that the object
//! does not say, but they say when, and `kubectl describe` shows them in order.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_cluster::harness::{After, Queue, Reconcile};
use karpenter_cluster::mirror::{Change, Mirror, ObjectKey};
use kube::Resource;

use super::{Conditional, Transition, transitions};
use crate::events::{ObjectEvent, Recorder};

/// More than these are not kept of one object, if the API server is slower than its changes.
const WAITING_MAX: usize = 32;

/// Tells what became of the objects of one kind from now on.
pub(crate) struct TransitionEvents<K> {
    recorder: Recorder,
    store: Mirror<K>,
    /// Not told yet, oldest first. An object may be gone before it is told about.
    waiting: Arc<Mutex<BTreeMap<ObjectKey, Vec<ObjectEvent>>>>,
}

impl<K> TransitionEvents<K>
where
    K: Conditional + Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    pub(crate) fn new(recorder: Recorder, store: Mirror<K>) -> Self {
        Self { recorder, store, waiting: Arc::default() }
    }

    pub(crate) fn watch(&self, queue: &Queue) {
        let (queue, waiting) = (queue.clone(), self.waiting.clone());
        self.store.observe(move |change| {
            let notices = notices(change);
            if notices.is_empty() {
                return;
            }
            let key = ObjectKey::of(change.object().meta());
            {
                let mut waiting = lock(&waiting);
                let of_object = waiting.entry(key.clone()).or_default();
                of_object.extend(notices);
                of_object.truncate(WAITING_MAX);
            }
            queue.add(key);
        });
    }
}

impl<K> Reconcile for TransitionEvents<K>
where
    K: Conditional + Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<After> {
        let notices = lock(&self.waiting).remove(key).unwrap_or_default();
        for notice in notices {
            self.recorder.publish(notice).await;
        }
        Ok(After::Done)
    }
}

fn lock(
    waiting: &Mutex<BTreeMap<ObjectKey, Vec<ObjectEvent>>>,
) -> MutexGuard<'_, BTreeMap<ObjectKey, Vec<ObjectEvent>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a change is worth telling. What is seen for the first time has not changed.
pub(super) fn notices<K: Conditional + Resource<DynamicType = ()>>(change: &Change<K>) -> Vec<ObjectEvent> {
    let (old, new) = match change {
        Change::Applied { old: None, .. } => return Vec::new(),
        Change::Applied { old: Some(old), new } => (old, Some(new)),
        Change::Deleted { old } => (old, None),
    };
    let kept = new.and_then(|new| new.meta().finalizers.as_deref()).unwrap_or_default();
    let gone = old.meta().finalizers.iter().flatten().filter(|finalizer| !kept.contains(finalizer));
    let mut notices: Vec<ObjectEvent> = gone
        .map(|finalizer| {
            let words = format!("Finalized {finalizer}");
            ObjectEvent::normal(&**change.object(), "Finalized", words).dedupe_by(finalizer)
        })
        .collect();
    if let Some(new) = new {
        let found = transitions(&old.seen(), &new.seen());
        notices.extend(
            found
                .iter()
                .filter_map(|one| Some((one.now.kind, words(one)?)))
                // Every way from one status to another is news.
                .map(|(kind, words)| {
                    ObjectEvent::normal(&**new, kind.to_owned(), words.clone()).dedupe_by(words)
                }),
        );
    }
    notices
}

/// Nothing where nothing is known about before.
fn words(transition: &Transition) -> Option<String> {
    let Transition { now, before } = transition;
    let before = before.as_ref()?;
    let mut words = format!(
        "Status condition transitioned, Type: {}, Status: {} -> {}, Reason: {}",
        now.kind, before.status, now.status, now.reason
    );
    if !now.message.is_empty() {
        words.push_str(", Message: ");
        words.push_str(now.message);
    }
    Some(words)
}
