//! Reads everything that the doctor evaluates. If one part cannot be read, the others are still read.

use std::sync::Arc;

use futures::{StreamExt, stream};
use http::Request;
use jiff::Timestamp;
use karpenter_api::labels::Provider;
use karpenter_runtime::clock::Clock;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::facts::{Access, Facts, Observed, Server};
use crate::controllers::{Controller, Program};
use crate::error::short;
use crate::kinds::{
    self, DEFINITION, EC2_NODE_CLASS, KWOK_NODE_CLASS, Kind, NODE, NODE_CLAIM, NODE_POOL, NODE_TEMPLATE,
    PROVISIONER, SERVICE_ACCOUNT,
};
use crate::manifests::{Permission, needed_permissions};
use crate::settings::{Scope, Settings};
use crate::{Error, controllers, leases};

/// Concurrent access reviews.
const CONCURRENT_REVIEWS_MAX: usize = 8;

/// Settings that the caller states, in place of those of the installed controller.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    pub provider: Option<Provider>,
    /// The service account, as `(namespace, name)`, of a controller that runs outside of the cluster.
    pub account: Option<(String, String)>,
}

pub async fn gather(client: &Client, clock: Clock, options: &DoctorOptions) -> Facts {
    let server = server(client, clock).await;
    let controllers = observed(controllers::find(client).await);
    let ours = controllers.iter().flatten().find(|controller| controller.program == Program::Ours).cloned();
    let provider = options.provider.or(ours.as_ref().and_then(|controller| controller.provider));
    let mut classes = all(client, EC2_NODE_CLASS).await;
    extend(&mut classes, all(client, KWOK_NODE_CLASS).await);
    let mut old = all(client, PROVISIONER).await;
    extend(&mut old, all(client, NODE_TEMPLATE).await);
    let access = match server.is_ok() {
        true => access(client, ours.as_ref(), provider, options).await,
        false => None,
    };
    Facts {
        now: clock.now(),
        provider,
        server,
        definitions: all(client, DEFINITION).await,
        controllers,
        leases: observed(leases::find(client).await),
        access,
        pools: all(client, NODE_POOL).await,
        claims: all(client, NODE_CLAIM).await,
        classes,
        old,
        nodes: all(client, NODE).await,
    }
}

fn observed<T>(answer: Result<T, Error>) -> Observed<T> {
    answer.map_err(|error| match error {
        Error::Api { what, error } => format!("{what}: {}", short(&error)),
        error => error.to_string(),
    })
}

async fn all(client: &Client, kind: Kind) -> Observed<Vec<Value>> {
    kinds::list(client, kind, "").await.map_err(|error| short(&error))
}

fn extend(into: &mut Observed<Vec<Value>>, more: Observed<Vec<Value>>) {
    match (into.as_mut(), more) {
        (Ok(list), Ok(more)) => list.extend(more),
        (Ok(_), Err(error)) => *into = Err(error),
        (Err(_), _) => {}
    }
}

/// Reads the version and the time of the API server from one response.
async fn server(client: &Client, clock: Clock) -> Observed<Server> {
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let before = clock.now();
    let answer = client.send(request).await.map_err(|error| short(&error))?;
    let after = clock.now();
    if !answer.status().is_success() {
        return Err(format!("the API server returned {}", answer.status()));
    }
    let date =
        answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
    let body = answer.into_body().collect_bytes().await.map_err(|error| short(&error))?;
    let version: Value = serde_json::from_slice(&body)
        .map_err(|error| format!("the response of /version is not JSON: {error}"))?;
    Ok(Server {
        version: kinds::text(&version, "/gitVersion").to_owned(),
        // EKS and some other providers report the minor version as "35+".
        minor: kinds::text(&version, "/minor").trim_end_matches('+').parse().ok(),
        ahead_secs: date.as_deref().and_then(read_date).map(|date| ahead_secs(date, before, after)),
    })
}

pub(super) fn read_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// How many seconds a server's clock is ahead of this machine's. The server reported `date` between the two times of
/// this machine; if `date` lies between them, the result is 0.
pub(super) fn ahead_secs(date: Timestamp, before: Timestamp, after: Timestamp) -> i64 {
    // The header `Date` has only whole seconds.
    let (before, after) = (before.as_second(), after.as_second());
    match date.as_second() {
        date if date > after => date - after,
        date if date < before => date - before,
        _ => 0,
    }
}

async fn access(
    client: &Client,
    ours: Option<&Controller>,
    provider: Option<Provider>,
    options: &DoctorOptions,
) -> Option<Access> {
    let of_controller =
        ours.map(|controller| (controller.namespace.clone(), controller.service_account.clone()));
    let (namespace, name) = options.account.clone().or(of_controller)?;
    let mut settings = Settings {
        scope: Scope::WithoutController,
        namespace: namespace.clone(),
        name: name.clone(),
        ..Settings::new(provider?)
    };
    if let Some(controller) = ours {
        settings.serves_legacy = controller.is_switched_on("LEGACY_API");
        settings.variables = controller.variables.clone();
    }
    let needed = match needed_permissions(&settings) {
        Ok(needed) => needed,
        Err(error) => {
            return Some(Access {
                account: format!("{namespace}/{name}"),
                exists: Ok(true),
                checked_count: 0,
                missing: Vec::new(),
                unanswered: Some(error.to_string()),
            });
        }
    };
    let account = SERVICE_ACCOUNT.within(client, Some(&namespace));
    let exists = account.get_opt(&name).await.map(|found| found.is_some()).map_err(|error| short(&error));
    let checked_count = needed.len();
    let user = Arc::new((namespace.clone(), name.clone()));
    let answers: Vec<(Permission, Result<bool, String>)> = stream::iter(needed)
        .map(|permission| {
            let user = Arc::clone(&user);
            async move {
                let answer = may(client, &user, &permission).await;
                (permission, answer)
            }
        })
        .buffered(CONCURRENT_REVIEWS_MAX)
        .collect()
        .await;
    let unanswered = answers.iter().find_map(|(_, answer)| answer.clone().err());
    let missing = answers
        .into_iter()
        .filter(|(_, answer)| *answer == Ok(false))
        .map(|(permission, _)| permission)
        .collect();
    Some(Access { account: format!("{namespace}/{name}"), exists, checked_count, missing, unanswered })
}

async fn may(client: &Client, user: &(String, String), permission: &Permission) -> Result<bool, String> {
    let (namespace, name) = user;
    let kind = GroupVersionKind::gvk("authorization.k8s.io", "v1", "SubjectAccessReview");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut question = DynamicObject::new("", &resource);
    question.metadata.name = None;
    question.data = json!({"spec": {
        "user": format!("system:serviceaccount:{namespace}:{name}"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
        "resourceAttributes": {
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "verb": permission.verb,
            "namespace": permission.namespace,
            "name": permission.name,
        },
    }});
    let answer = api.create(&PostParams::default(), &question).await.map_err(|error| short(&error))?;
    answer
        .data
        .pointer("/status/allowed")
        .and_then(Value::as_bool)
        .ok_or_else(|| "the response has no status.allowed".to_owned())
}
