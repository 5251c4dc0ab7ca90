//! Converts a plain list into the initial events of a watch.
//!
//! A streamed list costs the server 50 % more than a plain list (docs/bench.md), because each object is a separate
//! event. Servers of version 1.33 and newer encode plain lists object by object, so a plain list is requested from them
//! and decoded while it is received. The watcher gets the same events as from a streamed list, up to the bookmark that
//! ends the initial list. Then the stream ends, and the watcher resumes its watch from there.

use std::io::Error;

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::Uri;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::field::{Kinds, Message, message_of};
use super::{MESSAGE_BYTES_MAX, to_json, undecodable};

/// The first minor version of Kubernetes 1 that encodes lists object by object.
pub(super) const MINOR_VERSION_MIN: u32 = 33;

/// Query parameters of a watch request that must be removed for a list request.
const ONLY_OF_WATCHES: [&str; 6] = [
    "watch",
    "sendInitialEvents",
    "resourceVersion",
    "resourceVersionMatch",
    "allowWatchBookmarks",
    "timeoutSeconds",
];

/// The URI of the list, if the watch begins with a streamed list. It has no resource version, so the list is current.
pub fn list_of(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    query.split('&').find(|part| *part == "sendInitialEvents=true")?;
    let is_kept = |part: &&str| {
        let name = part.split('=').next().unwrap_or_default();
        !part.is_empty() && !ONLY_OF_WATCHES.contains(&name)
    };
    let kept: Vec<&str> = query.split('&').filter(is_kept).collect();
    let mut pieces = uri.clone().into_parts();
    pieces.path_and_query = Some(match kept.as_slice() {
        [] => uri.path().parse().ok()?,
        kept => format!("{}?{}", uri.path(), kept.join("&")).parse().ok()?,
    });
    Uri::from_parts(pieces).ok()
}

/// The body of the list as watch events in lines of JSON.
pub fn events(
    chunks: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
    kinds: Kinds,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let reader = ListReader { buffer: BytesMut::new(), at: At::Envelope, kinds };
    stream::unfold((chunks, reader, false), |(mut chunks, mut reader, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            match reader.line() {
                Ok(Some(line)) => return Some((Ok(line), (chunks, reader, false))),
                Ok(None) => {}
                Err(error) => return Some((Err(error), (chunks, reader, true))),
            }
            match chunks.next().await {
                Some(Ok(chunk)) => reader.append(&chunk),
                Some(Err(error)) => return Some((Err(error), (chunks, reader, true))),
                None if matches!(reader.at, At::End) => return None,
                // The connection was cut; the watcher retries.
                None => {
                    return Some((Err(Error::other("the list ended too early")), (chunks, reader, true)));
                }
            }
        }
    })
}

struct ListReader {
    buffer: BytesMut,
    at: At,
    kinds: Kinds,
}

enum At {
    /// The list message has not started yet.
    Envelope,
    List(List),
    /// The list message is complete; the rest of the body is ignored.
    End,
}

struct List {
    version: String,
    kind: String,
    message: &'static Message,
    /// Bytes of the list that are not read yet.
    left: usize,
    resource_version: String,
}

impl ListReader {
    fn append(&mut self, chunk: &Bytes) {
        if !matches!(self.at, At::End) {
            self.buffer.extend_from_slice(chunk);
        }
    }

    /// The next line; `None` if it is incomplete.
    fn line(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match &mut self.at {
                At::Envelope => match read_list_start(&mut self.buffer, self.kinds)? {
                    Some(list) => self.at = At::List(list),
                    None => return Ok(None),
                },
                At::List(list) if list.left == 0 => {
                    let line = to_json::initial_events_end(&list.version, &list.kind, &list.resource_version);
                    self.at = At::End;
                    self.buffer = BytesMut::new();
                    return Ok(Some(line));
                }
                At::List(list) => match list.step(&mut self.buffer)? {
                    Step::Line(line) => return Ok(Some(line)),
                    Step::On => {}
                    Step::More => return Ok(None),
                },
                At::End => return Ok(None),
            }
        }
    }
}

enum Step {
    Line(Bytes),
    On,
    /// The buffer does not contain the whole next field yet.
    More,
}

impl List {
    fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, Error> {
        let Some(head) = Head::read(buffer)? else { return Ok(Step::More) };
        let whole = head.bytes + head.length;
        if whole > self.left {
            return Err(undecodable());
        }
        if buffer.len() < whole {
            return Ok(Step::More);
        }
        self.left -= whole;
        buffer.advance(head.bytes);
        let part = buffer.split_to(head.length);
        match head.number {
            1 => {
                let (version, is_whole) = to_json::list_version(&part).ok_or_else(undecodable)?;
                // The request sets no limit, so the server must not split the list into pages.
                if !is_whole {
                    return Err(undecodable());
                }
                self.resource_version = version;
                Ok(Step::On)
            }
            2 => {
                let line = to_json::added(&self.version, &self.kind, self.message, &part);
                line.map(Step::Line).ok_or_else(undecodable)
            }
            _ => Ok(Step::On),
        }
    }
}

/// The header of a field of a message.
struct Head {
    number: u32,
    /// The length of the header.
    bytes: usize,
    /// The length of the field.
    length: usize,
}

impl Head {
    /// The maximum length of a header: two varints of ten bytes each.
    const BYTES_MAX: usize = 20;

    /// Reads a header; `None` if it is incomplete. Lists and envelopes have length-delimited fields only.
    fn read(buffer: &[u8]) -> Result<Option<Self>, Error> {
        let mut rest = &buffer[..buffer.len().min(Self::BYTES_MAX)];
        let is_short = buffer.len() < Self::BYTES_MAX;
        let before = rest.len();
        let read = decode_key(&mut rest).and_then(|key| Ok((key, decode_varint(&mut rest)?)));
        match read {
            Ok(((number, WireType::LengthDelimited), length)) => {
                let length = usize::try_from(length).map_err(|_| undecodable())?;
                Ok(Some(Self { number, bytes: before - rest.len(), length }))
            }
            Err(_) if is_short => Ok(None),
            Ok(_) | Err(_) => Err(undecodable()),
        }
    }
}

/// Reads the envelope before the list; `None` if it is incomplete.
fn read_list_start(buffer: &mut BytesMut, kinds: Kinds) -> Result<Option<List>, Error> {
    if buffer.len() < to_json::PREFIX.len() {
        return Ok(None);
    }
    let Some(types) = buffer.strip_prefix(to_json::PREFIX) else { return Err(undecodable()) };
    let Some(head) = Head::read(types)? else { return Ok(None) };
    if head.number != 1 || head.length > MESSAGE_BYTES_MAX {
        return Err(undecodable());
    }
    let Some(inner) = types.get(head.bytes..head.bytes + head.length) else { return Ok(None) };
    let (version, kind) = to_json::type_of(inner).ok_or_else(undecodable)?;
    let before = to_json::PREFIX.len() + head.bytes + head.length;
    let Some(list) = Head::read(&buffer[before..])? else { return Ok(None) };
    let kind = kind.strip_suffix("List").ok_or_else(undecodable)?;
    let message = message_of(kinds, kind).ok_or_else(undecodable)?;
    if list.number != 2 {
        return Err(undecodable());
    }
    let list_start = List {
        version: version.to_owned(),
        kind: kind.to_owned(),
        message,
        left: list.length,
        resource_version: String::new(),
    };
    buffer.advance(before + list.bytes);
    Ok(Some(list_start))
}
