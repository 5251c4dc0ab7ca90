//! Reading: get, list, watch.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Call;
use super::decode::bad;
use crate::encode::{Format, ListBody, Reply, RespBody, partial_metadata};
use crate::selector::Selector;
use crate::status::Answer;
use crate::store::{Entry, Range, key};
use crate::watch::{self, WatchRequest};

const WATCH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);

impl Call<'_> {
    pub(crate) fn get(&self) -> Answer<Reply> {
        Ok(self.reply_entry(200, &*self.stored()?))
    }

    pub(crate) fn selector(&self) -> Answer<Selector> {
        let query = &self.incoming.query;
        Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), &self.resource.selectable)
    }

    /// The keys the request can be about, as narrow as path and selector allow.
    pub(crate) fn range(&self, selector: &Selector) -> Range {
        let mut range = Range { namespace: self.path.namespace.clone(), key: None, after: None };
        let name = self.path.name.as_deref().or_else(|| selector.fields.name());
        if range.namespace.is_empty()
            && let Some(namespace) = selector.fields.namespace().filter(|_| self.resource.namespaced)
        {
            range.namespace = namespace.to_string();
        }
        if let Some(name) = name
            && self.resource.namespaced != range.namespace.is_empty()
        {
            range.key = Some(key(&range.namespace, name));
        }
        range
    }

    pub(crate) fn list(&self) -> Answer<Reply> {
        let selector = self.selector()?;
        let range = self.range(&selector);
        let snapshot = self.core.store.list(&self.resource.storage, &range);
        let mut entries = snapshot.entries;
        if !selector.is_empty() {
            entries.retain(|entry| selector.matches(entry));
        }
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), json!(snapshot.revision.to_string()));
        Ok(self.reply_list(metadata, entries))
    }

    pub(crate) fn reply_list(&self, metadata: Map<String, Value>, entries: Vec<Arc<Entry>>) -> Reply {
        let resource = &self.resource;
        match self.format {
            Format::Metadata => {
                let items: Vec<Value> =
                    entries.iter().map(|entry| partial_metadata(&entry.value())).collect();
                Reply::json(
                    200,
                    &json!({
                        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                        "metadata": metadata, "items": items,
                    }),
                )
            }
            _ => {
                let list = ListBody::new(&resource.list_kind, &resource.api_version(), &metadata, entries);
                let mut reply = Reply::text(200, "");
                reply.content_type = "application/json";
                reply.body = RespBody::List(list);
                reply
            }
        }
    }

    pub(crate) fn watch(&self) -> Answer<Reply> {
        let query = &self.incoming.query;
        let selector = self.selector()?;
        let range = self.range(&selector);
        let given = query.get("resourceVersion");
        let from: u64 = match given {
            "" | "0" => 0,
            text => text.parse().map_err(|_| bad(format!("invalid resource version: {text:?}")))?,
        };
        let streams_list = query.flag("sendInitialEvents");
        let bookmarks = query.flag("allowWatchBookmarks");
        let wants_initial = streams_list || (matches!(given, "" | "0") && !query.has("sendInitialEvents"));
        let (after, mut initial) = if wants_initial {
            let snapshot = self.core.store.list(&self.resource.storage, &range);
            (snapshot.revision, snapshot.entries)
        } else if matches!(given, "" | "0") {
            (self.core.store.revision(), Vec::new())
        } else {
            (from, Vec::new())
        };
        initial.retain(|entry| selector.matches(entry));
        let timeout = match query.get("timeoutSeconds").parse::<u64>() {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => WATCH_TIMEOUT_DEFAULT,
        };
        let request = WatchRequest {
            resource: self.resource.clone(),
            range,
            selector,
            after,
            initial,
            marks_initial_end: streams_list && bookmarks,
            bookmarks,
            timeout,
            transform: match self.format {
                Format::Metadata => Some(Box::new(|object| partial_metadata(&object))),
                _ => None,
            },
        };
        let stream = watch::stream(self.core.clone(), request);
        let mut reply = Reply::text(200, "");
        reply.content_type = "application/json";
        reply.body = RespBody::Stream(Box::pin(stream));
        Ok(reply)
    }
}
