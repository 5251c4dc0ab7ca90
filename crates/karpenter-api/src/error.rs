//! The one error type of manifest validation: which field, which kind of rule, what is wrong and what
//! would be right.
//!
//! Values, not control flow: every check appends to a list, so a user sees all mistakes of a manifest at
//! once. Nothing here decides whether a field is wrong, and nothing here knows where a manifest came from
//! (file names and line numbers belong to the caller).

use std::borrow::Cow;
use std::fmt;

/// The kind of rule a field broke. Tells callers how to group and colour errors without parsing messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The value has the wrong JSON type.
    Type,
    /// A mandatory field is absent.
    Required,
    /// The string does not match the regular expression of its schema.
    Pattern,
    /// The value is not one of the listed ones.
    Enum,
    /// A number, length or count is outside of its limits.
    Bound,
    /// The string is not in the format its schema names, e.g. `date-time`.
    Format,
    /// The schema has no such field; a server would drop or refuse it.
    UnknownField,
    /// An element of a set, or a key of a keyed list, occurs twice.
    Duplicate,
    /// A CEL rule of the schema is not satisfied.
    Cel,
    /// A rule that the controller, not the schema, enforces.
    Runtime,
    /// The object is not of a kind this crate knows.
    UnknownKind,
    /// The object is too large or too deeply nested to be looked at.
    Limit,
}

impl Rule {
    /// The name used in reports, in the words the API server uses where it has one.
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

/// One broken rule of one field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct FieldError {
    /// Where, as the API server writes it: `spec.template.spec.requirements[0].key`; empty for the whole object.
    pub path: String,
    /// Which kind of rule.
    pub rule: Rule,
    /// What is wrong: lower case unless it quotes a rule's own text, no trailing dot.
    pub message: String,
    /// What would be accepted instead, where that can be said.
    pub valid: Option<String>,
}

impl FieldError {
    /// An error without a hint at what would be valid.
    pub fn new(path: impl Into<String>, rule: Rule, message: impl Into<String>) -> Self {
        Self { path: path.into(), rule, message: message.into(), valid: None }
    }

    /// The same error with what would be accepted instead.
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

/// Far more than any message of ours, far less than what would flood a terminal.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// A piece of a message that may quote input, safe to print: control characters and those that change the direction
/// of text are escaped, and it ends where nobody would read on.
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
    fn quoted_input_stays_on_one_line_of_bounded_length() {
        assert_eq!(one_line("spec.weight: Größe"), "spec.weight: Größe");
        assert_eq!(one_line("a\nb\u{1b}[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        let long = one_line(&"ß".repeat(5_000)).into_owned();
        assert_eq!(long.chars().count(), MESSAGE_CHARS_MAX + 3);
        let error = FieldError::new("a\nb", Rule::Type, "c\r").with_valid("d");
        assert_eq!(error.to_string(), "a\\nb: c\\r (valid: d)");
    }
}
