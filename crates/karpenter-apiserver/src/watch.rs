//! Watches: streams of the changes of one kind, filtered by a selector.
//!
//! A watch reads the store's history at its own pace, so it neither misses nor repeats a change. If the history no
//! longer has the changes that it needs, the watch ends with `410 Expired`, and the client lists again.
//!
//! Upstream: k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, k8s.io/apiserver/pkg/endpoints/handlers/watch.go

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use crate::builtin;
use crate::registry::Resource;
use crate::selector::Selector;
use crate::server::Core;
use crate::status::Failure;
use crate::store::{ChangeKind, Entry, Event, Range};

const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
const BATCH_EVENTS: usize = 256;
/// The annotation on the bookmark that follows the initial objects of a watch list (`sendInitialEvents`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Converts an object before it is sent, for example to another version or to a table.
pub(crate) type Transform = Box<dyn FnMut(Value) -> Value + Send>;

/// The parameters of a watch.
pub(crate) struct WatchRequest {
    pub(crate) resource: Arc<Resource>,
    /// The kind and version that bookmarks have.
    pub(crate) served: Arc<Resource>,
    pub(crate) range: Range,
    pub(crate) selector: Selector,
    /// The revision after which the watch sends changes.
    pub(crate) after: u64,
    /// The objects that the watch sends first, as `ADDED` events.
    pub(crate) initial: Vec<Arc<Entry>>,
    /// Whether the watch sends a bookmark after the initial objects.
    pub(crate) marks_initial_end: bool,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    pub(crate) transform: Option<Transform>,
    /// Whether `transform` is applied to bookmarks as well; not if it converts stored objects to another version.
    pub(crate) transforms_bookmarks: bool,
}

struct Watcher {
    core: Arc<Core>,
    request: WatchRequest,
    initial: std::vec::IntoIter<Arc<Entry>>,
    position: u64,
    queue: VecDeque<Bytes>,
    visible: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    deadline: Pin<Box<Sleep>>,
    next_bookmark: Pin<Box<Sleep>>,
    finished: bool,
}

/// The stream of a watch's frames.
pub(crate) fn stream(core: Arc<Core>, mut request: WatchRequest) -> impl Stream<Item = Bytes> + Send {
    let visible = core.store.subscribe(&request.resource.storage);
    let watcher = Watcher {
        initial: std::mem::take(&mut request.initial).into_iter(),
        position: request.after,
        queue: VecDeque::new(),
        visible,
        stopping: core.stopping.subscribe(),
        deadline: Box::pin(tokio::time::sleep(request.timeout)),
        next_bookmark: Box::pin(tokio::time::sleep(BOOKMARK_PERIOD)),
        finished: false,
        core,
        request,
    };
    futures::stream::unfold(watcher, |mut watcher| async move {
        let frame = watcher.next().await?;
        Some((frame, watcher))
    })
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.queue.pop_front() {
                return Some(frame);
            }
            if let Some(entry) = self.initial.next() {
                return Some(self.frame(ChangeKind::Added, &entry));
            }
            if std::mem::take(&mut self.request.marks_initial_end) {
                return Some(self.bookmark(self.position, true));
            }
            if self.finished {
                return None;
            }
            if !self.pull() {
                self.wait().await;
            }
        }
    }

    /// Adds committed changes to the queue of frames; returns false if there are none.
    fn pull(&mut self) -> bool {
        let visible = *self.visible.borrow_and_update();
        let storage = &self.request.resource.storage;
        match self.core.store.events_after(storage, self.position, visible, BATCH_EVENTS) {
            Ok(events) => {
                for event in &events {
                    self.position = event.entry.revision();
                    if let Some(frame) = self.event_frame(event) {
                        self.queue.push_back(frame);
                    }
                }
                !events.is_empty()
            }
            Err(lost) => {
                // kube-apiserver has no cache of Events, so the error message of their watches comes from etcd, not
                // from the cache.
                let message = if self.request.resource.is("", "Event") {
                    "The resourceVersion for the provided watch is too old.".to_string()
                } else {
                    format!("too old resource version: {} ({})", self.position, lost.oldest)
                };
                let status = Failure::gone(message).to_status();
                self.queue.push_back(line(&json!({"type": "ERROR", "object": status})));
                self.finished = true;
                true
            }
        }
    }

    async fn wait(&mut self) {
        enum Woken {
            Changed,
            Ended,
            TimedOut,
            Bookmark,
        }
        let woken = tokio::select! {
            biased;
            changed = self.visible.changed() => if changed.is_ok() { Woken::Changed } else { Woken::Ended },
            _ = self.stopping.wait_for(|stopping| *stopping) => Woken::Ended,
            () = &mut self.deadline => Woken::TimedOut,
            () = &mut self.next_bookmark => Woken::Bookmark,
        };
        match woken {
            Woken::Changed => {}
            Woken::Ended => self.finished = true,
            Woken::TimedOut => {
                self.push_bookmark();
                self.finished = true;
            }
            Woken::Bookmark => {
                self.push_bookmark();
                self.next_bookmark.as_mut().reset(Instant::now() + BOOKMARK_PERIOD);
            }
        }
    }

    fn push_bookmark(&mut self) {
        if !self.request.bookmarks {
            return;
        }
        // The bookmark may have the newest revision only if the watch has sent every change.
        if let Some(newest) = self.core.store.caught_up(&self.request.resource.storage, self.position) {
            self.position = newest;
        }
        let bookmark = self.bookmark(self.position, false);
        self.queue.push_back(bookmark);
    }

    fn bookmark(&mut self, revision: u64, ends_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let resource = &self.request.served;
        let mut object =
            json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        if resource.custom.is_none() {
            builtin::round_trip(&mut object, &resource.group, &resource.version, &resource.kind);
        }
        if self.request.transforms_bookmarks
            && let Some(transform) = &mut self.request.transform
        {
            object = transform(object);
        }
        line(&json!({"type": "BOOKMARK", "object": object}))
    }

    /// The frame that this watch sends for a change: `DELETED` if the object no longer matches the selector, `ADDED` if
    /// it did not match before.
    fn event_frame(&mut self, event: &Event) -> Option<Bytes> {
        let range = &self.request.range;
        if !range.contains(event.entry.key()) {
            return None;
        }
        let selector = &self.request.selector;
        let after = event.kind != ChangeKind::Deleted && selector.matches(&event.entry);
        let before = event.previous.as_ref().is_some_and(|previous| selector.matches(previous));
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(self.frame(ChangeKind::Added, &event.entry)),
            (true, true) => Some(self.frame(ChangeKind::Modified, &event.entry)),
            (true, false) if event.kind == ChangeKind::Deleted => {
                Some(self.frame(ChangeKind::Deleted, &event.entry))
            }
            (true, false) => {
                // The event contains the previous object, with the resource version of the change.
                let mut object = event.previous.as_ref()?.value();
                object["metadata"]["resourceVersion"] = json!(event.entry.revision().to_string());
                Some(self.value_frame(ChangeKind::Deleted, object))
            }
        }
    }

    fn frame(&mut self, kind: ChangeKind, entry: &Entry) -> Bytes {
        if self.request.transform.is_some() {
            let object = entry.value();
            return self.value_frame(kind, object);
        }
        entry.frame(kind)
    }

    fn value_frame(&mut self, kind: ChangeKind, object: Value) -> Bytes {
        let object = match &mut self.request.transform {
            Some(transform) => transform(object),
            None => object,
        };
        line(&json!({"type": kind.name(), "object": object}))
    }
}

fn line(event: &Value) -> Bytes {
    let mut text = event.to_string();
    text.push('\n');
    text.into()
}
