//! The parts of a request (path, query, headers and body), and the response format that the client accepts.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go

use http::{HeaderMap, Method};

use crate::encode::Format;

/// The decoded query parameters, in their order.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
            })
            .collect();
        Self { pairs }
    }

    /// The first value of a parameter; empty if the parameter is absent.
    pub fn get(&self, key: &str) -> &str {
        self.pairs.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    pub fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(name, _)| name == key)
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A boolean parameter, as Kubernetes encodes it in queries: true if it is present and neither `false` nor `0`.
    pub fn flag(&self, key: &str) -> bool {
        self.has(key) && !matches!(self.get(key).to_lowercase().as_str(), "false" | "0")
    }
}

/// Decodes percent-encoding. A malformed sequence is kept as it is.
pub fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_string();
    }
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escaped = (bytes[index] == b'%')
            .then(|| text.get(index + 1..index + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                plain.push(byte);
                index += 3;
            }
            None => {
                plain.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// What the path of a request refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/healthz`, `/livez` or `/readyz`; the text is the rest of the path.
    Health(String),
    Version,
    /// `/`
    Paths,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/apps`
    Group(String),
    /// `/api/v1`, `/apis/apps/v1`
    GroupVersion {
        group: String,
        version: String,
    },
    /// A path below `/openapi/`; the text is the rest of the path.
    OpenApi(String),
    Resource(ResourcePath),
    Unknown,
}

/// A path that refers to objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub plural: String,
    /// The namespace; empty for cluster scope and for requests to all namespaces.
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The path segments that follow the subresource `proxy`.
    pub rest: Vec<String>,
    /// Whether the path has the deprecated form `/watch/...`.
    pub watch: bool,
}

impl Route {
    pub fn parse(path: &str) -> Self {
        let segments: Vec<String> =
            path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        match parts.as_slice() {
            [] => Self::Paths,
            ["version"] => Self::Version,
            ["healthz" | "livez" | "readyz", rest @ ..] => Self::Health(rest.join("/")),
            ["openapi", rest @ ..] => Self::OpenApi(rest.join("/")),
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion { group: String::new(), version: (*version).into() },
            ["apis", group, version] => {
                Self::GroupVersion { group: (*group).into(), version: (*version).into() }
            }
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &str, version: &str, segments: &[&str]) -> Self {
        let (watch, segments) = match segments {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            other => (false, other),
        };
        // `namespaces/a/status` is a subresource of the namespace `a`, while `namespaces/a/pods` are the pods in it.
        let (namespace, segments) = match segments {
            ["namespaces", namespace, rest @ ..]
                if rest.first().is_some_and(|next| !matches!(*next, "status" | "finalize")) =>
            {
                (*namespace, rest)
            }
            other => ("", other),
        };
        let [plural, rest @ ..] = segments else { return Self::Unknown };
        Self::Resource(ResourcePath {
            group: group.into(),
            version: version.into(),
            plural: (*plural).into(),
            namespace: namespace.into(),
            name: rest.first().map(|name| (*name).to_string()),
            subresource: rest.get(1).map(|name| (*name).to_string()),
            rest: rest.iter().skip(2).map(|segment| (*segment).to_string()).collect(),
            watch,
        })
    }
}

/// A request whose whole body was read.
#[derive(Debug)]
pub struct Incoming {
    pub method: Method,
    pub path: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: bytes::Bytes,
}

impl Incoming {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The media type of the request body in lower case, without parameters.
    pub fn content_type(&self) -> String {
        let value = self.header("content-type");
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    pub fn format(&self) -> Option<Format> {
        Format::negotiate(self.header("accept")).map(|(format, _)| format)
    }

    pub fn wants_yaml(&self) -> bool {
        Format::negotiate(self.header("accept")).is_some_and(|(_, as_yaml)| as_yaml)
    }

    /// The field manager for `metadata.managedFields`: the parameter `fieldManager`, or, if it is missing, the user
    /// agent up to the first slash.
    pub fn field_manager(&self) -> String {
        let parameter = self.query.get("fieldManager");
        if !parameter.is_empty() {
            return parameter.to_string();
        }
        let agent = self.header("user-agent").split('/').next().unwrap_or_default();
        if agent.is_empty() { "unknown".to_string() } else { agent.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> ResourcePath {
        match Route::parse(path) {
            Route::Resource(resource) => resource,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_are_parsed_into_resources() {
        let pods = resource("/api/v1/namespaces/a/pods/b/status");
        assert_eq!((pods.plural.as_str(), pods.namespace.as_str()), ("pods", "a"));
        assert_eq!((pods.name.as_deref(), pods.subresource.as_deref()), (Some("b"), Some("status")));
        let namespace = resource("/api/v1/namespaces/a/finalize");
        assert_eq!((namespace.plural.as_str(), namespace.name.as_deref()), ("namespaces", Some("a")));
        assert_eq!(namespace.subresource.as_deref(), Some("finalize"));
        let all = resource("/apis/apps/v1/deployments");
        assert_eq!((all.group.as_str(), all.namespace.as_str(), all.name), ("apps", "", None));
        assert!(resource("/api/v1/watch/namespaces/a/pods").watch);
        assert_eq!(Route::parse("/apis/apps"), Route::Group("apps".into()));
        assert_eq!(Route::parse("/nothing/here"), Route::Unknown);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%20in+%28b%29&watch&limit=5&dryRun=All");
        assert_eq!(query.get("labelSelector"), "a in (b)");
        assert!(query.flag("watch"));
        assert!(!Query::parse("watch=false").flag("watch"));
        assert_eq!(query.get("absent"), "");
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
