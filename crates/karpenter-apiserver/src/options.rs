//! The options of requests (query parameters and `DeleteOptions`): parses and validates them.
//!
//! Upstream: k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go,
//! k8s.io/apimachinery/pkg/apis/meta/internalversion/validation/validation.go

use serde_json::{Value, json};

use crate::field::FieldError;
use crate::request::Query;
use crate::status::{ApiResult, Failure};

const META: &str = "meta.k8s.io";

fn invalid(kind: &str, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() { Ok(()) } else { Err(Box::new(Failure::invalid(META, kind, "", errors))) }
}

fn check_dry_run(values: &[String], errors: &mut Vec<FieldError>) -> bool {
    let bad: Vec<&String> = values.iter().filter(|value| *value != "All").collect();
    if !bad.is_empty() {
        errors.push(FieldError::not_supported("dryRun", json!(values), &["All"]));
    }
    !values.is_empty()
}

/// What the server does with fields that the kind does not have (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options of create, update and patch requests.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
    /// Whether an apply patch takes over fields that other managers own.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Parses the options. `kind` is the name of their kind: `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub fn parse(query: &Query, kind: &str, applies: bool) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let force = query.has("force").then(|| query.flag("force"));
        let manager = query.get("fieldManager");
        if kind == "PatchOptions" {
            if applies && manager.is_empty() {
                errors.push(FieldError::required("fieldManager", "is required for apply patch"));
            }
            if !applies && force.is_some() {
                errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
            }
        }
        if manager.len() > 128 {
            let mut error =
                FieldError::invalid("fieldManager", Value::Null, "may not be more than 128 bytes");
            error.kind = crate::field::FieldErrorKind::TooLong;
            errors.push(error);
        }
        let dry_runs: Vec<String> = query.all("dryRun").map(str::to_string).collect();
        let dry_run = check_dry_run(&dry_runs, &mut errors);
        let field_validation = match query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", json!(other), &known));
                FieldValidation::Warn
            }
        };
        invalid(kind, &errors)?;
        Ok(Self { dry_run, field_validation, force })
    }
}

/// The options of list and watch requests.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    pub limit: usize,
    pub continue_token: String,
    /// The resource version as the client sent it: empty, `0`, or a revision.
    pub resource_version: String,
    pub exact: bool,
    pub not_older_than: bool,
    pub sends_initial_events: Option<bool>,
    pub bookmarks: bool,
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    pub fn parse(query: &Query, watch: bool) -> ApiResult<Self> {
        let number = |name: &str| -> ApiResult<Option<i64>> {
            match query.get(name) {
                "" => Ok(None),
                text => text.parse().map(Some).map_err(|_| {
                    Box::new(Failure::bad_request(format!(
                        "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                    )))
                }),
            }
        };
        let limit = number("limit")?.unwrap_or(0);
        let timeout_seconds = number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let text = |name: &str| query.get(name).to_string();
        let matching = query.get("resourceVersionMatch");
        let options = Self {
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: text("continue"),
            resource_version: text("resourceVersion"),
            exact: matching == "Exact",
            not_older_than: matching == "NotOlderThan",
            sends_initial_events: query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents")),
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout_seconds: timeout_seconds.filter(|seconds| *seconds > 0),
        };
        let mut errors = Vec::new();
        let forbid = |why: &str| FieldError::forbidden("resourceVersionMatch", why);
        let supported =
            |names: &[&str]| FieldError::not_supported("resourceVersionMatch", json!(matching), names);
        let continues = !options.continue_token.is_empty();
        if watch {
            if options.sends_initial_events.is_some() && !options.not_older_than {
                errors
                    .push(forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
            if !matching.is_empty() {
                if options.sends_initial_events.is_none() {
                    errors.push(forbid(
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    ));
                }
                if !options.not_older_than {
                    errors.push(supported(&["NotOlderThan"]));
                }
                if continues {
                    errors.push(forbid("resourceVersionMatch is forbidden when continue is provided"));
                }
            }
        } else {
            if !matching.is_empty() {
                if options.resource_version.is_empty() {
                    errors
                        .push(forbid("resourceVersionMatch is forbidden unless resourceVersion is provided"));
                }
                if continues {
                    errors.push(forbid("resourceVersionMatch is forbidden when continue is provided"));
                }
                if !options.exact && !options.not_older_than {
                    errors.push(supported(&["Exact", "NotOlderThan", ""]));
                }
                if options.exact && options.resource_version == "0" {
                    errors.push(forbid(
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    ));
                }
            }
            if options.sends_initial_events.is_some() {
                let why = "sendInitialEvents is forbidden for list";
                errors.push(FieldError::forbidden("sendInitialEvents", why));
            }
        }
        invalid("ListOptions", &errors)?;
        Ok(options)
    }

    /// The requested revision; 0 if the client requested none.
    pub fn revision(&self) -> ApiResult<u64> {
        if self.resource_version.is_empty() {
            return Ok(0);
        }
        parse_revision(&self.resource_version)
    }
}

/// Parses a resource version in requests in which kube-apiserver does not validate it: if it is not a number, the error
/// is an internal error instead of a bad request.
pub fn parse_revision_or_internal_error(text: &str) -> ApiResult<u64> {
    parse_revision(text).map_err(|failure| {
        let message = failure.message.trim_start_matches("invalid resource version: ").to_owned();
        Box::new(Failure::new(500, "", message))
    })
}

/// Parses a resource version.
pub fn parse_revision(text: &str) -> ApiResult<u64> {
    text.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        let error = FieldError::invalid("resourceVersion", json!(text), why);
        Box::new(Failure::bad_request(format!("invalid resource version: {error}")))
    })
}

/// The options of delete requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Parses the options from the `DeleteOptions` object in the request body.
    pub fn from_object(object: &Value) -> ApiResult<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_string);
        let kind = object["kind"].as_str().unwrap_or_default();
        if !kind.is_empty() && kind != "DeleteOptions" {
            let version = object["apiVersion"].as_str().unwrap_or_default();
            return Err(Box::new(Failure::bad_request(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \
                 \"pkg/api/legacyscheme/scheme.go:30\""
            ))));
        }
        let dry_runs: Vec<String> = object["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(Into::into)
            .collect();
        Self {
            grace_period_seconds: object["gracePeriodSeconds"].as_i64(),
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            orphan_dependents: object["orphanDependents"].as_bool(),
            propagation_policy: text("/propagationPolicy"),
            dry_run: false,
        }
        .checked(&dry_runs)
    }

    /// Parses the options from query parameters, which are used if the request has no body.
    pub fn from_query(query: &Query) -> ApiResult<Self> {
        let grace_period_seconds = match query.get("gracePeriodSeconds") {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                Box::new(Failure::bad_request(format!(
                    "strconv.ParseInt: parsing \"{text}\": invalid syntax"
                )))
            })?),
        };
        let dry_runs: Vec<String> = query.all("dryRun").map(str::to_string).collect();
        Self {
            grace_period_seconds,
            uid: None,
            resource_version: None,
            orphan_dependents: query.has("orphanDependents").then(|| query.flag("orphanDependents")),
            propagation_policy: Some(query.get("propagationPolicy").to_string())
                .filter(|text| !text.is_empty()),
            dry_run: false,
        }
        .checked(&dry_runs)
    }

    fn checked(mut self, dry_runs: &[String]) -> ApiResult<Self> {
        let mut errors = Vec::new();
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", json!(policy), why));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", json!(policy), &known));
            }
        }
        self.dry_run = check_dry_run(dry_runs, &mut errors);
        invalid("DeleteOptions", &errors)?;
        self.grace_period_seconds =
            self.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
        Ok(self)
    }
}
