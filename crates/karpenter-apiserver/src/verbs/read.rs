//! `get` and `watch`.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/get.go

use std::time::Duration;

use super::Call;
use crate::encode::{Format, Reply, RespBody, partial_metadata};
use crate::options::{ListOptions, parse_revision_or_internal_error};
use crate::selector::Selector;
use crate::status::{ApiResult, Failure};
use crate::store::{Range, key};
use crate::watch::{self, Transform, WatchRequest};

/// How long a watch lasts if the client states no timeout; kube-apiserver chooses a random time between 30 and 60
/// minutes.
const WATCH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);

impl Call<'_> {
    pub(crate) fn get(&self) -> ApiResult<Reply> {
        let revision = self.incoming.query.get("resourceVersion");
        if !revision.is_empty() {
            self.check_not_future(parse_revision_or_internal_error(revision)?)?;
        }
        let entry = self.stored()?;
        Ok(self.reply_entry(200, &entry))
    }

    pub(crate) fn selector(&self) -> ApiResult<Selector> {
        let query = &self.incoming.query;
        Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), &self.served.selectable)
    }

    /// The smallest range of keys that has all objects of the path that the selector can match.
    pub(crate) fn range(&self, selector: &Selector) -> Range {
        let mut range = Range { namespace: self.path.namespace.clone(), key: None, after: None };
        let name =
            self.path.name.as_deref().or_else(|| selector.fields.name().filter(|name| !name.is_empty()));
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

    pub(crate) fn watch(&self) -> ApiResult<Reply> {
        let options = ListOptions::parse(&self.incoming.query, true)?;
        if self.incoming.wants_yaml() {
            let why = "only the following media types are accepted: application/json;stream=watch, \
                       application/vnd.kubernetes.protobuf;stream=watch";
            return Err(Box::new(Failure::new(406, "NotAcceptable", why)));
        }
        let selector = self.selector()?;
        let range = self.range(&selector);
        let from = match options.resource_version.as_str() {
            "" => 0,
            given => parse_revision_or_internal_error(given)?,
        };
        let store = &self.core.store;
        let streams_list = options.sends_initial_events == Some(true);
        let (after, mut initial) = match options.sends_initial_events {
            Some(true) => {
                self.check_not_future(from)?;
                let snapshot = store.list(&self.resource.storage, &range);
                (snapshot.revision, snapshot.entries)
            }
            None if from == 0 => {
                let snapshot = store.list(&self.resource.storage, &range);
                (snapshot.revision, snapshot.entries)
            }
            Some(false) if from == 0 => (store.revision(), Vec::new()),
            _ => (from, Vec::new()),
        };
        initial.retain(|entry| selector.matches(entry));
        let timeout = options.timeout_seconds.map_or(WATCH_TIMEOUT_DEFAULT, Duration::from_secs);
        let request = WatchRequest {
            resource: self.resource.clone(),
            served: self.served.clone(),
            range,
            selector,
            after,
            initial,
            marks_initial_end: streams_list && options.bookmarks,
            bookmarks: options.bookmarks,
            timeout,
            transform: self.watch_transform()?,
            transforms_bookmarks: matches!(self.format, Format::Table(_) | Format::Metadata),
        };
        let stream = watch::stream(self.core.clone(), request);
        let body = RespBody::Stream(Box::pin(stream));
        Ok(Reply {
            code: 200,
            content_type: "application/json",
            body,
            warnings: Vec::new(),
            retry_after_seconds: None,
        })
    }

    fn watch_transform(&self) -> ApiResult<Option<Transform>> {
        Ok(match self.format {
            Format::Metadata => Some(Box::new(|object| partial_metadata(&object))),
            Format::Table(version) => Some(self.table_transform(version)?),
            _ if self.presents_as_stored() => None,
            _ => {
                let served = self.served.clone();
                Some(Box::new(move |object| crate::convert::from_stored(&served, object)))
            }
        })
    }
}
