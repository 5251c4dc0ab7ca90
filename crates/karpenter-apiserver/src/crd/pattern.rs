//! Translates Go regular expressions to Rust's syntax.
//!
//! Almost all syntax is the same. But in Go, `\d`, `\s` and `\w` match only ASCII, and character classes have neither
//! nesting nor set operations. Only these two differences are translated.

use regex::Regex;

use super::cache::Cache;

static COMPILED: Cache<Regex> = Cache::new();

/// Compiles a Go (RE2) regular expression.
pub(crate) fn compile(expression: &str) -> Result<Regex, regex::Error> {
    COMPILED.get_or_try(expression, |expression| Regex::new(&translate(expression)))
}

fn translate(expression: &str) -> String {
    let mut output = String::with_capacity(expression.len() + 8);
    let mut rest = expression.chars().peekable();
    let mut in_class = false;
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next() {
                Some('d') => output.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('D') => output.push_str("[^0-9]"),
                Some('s') => output.push_str(if in_class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                Some('S') => output.push_str(r"[^\t\n\f\r ]"),
                Some('w') => output.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('W') => output.push_str("[^0-9A-Za-z_]"),
                Some('b') if !in_class => output.push_str("(?-u:\\b)"),
                Some(other) => output.extend(['\\', other]),
                None => output.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                output.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    output.push('^');
                }
                // At the start of a character class, `]` is a literal.
                if rest.next_if_eq(&']').is_some() {
                    output.push_str("\\]");
                }
            }
            '[' if rest.peek() == Some(&':') => output.push('['),
            '[' => output.push_str("\\["),
            ':' if in_class && rest.peek() == Some(&']') && output.contains("[:") => {
                // A named class such as `[:alpha:]` ends here.
                output.push_str(":]");
                rest.next();
            }
            ']' if in_class => {
                in_class = false;
                output.push(']');
            }
            '&' | '~' if in_class => output.extend(['\\', character]),
            '-' if in_class && rest.peek() == Some(&'-') => output.push_str("\\-"),
            other => output.push(other),
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn go_character_classes_are_translated() {
        for (expression, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^[\w.]+$", "a_b.c", true),
            (r"^[[]$", "[", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[^[:alpha:]]+$", "ab", false),
            (r"^a\/b$", "a/b", true),
            (r"^(0|[1-9][0-9]*(Ki|Mi))$", "10Mi", true),
            (r"^[:a]+:$", ":a:", true),
        ] {
            let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(regex.is_match(text), matches, "{expression} on {text}");
        }
    }
}
