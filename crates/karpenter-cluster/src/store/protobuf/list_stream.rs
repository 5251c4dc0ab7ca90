//! The beginning of a watch, made of a plain list.
//!
//! A watch that begins with everything there is costs the server half as much again as the same objects in a list
//! (docs/bench.md): every object is an event of its own, and is written as one. Servers that write a list object by object
//! (1.33 and newer) are therefore asked for one; it is read as it comes, so neither side holds it whole. Whoever watches
//! sees the events it asked for up to the one that says that these were all, and then the end of the watch, upon which it
//! goes on from there as it does whenever a watch ends.

#[cfg(test)]
mod tests;

use std::io::Error;

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::Uri;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::fields::{Message, message_of};
use super::{MESSAGE_BYTES_MAX, not_understood, to_json};

/// The minor version of Kubernetes 1 from which on a list is written as it is read.
pub(super) const MINOR_VERSION_MIN: u32 = 33;

/// Of a watch, but not of a list.
const ONLY_OF_WATCHES: [&str; 6] = [
    "watch",
    "sendInitialEvents",
    "resourceVersion",
    "resourceVersionMatch",
    "allowWatchBookmarks",
    "timeoutSeconds",
];

/// The list of what a watch is to begin with, if it is to begin with everything. Without a version, which means now.
pub(super) fn list_of(uri: &Uri) -> Option<Uri> {
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

/// The lines of the watch.
pub(super) fn events(
    chunks: impl Stream<Item = Result<Bytes, Error>> + Send + Unpin,
) -> impl Stream<Item = Result<Bytes, Error>> + Send {
    let reading = Reading { buffer: BytesMut::new(), at: At::Envelope };
    stream::unfold((chunks, reading, false), |(mut chunks, mut reading, is_over)| async move {
        if is_over {
            return None;
        }
        loop {
            match reading.line() {
                Ok(Some(line)) => return Some((Ok(line), (chunks, reading, false))),
                Ok(None) => {}
                Err(error) => return Some((Err(error), (chunks, reading, true))),
            }
            match chunks.next().await {
                Some(Ok(chunk)) => reading.take(&chunk),
                Some(Err(error)) => return Some((Err(error), (chunks, reading, true))),
                None if matches!(reading.at, At::End) => return None,
                // Cut off, which is nobody's mistake: it is asked for again.
                None => {
                    return Some((Err(Error::other("the list ended too early")), (chunks, reading, true)));
                }
            }
        }
    })
}

struct Reading {
    buffer: BytesMut,
    at: At,
}

enum At {
    /// Before the list itself.
    Envelope,
    List(List),
    /// After it; what still comes is of no interest.
    End,
}

struct List {
    version: String,
    kind: String,
    message: &'static Message,
    /// Bytes of the list that have not been read.
    left: usize,
    resource_version: String,
}

impl Reading {
    fn take(&mut self, chunk: &Bytes) {
        if !matches!(self.at, At::End) {
            self.buffer.extend_from_slice(chunk);
        }
    }

    /// The next line, if it is there as a whole.
    fn line(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            match &mut self.at {
                At::Envelope => match read_list_start(&mut self.buffer)? {
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
    /// The next part is not there as a whole.
    More,
}

impl List {
    fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, Error> {
        let Some(head) = Head::read(buffer)? else { return Ok(Step::More) };
        let whole = head.bytes + head.length;
        if whole > self.left {
            return Err(not_understood());
        }
        if buffer.len() < whole {
            return Ok(Step::More);
        }
        self.left -= whole;
        buffer.advance(head.bytes);
        let part = buffer.split_to(head.length);
        match head.number {
            1 => {
                let (version, is_whole) = to_json::list_version(&part).ok_or_else(not_understood)?;
                // It was not asked for in pages.
                if !is_whole {
                    return Err(not_understood());
                }
                self.resource_version = version;
                Ok(Step::On)
            }
            2 => {
                let line = to_json::added(&self.version, &self.kind, self.message, &part);
                line.map(Step::Line).ok_or_else(not_understood)
            }
            _ => Ok(Step::On),
        }
    }
}

/// What stands before a part of a message.
struct Head {
    number: u32,
    /// Its own length.
    bytes: usize,
    /// That of the part.
    length: usize,
}

impl Head {
    /// The longest: two numbers of ten bytes each.
    const MOST: usize = 20;

    /// `None` if it is not there as a whole. Lists and envelopes have parts of bytes only.
    fn read(buffer: &[u8]) -> Result<Option<Self>, Error> {
        let mut rest = &buffer[..buffer.len().min(Self::MOST)];
        let is_short = buffer.len() < Self::MOST;
        let before = rest.len();
        let read = decode_key(&mut rest).and_then(|key| Ok((key, decode_varint(&mut rest)?)));
        match read {
            Ok(((number, WireType::LengthDelimited), length)) => {
                let length = usize::try_from(length).map_err(|_| not_understood())?;
                Ok(Some(Self { number, bytes: before - rest.len(), length }))
            }
            Err(_) if is_short => Ok(None),
            Ok(_) | Err(_) => Err(not_understood()),
        }
    }
}

/// Takes what stands before the list, if all of it is there.
fn read_list_start(buffer: &mut BytesMut) -> Result<Option<List>, Error> {
    if buffer.len() < to_json::PREFIX.len() {
        return Ok(None);
    }
    let Some(types) = buffer.strip_prefix(to_json::PREFIX) else { return Err(not_understood()) };
    let Some(head) = Head::read(types)? else { return Ok(None) };
    if head.number != 1 || head.length > MESSAGE_BYTES_MAX {
        return Err(not_understood());
    }
    let Some(inner) = types.get(head.bytes..head.bytes + head.length) else { return Ok(None) };
    let (version, kind) = to_json::type_of(inner).ok_or_else(not_understood)?;
    let before = to_json::PREFIX.len() + head.bytes + head.length;
    let Some(list) = Head::read(&buffer[before..])? else { return Ok(None) };
    let kind = kind.strip_suffix("List").ok_or_else(not_understood)?;
    let message = message_of(kind).ok_or_else(not_understood)?;
    if list.number != 2 {
        return Err(not_understood());
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
