//! Tests that a process reports the kinds that it has no permission to list.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use karpenter_apiserver::{ApiServer, Config};
use karpenter_controllers::operator::{Operator, Options};
use karpenter_kwok::Kwok;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::BoxError;

use crate::embedded::{ClusterView, TokioClock, clock, define_kinds};

const REFUSAL: &str = "storageclasses is forbidden: cannot list at the cluster scope";

/// A client whose requests for storage classes are forbidden.
fn restricted(server: ApiServer) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            if !request.uri().path().ends_with("/storageclasses") {
                let answer = server.handle(request).await;
                return Ok::<_, BoxError>(
                    answer.map(|body| body.map_err(|error| -> BoxError { Box::new(error) }).boxed_unsync()),
                );
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": REFUSAL, "reason": "Forbidden", "code": 403});
            let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
            let mut answer = Response::new(body.boxed_unsync());
            *answer.status_mut() = StatusCode::FORBIDDEN;
            Ok(answer)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn kind_that_may_not_be_listed_is_named_by_readiness() {
    let clock = clock();
    let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
    let client = Client::new(server.clone(), "default");
    define_kinds(&client).await;
    let cloud = Arc::new(Kwok::generic(client.clone(), clock));
    let operator = Operator::watch(restricted(server), cloud, clock, Options::default());
    let pages = operator.health_pages();
    let readiness = async || String::from_utf8(pages("/readyz", "").body).expect("text");
    let only = format!("not listed yet: StorageClass: {REFUSAL}\n");
    ClusterView::new(client, clock)
        .until("all kinds but one are listed", readiness, |body| *body == only)
        .await;
    assert_eq!(pages("/readyz", "").status, 500);
}
