//! Request bodies: from bytes to an object of the kind the path names.

use serde_json::{Value, json};

use super::Call;
use crate::registry::group_version;
use crate::status::{Answer, Failure};

impl Call<'_> {
    /// The body as a value, whatever it is encoded in.
    pub(crate) fn body_value(&self) -> Answer<Value> {
        let body = &self.incoming.body;
        match self.incoming.content_type().as_str() {
            "" | "application/json" => parse_json(body),
            "application/yaml" => parse_yaml(body),
            other => {
                let why = format!(
                    "the body of the request was in an unknown format - accepted media types include: \
                     application/json, application/yaml, application/vnd.kubernetes.protobuf, \
                     application/cbor; got {other}"
                );
                let why = why.split("; got").next().unwrap_or_default().to_string();
                Err(Box::new(Failure::unsupported_media_type(why)))
            }
        }
    }

    /// The body as an object of this kind: kind and version are checked and filled in, the namespace too.
    pub(crate) fn body_object(&self) -> Answer<Value> {
        let mut object = self.body_value()?;
        self.check_kind(&mut object)?;
        self.check_place(&mut object)?;
        Ok(object)
    }

    pub(crate) fn check_kind(&self, object: &mut Value) -> Answer<()> {
        let resource = &self.resource;
        let Some(fields) = object.as_object_mut() else {
            return Err(bad(format!(
                "{} in version {:?} cannot be handled as a {}: json: cannot unmarshal into Go value of type {}.{}",
                resource.kind, resource.version, resource.kind, resource.version, resource.kind
            )));
        };
        let expected = resource.api_version();
        let given = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != expected {
            return Err(bad(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            let (group, version) = given.split_once('/').unwrap_or(("", given));
            return Err(bad(format!(
                "{kind} in version {:?} cannot be handled as a {}: converting ({}.{kind}) to ({}.{}): unknown \
                 conversion",
                resource.version,
                resource.kind,
                group_version(group, version).replace('/', "."),
                resource.version,
                resource.kind
            )));
        }
        fields.insert("apiVersion".into(), json!(expected));
        fields.insert("kind".into(), json!(resource.kind));
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
                return Err(bad(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            metadata["namespace"] = json!(self.path.namespace);
        } else if !namespace.is_empty() {
            return Err(bad(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        } else if let Some(fields) = metadata.as_object_mut() {
            fields.remove("namespace");
        }
        if let Some(expected) = &self.path.name {
            let name = metadata["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                // A body without a name takes the one of the path.
                metadata["name"] = json!(expected);
            } else if name != expected {
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

pub(crate) fn parse_yaml(body: &[u8]) -> Answer<Value> {
    let text =
        std::str::from_utf8(body).map_err(|error| bad(format!("error converting YAML to JSON: {error}")))?;
    serde_saphyr::from_str(text).map_err(|error| bad(format!("error converting YAML to JSON: yaml: {error}")))
}
