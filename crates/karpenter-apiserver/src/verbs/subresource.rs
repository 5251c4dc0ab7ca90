//! Calls the handler of each subresource, and implements `binding` and `token`.

use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::pipeline::StoreLookup;
use super::{Call, page_not_found};
use crate::admission;
use crate::clock::rfc3339_seconds;
use crate::encode::Reply;
use crate::options::WriteOptions;
use crate::status::{ApiResult, Failure};
use crate::store::key;

const TOKEN_SECONDS_DEFAULT: i64 = 3600;

impl Call<'_> {
    pub(crate) fn dispatch_subresource(&self) -> ApiResult<Reply> {
        let name = self.subresource();
        let needs_namespace = self.resource.namespaced && self.path.namespace.is_empty();
        if self.resource.subresource(name).is_none() || needs_namespace {
            return Err(match &self.resource.custom {
                Some(_) if !needs_namespace => self.not_found(),
                _ => Box::new(Failure::unknown_resource()),
            });
        }
        match (name, &self.incoming.method) {
            ("log" | "exec" | "attach" | "portforward" | "proxy", _) => {
                let entry = self.stored()?;
                Err(Box::new(Failure::new(
                    501,
                    "NotImplemented",
                    format!("{} of {} are not supported here: no containers run", name, entry.name()),
                )))
            }
            ("scale", &Method::GET) => self.read_scale(),
            ("scale", &Method::PUT | &Method::PATCH) => self.change_scale(),
            ("binding", &Method::POST) => self.bind(),
            ("eviction", &Method::POST) => self.evict(),
            ("token", &Method::POST) => self.request_token(),
            (_, &Method::GET) if self.supports("get") => self.get(),
            (_, &Method::PUT) if self.supports("update") => self.update(),
            (_, &Method::PATCH) if self.supports("patch") => self.patch(),
            _ => Err(Box::new(Failure::method_not_allowed())),
        }
    }

    fn supports(&self, verb: &str) -> bool {
        self.resource
            .subresource(self.subresource())
            .is_some_and(|subresource| subresource.verbs.iter().any(|offered| offered == verb))
    }

    fn bind(&self) -> ApiResult<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        let binding = self.body_value()?;
        self.bind_to(&binding, &options)
    }

    /// Handles the deprecated `POST .../bindings`, in which the binding names the pod.
    pub(crate) fn bind_by_collection(&self, options: &WriteOptions) -> ApiResult<Reply> {
        let binding = self.body_value()?;
        let Some(pods) = self.registry.find("", "v1", "pods").cloned() else { return Ok(page_not_found()) };
        let mut path = self.path.clone();
        path.plural = "pods".into();
        path.name = binding["metadata"]["name"].as_str().map(str::to_string);
        path.subresource = Some("binding".into());
        self.with(pods, path).bind_to(&binding, options)
    }

    fn bind_to(&self, binding: &Value, options: &WriteOptions) -> ApiResult<Reply> {
        loop {
            let entry = self.stored()?;
            let old = self.load(&entry);
            let mut pod = old.clone();
            admission::bind_pod(&mut pod, binding, &StoreLookup(self.core), self.now)?;
            if options.dry_run {
                return Ok(Reply::json(201, &success(201)));
            }
            // Binding is not an update: it has no admission and no validation, and it records no managed fields.
            match self.core.store.update(&self.resource.storage, entry.revision(), self.draft(&pod)) {
                Ok(_) => return Ok(Reply::json(201, &success(201))),
                Err(crate::store::WriteRefused::Changed(_)) => {}
                Err(_) => return Err(self.not_found()),
            }
        }
    }

    fn request_token(&self) -> ApiResult<Reply> {
        self.stored()?;
        let mut request = self.body_value()?;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS_DEFAULT);
        let expires = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(self.now);
        request["kind"] = json!("TokenRequest");
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["metadata"] = json!({
            "name": self.name(), "namespace": self.path.namespace, "creationTimestamp": rfc3339_seconds(self.now),
        });
        request["spec"]["expirationSeconds"] = json!(seconds);
        request["status"] = json!({
            // The server does not verify these tokens when it receives them.
            "token": format!("{}.{}", key(&self.path.namespace, self.name()).replace('/', "."), self.core.ids.uid()),
            "expirationTimestamp": rfc3339_seconds(expires),
        });
        Ok(Reply::json(201, &request))
    }
}

pub(crate) fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
