//! A client that asks for pods and nodes in protobuf, and hands on the little JSON that is read of them.
//!
//! A server needs half of the time to write an object in protobuf (docs/bench.md), and what is not wanted of it is passed
//! over here without being looked at. Whoever asks notices nothing: a server that answers in JSON is passed on as it is,
//! and one whose protobuf is not understood is not asked for it again.

mod fields;
mod list_stream;
#[cfg(test)]
mod tests;
mod to_json;

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::sync::OnceCell;

/// Protobuf if it can be had.
const WANTED: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf, application/json");
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Nothing else will do.
const ONLY_PROTOBUF: HeaderValue = HeaderValue::from_static(PROTOBUF);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Before every message of a watch stands its length.
const LENGTH_BYTES: usize = 4;
/// More than a server stores.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

type AnyBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Error>;

/// The same client for reading kinds that [`fields`] knows: pods and nodes, and nothing but to be kept. `tell` hears why
/// protobuf is no longer asked for, once.
pub fn protobuf_client(client: &Client, tell: fn(&str)) -> Client {
    let inner = client.clone();
    let support =
        Arc::new(ProtobufSupport { is_disabled: AtomicBool::new(false), lists: OnceCell::new(), tell });
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, support) = (inner.clone(), support.clone());
        async move {
            if !support.is_disabled.load(Ordering::Relaxed) {
                if let Some(list) = list_for(&request)
                    && let Some(answer) = listed(&client, list, &support).await?
                {
                    return Ok(answer);
                }
                request.headers_mut().insert(ACCEPT, WANTED);
            }
            let is_watch = is_watch(&request);
            read(client.send(request).await?, is_watch, support).await
        }
    });
    Client::new(service, client.default_namespace())
}

struct ProtobufSupport {
    is_disabled: AtomicBool,
    /// Whether the server writes lists well enough for one to stand for the beginning of a watch.
    lists: OnceCell<bool>,
    tell: fn(&str),
}

impl ProtobufSupport {
    /// Asked once. Whoever does not say is asked again next time.
    async fn streams_lists(&self, client: &Client) -> bool {
        let ask = || async {
            let version = client.apiserver_version().await.map_err(drop)?;
            let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
            Ok::<bool, ()>(
                version.major == "1"
                    && minor.parse().is_ok_and(|minor: u32| minor >= list_stream::MINOR_VERSION_MIN),
            )
        };
        self.lists.get_or_try_init(ask).await.copied().unwrap_or(false)
    }

    fn disable_after(&self, error: &Error) {
        if error.kind() == ErrorKind::InvalidData && !self.is_disabled.swap(true, Ordering::Relaxed) {
            (self.tell)(&error.to_string());
        }
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"))
}

/// The request for a list that can stand for the watch, if it is to begin with everything.
fn list_for(request: &Request<Body>) -> Option<Request<Body>> {
    let mut list = Request::new(Body::empty());
    *list.uri_mut() = list_stream::list_of(request.uri())?;
    *list.headers_mut() = request.headers().clone();
    list.headers_mut().insert(ACCEPT, ONLY_PROTOBUF);
    Some(list)
}

/// The answer to the watch, made of the list; `None` if the watch is to be asked for as it is.
async fn listed(
    client: &Client,
    list: Request<Body>,
    support: &Arc<ProtobufSupport>,
) -> kube::Result<Option<Response<AnyBody>>> {
    if !support.streams_lists(client).await {
        return Ok(None);
    }
    let answer = client.send(list).await?;
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Refusals are told in the words of the watch itself.
    if !answer.status().is_success() || !kind.starts_with(PROTOBUF) {
        return Ok(None);
    }
    let (mut head, body) = answer.into_parts();
    head.headers.insert(CONTENT_TYPE, JSON);
    head.headers.remove(CONTENT_LENGTH);
    let support = support.clone();
    let lines = list_stream::events(body.into_data_stream().map_err(Error::other));
    let lines =
        lines.map(move |line| line.inspect_err(|error| support.disable_after(error)).map(Frame::data));
    Ok(Some(Response::from_parts(head, StreamBody::new(lines).boxed_unsync())))
}

async fn read(
    answer: Response<Body>,
    is_watch: bool,
    support: Arc<ProtobufSupport>,
) -> kube::Result<Response<AnyBody>> {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with(PROTOBUF) {
        return Ok(answer.map(|body| body.map_err(Error::other).boxed_unsync()));
    }
    // A refusal to watch is an answer like any other.
    let is_watch = is_watch && answer.status().is_success();
    let (mut head, body) = answer.into_parts();
    head.headers.insert(CONTENT_TYPE, JSON);
    head.headers.remove(CONTENT_LENGTH);
    let body = if is_watch {
        let messages = messages(body.into_data_stream().map_err(Error::other));
        let lines = messages.map(move |message| {
            let line = message.and_then(|message| to_json::event(&message).ok_or_else(not_understood));
            line.inspect_err(|error| support.disable_after(error)).map(Frame::data)
        });
        StreamBody::new(lines).boxed_unsync()
    } else {
        let whole = body.collect_bytes().await?;
        let object = to_json::object(&whole).ok_or_else(not_understood);
        let object = object.inspect_err(|error| support.disable_after(error));
        Full::new(object.map_err(|error| kube::Error::Service(error.into()))?)
            .map_err(|never| match never {})
            .boxed_unsync()
    };
    Ok(Response::from_parts(head, body))
}

fn not_understood() -> Error {
    Error::new(ErrorKind::InvalidData, "the server's protobuf is not understood")
}

/// The messages of a watch, one by one.
fn messages(
    chunks: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    stream::unfold((chunks, BytesMut::new(), false), |(mut chunks, mut buffer, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            match first_message(&mut buffer) {
                Some(Ok(message)) => return Some((Ok(message), (chunks, buffer, false))),
                Some(Err(error)) => return Some((Err(error), (chunks, buffer, true))),
                None => {}
            }
            match chunks.next().await? {
                Ok(chunk) => buffer.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), (chunks, buffer, true))),
            }
        }
    })
}

/// Takes the message at the beginning; `None` if it is not there as a whole yet.
fn first_message(buffer: &mut BytesMut) -> Option<Result<Bytes, Error>> {
    let length = u32::from_be_bytes(buffer.get(..LENGTH_BYTES)?.try_into().ok()?) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Some(Err(not_understood()));
    }
    if buffer.len() < LENGTH_BYTES + length {
        return None;
    }
    buffer.advance(LENGTH_BYTES);
    Some(Ok(buffer.split_to(length).freeze()))
}
