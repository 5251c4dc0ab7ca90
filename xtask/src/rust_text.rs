//! Finds comments and literals in Rust source text: `cases` needs the code without them, `tidy` needs the prose in
//! them. This lexer recognises nothing else and accepts text that does not compile.

use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A line comment without its line break, or a block comment.
    Comment,
    /// A string, byte string, raw string or character, with its quotes.
    Literal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) kind: Kind,
    pub(crate) range: Range<usize>,
}

/// Comments and literals in order of position.
pub(crate) fn texts(source: &str) -> Vec<Text> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let literal = |end: usize| Some((Kind::Literal, end));
        let text = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => Some((Kind::Comment, line_end(bytes, at))),
            b'/' if bytes[at..].starts_with(b"/*") => Some((Kind::Comment, block_end(bytes, at))),
            b'"' => literal(string_end(bytes, at)),
            b'r' if !is_inside_name(bytes, at) => raw_string_end(bytes, at).and_then(literal),
            b'\'' => character_end(bytes, at).and_then(literal),
            _ => None,
        };
        match text {
            Some((kind, end)) => {
                found.push(Text { kind, range: at..end });
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// The code in which comments are replaced by spaces and literals by underscores, so that brackets in them do not
/// count. The other code is ASCII.
pub(crate) fn code(source: &str) -> String {
    let ascii = |byte: u8| if byte.is_ascii() { byte } else { b'_' };
    let mut code: Vec<u8> = source.bytes().map(ascii).collect();
    for text in texts(source) {
        code[text.range].fill(if text.kind == Kind::Comment { b' ' } else { b'_' });
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether the byte at `at` continues a name. The `r` of `br"…"` and `cr"…"` does not: the `b` or `c` before it is a
/// prefix of the literal.
fn is_inside_name(bytes: &[u8], at: usize) -> bool {
    let is_name = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    let is_prefix = |at: usize| matches!(bytes[at], b'b' | b'c') && (at == 0 || !is_name(at - 1));
    at > 0 && is_name(at - 1) && !is_prefix(at - 1)
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |offset| at + offset)
}

/// The end of a block comment. Block comments may be nested.
fn block_end(bytes: &[u8], open: usize) -> usize {
    let (mut at, mut depth) = (open, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let mark: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let inside = at + 2 + hashes;
    let found = bytes[inside..].windows(mark.len()).position(|window| window == mark)?;
    Some(inside + found + mark.len())
}

/// The end of a character literal; `None` if the quote begins a lifetime.
fn character_end(bytes: &[u8], open: usize) -> Option<usize> {
    let longest = bytes.len().min(open + 12);
    if bytes.get(open + 1) == Some(&b'\\') {
        return (open + 3..longest).find(|at| bytes[*at] == b'\'').map(|at| at + 1);
    }
    // A character has up to four bytes.
    let closes = (open + 2..longest.min(open + 6)).find(|at| bytes[*at] == b'\'')?;
    let is_one = std::str::from_utf8(&bytes[open + 1..closes]).is_ok_and(|text| text.chars().count() == 1);
    is_one.then_some(closes + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_found_and_names_and_lifetimes_are_not() {
        let source = r####"
fn f<'a>(r#type: &'a str, xr: u8) { // the "first" one
    let text = "a \" // b"; /* block /* nested */ "c" */
    let raw = br#"d " e"#; let mark = '"'; let tick = '\''; let two = ['x', 'y'];
}
"####;
        let found: Vec<(Kind, &str)> =
            texts(source).into_iter().map(|text| (text.kind, &source[text.range])).collect();
        let expected = [
            (Kind::Comment, r#"// the "first" one"#),
            (Kind::Literal, r#""a \" // b""#),
            (Kind::Comment, r#"/* block /* nested */ "c" */"#),
            (Kind::Literal, r##"r#"d " e"#"##),
            (Kind::Literal, r#"'"'"#),
            (Kind::Literal, r"'\''"),
            (Kind::Literal, "'x'"),
            (Kind::Literal, "'y'"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn unfinished_text_ends_with_the_source() {
        for source in ["\"a", "\"a\\", "/* a", "// a", "'"] {
            assert!(texts(source).iter().all(|text| text.range.end <= source.len()), "{source}");
        }
    }
}
