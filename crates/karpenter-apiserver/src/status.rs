//! Errors of the API, as `Status` objects with code, reason, message and details.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/errors/errors.go

use serde_json::{Map, Value, json};

use crate::field::FieldError;

/// A group and a kind (or plural name), for messages and details of errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKind {
    pub group: String,
    pub kind: String,
}

impl GroupKind {
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// The kind with its group: `Deployment.apps`, or `Pod` in the core group; with a plural name, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

/// One entry in `details.causes` of an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: Option<String>,
}

/// The error of a request. It is large, so results contain it in a box.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub name: Option<String>,
    pub group_kind: Option<GroupKind>,
    pub uid: Option<String>,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: Option<u32>,
}

pub type ApiResult<T> = Result<T, Box<Failure>>;

impl Failure {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            name: None,
            group_kind: None,
            uid: None,
            causes: Vec::new(),
            retry_after_seconds: None,
        }
    }

    fn about(mut self, group: &str, plural_or_kind: &str, name: &str) -> Self {
        self.name = Some(name.to_string());
        self.group_kind = Some(GroupKind::new(group, plural_or_kind));
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = GroupKind::new(group, plural).qualified();
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(group, plural, name)
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let resource = GroupKind::new(group, plural).qualified();
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
            .about(group, plural, name)
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = GroupKind::new(group, plural).qualified();
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"))
            .about(group, plural, name)
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = GroupKind::new(group, plural).qualified();
        Self::new(403, "Forbidden", format!("{resource} \"{name}\" is forbidden: {why}"))
            .about(group, plural, name)
    }

    /// The error for an object that violates the validation rules of its kind. `errors` must not be empty.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let qualified = GroupKind::new(group, kind).qualified();
        let mut failure = Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}"))
            .about(group, kind, name);
        failure.causes = errors.iter().map(FieldError::cause).collect();
        failure
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .about("", "", "")
    }

    /// The error for an unknown resource in a known group.
    pub fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").about("", "", "")
    }

    /// Makes the response contain an empty `details`.
    pub fn with_empty_details(self) -> Self {
        self.about("", "", "")
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// The `Status` object that the client gets.
    pub fn to_status(&self) -> Value {
        let mut details = Map::new();
        if let Some(name) = self.name.as_ref().filter(|name| !name.is_empty()) {
            details.insert("name".into(), json!(name));
        }
        if let Some(about) = &self.group_kind {
            if !about.group.is_empty() {
                details.insert("group".into(), json!(about.group));
            }
            if !about.kind.is_empty() {
                details.insert("kind".into(), json!(about.kind));
            }
        }
        if let Some(uid) = &self.uid {
            details.insert("uid".into(), json!(uid));
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self
                .causes
                .iter()
                .map(|cause| {
                    let mut entry = json!({"reason": cause.reason, "message": cause.message});
                    if let Some(field) = &cause.field {
                        entry["field"] = json!(field);
                    }
                    entry
                })
                .collect();
            details.insert("causes".into(), json!(causes));
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".into(), json!(seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !details.is_empty() || self.group_kind.is_some() {
            status["details"] = Value::Object(details);
        }
        status
    }
}
