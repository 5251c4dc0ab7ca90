//! A client that requests some kinds as protobuf and converts the responses to JSON that contains only the fields that
//! controllers read.
//!
//! A server needs half of the time to write protobuf instead of JSON (docs/bench.md), and fields that are not read are
//! skipped without decoding. Callers see only JSON. If the server answers in JSON, the response is passed on; after a
//! protobuf message that cannot be decoded, protobuf is not requested again.

pub mod field;
pub mod list_stream;
pub mod to_json;

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

use self::field::Kinds;

/// The `Accept` header: protobuf is preferred, JSON is accepted.
const PROTOBUF_OR_JSON: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf, application/json");
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Only protobuf.
const ONLY_PROTOBUF: HeaderValue = HeaderValue::from_static(PROTOBUF);
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Each message of a watch is preceded by its length.
const LENGTH_BYTES: usize = 4;
/// The maximum size of a message; larger than any object that the API server stores.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

type AnyBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Error>;

/// The client for reading these kinds. Use it only for stores. `on_disabled` is called once, with the reason, if
/// protobuf is no longer requested.
pub fn protobuf_client(client: &Client, kinds: Kinds, on_disabled: fn(&str)) -> Client {
    let inner = client.clone();
    let support = Arc::new(ProtobufSupport {
        is_disabled: AtomicBool::new(false),
        lists: OnceCell::new(),
        on_disabled,
        kinds,
    });
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (client, support) = (inner.clone(), support.clone());
        async move {
            if !support.is_disabled.load(Ordering::Relaxed) {
                if let Some(list) = list_for(&request)
                    && let Some(answer) = listed(&client, list, &support).await?
                {
                    return Ok(answer);
                }
                request.headers_mut().insert(ACCEPT, PROTOBUF_OR_JSON);
            }
            let is_watch = is_watch(&request);
            read(client.send(request).await?, is_watch, support).await
        }
    });
    Client::new(service, client.default_namespace())
}

struct ProtobufSupport {
    is_disabled: AtomicBool,
    /// Whether the server streams plain lists, so that a list request can replace the start of a watch.
    lists: OnceCell<bool>,
    on_disabled: fn(&str),
    kinds: Kinds,
}

impl ProtobufSupport {
    /// Reads the server version once. After a failure it is read again at the next call.
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
            (self.on_disabled)(&error.to_string());
        }
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"))
}

/// The list request that can replace the start of the watch, if the watch begins with a streamed list.
fn list_for(request: &Request<Body>) -> Option<Request<Body>> {
    let mut list = Request::new(Body::empty());
    *list.uri_mut() = list_stream::list_of(request.uri())?;
    *list.headers_mut() = request.headers().clone();
    list.headers_mut().insert(ACCEPT, ONLY_PROTOBUF);
    Some(list)
}

/// The response to the watch, made from a plain list; `None` if the watch request has to be sent unchanged.
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
    // If the list request fails, the watch is sent as requested, so that the caller gets the watch's error.
    if !answer.status().is_success() || !kind.starts_with(PROTOBUF) {
        return Ok(None);
    }
    let (mut head, body) = answer.into_parts();
    head.headers.insert(CONTENT_TYPE, JSON);
    head.headers.remove(CONTENT_LENGTH);
    let support = support.clone();
    let lines = list_stream::events(body.into_data_stream().map_err(Error::other), support.kinds);
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
    // An error response to a watch is a plain object.
    let is_watch = is_watch && answer.status().is_success();
    let (mut head, body) = answer.into_parts();
    head.headers.insert(CONTENT_TYPE, JSON);
    head.headers.remove(CONTENT_LENGTH);
    let body = if is_watch {
        let messages = messages(body.into_data_stream().map_err(Error::other));
        let lines = messages.map(move |message| {
            let line =
                message.and_then(|message| to_json::event(&message, support.kinds).ok_or_else(undecodable));
            line.inspect_err(|error| support.disable_after(error)).map(Frame::data)
        });
        StreamBody::new(lines).boxed_unsync()
    } else {
        let whole = body.collect_bytes().await?;
        let object = to_json::object(&whole, support.kinds).ok_or_else(undecodable);
        let object = object.inspect_err(|error| support.disable_after(error));
        Full::new(object.map_err(|error| kube::Error::Service(error.into()))?)
            .map_err(|never| match never {})
            .boxed_unsync()
    };
    Ok(Response::from_parts(head, body))
}

fn undecodable() -> Error {
    Error::new(ErrorKind::InvalidData, "cannot decode the server's protobuf")
}

/// Splits the body of a watch into messages.
pub fn messages(
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

/// Takes the first message from the buffer; `None` if it is incomplete.
fn first_message(buffer: &mut BytesMut) -> Option<Result<Bytes, Error>> {
    let length = u32::from_be_bytes(buffer.get(..LENGTH_BYTES)?.try_into().ok()?) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Some(Err(undecodable()));
    }
    if buffer.len() < LENGTH_BYTES + length {
        return None;
    }
    buffer.advance(LENGTH_BYTES);
    Some(Ok(buffer.split_to(length).freeze()))
}
