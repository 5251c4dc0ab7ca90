//! The error type of manifest validation: field, violated rule, message and valid values.
//!
//! Checks append errors to a list, so that all errors of a manifest are reported. The caller adds file names and line
//! numbers.

use std::borrow::Cow;
use std::fmt;

/// The kind of rule that a field violates. Callers use it to group and color errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The value has the wrong JSON type.
    Type,
    /// A required field is absent.
    Required,
    /// The string does not match the regular expression of its schema.
    Pattern,
    /// The value is not one of the enum.
    Enum,
    /// A number, length or count is out of bounds.
    Bound,
    /// The string does not have the format of its schema, e.g. `date-time`.
    Format,
    /// The schema does not have the field, so the API server would drop it or reject the object.
    UnknownField,
    /// An element of a set, or a key of a map list, occurs twice.
    Duplicate,
    /// A CEL rule of the schema is not satisfied.
    Cel,
    /// The schema accepts the value, but a rule that the controllers check does not.
    Runtime,
    /// Karpenter has no such kind.
    UnknownKind,
    /// The object is too large or too deeply nested to be validated.
    Limit,
}

impl Rule {
    /// The name of the rule in reports; the API server's term if there is one.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Type => "invalid type",
            Rule::Required => "required",
            Rule::Pattern => "pattern",
            Rule::Enum => "unsupported value",
            Rule::Bound => "out of bounds",
            Rule::Format => "format",
            Rule::UnknownField => "unknown field",
            Rule::Duplicate => "duplicate",
            Rule::Cel => "cel",
            Rule::Runtime => "runtime",
            Rule::UnknownKind => "unknown kind",
            Rule::Limit => "limit",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One field that violates one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct FieldError {
    /// The path as the API server writes it: `spec.template.spec.requirements[0].key`; empty for the whole object.
    pub path: String,
    /// The kind of the violated rule.
    pub rule: Rule,
    /// The message, in lower case and without a full stop; only quoted rules may differ.
    pub message: String,
    /// A description of the valid values, if they are known.
    pub valid: Option<String>,
}

impl FieldError {
    /// An error that does not state the valid values.
    pub fn new(path: impl Into<String>, rule: Rule, message: impl Into<String>) -> Self {
        Self { path: path.into(), rule, message: message.into(), valid: None }
    }

    /// Adds a description of the valid values to the error.
    #[must_use]
    pub fn with_valid(mut self, valid: impl Into<String>) -> Self {
        self.valid = Some(valid.into());
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(formatter, "{}: ", one_line(&self.path))?;
        }
        formatter.write_str(&one_line(&self.message))?;
        if let Some(valid) = &self.valid {
            write!(formatter, " (valid: {valid})")?;
        }
        Ok(())
    }
}

/// No message of ours is longer. The limit prevents quoted input from flooding a terminal.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Makes a message that quotes input safe to print: escapes control characters and characters that change text
/// direction, and limits the length.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_unsafe = |character: char| {
        character.is_control()
            || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    let end = text.char_indices().nth(MESSAGE_CHARS_MAX).map(|(end, _)| end);
    if end.is_none() && !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut line = String::new();
    for character in text[..end.unwrap_or(text.len())].chars() {
        if is_unsafe(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    if end.is_some() {
        line.push_str("...");
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_input_is_escaped_and_truncated() {
        assert_eq!(one_line("spec.weight: Größe"), "spec.weight: Größe");
        assert_eq!(one_line("a\nb\u{1b}[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        let long = one_line(&"ß".repeat(5_000)).into_owned();
        assert_eq!(long.chars().count(), MESSAGE_CHARS_MAX + 3);
        let error = FieldError::new("a\nb", Rule::Type, "c\r").with_valid("d");
        assert_eq!(error.to_string(), "a\\nb: c\\r (valid: d)");
    }
}
