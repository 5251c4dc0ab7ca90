//! Checks each request against the roles in deploy/rbac.yaml, as an API server would.

use http::{Method, Request};
use kube::client::Body;
use serde::Deserialize;

const SHIPPED: &str = include_str!("../../../../deploy/rbac.yaml");

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// The rules of roles.
#[derive(Debug, Clone)]
pub(crate) struct Rules(Vec<Rule>);

/// The attributes of a request that RBAC rules match.
#[derive(Debug, PartialEq, Eq)]
struct RequestAttributes {
    verb: &'static str,
    group: String,
    /// The resource, followed by a slash and the subresource if there is one.
    resource: String,
    name: Option<String>,
}

impl Rules {
    /// The rules of the controllers' role, and those for KWOKNodeClasses. Other rules of the kwok provider are left
    /// out, because it does not use the client of the controllers.
    pub(crate) fn of_controllers() -> Self {
        let documents = SHIPPED.split("\n---\n").map(|text| {
            let document: Document = serde_saphyr::from_str(text).expect("a document with kind and name");
            document
        });
        let mut rules = Vec::new();
        for document in documents.filter(|document| document.kind == "ClusterRole") {
            match document.metadata.name.as_str() {
                "karpenter" => rules.extend(document.rules),
                "karpenter-kwok" => {
                    let of_classes = |rule: &Rule| rule.api_groups == ["karpenter.kwok.sh"];
                    rules.extend(document.rules.into_iter().filter(of_classes));
                }
                _ => {}
            }
        }
        assert!(rules.len() > 10, "the roles were found: {rules:?}");
        Self(rules)
    }

    /// These rules, except that they do not allow this verb on this resource.
    pub(crate) fn without(mut self, verb: &str, resource: &str) -> Self {
        for rule in self.0.iter_mut().filter(|rule| rule.resources.iter().any(|one| one == resource)) {
            assert_eq!(rule.resources.len(), 1, "{rule:?} names one resource");
            rule.verbs.retain(|one| one != verb);
        }
        self
    }

    /// The verb, resource and group of the request if no rule allows it.
    pub(crate) fn forbidden(&self, request: &Request<Body>) -> Option<String> {
        let attributes =
            RequestAttributes::of(request.method(), request.uri().path(), request.uri().query())?;
        let allows = |rule: &Rule| {
            let has = |list: &[String], wanted: &str| list.iter().any(|one| one == wanted);
            has(&rule.api_groups, &attributes.group)
                && has(&rule.resources, &attributes.resource)
                && has(&rule.verbs, attributes.verb)
                && (rule.resource_names.is_empty()
                    || attributes.name.as_ref().is_some_and(|name| rule.resource_names.contains(name)))
        };
        (!self.0.iter().any(allows))
            .then(|| format!("{} {} {:?}", attributes.verb, attributes.resource, attributes.group))
    }
}

impl RequestAttributes {
    /// `None` if the path names no resource.
    fn of(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let _version = parts.next()?;
        let mut parts: Vec<&str> = parts.collect();
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts.drain(..2);
        }
        let kind = *parts.first()?;
        let name = parts.get(1).map(|name| (*name).to_owned());
        let resource = parts.get(2).map_or(kind.to_owned(), |part| format!("{kind}/{part}"));
        let is_watch = query.is_some_and(|query| query.split('&').any(|one| one == "watch=true"));
        let verb = match (method, &name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if is_watch => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            other => panic!("no verb for {other:?}"),
        };
        Some(Self { verb, group, resource, name })
    }
}

#[test]
fn request_attributes_are_parsed_from_path() {
    let attributes = |method: Method, path: &str, query: Option<&str>| {
        let attributes = RequestAttributes::of(&method, path, query).expect("a resource");
        format!("{} {} {:?} {:?}", attributes.verb, attributes.resource, attributes.group, attributes.name)
    };
    assert_eq!(
        attributes(Method::GET, "/api/v1/namespaces", Some("watch=true&limit=5")),
        "watch namespaces \"\" None"
    );
    assert_eq!(
        attributes(Method::POST, "/api/v1/namespaces/a/pods/b/eviction", None),
        "create pods/eviction \"\" Some(\"b\")"
    );
    assert_eq!(
        attributes(Method::GET, "/apis/karpenter.sh/v1/nodeclaims/x", Some("a=b")),
        "get nodeclaims \"karpenter.sh\" Some(\"x\")"
    );
    assert_eq!(RequestAttributes::of(&Method::GET, "/version", None), None);
}
