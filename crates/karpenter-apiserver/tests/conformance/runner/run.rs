//! Runs a script against an embedded or a remote server, through a `kube::Client`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

use super::mask::Masks;
use super::script::{Script, Step, substitute, substitute_text};
use super::transcript::{StepResponse, Transcript};
use super::{Error, folder};

/// How long a step may take. kube-apiserver waits up to three seconds for a future revision.
const STEP_LIMIT: Duration = Duration::from_secs(12);
/// How long to wait for a watch event. A step that expects no event takes as long as this.
const EVENT_LIMIT: Duration = Duration::from_secs(4);
/// The response headers that are compared.
const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "location"];

/// So many changes of one kind push all earlier changes out of a short history.
pub(crate) const CHANGES_TO_FORGET: usize = 150;

/// The server against which a script runs.
pub(crate) struct Target {
    pub(crate) client: Client,
    /// How long the server's caches may be behind its writes; zero if it has no caches.
    pub(crate) cache_lag: Duration,
    /// The etcd of kube-apiserver; compacting it removes the history. An embedded server must be created with a history
    /// shorter than [`CHANGES_TO_FORGET`] instead.
    pub(crate) etcd: Option<Client>,
}

pub(crate) async fn run(script: &Script, target: &Target) -> Result<Transcript, Error> {
    let client = &target.client;
    let version: Value = client.request(Request::get("/version").body(Vec::new())?).await.unwrap_or_default();
    let mut runner = Runner {
        client: client.clone(),
        variables: BTreeMap::new(),
        watches: BTreeMap::new(),
        masks: Masks::default(),
    };
    let mut steps = Vec::new();
    for step in &script.steps {
        if step.settle && !target.cache_lag.is_zero() {
            tokio::time::sleep(target.cache_lag).await;
        }
        if step.forget {
            forget(target).await?;
            steps.push(StepResponse {
                name: step.name.clone(),
                fingerprint: step.fingerprint(),
                answer: Value::Null,
            });
            continue;
        }
        let answer = match tokio::time::timeout(STEP_LIMIT, runner.step(step)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => json!({ "failed": error.to_string() }),
            Err(_) => json!({ "failed": "no response within the step limit" }),
        };
        steps.push(StepResponse { name: step.name.clone(), fingerprint: step.fingerprint(), answer });
    }
    Ok(Transcript { server: version["gitVersion"].as_str().unwrap_or_default().to_owned(), steps })
}

/// Makes the server lose the history of Events, the only kind for which kube-apiserver has no cache.
async fn forget(target: &Target) -> Result<(), Error> {
    for count in 0..CHANGES_TO_FORGET {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("noise-{count}"), "namespace": "default" },
            "involvedObject": { "namespace": "default" },
        });
        let request =
            Request::post("/api/v1/namespaces/default/events").header("content-type", "application/json");
        let response = target.client.send(request.body(Body::from(serde_json::to_vec(&event)?))?).await?;
        if !response.status().is_success() {
            return Err(format!("cannot create an event: {}", response.status()).into());
        }
    }
    if let Some(etcd) = &target.etcd {
        let ask =
            |path: &str, body: Value| Request::post(path).body(serde_json::to_vec(&body).unwrap_or_default());
        // etcd's API has keys in base64; this key is "/".
        let range: Value =
            etcd.request(ask("/v3/kv/range", json!({ "key": "Lw==", "count_only": true }))?).await?;
        let revision = range["header"]["revision"].clone();
        let _: Value = etcd
            .request(ask("/v3/kv/compaction", json!({ "revision": revision, "physical": true }))?)
            .await?;
    }
    Ok(())
}

struct Runner {
    client: Client,
    variables: BTreeMap<String, Value>,
    watches: BTreeMap<String, BoxStream<'static, Value>>,
    masks: Masks,
}

impl Runner {
    async fn step(&mut self, step: &Step) -> Result<Value, Error> {
        if let Some(name) = &step.close {
            drop(self.watches.remove(name).ok_or("no such watch")?);
            return Ok(json!({ "closed": true }));
        }
        if let Some(name) = &step.collect {
            return self.collect(name, step).await;
        }
        let request = self.request(step)?;
        let response = self.client.send(request).await?;
        let mut answer = Map::new();
        answer.insert("status".into(), response.status().as_u16().into());
        let headers = headers_of(&response);
        let json_body =
            headers.get("content-type").and_then(Value::as_str).is_some_and(|kind| kind.contains("json"));
        if let Some(name) = step.watch.clone().filter(|_| response.status().is_success()) {
            answer.insert("headers".into(), headers.into());
            self.watches.insert(name, events(response.into_body()));
            return Ok(answer.into());
        }
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = match serde_json::from_slice::<Value>(&bytes) {
            Ok(value) if json_body => value,
            _ if bytes.contains(&0) => Value::String(format!("{} bytes that are no text", bytes.len())),
            _ => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
        };
        for (name, pointer) in &step.capture {
            let found = body.pointer(pointer).cloned().unwrap_or(Value::Null);
            self.variables.insert(name.clone(), found);
        }
        answer.insert("headers".into(), headers.into());
        answer.insert("body".into(), body);
        let mut answer = Value::Object(answer);
        self.masks.apply(&mut answer);
        sort_lines(&mut answer["body"]);
        if step.unordered {
            sort_causes(&mut answer["body"]);
        }
        choose(&mut answer["body"], step);
        Ok(answer)
    }

    fn request(&self, step: &Step) -> Result<Request<Body>, Error> {
        let line = substitute_text(step.request.as_deref().ok_or("a step without request")?, &self.variables);
        let (method, target) = line.split_once(' ').ok_or("a request is METHOD /path")?;
        let mut request = Request::builder().method(method).uri(escape_query(target));
        if !step.headers.keys().any(|name| name.eq_ignore_ascii_case("user-agent")) {
            request = request.header("user-agent", "conformance/1.0");
        }
        let accept = match step.accept.as_deref() {
            None => "application/json",
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some("metadata") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some("metadata-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some("aggregated") => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Some("protobuf") => "application/vnd.kubernetes.protobuf,application/json",
            Some(other) => other,
        };
        if !accept.is_empty() {
            request = request.header("accept", accept);
        }
        let mut kind = step.content_type.as_deref().unwrap_or("json");
        let body = match (&step.body, &step.text, &step.fixture) {
            (Some(body), ..) => {
                let mut body = body.clone();
                substitute(&mut body, &self.variables);
                serde_json::to_vec(&body)?
            }
            (_, Some(text), _) => substitute_text(text, &self.variables).into_bytes(),
            (_, _, Some(name)) => {
                bytes_of_hexadecimal(&fs::read_to_string(folder().join("fixtures").join(name))?)?
            }
            _ => {
                kind = step.content_type.as_deref().unwrap_or("");
                Vec::new()
            }
        };
        let content_type = match kind {
            "json" => "application/json",
            "merge" => "application/merge-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "patch" => "application/json-patch+json",
            "apply" => "application/apply-patch+yaml",
            "protobuf" => "application/vnd.kubernetes.protobuf",
            other => other,
        };
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        for (name, value) in &step.headers {
            request = request.header(name, substitute_text(value, &self.variables));
        }
        Ok(request.body(Body::from(body))?)
    }

    /// Reads events from an open watch: a given number of them, or all until the server ends the watch.
    async fn collect(&mut self, name: &str, step: &Step) -> Result<Value, Error> {
        let watch = self.watches.get_mut(name).ok_or("no such watch")?;
        let mut collected = Vec::new();
        let mut end = "enough";
        while step.events.is_none_or(|wanted| collected.len() < wanted) {
            match tokio::time::timeout(EVENT_LIMIT, watch.next()).await {
                // Bookmarks may come at any time, so they are skipped, except the one that ends the initial events.
                Ok(Some(event)) if event["type"] == "BOOKMARK" && !ends_initial_events(&event) => {}
                Ok(Some(event)) => collected.push(event),
                Ok(None) => {
                    end = "the server ended it";
                    break;
                }
                Err(_) => {
                    end = "no further event in time";
                    break;
                }
            }
        }
        for (name, pointer) in &step.capture {
            let found = Value::Array(collected.clone()).pointer(pointer).cloned().unwrap_or(Value::Null);
            self.variables.insert(name.clone(), found);
        }
        let mut answer = json!({ "end": end, "events": collected });
        self.masks.apply(&mut answer);
        Ok(answer)
    }
}

fn ends_initial_events(event: &Value) -> bool {
    let annotations =
        |object: &Value| object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
    annotations(&event["object"]) || annotations(&event["object"]["rows"][0]["object"])
}

fn headers_of(response: &Response<Body>) -> Map<String, Value> {
    let mut headers = Map::new();
    for name in HEADERS {
        let values: Vec<&str> =
            response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        if !values.is_empty() {
            headers.insert(name.to_owned(), values.join("\n").into());
        }
    }
    headers
}

/// Splits a body into JSON values, one per line.
fn events(body: Body) -> BoxStream<'static, Value> {
    let chunks = body.into_data_stream();
    futures::stream::unfold((chunks, Vec::<u8>::new()), |(mut chunks, mut rest)| async move {
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let event = serde_json::from_slice(&line)
                    .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&line).into_owned()));
                return Some((event, (chunks, rest)));
            }
            rest.extend_from_slice(&chunks.next().await?.ok()?);
        }
    })
    .boxed()
}

fn escape_query(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let escape = |text: &str| {
        let mut escaped = String::new();
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                escaped.push(char::from(byte));
            } else {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
        escaped
    };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => format!("{}={}", escape(name), escape(value)),
            None => escape(pair),
        })
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

fn bytes_of_hexadecimal(text: &str) -> Result<Vec<u8>, Error> {
    let digits: Vec<char> = text.chars().filter(|character| !character.is_whitespace()).collect();
    digits.chunks(2).map(|pair| Ok(u8::from_str_radix(&pair.iter().collect::<String>(), 16)?)).collect()
}

/// Sorts the lines of a message that lists the errors of a patch, because their order in Go is random.
fn sort_lines(body: &mut Value) {
    if let Some(Value::String(message)) = body.get_mut("message")
        && let Some((before, lines)) = message.split_once("errors:\n")
    {
        let mut lines: Vec<&str> = lines.split('\n').collect();
        lines.sort_unstable();
        *message = format!("{before}errors:\n{}", lines.join("\n"));
    }
}

/// Sorts the causes of an error, both in the list and in the message if the message consists of them.
fn sort_causes(body: &mut Value) {
    let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) else { return };
    let lines = |causes: &[Value]| {
        let mut lines: Vec<String> = Vec::new();
        for cause in causes {
            let line = format!(
                "{}: {}",
                cause["field"].as_str().unwrap_or_default(),
                cause["message"].as_str().unwrap_or_default()
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.join(", ")
    };
    let before = lines(causes);
    causes.sort_by_key(Value::to_string);
    let after = lines(causes);
    if let Some(Value::String(message)) = body.get_mut("message") {
        *message = message.replace(&before, &after);
    }
}

/// Keeps only the parts of the response that the step picks, and removes those that it ignores.
fn choose(body: &mut Value, step: &Step) {
    for pointer in &step.ignore {
        if let Some((parent, last)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = find_mut(body, parent)
        {
            fields.remove(last);
        }
    }
    if step.pick.is_empty() || body["kind"] == "Status" {
        return;
    }
    let picked: Map<String, Value> = step
        .pick
        .iter()
        .map(|pointer| (pointer.clone(), find_mut(body, pointer).map_or(Value::Null, |found| found.clone())))
        .collect();
    *body = Value::Object(picked);
}

fn find_mut<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let mut found = value;
    for segment in split_pointer(pointer) {
        found = match segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(condition) => {
                let (field, wanted) = condition.split_once('=')?;
                found.as_array_mut()?.iter_mut().find(|item| {
                    let at = item.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str);
                    at == Some(wanted)
                })?
            }
            None => found.pointer_mut(&format!("/{segment}"))?,
        };
    }
    Some(found)
}

/// Splits a JSON pointer at slashes. A slash within brackets does not separate segments, because it belongs to the
/// value in a segment `[field=value]`.
fn split_pointer(pointer: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    let mut start = 1;
    let mut bracketed = false;
    for (position, character) in pointer.char_indices().skip(1) {
        match character {
            '[' => bracketed = true,
            ']' => bracketed = false,
            '/' if !bracketed => {
                segments.push(&pointer[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    if start <= pointer.len() {
        segments.push(&pointer[start.min(pointer.len())..]);
    }
    segments.into_iter().filter(|segment| !segment.is_empty()).collect()
}
