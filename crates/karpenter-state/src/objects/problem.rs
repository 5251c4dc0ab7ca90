//! Errors and warnings about objects, and where the objects came from.

use std::fmt;
use std::sync::Arc;

use karpenter_api::error::one_line;

/// The location of an object in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub source: Arc<str>,
    /// From 1.
    pub document: usize,
    /// The position of the object within a list, from 0.
    pub item: Option<usize>,
    /// The line on which the document starts, from 1.
    pub line: Option<u64>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.source, self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object is used; a part of it is ignored.
    Warning,
    /// The object is left out.
    Error,
}

/// An error or warning about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectError {
    pub origin: Origin,
    /// `Kind namespace/name`.
    pub object: String,
    /// The field, for example `spec.containers[0].resources.requests.cpu`; empty for the whole object.
    pub path: String,
    pub message: String,
    pub valid: Option<String>,
    pub severity: Severity,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.origin, one_line(&self.object))?;
        if !self.path.is_empty() {
            write!(f, "{}: ", one_line(&self.path))?;
        }
        f.write_str(&one_line(&self.message))?;
        match &self.valid {
            Some(valid) => write!(f, " (valid: {valid})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ObjectError {}

/// An error or warning before its object is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) path: String,
    pub(super) message: String,
    pub(super) valid: Option<String>,
}

impl Problem {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), valid: None }
    }

    pub(super) fn valid(mut self, valid: impl Into<String>) -> Self {
        self.valid = Some(valid.into());
        self
    }
}
