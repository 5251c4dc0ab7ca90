//! Splits a YAML stream into documents before parsing them.
//!
//! A line that starts with `---` always begins a document, because no scalar can contain such a line. Splitting the
//! stream before parsing limits an error to its document, gives each document its own line numbers and limits, and
//! allows parsing on several threads. A directive (`%YAML`, `%TAG`) applies only to its own document.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options};

use super::parallel;
use super::tree::UniqueKeys;

/// The maximum nesting of a document: deeper than any Kubernetes object (CRD schemas are the deepest), and safe for the
/// stack.
const DEPTH_MAX: usize = 100;
/// The maximum number of aliases in a document. Hand-written documents have few; a document with more is generated or
/// an attack.
const ALIASES_MAX: usize = 10_000;
/// The maximum number of parser events that aliases may repeat. It limits the work that aliases cause, whatever the
/// size of the document.
const REPLAYED_EVENTS_MAX: usize = 2_000_000;
/// Texts smaller than this are parsed on one thread, because a second one would cost more than it saves.
pub(super) const PARALLEL_BYTES_MIN: usize = 1 << 20;

/// The text of one document, and its position in the stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'a> {
    text: &'a str,
    /// The number of the line in which the text begins, starting at 1.
    pub(super) first_line: u64,
    /// The first line that is neither empty nor a comment nor a `---` marker.
    pub(super) content_line: u64,
}

pub(super) struct YamlError {
    /// The number of the line within the chunk, starting at 1.
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

/// Parses every document and passes the results to `sink`, in the order of the stream.
pub(super) fn parse_documents(text: &str, mut sink: impl FnMut(&Chunk<'_>, Result<Value, YamlError>)) {
    let chunks = split(text);
    if text.len() < PARALLEL_BYTES_MIN {
        chunks.iter().for_each(|chunk| sink(chunk, parse(chunk)));
    } else {
        parallel::in_order(&chunks, parse, sink);
    }
}

fn parse(chunk: &Chunk<'_>) -> Result<Value, YamlError> {
    let result = serde_saphyr::from_str_with_options::<UniqueKeys>(chunk.text, options(chunk.text.len()));
    result.map(|UniqueKeys(value)| value).map_err(|error| YamlError {
        line: error.location().map(|location| location.line()).filter(|line| *line > 0),
        message: message(&error),
    })
}

/// Parser limits. Every parser event needs at least one byte, so the length of the text limits all events except those
/// from aliases.
fn options(text_len: usize) -> Options {
    let events_max = text_len.saturating_mul(2).saturating_add(1_000);
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: events_max,
            max_nodes: events_max,
            max_total_scalar_bytes: text_len.saturating_mul(2).saturating_add(1_000),
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_recorded_anchor_events: REPLAYED_EVENTS_MAX,
            max_merge_keys: ALIASES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPLAYED_EVENTS_MAX,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        // As in kubectl, 0644 is an octal number, and `yes` and `no` are booleans.
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
        emit_comments: false,
    }
}

/// The message of the YAML parser without the position, because our error has a field for the position.
fn message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let cut = first.rfind(" at line ").or_else(|| first.rfind(" (line ")).unwrap_or(first.len());
    first[..cut].trim_end_matches(['.', ' ']).to_owned()
}

fn split(text: &str) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let (mut offset, mut line_number) = (0, 0);
    for line in text.split_inclusive('\n') {
        line_number += 1;
        if is_document_start(line) {
            push_chunk(&mut chunks, &text[start..offset], start_line);
            (start, start_line) = (offset, line_number);
        }
        offset += line.len();
    }
    push_chunk(&mut chunks, &text[start..], start_line);
    chunks
}

fn is_document_start(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Adds a chunk unless it has no content, so that document numbers are those that a reader would count.
fn push_chunk<'a>(chunks: &mut Vec<Chunk<'a>>, text: &'a str, first_line: u64) {
    let is_content = |line: &str| {
        let line = if is_document_start(line) { &line[3..] } else { line };
        let line = line.trim();
        !(line.is_empty() || line == "..." || line.starts_with(['#', '%']))
    };
    if let Some(position) = text.lines().position(is_content) {
        chunks.push(Chunk { text, first_line, content_line: first_line + position as u64 });
    }
}
