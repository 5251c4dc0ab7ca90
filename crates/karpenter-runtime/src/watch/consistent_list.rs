//! A client whose streamed lists are consistent with the latest state.
//!
//! The watcher requests a streamed list with `resourceVersion=0`, and any API server may answer that from its cache. An
//! API server whose cache is outdated could return a state from before the last writes of the previous leader, so that
//! Karpenter would launch instances twice. Without a resource version the server first makes sure that its cache is
//! current, as it does for paged lists.

use http::{Request, Uri};
use kube::Client;
use kube::client::Body;

const ANY_VERSION: &str = "resourceVersion=0";

pub(super) fn without_version(client: &Client) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        if let Some(uri) = without_resource_version(request.uri()) {
            *request.uri_mut() = uri;
        }
        let client = inner.clone();
        async move { client.send(request).await }
    });
    Client::new(service, client.default_namespace())
}

/// The request without the resource version, if it is a streamed list of any version.
fn without_resource_version(uri: &Uri) -> Option<Uri> {
    let query = uri.query().filter(|query| query.split('&').any(|part| part == "sendInitialEvents=true"))?;
    let parts: Vec<&str> = query.split('&').filter(|part| *part != ANY_VERSION).collect();
    let mut pieces = uri.clone().into_parts();
    pieces.path_and_query = Some(format!("{}?{}", uri.path(), parts.join("&")).parse().ok()?);
    Uri::from_parts(pieces).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_version_is_removed_from_streamed_lists_only() {
        let cases = [
            (
                "/api/v1/pods?&watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Some("/api/v1/pods?&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            ),
            (
                "/api/v1/pods?watch=true&resourceVersion=05&sendInitialEvents=true",
                Some("/api/v1/pods?watch=true&resourceVersion=05&sendInitialEvents=true"),
            ),
            ("/api/v1/pods?watch=true&resourceVersion=0", None),
            ("/api/v1/pods", None),
        ];
        for (requested, expected) in cases {
            let requested: Uri = requested.parse().expect("a path");
            assert_eq!(without_resource_version(&requested).map(|uri| uri.to_string()).as_deref(), expected);
        }
    }
}
