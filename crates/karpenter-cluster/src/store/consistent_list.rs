//! A client whose streamed lists are what the cluster holds now.
//!
//! The watcher asks for a streamed list of any age. A server that lags behind others would answer with a cluster from
//! before the last leader's writes, and what that one launched would be launched again. Asked without an age, the server
//! first makes sure that it is not behind, as it does for lists in pages.

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

/// The same question about now, if it is one for a streamed list of any age.
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
    fn only_streamed_lists_are_asked_for_anew() {
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
        for (asked, expected) in cases {
            let asked: Uri = asked.parse().expect("a path");
            assert_eq!(without_resource_version(&asked).map(|uri| uri.to_string()).as_deref(), expected);
        }
    }
}
