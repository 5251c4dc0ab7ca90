//! Publishes an event for each condition transition and each removed finalizer, with upstream's messages, so that
//! `kubectl describe` shows the history of an object.
//!
//! Upstream: github.com/awslabs/operatorpkg/status.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use karpenter_api::conditions::{NODE_CLAIM_CONDITIONS, NODE_POOL_CONDITIONS};
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::store::{Change, Store};
use karpenter_runtime::worker::{Reconcile, Requeue};
use kube::Resource;

use crate::condition_transitions::{Conditional, Transition, transitions};
use crate::events::{ObjectEvent, Recorder};

/// The condition that becomes false when NodeClaims of the NodePool repeatedly fail to register.
const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
/// The maximum number of events that wait to be published for one object; further ones are dropped.
const PENDING_EVENTS_MAX: usize = 32;

/// The controller that publishes events about objects of one kind. Changes before its start are ignored.
pub(crate) struct TransitionEvents<K> {
    recorder: Recorder,
    store: Store<K>,
    /// Events that are not published yet, by object, oldest first. They are stored here and not computed in the
    /// reconcile, because the object may be deleted before that.
    waiting: Arc<Mutex<BTreeMap<ObjectKey, Vec<ObjectEvent>>>>,
}

impl<K> TransitionEvents<K>
where
    K: Conditional + Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    pub(crate) fn new(recorder: Recorder, store: Store<K>) -> Self {
        Self { recorder, store, waiting: Arc::default() }
    }

    pub(crate) fn watch(&self, queue: &Queue) {
        let (queue, waiting) = (queue.clone(), self.waiting.clone());
        self.store.observe(move |change| {
            let object_events = object_events(change);
            if object_events.is_empty() {
                return;
            }
            let key = ObjectKey::of(change.object().meta());
            {
                let mut waiting = lock(&waiting);
                let of_object = waiting.entry(key.clone()).or_default();
                of_object.extend(object_events);
                of_object.truncate(PENDING_EVENTS_MAX);
            }
            queue.add(key);
        });
    }
}

impl<K> Reconcile for TransitionEvents<K>
where
    K: Conditional + Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let object_events = lock(&self.waiting).remove(key).unwrap_or_default();
        for event in object_events {
            self.recorder.publish(event).await;
        }
        Ok(Requeue::No)
    }
}

fn lock(
    waiting: &Mutex<BTreeMap<ObjectKey, Vec<ObjectEvent>>>,
) -> MutexGuard<'_, BTreeMap<ObjectKey, Vec<ObjectEvent>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The events for the change of an object. An object that is seen for the first time has no events.
pub(super) fn object_events<K: Conditional + Resource<DynamicType = ()>>(
    change: &Change<K>,
) -> Vec<ObjectEvent> {
    let (old, new) = match change {
        Change::Applied { old: None, .. } => return Vec::new(),
        Change::Applied { old: Some(old), new } => (old, Some(new)),
        Change::Deleted { old } => (old, None),
    };
    let kept = new.and_then(|new| new.meta().finalizers.as_deref()).unwrap_or_default();
    let gone = old.meta().finalizers.iter().flatten().filter(|finalizer| !kept.contains(finalizer));
    let mut object_events: Vec<ObjectEvent> = gone
        .map(|finalizer| {
            let message = format!("Finalized {finalizer}");
            ObjectEvent::normal(&**change.object(), "Finalized", message).dedupe_by(finalizer)
        })
        .collect();
    if let Some(new) = new {
        let found = transitions(&old.condition_views(), &new.condition_views());
        object_events.extend(
            found
                .iter()
                .filter_map(|one| Some((one, message_of(one)?)))
                // Events with the same message are repetitions; all other transitions are published.
                .map(|(one, message)| {
                    let event = ObjectEvent::normal(&**new, one.now.kind.to_owned(), message.clone());
                    ObjectEvent { is_warning: is_failure(one), ..event }.dedupe_by(message)
                }),
        );
    }
    object_events
}

/// Whether the transition is published as a warning: a condition that is true in normal operation became false.
/// Upstream publishes such transitions as `Normal`.
fn is_failure(transition: &Transition) -> bool {
    let kind = transition.now.kind;
    let of_karpenter = [NODE_CLAIM_CONDITIONS, NODE_POOL_CONDITIONS];
    let is_expected = kind == NODE_REGISTRATION_HEALTHY
        || of_karpenter.iter().any(|types| types.root == kind || types.dependents.contains(&kind));
    is_expected && transition.now.status == "False"
}

/// The message of the event; `None` if the object did not have the condition before.
fn message_of(transition: &Transition) -> Option<String> {
    let Transition { now, before } = transition;
    let before = before.as_ref()?;
    let mut message = format!(
        "Status condition transitioned, Type: {}, Status: {} -> {}, Reason: {}",
        now.kind, before.status, now.status, now.reason
    );
    if !now.message.is_empty() {
        message.push_str(", Message: ");
        message.push_str(now.message);
    }
    Some(message)
}
