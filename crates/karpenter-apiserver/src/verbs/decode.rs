//! Decodes request bodies into objects of the kind that the path names.

use serde_json::{Value, json};

use super::Call;
use crate::builtin;
use crate::convert;
use crate::field::FieldError;
use crate::options::FieldValidation;
use crate::protobuf;
use crate::registry::group_version;
use crate::status::{ApiResult, Failure};
use crate::strict::{self, Document};

const FOREIGN_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

impl Call<'_> {
    /// Decodes the body, in whatever encoding it is, into a JSON value.
    pub(crate) fn body_value(&self) -> ApiResult<Value> {
        self.body_document().map(|document| document.value)
    }

    /// The decoded body, and whether it may contain duplicate fields.
    fn body_document(&self) -> ApiResult<Document> {
        let body = &self.incoming.body;
        let custom = self.resource.custom.is_some();
        let decoded = match self.incoming.content_type().as_str() {
            "" | "application/json" => {
                serde_json::from_slice::<Document>(body).map_err(|error| syntax_error(&error, body))
            }
            "application/yaml" => parse_yaml(body).map(Document::from),
            "application/vnd.kubernetes.protobuf" if !custom => protobuf::decode(body).map(Document::from),
            _ => {
                let protobuf = if custom { "" } else { ", application/vnd.kubernetes.protobuf" };
                return Err(Box::new(Failure::unsupported_media_type(format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json, application/yaml{protobuf}"
                ))));
            }
        };
        decoded.map_err(|failure| {
            bad(format!(
                "the object provided is unrecognized (must be of type {}): {} ({})",
                self.served.kind,
                failure.message,
                summary(body)
            ))
        })
    }

    /// Decodes the body into an object of this kind and converts it to the storage version. Kind, version and namespace
    /// are checked; if they are missing, they are set. Also returns warnings.
    pub(crate) fn body_object(&self, validation: FieldValidation) -> ApiResult<(Value, Vec<String>)> {
        let Document { value: mut object, has_duplicates } = self.body_document()?;
        if object.is_null() {
            object = json!({});
        }
        self.check_kind(&mut object)?;
        let problems = self.body_problems(&mut object, validation, has_duplicates)?;
        let warnings = match validation {
            FieldValidation::Strict if !problems.is_empty() => {
                return Err(self.undecodable(&strict::strict_error(&problems)));
            }
            FieldValidation::Warn => problems,
            FieldValidation::Strict | FieldValidation::Ignore => Vec::new(),
        };
        self.check_name_and_namespace(&mut object)?;
        Ok((convert::to_stored(&self.served, object, &self.resource.api_version()), warnings))
    }

    /// The errors of strict decoding: unknown and duplicate fields. A value of the wrong type is an error in every
    /// mode.
    fn body_problems(
        &self,
        object: &mut Value,
        validation: FieldValidation,
        has_duplicates: bool,
    ) -> ApiResult<Vec<String>> {
        let (group, version, kind) = (&self.served.group, &self.served.version, &self.served.kind);
        if self.resource.custom.is_none() && !has_duplicates && strict::is_clean(object, group, version, kind)
        {
            return Ok(Vec::new());
        }
        let is_json = matches!(self.incoming.content_type().as_str(), "" | "application/json");
        let validates_fields = validation != FieldValidation::Ignore;
        if let Some(custom) = &self.resource.custom {
            if let Some(why) = metadata_error(object) {
                return Err(self.undecodable(&why));
            }
            let mut problems = if has_duplicates && validates_fields {
                strict::duplicate_fields(&self.incoming.body)
            } else {
                Vec::new()
            };
            // kube-apiserver reports unknown fields of metadata first, because it decodes the metadata before it prunes
            // the object.
            let (metadata, others): (Vec<String>, Vec<String>) =
                custom.kind.prune(object).into_iter().partition(|path| path.starts_with("metadata."));
            problems.extend(metadata.iter().chain(&others).map(|path| unknown(path)));
            return Ok(problems);
        }
        if let Some(why) = strict::decode_error(object, group, version, kind) {
            return Err(self.undecodable(&why));
        }
        Ok(match validates_fields {
            true if is_json => strict::body_problems(&self.incoming.body, group, version, kind),
            true => strict::unknown_fields(object, group, version, kind)
                .iter()
                .map(|path| unknown(path))
                .collect(),
            false => Vec::new(),
        })
    }

    fn undecodable(&self, why: &str) -> Box<Failure> {
        Box::new(strict::undecodable(&self.served.version, &self.served.kind, why))
    }

    /// Checks and prunes the object that results from a patch. Returns warnings for fields that the kind does not have.
    pub(crate) fn check_patched(
        &self,
        object: &mut Value,
        validation: FieldValidation,
    ) -> ApiResult<Vec<String>> {
        let (group, version, kind) = (&self.served.group, &self.served.version, &self.served.kind);
        let paths = match &self.resource.custom {
            Some(custom) => custom.kind.prune(object),
            None if strict::is_clean(object, group, version, kind) => Vec::new(),
            None => {
                if let Some(why) = strict::decode_error(object, group, version, kind) {
                    return Err(bad_patch(object, &why));
                }
                match validation {
                    FieldValidation::Ignore => Vec::new(),
                    _ => strict::unknown_fields(object, group, version, kind),
                }
            }
        };
        let problems: Vec<String> = paths.iter().map(|path| unknown(path)).collect();
        match validation {
            FieldValidation::Strict if !problems.is_empty() => {
                Err(bad_patch(object, &strict::strict_error(&problems)))
            }
            FieldValidation::Warn => Ok(problems),
            FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        }
    }

    /// Like [`Self::check_kind`], for the object that results from a patch. kube-apiserver decodes that object as the
    /// kind that it names, and reports the errors of that kind.
    pub(crate) fn check_patched_kind(&self, object: &mut Value) -> ApiResult<()> {
        let Err(failure) = self.check_kind(object) else { return Ok(()) };
        if self.resource.custom.is_some() || !object.is_object() {
            return Err(failure);
        }
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let why = strict::decode_error(object, group, version, text("kind"));
        Err(bad_patch(object, &why.unwrap_or(failure.message)))
    }

    pub(crate) fn check_kind(&self, object: &mut Value) -> ApiResult<()> {
        let served = &self.served;
        let names = [served.group.as_str(), &served.version, &served.kind];
        self.check_kind_is(object, names, self.resource.custom.is_some())
    }

    /// Checks the kind of a body; if `apiVersion` or `kind` is missing, sets it.
    pub(crate) fn check_kind_is(
        &self,
        object: &mut Value,
        [served_group, served_version, served_kind]: [&str; 3],
        is_custom: bool,
    ) -> ApiResult<()> {
        let found = strict_kind_name(object);
        let Some(fields) = object.as_object_mut() else {
            return Err(bad(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
                 error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({})",
                served_kind,
                summary(&self.incoming.body)
            )));
        };
        let expected = group_version(served_group, served_version);
        // Group, version and kind default to those of the request path.
        let value_or = |field: &str, default: &str| match fields.get(field).and_then(Value::as_str) {
            None | Some("") => default.to_string(),
            Some(text) => text.to_string(),
        };
        let (given, kind) = (value_or("apiVersion", &expected), value_or("kind", served_kind));
        let (group, version) = given.split_once('/').unwrap_or(("", &given));
        if !is_custom && (given != expected || kind != served_kind) {
            let kind = kind.as_str();
            let why = if builtin::type_of(group, version, kind).is_some() {
                let internal = match served_group.split('.').next() {
                    None | Some("") => "core",
                    Some(group) => group,
                };
                format!("converting ({version}.{kind}) to ({internal}.{}): unknown conversion", served_kind)
            } else {
                format!(
                    "no kind \"{kind}\" is registered for version \"{given}\" in scheme \
                     \"pkg/api/legacyscheme/scheme.go:30\""
                )
            };
            return Err(bad(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
                served_kind
            )));
        }
        if given != expected {
            return Err(bad(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        if kind != served_kind {
            let error = FieldError::invalid("kind", json!(kind), format!("must be {}", served_kind));
            let name =
                fields.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
            return Err(Box::new(Failure::invalid(served_group, &kind, name, &[error])));
        }
        fields.insert("apiVersion".into(), json!(expected));
        fields.insert("kind".into(), json!(served_kind));
        if !fields.get("metadata").is_some_and(Value::is_object) {
            fields.insert("metadata".into(), json!({}));
        }
        Ok(())
    }

    /// Checks that name and namespace of the object agree with the path.
    pub(crate) fn check_name_and_namespace(&self, object: &mut Value) -> ApiResult<()> {
        let metadata = &mut object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        if self.resource.namespaced {
            if !namespace.is_empty() && namespace != self.path.namespace {
                return Err(bad(FOREIGN_NAMESPACE));
            }
            metadata["namespace"] = json!(self.path.namespace);
        } else {
            clear_namespace(object);
        }
        let metadata = &object["metadata"];
        if let Some(expected) = &self.path.name {
            let name = metadata["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                return Err(bad(format!(
                    "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
                )));
            }
            if name != expected {
                return Err(bad(format!(
                    "the name of the object ({name}) does not match the name on the URL ({expected})"
                )));
            }
        }
        Ok(())
    }
}

/// Removes `metadata.namespace` from a cluster-scoped object; like kube-apiserver, without an error.
pub(crate) fn clear_namespace(object: &mut Value) {
    if let Some(fields) = object["metadata"].as_object_mut() {
        fields.remove("namespace");
    }
}

fn unknown(path: &str) -> String {
    format!("unknown field \"{path}\"")
}

/// The error if the object that results from a patch cannot be decoded as an object of the kind.
pub(crate) fn bad_patch(patched: &Value, why: &str) -> Box<Failure> {
    let error = FieldError::invalid("patch", json!(patched.to_string()), why);
    Box::new(Failure::invalid("", "", "", &[error]))
}

pub(crate) fn bad(why: impl Into<String>) -> Box<Failure> {
    Box::new(Failure::bad_request(why))
}

pub(crate) fn parse_json(body: &[u8]) -> ApiResult<Value> {
    serde_json::from_slice(body).map_err(|error| syntax_error(&error, body))
}

fn syntax_error(error: &serde_json::Error, body: &[u8]) -> Box<Failure> {
    bad(format!("couldn't get version/kind; json parse error: {}", go_syntax_error(error, body)))
}

/// The message for a syntax error, as Go's JSON decoder words it.
pub(crate) fn go_syntax_error(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let context = if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("key must be a string") || text.starts_with("trailing comma") {
        "looking for beginning of object key string"
    } else {
        "looking for beginning of value"
    };
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let character = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' ');
    format!("invalid character '{}' {context}", char::from(character))
}

/// The beginning of a body, which error messages quote.
fn summary(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let more = if body.len() > SHOWN { " ..." } else { "" };
    let shown = &body[..body.len().min(SHOWN)];
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits}{more}")
        }
    }
}

fn strict_kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The error of decoding `metadata`; `None` if there is none. kube-apiserver decodes the metadata of custom resources
/// separately from the rest.
fn metadata_error(object: &Value) -> Option<String> {
    let alone = json!({ "metadata": object["metadata"] });
    let why = strict::decode_error(&alone, "", "v1", "ConfigMap")?;
    Some(why.replace("ObjectMeta.metadata.", "ObjectMeta."))
}

/// Parses YAML. JSON is YAML as well, and its parser is faster, so the text is first parsed as JSON.
pub(crate) fn parse_yaml(body: &[u8]) -> ApiResult<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text =
        std::str::from_utf8(body).map_err(|error| bad(format!("error converting YAML to JSON: {error}")))?;
    serde_saphyr::from_str(text).map_err(|error| bad(format!("error converting YAML to JSON: yaml: {error}")))
}
