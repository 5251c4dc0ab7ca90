//! Sends the validation cases to one API server that has the CRDs installed, and afterwards deletes all objects it
//! created.

use std::time::Duration;

use http::{Method, Request};
use karpenter_api::crds::{self, Crd};
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::table::{Case, tables};
use crate::{Answer, Error, Verdict};

/// How long to wait until the API server serves a CRD that it reports as established.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const BETWEEN_TRIES: Duration = Duration::from_millis(200);

const DRY_RUN: &str = "?dryRun=All&fieldValidation=Strict";
const STRICT: &str = "?fieldValidation=Strict";

/// The object that the API server stored, or its error as a verdict.
type Response = Result<Value, Verdict>;

struct Server(kube::Client);

pub(crate) async fn ask(kubeconfig: &str) -> Result<(), Error> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
            .await?;
    let server = Server(kube::Client::try_from(config)?);
    for (table_name, table) in tables() {
        let crd = crds::all()
            .iter()
            .find(|crd| crd.kind.to_lowercase() == table_name)
            .ok_or_else(|| format!("no CRD for the table {table_name}"))?;
        server.wait_until_served(&collection(crd, &crd.api_version(), &table.base)).await?;
        for case in &table.cases {
            let object = case.object(&table.base);
            let verdict = server.judge(crd, case, &object, &table.base).await?;
            let answer = Answer { case: format!("{table_name}: {}", case.name), verdict };
            println!("{}", serde_json::to_string(&answer)?);
        }
    }
    Ok(())
}

/// The URL of the kind's collection. Cases may request a version that the server does not serve.
fn collection(crd: &Crd, api_version: &str, object: &Value) -> String {
    let plural = crd.name.split('.').next().unwrap_or_default();
    if crd.namespaced {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        format!("/apis/{api_version}/namespaces/{namespace}/{plural}")
    } else {
        format!("/apis/{api_version}/{plural}")
    }
}

impl Server {
    /// The API server ignores the status when it creates an object. So a case with a status is sent as a create
    /// followed by a status update.
    async fn judge(&self, crd: &Crd, case: &Case, object: &Value, base: &Value) -> Result<Verdict, Error> {
        let own_version = crd.api_version();
        let api_version =
            object["apiVersion"].as_str().filter(|text| !text.is_empty()).unwrap_or(&own_version);
        let collection = collection(crd, api_version, object);
        let main = match case.old_object(base) {
            None => self.send(Method::POST, &format!("{collection}{DRY_RUN}"), object).await?,
            Some(old) => self.put_onto(&collection, &old, "", object).await?,
        };
        let main = match main {
            Ok(answer) => answer,
            Err(refusal) => return Ok(refusal),
        };
        let spec = main["spec"].clone();
        if object["status"].is_null() {
            return Ok(Verdict::Accepted { spec, status: main["status"].clone() });
        }
        Ok(match self.put_onto(&collection, object, "/status", object).await? {
            Ok(answer) => Verdict::Accepted { spec, status: answer["status"].clone() },
            Err(refusal) => refusal,
        })
    }

    /// Creates the old object, tries to replace it or its subresource, and deletes it.
    async fn put_onto(
        &self,
        collection: &str,
        old: &Value,
        subresource: &str,
        new: &Value,
    ) -> Result<Response, Error> {
        let stored = match self.send(Method::POST, &format!("{collection}{STRICT}"), old).await? {
            Ok(stored) => stored,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let item = format!("{collection}/{}", stored["metadata"]["name"].as_str().unwrap_or_default());
        let mut new = new.clone();
        new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        let response = self.send(Method::PUT, &format!("{item}{subresource}{DRY_RUN}"), &new).await?;
        match self.send(Method::DELETE, &item, &json!({})).await? {
            Ok(_) => Ok(response),
            Err(_) => Err(format!("{item} cannot be removed").into()),
        }
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Response, Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(serde_json::to_vec(body)?))?;
        let response = self.0.send(request).await?;
        let status = response.status();
        let bytes = response.into_body().collect_bytes().await?;
        if status.is_success() {
            return Ok(Ok(serde_json::from_slice(&bytes)?));
        }
        let text = String::from_utf8_lossy(&bytes).trim().to_string();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let message = answer["message"].as_str().unwrap_or(&text);
        // With status 429 or 5xx, the server has not validated the object, so there is no result to record.
        if status.as_u16() == 429 || status.is_server_error() {
            return Err(format!("{path}: {status}: {message}").into());
        }
        let fields = if message.contains("strict decoding error") {
            let unknown = message.split("unknown field \"").skip(1);
            unknown.filter_map(|rest| rest.split('"').next()).map(str::to_string).collect()
        } else {
            let causes = answer["details"]["causes"].as_array();
            let fields = causes.into_iter().flatten().filter_map(|cause| cause["field"].as_str());
            fields.map(|field| field.trim_start_matches('.').to_string()).collect()
        };
        Ok(Err(Verdict::Refused { message: format!("{}: {message}", status.as_u16()), fields }))
    }

    async fn wait_until_served(&self, collection: &str) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        loop {
            match self.send(Method::GET, collection, &json!({})).await? {
                Ok(_) => return Ok(()),
                Err(_) if waited >= SERVED_WITHIN => {
                    return Err(format!("{collection} is not served").into());
                }
                Err(_) => tokio::time::sleep(BETWEEN_TRIES).await,
            }
            waited += BETWEEN_TRIES;
        }
    }
}
