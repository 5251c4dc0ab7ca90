//! Rules for label keys and label values.

const NAME_CHARACTERS_MAX: usize = 63;
const DOMAIN_CHARACTERS_MAX: usize = 253;

/// Why a string is not a qualified name (`name` or `domain/name`); `None` if it is one.
pub fn qualified_name_problem(text: &str) -> Option<String> {
    let (domain, name) = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => return Some(format!("{text:?} has more than one slash")),
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    if let Some(domain) = domain {
        if domain.is_empty() {
            return Some(format!("{text:?} has no domain before the slash"));
        }
        if domain.len() > DOMAIN_CHARACTERS_MAX {
            return Some(format!("has a domain of more than {DOMAIN_CHARACTERS_MAX} characters"));
        }
        if !domain.split('.').all(is_dns_label) {
            return Some(format!(
                "{text:?} has an invalid domain; lower-case letters, digits, '-' and '.' are valid, and each part \
                 starts and ends with a letter or digit"
            ));
        }
    }
    if name.is_empty() {
        return Some(format!("{text:?} has no name"));
    }
    name_problem(name)
}

/// Why a string is not a label value; `None` if it is one. An empty string is valid.
pub fn label_value_problem(text: &str) -> Option<String> {
    if text.is_empty() { None } else { name_problem(text) }
}

fn name_problem(name: &str) -> Option<String> {
    if name.len() > NAME_CHARACTERS_MAX {
        return Some(format!(
            "has a name of {} characters; at most {NAME_CHARACTERS_MAX} are valid",
            name.len()
        ));
    }
    let bytes = name.as_bytes();
    let ends_well = bytes[0].is_ascii_alphanumeric() && bytes[bytes.len() - 1].is_ascii_alphanumeric();
    let middle_is_fine = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    if ends_well && middle_is_fine {
        return None;
    }
    Some(format!(
        "{name:?} is not valid; letters, digits, '-', '_' and '.' are valid, starting and ending with a letter or digit"
    ))
}

fn is_dns_label(part: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}
