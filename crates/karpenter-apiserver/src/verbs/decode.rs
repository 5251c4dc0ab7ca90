//! Request bodies: from bytes to an object of the kind the path names.

use serde_json::{Value, json};

use super::Call;
use crate::convert;
use crate::options::FieldValidation;
use crate::status::{Answer, Failure};

const FOREIGN_NAMESPACE: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

impl Call<'_> {
    /// The body as a value, whatever it is encoded in.
    pub(crate) fn body_value(&self) -> Answer<Value> {
        let body = &self.incoming.body;
        match self.incoming.content_type().as_str() {
            "" | "application/json" => parse_json(body),
            "application/yaml" => parse_yaml(body),
            _ => Err(Box::new(Failure::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor",
            ))),
        }
    }

    /// The body as an object of this kind, in its stored version: kind and version are checked and filled in, the
    /// namespace too. With warnings.
    pub(crate) fn body_object(&self, validation: FieldValidation) -> Answer<(Value, Vec<String>)> {
        let mut object = self.body_value()?;
        self.check_kind(&mut object)?;
        let warnings = self.check_fields(&mut object, validation)?;
        self.check_place(&mut object)?;
        Ok((convert::to_stored(&self.served, object, &self.resource.api_version()), warnings))
    }

    /// Fields the kind does not have are dropped; what is said about them is up to the client.
    pub(crate) fn check_fields(
        &self,
        object: &mut Value,
        validation: FieldValidation,
    ) -> Answer<Vec<String>> {
        let unknown: Vec<String> = match &self.resource.custom {
            Some(custom) => {
                custom.kind.prune(object).iter().map(|path| format!("unknown field \"{path}\"")).collect()
            }
            None => Vec::new(),
        };
        match validation {
            _ if unknown.is_empty() => Ok(Vec::new()),
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(unknown),
            FieldValidation::Strict => Err(bad(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                self.served.kind,
                self.served.version,
                self.served.kind,
                unknown.join(", ")
            ))),
        }
    }

    pub(crate) fn check_kind(&self, object: &mut Value) -> Answer<()> {
        let served = &self.served;
        let Some(fields) = object.as_object_mut() else {
            return Err(bad(format!(
                "{} in version \"{}\" cannot be handled as a {}: the body is not an object",
                served.kind, served.version, served.kind
            )));
        };
        let expected = served.api_version();
        let given = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != expected {
            return Err(bad(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        if !kind.is_empty() && kind != served.kind {
            return Err(bad(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: converting (v1.{kind}) to ({}.{}): unknown \
                 conversion",
                served.version, served.kind, served.version, served.kind
            )));
        }
        fields.insert("apiVersion".into(), json!(expected));
        fields.insert("kind".into(), json!(served.kind));
        if !fields.get("metadata").is_some_and(Value::is_object) {
            fields.insert("metadata".into(), json!({}));
        }
        Ok(())
    }

    /// Name and namespace agree with the path.
    fn check_place(&self, object: &mut Value) -> Answer<()> {
        let metadata = &mut object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        if self.resource.namespaced {
            if !namespace.is_empty() && namespace != self.path.namespace {
                return Err(bad(FOREIGN_NAMESPACE));
            }
            metadata["namespace"] = json!(self.path.namespace);
        } else if !namespace.is_empty() {
            return Err(bad(FOREIGN_NAMESPACE));
        } else if let Some(fields) = metadata.as_object_mut() {
            fields.remove("namespace");
        }
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

pub(crate) fn bad(why: impl Into<String>) -> Box<Failure> {
    Box::new(Failure::bad_request(why))
}

pub(crate) fn parse_json(body: &[u8]) -> Answer<Value> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(bad("Object 'Kind' is missing in ''"));
    }
    serde_json::from_slice(body)
        .map_err(|error| bad(format!("couldn't get version/kind; json parse error: {error}")))
}

/// JSON is YAML, and faster to read as what it is.
pub(crate) fn parse_yaml(body: &[u8]) -> Answer<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text =
        std::str::from_utf8(body).map_err(|error| bad(format!("error converting YAML to JSON: {error}")))?;
    serde_saphyr::from_str(text).map_err(|error| bad(format!("error converting YAML to JSON: yaml: {error}")))
}
