//! Responses: negotiation of the format, and streamed bodies.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use serde_json::{Map, Value, json};

use crate::status::Failure;
use crate::store::Entry;

/// The approximate size of the frames in which a list is sent.
const LIST_FRAME_BYTES: usize = 128 * 1024;

/// How much of each object a table contains (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowObject {
    None,
    Metadata,
    Object,
}

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    /// A table; the text is the version of `meta.k8s.io`.
    Table(&'static str),
    /// `PartialObjectMetadata` of an object, or a list of them.
    Metadata,
    /// Aggregated discovery; the text is the version of `apidiscovery.k8s.io`.
    Discovery(&'static str),
}

impl Format {
    /// The first format in an `Accept` header that is supported, and whether it is encoded as YAML; `None` if none is
    /// supported.
    pub fn negotiate(accept: &str) -> Option<(Self, bool)> {
        if accept.trim().is_empty() {
            return Some((Self::Json, false));
        }
        accept.split(',').find_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let as_yaml = media == "application/yaml";
            if !as_yaml && !matches!(media.as_str(), "application/json" | "*/*") {
                return None;
            }
            let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter =
                |key: &str| parameters.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| *value);
            let form = match (parameter("as"), parameter("g"), parameter("v")) {
                ("", ..) => Some(Self::Json),
                ("Table", "meta.k8s.io", "v1") => Some(Self::Table("meta.k8s.io/v1")),
                ("Table", "meta.k8s.io", "v1beta1") => Some(Self::Table("meta.k8s.io/v1beta1")),
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => {
                    Some(Self::Metadata)
                }
                ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Self::Discovery("v2")),
                _ => None,
            };
            form.map(|form| (form, as_yaml))
        })
    }
}

/// The object reduced to a `PartialObjectMetadata`.
pub fn partial_metadata(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if object["kind"] == "DaemonSet"
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        // kube-apiserver keeps this value in a field of DaemonSets and shows it as an annotation only in complete v1
        // objects.
        annotations.remove("deprecated.daemonset.template.generation");
        if annotations.is_empty()
            && let Some(fields) = metadata.as_object_mut()
        {
            fields.remove("annotations");
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// The body of a response.
pub enum RespBody {
    Full(Option<Bytes>),
    List(ListBody),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl std::fmt::Debug for RespBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Full(_) => "Full",
            Self::List(_) => "List",
            Self::Stream(_) => "Stream",
        })
    }
}

/// A list as JSON, which consists of the stored JSON of its objects.
#[derive(Debug)]
pub struct ListBody {
    head: Option<Vec<u8>>,
    /// How the JSON of each object starts: with `kind` and `apiVersion`, which the items of built-in lists omit.
    omitted_prefix: Vec<u8>,
    entries: VecDeque<Arc<Entry>>,
    bytes_left: u64,
}

impl ListBody {
    pub fn new(
        kind: &str,
        api_version: &str,
        names_kinds: bool,
        metadata: &Map<String, Value>,
        entries: Vec<Arc<Entry>>,
    ) -> Self {
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":").as_bytes(),
        );
        let _ = serde_json::to_writer(&mut head, metadata);
        head.extend_from_slice(b",\"items\":[");
        let omitted_prefix = if names_kinds {
            Vec::new()
        } else {
            let kind = kind.strip_suffix("List").unwrap_or(kind);
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into_bytes()
        };
        let length = |entry: &Arc<Entry>| {
            let (brace, text) = item(entry, &omitted_prefix);
            brace.len() + text.len() + 1
        };
        let objects: usize = entries.iter().map(length).sum();
        // The remaining bytes: the objects, a comma between any two objects, and `]}` with a newline at the end.
        let bytes_left = (head.len() + objects.saturating_sub(1) + 3) as u64;
        Self { head: Some(head), omitted_prefix, entries: entries.into(), bytes_left }
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        if self.bytes_left == 0 {
            return None;
        }
        let mut frame = self.head.take().unwrap_or_default();
        while let Some(entry) = self.entries.pop_front() {
            let (brace, text) = item(&entry, &self.omitted_prefix);
            frame.extend_from_slice(brace);
            frame.extend_from_slice(text);
            if !self.entries.is_empty() {
                frame.push(b',');
            }
            if frame.len() >= LIST_FRAME_BYTES {
                break;
            }
        }
        if self.entries.is_empty() {
            frame.extend_from_slice(b"]}\n");
            self.bytes_left = 0;
        } else {
            self.bytes_left -= frame.len() as u64;
        }
        Some(frame.into())
    }
}

/// The JSON of a list item, in two parts. If the item starts with `omitted_prefix`, an opening brace replaces the
/// prefix.
fn item<'a>(entry: &'a Entry, omitted_prefix: &[u8]) -> (&'static [u8], &'a [u8]) {
    match entry.object().strip_prefix(omitted_prefix) {
        Some(rest) if !omitted_prefix.is_empty() => (b"{", rest),
        _ => (b"", entry.object()),
    }
}

impl Body for RespBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Full(bytes) => bytes.take(),
            Self::List(list) => list.next_frame(),
            Self::Stream(stream) => std::task::ready!(stream.as_mut().poll_next(context)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::List(list) => list.bytes_left == 0,
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::List(list) => SizeHint::with_exact(list.bytes_left),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// A response before it is converted to HTTP.
#[derive(Debug)]
pub struct Reply {
    pub code: u16,
    pub content_type: &'static str,
    pub body: RespBody,
    pub warnings: Vec<String>,
    pub retry_after_seconds: Option<u32>,
}

impl Reply {
    pub fn json(code: u16, value: &Value) -> Self {
        let mut text = value.to_string();
        text.push('\n');
        Self::bytes(code, "application/json", text.into())
    }

    pub fn bytes(code: u16, content_type: &'static str, bytes: Bytes) -> Self {
        Self {
            code,
            content_type,
            body: RespBody::Full(Some(bytes)),
            warnings: Vec::new(),
            retry_after_seconds: None,
        }
    }

    pub fn text(code: u16, text: &str) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", Bytes::copy_from_slice(text.as_bytes()))
    }

    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// Encodes the body as YAML. A streamed body is not converted.
    pub fn into_yaml(mut self) -> Self {
        if self.content_type != "application/json" {
            return self;
        }
        let mut text = Vec::new();
        match &mut self.body {
            RespBody::Full(bytes) => text.extend_from_slice(bytes.as_deref().unwrap_or_default()),
            RespBody::List(list) => {
                while let Some(frame) = list.next_frame() {
                    text.extend_from_slice(&frame);
                }
            }
            RespBody::Stream(_) => return self,
        }
        let yaml = serde_json::from_slice::<Value>(&text)
            .ok()
            .and_then(|value| serde_saphyr::to_string(&value).ok());
        // If the conversion fails, the body stays JSON, which is YAML as well.
        self.body = RespBody::Full(Some(yaml.map_or_else(|| text.into(), Bytes::from)));
        self.content_type = "application/yaml";
        self
    }

    pub fn into_response(self) -> Response<RespBody> {
        let mut response = Response::new(self.body);
        *response.status_mut() =
            http::StatusCode::from_u16(self.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static(self.content_type));
        headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert("retry-after", HeaderValue::from(seconds));
        }
        for warning in &self.warnings {
            let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
                headers.append("warning", value);
            }
        }
        response
    }
}

impl From<&Failure> for Reply {
    fn from(failure: &Failure) -> Self {
        let mut reply = Self::json(failure.code, &failure.to_status());
        reply.retry_after_seconds = failure.retry_after_seconds;
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_media_type_is_negotiated() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;\
                     g=meta.k8s.io,application/json";
        assert_eq!(Format::negotiate(table), Some((Format::Table("meta.k8s.io/v1"), false)));
        let protobuf_first = "application/vnd.kubernetes.protobuf, application/json";
        assert_eq!(Format::negotiate(protobuf_first), Some((Format::Json, false)));
        assert_eq!(Format::negotiate("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(
            Format::negotiate("application/vnd.kubernetes.protobuf, application/yaml"),
            Some((Format::Json, true))
        );
        assert_eq!(Format::negotiate(""), Some((Format::Json, false)));
        assert_eq!(
            Format::negotiate("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            Some((Format::Discovery("v2"), false))
        );
        assert_eq!(
            Format::negotiate("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some((Format::Metadata, false))
        );
    }

    #[test]
    fn yaml_response_equals_json() {
        let object = json!({
            "a": ["1", 1, 1.5, true, "true", null, "null", "", "~", "- x", "a: b", "#"],
            "b": {"c": {}, "d": []}, "e": "two\nlines\n", "long": "word ".repeat(50),
        });
        let reply = Reply::json(200, &object).into_yaml();
        assert_eq!(reply.content_type, "application/yaml");
        let RespBody::Full(Some(bytes)) = reply.body else { panic!("not sent at once") };
        let text = std::str::from_utf8(&bytes).expect("text");
        assert!(!text.starts_with('{'), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(text).expect("YAML"), object);
    }
}
