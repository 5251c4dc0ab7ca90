//! The verbs of the API: determines which verb a request is, and executes it.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers, k8s.io/apiserver/pkg/registry/generic/registry/store.go

mod collection;
mod create;
mod decode;
mod definition;
mod delete;
mod evict;
mod list;
mod patch;
mod pipeline;
mod present;
mod read;
mod review;
mod scale;
mod services;
mod subresource;
mod update;

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;

use crate::encode::{Format, Reply};
use crate::registry::{Conversion, Registry, Resource};
use crate::request::{Incoming, ResourcePath};
use crate::server::Core;
use crate::status::{ApiResult, Failure};
use crate::store::{Entry, key};

/// A request for objects of one kind, with everything that its verb needs.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) registry: Arc<Registry>,
    /// The kind in the version that the verb works with: the storage version, or, for custom resources, the requested
    /// version.
    pub(crate) resource: Arc<Resource>,
    /// The kind in the version that the request path names.
    pub(crate) served: Arc<Resource>,
    pub(crate) path: ResourcePath,
    pub(crate) incoming: &'a Incoming,
    pub(crate) format: Format,
    pub(crate) now: Timestamp,
}

pub(crate) fn page_not_found() -> Reply {
    Reply::text(404, "404 page not found\n")
}

pub(crate) fn handle(core: &Arc<Core>, incoming: &Incoming, path: ResourcePath) -> ApiResult<Reply> {
    let registry = core.registry();
    let Some(served) = registry.find(&path.group, &path.version, &path.plural).cloned() else {
        let known_group = path.group.is_empty() || registry.groups().contains(&path.group);
        return if known_group { Err(Box::new(Failure::unknown_resource())) } else { Ok(page_not_found()) };
    };
    let stored = match served.conversion {
        Conversion::None | Conversion::ApiVersion => Some(&served),
        Conversion::Event => registry.find("", &served.storage_version, &served.plural),
        Conversion::Autoscaler => registry.find(&served.group, &served.storage_version, &served.plural),
    };
    let Some(resource) = stored.cloned() else { return Ok(page_not_found()) };
    if !resource.namespaced && !path.namespace.is_empty() {
        return Err(Box::new(Failure::unknown_resource()));
    }
    let Some(format) = incoming.format() else {
        return Err(not_acceptable(incoming.header("accept")));
    };
    let now = core.clock.now();
    let call = Call { core, registry, resource, served, path, incoming, format, now };
    call.dispatch()
}

/// The error if the server supports none of the encodings, or none of the representations (`as=`), that the `Accept`
/// header lists.
fn not_acceptable(accept: &str) -> Box<Failure> {
    const ENCODINGS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let encoding_known = accept
        .split(',')
        .any(|clause| ENCODINGS.contains(clause.split(';').next().unwrap_or_default().trim()));
    if encoding_known {
        let why = format!("only the following media types are accepted: {ENCODINGS}");
        return Box::new(Failure::new(406, "NotAcceptable", why));
    }
    let why = format!("406: Not Acceptable\n\nAvailable representations: {ENCODINGS}");
    Box::new(Failure::new(406, "NotAcceptable", why).with_empty_details())
}

impl Call<'_> {
    fn dispatch(&self) -> ApiResult<Reply> {
        if self.path.subresource.is_some() {
            return self.dispatch_subresource();
        }
        let watching = self.path.watch || self.incoming.query.flag("watch");
        let named = self.path.name.is_some();
        let verb = match (&self.incoming.method, named) {
            (&Method::GET, _) if watching => "watch",
            (&Method::GET, true) => "get",
            (&Method::GET, false) => "list",
            (&Method::POST, false) => "create",
            (&Method::PUT, true) => "update",
            (&Method::PATCH, true) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => return Err(Box::new(Failure::method_not_allowed())),
        };
        let needs_namespace = self.resource.namespaced && !matches!(verb, "list" | "watch");
        if !self.resource.allows(verb) || (needs_namespace && self.path.namespace.is_empty()) {
            return Err(Box::new(Failure::method_not_allowed()));
        }
        match verb {
            "watch" => self.watch(),
            "get" => self.get(),
            "list" => self.list(),
            "create" => self.create(),
            "update" => self.update(),
            "patch" => self.patch(),
            "delete" => self.delete(),
            _ => self.delete_collection(),
        }
    }

    /// The same request, for another resource and path.
    pub(crate) fn with(&self, resource: Arc<Resource>, path: ResourcePath) -> Call<'_> {
        Call {
            core: self.core,
            registry: self.registry.clone(),
            served: resource.clone(),
            resource,
            path,
            incoming: self.incoming,
            format: self.format,
            now: self.now,
        }
    }

    /// The subresource; empty if the path has none.
    pub(crate) fn subresource(&self) -> &str {
        self.path.subresource.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> String {
        key(&self.path.namespace, self.name())
    }

    pub(crate) fn not_found(&self) -> Box<Failure> {
        Box::new(Failure::not_found(&self.resource.group, &self.resource.plural, self.name()))
    }

    pub(crate) fn stored(&self) -> ApiResult<Arc<Entry>> {
        self.core.store.get(&self.resource.storage, &self.key()).ok_or_else(|| self.not_found())
    }
}
