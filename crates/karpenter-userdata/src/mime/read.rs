//! Splits a MIME archive into its parts.

use super::{CONTENT_TYPE, Headers, MimeError, Part, TRANSFER_ENCODING};

/// A position in the lines of the text; it gives errors their line numbers.
struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    /// Splits a text into lines, each with its newline, because a body ends before the newline that precedes the
    /// boundary.
    fn new(text: &'a str) -> Self {
        Self { lines: text.split_inclusive('\n').collect(), next: 0 }
    }

    fn take(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.next)?;
        self.next += 1;
        Some(line)
    }
}

#[derive(PartialEq, Eq)]
enum Delimiter {
    Next,
    Last,
}

/// Splits an archive into its parts. The text must not contain carriage returns.
pub(super) fn parts(text: &str) -> Result<Vec<Part>, MimeError> {
    let mut lines = Lines::new(text);
    let headers = headers(&mut lines)?;
    let content_type = headers.get(CONTENT_TYPE).and_then(|values| values.first());
    let boundary = boundary(content_type.ok_or(MimeError::NoContentType)?)?;
    let delimiter = format!("--{boundary}");
    // Lines before the first boundary are the preamble, which readers of MIME archives ignore.
    let mut found = loop {
        match lines.take() {
            None => return Ok(Vec::new()),
            Some(line) => {
                if let Some(found) = delimiter_in(line, &delimiter) {
                    break found;
                }
            }
        }
    };
    let mut parts = Vec::new();
    while found == Delimiter::Next {
        if lines.lines[lines.next..].iter().all(|line| line.trim().is_empty()) {
            // The closing `--` of the last boundary is missing, which is accepted at the end of the text.
            break;
        }
        let (part, next) = part(&mut lines, &delimiter)?;
        parts.push(part);
        found = next;
    }
    Ok(parts)
}

fn part(lines: &mut Lines<'_>, delimiter: &str) -> Result<(Part, Delimiter), MimeError> {
    let first_line = lines.next + 1;
    let mut headers = headers(lines)?;
    let body_line = lines.next;
    let mut body = String::new();
    let found = loop {
        let line = lines.take().ok_or(MimeError::PartWithoutEnd { line: first_line })?;
        if let Some(found) = delimiter_in(line, delimiter) {
            break found;
        }
        body.push_str(line);
    };
    if body.ends_with('\n') {
        body.pop();
    }
    let is_quoted = |values: &Vec<String>| {
        values.first().is_some_and(|value| value.eq_ignore_ascii_case("quoted-printable"))
    };
    if headers.get(TRANSFER_ENCODING).is_some_and(is_quoted) {
        headers.remove(TRANSFER_ENCODING);
        body = unquote(&body, body_line)?;
    }
    Ok((Part { headers, body }, found))
}

/// Reads the headers of a part, up to and including the empty line that ends them.
fn headers(lines: &mut Lines<'_>) -> Result<Headers, MimeError> {
    let mut headers = Headers::new();
    let mut last: Option<String> = None;
    loop {
        let line = lines.take().ok_or(MimeError::HeadersWithoutEnd)?;
        let bare = line.trim_end();
        if bare.is_empty() {
            return Ok(headers);
        }
        if bare.starts_with([' ', '\t'])
            && let Some(value) =
                last.as_ref().and_then(|name| headers.get_mut(name)).and_then(|values| values.last_mut())
        {
            value.push(' ');
            value.push_str(bare.trim_start());
            continue;
        }
        let (name, value) = bare.split_once(':').ok_or(MimeError::HeaderWithoutColon { line: lines.next })?;
        let name = canonical(name.trim());
        headers.entry(name.clone()).or_default().push(value.trim().to_owned());
        last = Some(name);
    }
}

/// The canonical form of a header name: `Content-Type` for `content-type` or `CONTENT-TYPE`.
fn canonical(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut characters = word.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        first
            .into_iter()
            .chain(characters.map(|character| character.to_ascii_lowercase()))
            .collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

fn delimiter_in(line: &str, delimiter: &str) -> Option<Delimiter> {
    let rest = line.strip_prefix(delimiter)?;
    match rest.trim_end_matches([' ', '\t', '\n']) {
        "" => Some(Delimiter::Next),
        "--" => Some(Delimiter::Last),
        _ => None,
    }
}

/// The boundary that a content type `multipart/…` states.
fn boundary(content_type: &str) -> Result<String, MimeError> {
    let (media_type, mut parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let media_type = media_type.trim().to_ascii_lowercase();
    if !media_type.starts_with("multipart/") {
        return Err(MimeError::NotMultipart { found: media_type });
    }
    while let Some((name, rest)) = parameters.split_once('=') {
        let (value, rest) = parameter_value(rest.trim_start());
        if name.trim().eq_ignore_ascii_case("boundary") && !value.is_empty() {
            return Ok(value);
        }
        parameters = rest.trim_start().trim_start_matches(';');
    }
    Err(MimeError::NoBoundary)
}

/// Parses a token or a quoted string; returns it and the text after it.
fn parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[position + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            character => value.push(character),
        }
    }
    (String::new(), "")
}

fn unquote(body: &str, first_line: usize) -> Result<String, MimeError> {
    let mut bytes = Vec::with_capacity(body.len());
    let mut lines = body.split('\n').enumerate().peekable();
    while let Some((position, line)) = lines.next() {
        let wrong = MimeError::QuotedPrintable { line: first_line + position + 1 };
        let line = line.trim_end_matches([' ', '\t']);
        let (line, is_continued) = line.strip_suffix('=').map_or((line, false), |line| (line, true));
        let mut rest = line.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'=' {
                bytes.push(byte);
                continue;
            }
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let (Some(value), Some(after)) = (value, after.get(2..)) else { return Err(wrong) };
            bytes.push(value);
            rest = after;
        }
        if !is_continued && lines.peek().is_some() {
            bytes.push(b'\n');
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| MimeError::QuotedPrintable { line: first_line + 1 })?;
    Ok(text.replace('\r', ""))
}
