//! Subresources that are more than a view of the object: scale, binding, eviction, tokens.

use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::patch::{PatchKind, apply_patch};
use super::pipeline::{Ownership, Stored, Unchanged};
use super::{Call, page_not_found};
use crate::admission;
use crate::clock::rfc3339_seconds;
use crate::encode::Reply;
use crate::options::{DeleteOptions, WriteOptions};
use crate::registry::Resource;
use crate::shape::Shape;
use crate::status::{Answer, Failure};
use crate::store::key;

const TOKEN_SECONDS_DEFAULT: i64 = 3600;

impl Call<'_> {
    pub(crate) fn dispatch_subresource(&self) -> Answer<Reply> {
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
            ("scale", &Method::GET) => {
                let entry = self.stored()?;
                Ok(Reply::json(200, &self.scale_of(&self.load(&entry))?))
            }
            ("scale", &Method::PUT | &Method::PATCH) => self.change_scale(),
            ("binding", &Method::POST) => self.bind(),
            ("eviction", &Method::POST) => self.evict(),
            ("token", &Method::POST) => self.request_token(),
            (_, &Method::GET) if self.offers("get") => self.get(),
            (_, &Method::PUT) if self.offers("update") => self.update(),
            (_, &Method::PATCH) if self.offers("patch") => self.patch(),
            _ => Err(Box::new(Failure::method_not_allowed())),
        }
    }

    fn offers(&self, verb: &str) -> bool {
        self.resource
            .subresource(self.subresource())
            .is_some_and(|subresource| subresource.verbs.iter().any(|offered| offered == verb))
    }

    fn scale_of(&self, object: &Value) -> Answer<Value> {
        let scale = match &self.resource.custom {
            None => admission::read_scale(&self.resource.group, &self.resource.kind, object),
            Some(_) => custom_scale(&self.resource, object),
        };
        scale.ok_or_else(|| self.not_found())
    }

    fn change_scale(&self) -> Answer<Reply> {
        let patching = self.incoming.method == Method::PATCH;
        let kind = if patching { "PatchOptions" } else { "UpdateOptions" };
        let options = WriteOptions::parse(&self.incoming.query, kind, false)?;
        let manager = self.incoming.field_manager();
        loop {
            let entry = self.stored()?;
            let old = self.load(&entry);
            let before = self.scale_of(&old)?;
            let scale = if patching {
                let kind = self.patch_kind()?;
                if kind == PatchKind::Apply {
                    return Err(Box::new(Failure::unsupported_media_type(
                        "server-side apply of scale is not supported here",
                    )));
                }
                let patch = super::decode::parse_json(&self.incoming.body)?;
                apply_patch(kind, &before, &patch, &Shape::Deduced)?
            } else {
                self.body_value()?
            };
            let given = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            if !given.is_empty() && given != old["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
                return Err(self.modified());
            }
            let mut new = old.clone();
            match &self.resource.custom {
                None => {
                    admission::write_scale(&self.resource.group, &self.resource.plural, &mut new, &scale)?;
                }
                Some(_) => write_custom_scale(&self.resource, &mut new, &scale)?,
            }
            match self.store_changed(&entry, &old, new, Ownership::Manager(&manager), options.dry_run) {
                Ok(written) => return Ok(Reply::json(200, &self.scale_of(&written.value())?)),
                Err(Unchanged::Refused(failure)) => return Err(failure),
                Err(Unchanged::Outdated) if !patching && !given.is_empty() => return Err(self.modified()),
                Err(Unchanged::Outdated) => {}
            }
        }
    }

    fn bind(&self) -> Answer<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        let binding = self.body_value()?;
        self.bind_to(&binding, &options)
    }

    /// `POST bindings`, the old form: the binding names the pod.
    pub(crate) fn bind_by_collection(&self, options: &WriteOptions) -> Answer<Reply> {
        let binding = self.body_value()?;
        let Some(pods) = self.registry.find("", "v1", "pods").cloned() else { return Ok(page_not_found()) };
        let mut path = self.path.clone();
        path.plural = "pods".into();
        path.name = binding["metadata"]["name"].as_str().map(str::to_string);
        path.subresource = Some("binding".into());
        self.with(pods, path).bind_to(&binding, options)
    }

    fn bind_to(&self, binding: &Value, options: &WriteOptions) -> Answer<Reply> {
        loop {
            let entry = self.stored()?;
            let old = self.load(&entry);
            let mut pod = old.clone();
            admission::bind_pod(&mut pod, binding, &Stored(self.core), self.now)?;
            if options.dry_run {
                return Ok(Reply::json(201, &success(201)));
            }
            // Binding is not an update: no admission, no rules, no ownership.
            match self.core.store.update(&self.resource.storage, entry.revision(), self.draft(&pod)) {
                Ok(_) => return Ok(Reply::json(201, &success(201))),
                Err(crate::store::WriteRefused::Changed(_)) => {}
                Err(_) => return Err(self.not_found()),
            }
        }
    }

    fn evict(&self) -> Answer<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        let eviction = self.body_value()?;
        let named = eviction["metadata"]["name"].as_str().unwrap_or_default();
        if !named.is_empty() && named != self.name() {
            return Err(super::decode::bad("name in URL does not match name in Eviction object"));
        }
        let dry_run = options.dry_run
            || eviction["deleteOptions"]["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        loop {
            let entry = self.stored()?;
            let pod = self.load(&entry);
            let decision =
                admission::decide_eviction(&pod, &eviction, dry_run, &Stored(self.core), self.now)?;
            if !dry_run {
                if let Some(budget) = &decision.budget
                    && !self.store_at_revision("policy", "poddisruptionbudgets", budget)
                {
                    continue;
                }
                if let Some(pod) = &decision.pod
                    && !self.store_at_revision("", "pods", pod)
                {
                    continue;
                }
            }
            let mut delete_options = DeleteOptions::from_object(&decision.delete_options)?;
            delete_options.dry_run |= dry_run;
            if decision.pod.is_some() && !dry_run {
                // The condition was stored meanwhile, so the revision the decision saw is no longer the newest.
                delete_options.resource_version = None;
            }
            self.delete_object(&self.key(), self.name(), &delete_options)?;
            return Ok(Reply::json(201, &success(201)));
        }
    }

    /// Stores an object as given if it still is at the resource version it carries.
    fn store_at_revision(&self, group: &str, plural: &str, object: &Value) -> bool {
        let Some(resource) = self.registry.any_version(group, plural) else { return false };
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let Some(revision) = revision else { return false };
        let draft = crate::store::Draft::new(object, &resource.selectable);
        self.core.store.update(&resource.storage, revision, draft).is_ok()
    }

    fn request_token(&self) -> Answer<Reply> {
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
            // Nothing here checks such tokens.
            "token": format!("{}.{}", key(&self.path.namespace, self.name()).replace('/', "."), self.core.ids.uid()),
            "expirationTimestamp": rfc3339_seconds(expires),
        });
        Ok(Reply::json(201, &request))
    }
}

pub(crate) fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn custom_scale(resource: &Resource, object: &Value) -> Option<Value> {
    let paths = resource.custom.as_ref()?.kind.scale_paths()?;
    let at = |path: &str| object.pointer(&pointer(path));
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"]},
        "spec": {}, "status": {"replicas": at(&paths.status_replicas).and_then(Value::as_i64).unwrap_or(0)},
    });
    for field in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            scale["metadata"][field] = value.clone();
        }
    }
    if let Some(replicas) = at(&paths.spec_replicas).and_then(Value::as_i64).filter(|replicas| *replicas != 0)
    {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = paths.label_selector.as_deref().and_then(at).and_then(Value::as_str) {
        scale["status"]["selector"] = json!(selector);
    }
    Some(scale)
}

fn write_custom_scale(resource: &Resource, object: &mut Value, scale: &Value) -> Answer<()> {
    let Some(paths) = resource.custom.as_ref().and_then(|custom| custom.kind.scale_paths()) else {
        return Ok(());
    };
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    let mut place = object;
    for part in paths.spec_replicas.split('.').filter(|part| !part.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = json!(replicas);
    Ok(())
}
