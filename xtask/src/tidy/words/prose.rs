//! Separates prose from code in Rust and Markdown. The result is the text with the same lines, in which every character
//! of code is replaced by one that is neither part of a word nor a space, so that no phrase extends over code.

use crate::rust_text::{Kind, texts};

const CODE: u8 = 1;

/// A word of prose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'text> {
    pub(super) text: &'text str,
    /// From 1.
    pub(super) line: usize,
    /// Whether only spaces and at most one line break separate the word from the word before.
    pub(super) continues: bool,
}

/// Keeps comments, and string literals that contain a space; a literal without a space is a name, not a sentence.
pub(super) fn of_rust(source: &str) -> String {
    let bytes = source.as_bytes();
    let blank = |byte: u8| if byte.is_ascii_whitespace() { byte } else { CODE };
    let mut masked: Vec<u8> = bytes.iter().copied().map(blank).collect();
    for text in texts(source) {
        let found = &bytes[text.range.clone()];
        let target = &mut masked[text.range];
        match text.kind {
            Kind::Comment => {
                target.copy_from_slice(found);
                let marker = found.iter().take_while(|byte| matches!(byte, b'/' | b'*' | b'!')).count();
                target[..marker].fill(b' ');
                if found.ends_with(b"*/") {
                    let end = target.len();
                    target[end - 2..].fill(b' ');
                }
            }
            Kind::Literal if found.contains(&b' ') => {
                target.copy_from_slice(found);
                if !found.starts_with(b"r") {
                    mask_escapes(target);
                }
            }
            Kind::Literal => {}
        }
    }
    mask_code_spans(&mut masked);
    String::from_utf8_lossy(&masked).into_owned()
}

pub(super) fn of_markdown(source: &str) -> String {
    let mut masked = source.as_bytes().to_vec();
    mask_code_spans(&mut masked);
    String::from_utf8_lossy(&masked).into_owned()
}

/// Masks escapes in a literal. A backslash at the end of a line continues the text; any other escape is not part of a
/// word.
fn mask_escapes(literal: &mut [u8]) {
    let mut at = 0;
    while at + 1 < literal.len() {
        if literal[at] == b'\\' {
            let is_continuation = literal[at + 1] == b'\n';
            literal[at] = if is_continuation { b' ' } else { CODE };
            if !is_continuation {
                literal[at + 1] = CODE;
            }
            at += 1;
        }
        at += 1;
    }
}

/// Masks fenced blocks and inline code. An inline span ends within its paragraph and does not contain masked text.
fn mask_code_spans(text: &mut [u8]) {
    let mut at = 0;
    while at < text.len() {
        let mark = text[at];
        if mark != b'`' && mark != b'~' {
            at += 1;
            continue;
        }
        let length = run(text, at);
        let is_fence = length >= 3 && is_first_of_line(text, at);
        let end = if is_fence {
            Some(fence_end(text, at, length))
        } else if mark == b'`' {
            span_end(text, at, length)
        } else {
            None
        };
        let end = end.unwrap_or(at + length);
        if end > at + length {
            for byte in &mut text[at..end] {
                *byte = if *byte == b'\n' { b'\n' } else { CODE };
            }
        }
        at = end;
    }
}

/// How often the byte at this position is repeated.
fn run(text: &[u8], at: usize) -> usize {
    text[at..].iter().take_while(|byte| **byte == text[at]).count()
}

fn is_first_of_line(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte != b'\n').all(|byte| *byte == b' ')
}

/// The position after the closing fence; the end of the text if there is none.
fn fence_end(text: &[u8], open: usize, length: usize) -> usize {
    let mut at = open + length;
    while at < text.len() {
        if text[at] == text[open] {
            let found = run(text, at);
            if found >= length && is_first_of_line(text, at) {
                return at + found;
            }
            at += found;
        } else {
            at += 1;
        }
    }
    text.len()
}

fn span_end(text: &[u8], open: usize, length: usize) -> Option<usize> {
    let mut at = open + length;
    while at < text.len() && text[at] != CODE && !is_paragraph_end(text, at) {
        if text[at] == b'`' {
            let found = run(text, at);
            if found == length {
                return Some(at + found);
            }
            at += found;
        } else {
            at += 1;
        }
    }
    None
}

/// Whether a line break is followed by a blank line.
fn is_paragraph_end(text: &[u8], at: usize) -> bool {
    text[at] == b'\n' && text[at + 1..].iter().find(|byte| **byte != b' ').is_none_or(|byte| *byte == b'\n')
}

/// The words of masked text that are not parts of names, paths, calls or placeholders.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let mut found = Vec::new();
    let (mut line, mut last_end, mut is_last_prose) = (1, 0, false);
    let mut rest = 0;
    while let Some(start) = text[rest..].find(is_word).map(|offset| rest + offset) {
        let end =
            text[start..].find(|character| !is_word(character)).map_or(text.len(), |length| start + length);
        let gap = &text[last_end..start];
        line += gap.matches('\n').count();
        let is_prose = !is_code(&text[..start], &text[end..]);
        let is_adjacent = gap.chars().all(char::is_whitespace) && gap.matches('\n').count() < 2;
        if is_prose {
            found.push(Word { text: &text[start..end], line, continues: is_last_prose && is_adjacent });
        }
        (last_end, is_last_prose, rest) = (end, is_prose, end);
    }
    found
}

/// Whether a word between these texts is a part of a name, a path, a call or a placeholder, or is the only word in
/// quotes.
fn is_code(before: &str, after: &str) -> bool {
    let is_quoted = before.ends_with('"') && after.starts_with('"');
    let is_name_continued =
        after.strip_prefix('.').is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    is_quoted
        || is_name_continued
        || before.ends_with(['.', '/', '{', '$', '@', '#', '\\'])
        || before.ends_with("::")
        || after.starts_with(['/', '(', '=', '}'])
        || after.starts_with("::")
}
