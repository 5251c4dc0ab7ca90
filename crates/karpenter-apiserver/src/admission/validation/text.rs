//! Validation of names, labels and other short strings, with kube-apiserver's messages.
//!
//! Upstream: k8s.io/apimachinery/pkg/util/validation/validation.go

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !bytes.is_empty()
        && bytes.first().is_some_and(is_edge)
        && bytes.last().is_some_and(is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
}

fn is_subdomain_text(text: &str) -> bool {
    text.split('.').all(is_label_text)
}

fn is_qualified_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn too_many_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// The message for a text that does not match: the rule, examples, and the regular expression.
fn mismatch(rule: &str, expression: &str, examples: &[&str]) -> String {
    let quoted: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{expression}')", quoted.join(" or "))
}

/// A DNS label (RFC 1123).
pub(super) fn label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label_text(text) {
        if is_subdomain_text(text) {
            problems.push("must not contain dots".to_string());
        } else {
            let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            problems.push(mismatch(rule, LABEL, &["my-name", "123-abc"]));
        }
    }
    problems
}

/// Checks a DNS label (RFC 1035), which is the rule for names of Services.
pub(super) fn label_1035(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label_text(text) || text.starts_with(|first: char| first.is_ascii_digit()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        problems.push(mismatch(rule, LABEL_1035, &["my-name", "abc-123"]));
    }
    problems
}

/// A DNS subdomain (RFC 1123).
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !is_subdomain_text(text) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        problems.push(mismatch(rule, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    problems
}

/// Checks that a string is valid as a segment of a URL path.
pub(super) fn path_segment(text: &str, is_prefix: bool) -> Vec<String> {
    if !is_prefix && (text == "." || text == "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| text.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Checks a label key: a name, optionally preceded by a DNS subdomain and a slash.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let examples = ["MyName", "my.name", "123-abc"];
    let parts: Vec<&str> = text.split('/').collect();
    let own = match parts.as_slice() {
        [own] => own,
        [prefix, own] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_string());
            } else {
                problems
                    .extend(subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")));
            }
            own
        }
        _ => {
            problems.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                mismatch(rule, QUALIFIED, &examples)
            ));
            return problems;
        }
    };
    if own.is_empty() {
        problems.push("name part must be non-empty".to_string());
    } else if own.len() > 63 {
        problems.push(format!("name part {}", too_many_bytes(63)));
    }
    if !is_qualified_text(own) {
        problems.push(format!("name part {}", mismatch(rule, QUALIFIED, &examples)));
    }
    problems
}

pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_many_bytes(63));
    }
    if !text.is_empty() && !is_qualified_text(text) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        problems.push(mismatch(rule, &format!("({QUALIFIED})?"), &["MyValue", "my_value", "12345"]));
    }
    problems
}

pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(is_fine) {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        problems.push(mismatch(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." => problems.push("must not be '.'".to_string()),
        ".." => problems.push("must not be '..'".to_string()),
        _ if text.starts_with("..") => problems.push("must not start with '..'".to_string()),
        _ => {}
    }
    problems
}

pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push(too_long(15));
    }
    if text.is_empty()
        || !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_string());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_string());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".to_string());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_string());
    }
    problems
}

pub(super) fn port_number(number: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&number)).then_some("must be between 1 and 65535, inclusive")
}

pub(super) fn environment_name(text: &str) -> Vec<String> {
    if text.bytes().all(|byte| (0x20..=0x7e).contains(&byte) && byte != b'=') {
        Vec::new()
    } else {
        let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        vec![rule.to_string()]
    }
}

pub(super) fn percent(text: &str) -> Option<String> {
    let is_fine = text
        .strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    (!is_fine).then(|| mismatch(rule, "[0-9]+%", &["1%", "93%"]))
}
