//! Fills stores from watches of the API server.

mod consistent_list;
pub mod failure;
mod raw_object;
pub mod skip_managed_fields;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use self::failure::WatchFailure;
use crate::store::{IndexValues, Store, Trim};

impl<K> Store<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
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
        // A streamed list is many times faster than a paged one, and neither client nor server holds a whole page in
        // memory.
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
                    // `Init` only means that a list begins. The list may still fail, so `Init` does not end a failure.
                    if !matches!(event, Event::Init) {
                        self.watch_failures().clear();
                    }
                    self.handle(event);
                }
                Err(error) if is_permanent(&error) => return,
                Err(error) => self.watch_failures().record(&error, !self.is_synced()),
            }
        }
    }

    /// Calls `listener` with the current failure of the watch, if any, and with every later one.
    pub fn on_watch_failure(&self, listener: impl Fn(&WatchFailure) + Send + Sync + 'static) {
        self.watch_failures().add_listener(Arc::new(listener));
    }

    /// The current failure of the watch.
    pub fn watch_failure(&self) -> Option<WatchFailure> {
        self.watch_failures().last()
    }

    /// Whether the error shows that the server does not support streamed lists. A server that is too old, or has the
    /// feature disabled, rejects the request; a server whose storage does not support progress notifications reports
    /// that in the stream.
    fn is_not_streamed(&self, error: &watcher::Error) -> bool {
        match error {
            watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
            watcher::Error::WatchError(_) => !self.is_synced(),
            _ => false,
        }
    }
}
