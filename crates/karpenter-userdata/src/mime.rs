//! Multipart MIME archives, as cloud-init and nodeadm read them: one level of parts, separated by boundary lines.
//!
//! Parts are copied; character sets and nested archives are not interpreted. Only quoted-printable text is decoded,
//! because a copy would not preserve its line breaks. Parsing is stricter than in mail libraries: a truncated part must
//! make the launch fail, instead of booting an instance with half of its configuration. Carriage returns are removed.
//!
//! Upstream: karpenter-provider-aws `pkg/providers/amifamily/bootstrap/mime/mime.go`.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::Warning;

pub(crate) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";
pub(crate) const NODE_CONFIG: &str = "application/node.eks.aws";

const CONTENT_TYPE: &str = "Content-Type";
const TRANSFER_ENCODING: &str = "Content-Transfer-Encoding";

/// Why a MIME archive is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MimeError {
    #[error("line {line} is not a header: missing colon")]
    HeaderWithoutColon { line: usize },
    #[error("the headers do not end with an empty line")]
    HeadersWithoutEnd,
    #[error("missing Content-Type header")]
    NoContentType,
    #[error("the content type is {found}, not multipart")]
    NotMultipart { found: String },
    #[error("the Content-Type header has no boundary")]
    NoBoundary,
    #[error("the part that starts at line {line} has no closing boundary")]
    PartWithoutEnd { line: usize },
    #[error("line {line} is not quoted-printable")]
    QuotedPrintable { line: usize },
}

/// The values of each header in order, by the header's canonical name.
type Headers = BTreeMap<String, Vec<String>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    headers: Headers,
    body: String,
}

impl Part {
    pub(crate) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self {
            headers: Headers::from([(CONTENT_TYPE.to_owned(), vec![content_type.to_owned()])]),
            body: body.into().replace('\r', ""),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Archive {
    parts: Vec<Part>,
}

impl Archive {
    pub(crate) fn of(part: Part) -> Self {
        Self { parts: vec![part] }
    }

    pub(crate) fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Whether the text is a MIME archive. If it is not, it is a script or a YAML document.
    pub(crate) fn is_archive(text: &str) -> bool {
        let text = text.trim_start();
        text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
    }

    /// Parses an archive. As in upstream, an archive without parts is accepted; it gives a warning.
    pub(crate) fn read(text: &str) -> Result<(Self, Vec<Warning>), MimeError> {
        let parts = read::parts(&text.trim_start().replace('\r', ""))?;
        let warnings = if parts.is_empty() { vec![Warning::EmptyArchive] } else { Vec::new() };
        Ok((Self { parts }, warnings))
    }

    /// Drops all headers except those that describe the body, because nodeadm ignores others.
    pub(crate) fn with_content_headers_only(mut self) -> Self {
        for part in &mut self.parts {
            part.headers.retain(|name, values| match name.as_str() {
                CONTENT_TYPE => true,
                TRANSFER_ENCODING => values.first().is_some_and(|value| value.eq_ignore_ascii_case("base64")),
                _ => false,
            });
            part.headers.entry(CONTENT_TYPE.to_owned()).or_insert_with(|| vec![String::new()]);
        }
        self
    }

    pub(crate) fn write(&self) -> String {
        let boundary = self.boundary();
        let mut text =
            format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
        for (position, part) in self.parts.iter().enumerate() {
            if position > 0 {
                text.push('\n');
            }
            text.push_str(&format!("--{boundary}\n"));
            for (name, values) in &part.headers {
                for value in values {
                    text.push_str(&format!("{name}: {value}\n"));
                }
            }
            text.push('\n');
            text.push_str(&part.body);
        }
        text.push_str(&format!("\n--{boundary}--\n"));
        text
    }

    /// The boundary of the archive: `//`, followed by `=` until no line of a part starts with it, because a part may be
    /// an archive with the same boundary.
    fn boundary(&self) -> String {
        let is_unused = |candidate: &String| {
            let delimiter = format!("--{candidate}");
            !self.parts.iter().any(|part| part.body.lines().any(|line| line.starts_with(&delimiter)))
        };
        let mut candidate = String::from("//");
        while !is_unused(&candidate) {
            candidate.push('=');
        }
        candidate
    }
}
