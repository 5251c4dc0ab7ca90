//! The string formats that kube-apiserver checks.
//!
//! Number formats (`int32`, `double`) are not checked, because kube-apiserver ignores every format that is not listed
//! here.
//!
//! Upstream: k8s.io/apiextensions-apiserver/pkg/apiserver/validation/formats.go

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatKind {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

/// A string format that is checked, and its name in the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) kind: FormatKind,
    pub(crate) name: String,
}

impl Format {
    /// Parses the name of a format; `None` if the format is not checked.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let kind = match name.replace('-', "").as_str() {
            "bsonobjectid" => FormatKind::BsonObjectId,
            "uri" => FormatKind::Uri,
            "email" => FormatKind::Email,
            "hostname" => FormatKind::Hostname,
            "ipv4" => FormatKind::Ipv4,
            "ipv6" => FormatKind::Ipv6,
            "cidr" => FormatKind::Cidr,
            "mac" => FormatKind::Mac,
            "uuid" => FormatKind::Uuid,
            "uuid3" => FormatKind::Uuid3,
            "uuid4" => FormatKind::Uuid4,
            "uuid5" => FormatKind::Uuid5,
            "isbn" => FormatKind::Isbn,
            "isbn10" => FormatKind::Isbn10,
            "isbn13" => FormatKind::Isbn13,
            "creditcard" => FormatKind::CreditCard,
            "ssn" => FormatKind::Ssn,
            "hexcolor" => FormatKind::HexColor,
            "rgbcolor" => FormatKind::RgbColor,
            "byte" => FormatKind::Byte,
            "password" => FormatKind::Password,
            "date" => FormatKind::Date,
            "duration" => FormatKind::Duration,
            "datetime" => FormatKind::DateTime,
            "k8sshortname" => FormatKind::ShortName,
            "k8slongname" => FormatKind::LongName,
            _ => return None,
        };
        Some(Self { kind, name: name.to_string() })
    }

    pub(crate) fn accepts(&self, text: &str) -> bool {
        match self.kind {
            FormatKind::BsonObjectId => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
            FormatKind::Uri => is_request_uri(text),
            FormatKind::Email => EMAIL.is_match(text),
            FormatKind::Hostname => is_hostname(text),
            FormatKind::Ipv4 => is_ipv4(text) || (text.contains('.') && is_ipv6(text)),
            FormatKind::Ipv6 => is_ipv6(text),
            FormatKind::Cidr => is_cidr(text),
            FormatKind::Mac => is_mac(text),
            FormatKind::Uuid => UUID.is_match(text),
            FormatKind::Uuid3 => UUID3.is_match(text),
            FormatKind::Uuid4 => UUID4.is_match(text),
            FormatKind::Uuid5 => UUID5.is_match(text),
            FormatKind::Isbn => is_isbn10(text) || is_isbn13(text),
            FormatKind::Isbn10 => is_isbn10(text),
            FormatKind::Isbn13 => is_isbn13(text),
            FormatKind::CreditCard => is_credit_card(text),
            FormatKind::Ssn => SSN.is_match(text),
            FormatKind::HexColor => HEX_COLOR.is_match(text),
            FormatKind::RgbColor => RGB_COLOR.is_match(text),
            FormatKind::Byte => BASE64.is_match(text),
            FormatKind::Password => true,
            FormatKind::Date => is_date(text),
            FormatKind::Duration => is_duration(text),
            FormatKind::DateTime => is_date_time(text),
            FormatKind::ShortName => text.len() <= 63 && SHORT_NAME.is_match(text),
            FormatKind::LongName => text.len() <= 253 && LONG_NAME.is_match(text),
        }
    }
}

macro_rules! expressions {
    ($($name:ident = $text:expr;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).expect("a constant pattern"));)*
    };
}

expressions! {
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    UUID = r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"(?i-u)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    HOSTNAME = concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|",
        r"([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
        r"([a-zA-Z\p{L}]){2,63})$"
    );
    EMAIL = r#"^([^@<>]*<[^@<>\s]+@[^@<>\s]+>|[^@<>\s"(),:;]+@[^@<>\s"(),:;]+)$"#;
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = concat!(
        r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
        r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
        r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*\)$"
    );
    BASE64 = r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$";
    CREDIT_CARD = concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)",
        r"[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|",
        r"(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$"
    );
    SHORT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
    LONG_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    DURATION_PART = r"(?:([0-9]+)\s*([A-Za-zµ]+))";
}

fn is_date_time(text: &str) -> bool {
    // Long strings are invalid, so they are not converted.
    if text.len() < 4 || text.len() > 256 {
        return false;
    }
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date)
        && TIME
            .captures(time)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

fn is_date(text: &str) -> bool {
    // jiff would also accept signs and week dates, so the form is checked first.
    text.len() == 10
        && text.bytes().enumerate().all(|(position, byte)| match position {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_duration(text: &str) -> bool {
    is_go_duration(text) || loose_duration_nanoseconds(text).is_some()
}

/// The sum of all numbers with a unit in the text, which kube-apiserver accepts in addition to Go's durations.
pub(crate) fn loose_duration_nanoseconds(text: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    // A unit is one of the short forms, or any word that starts with the long form (such as `minutes`).
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3600 * SECOND),
        (&["d"], "day", 24 * 3600 * SECOND),
        (&["w", "wk"], "week", 7 * 24 * 3600 * SECOND),
    ];
    let mut total = None;
    for part in DURATION_PART.captures_iter(text) {
        let number: i64 = part[1].parse().ok()?;
        let unit = part[2].to_lowercase();
        for (words, lead, factor) in UNITS {
            if words.contains(&unit.as_str()) || unit.starts_with(lead) {
                total = Some(total.unwrap_or(0_i64).wrapping_add(number.wrapping_mul(factor)));
            }
        }
    }
    total
}

pub(crate) fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let mut number_end = digits;
        if rest[digits..].starts_with('.') {
            let fraction = &rest[digits + 1..];
            let length = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            if digits == 0 && length == 0 {
                return false;
            }
            number_end = digits + 1 + length;
        } else if digits == 0 {
            return false;
        }
        let after = &rest[number_end..];
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|unit| {
            after.strip_prefix(**unit).is_some_and(|tail| {
                tail.is_empty() || tail.starts_with(|next: char| next.is_ascii_digit() || next == '.')
            })
        }) else {
            return false;
        };
        rest = &after[unit.len()..];
    }
    true
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

/// Whether the text is an IPv4 address. As in kube-apiserver, leading zeros are accepted.
fn is_ipv4(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4
        && parts.iter().all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.trim_start_matches('0').len() <= 3
                && part.parse::<u64>().is_ok_and(|number| number <= 255)
        })
}

fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let bits: u32 = bits.parse().unwrap_or(u32::MAX);
    (is_ipv4(address) && bits <= Ipv4Addr::BITS) || (is_ipv6(address) && bits <= Ipv6Addr::BITS)
}

fn is_mac(text: &str) -> bool {
    let hex = |part: &&str, length: usize| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let groups = |separator: char, length: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| hex(part, length))
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|character| !matches!(character, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (position, byte) in digits.bytes().enumerate() {
        let digit = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'X' if position == 9 => 10,
            _ => return false,
        };
        sum += (position as u32 + 1) * digit;
    }
    sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    digits.len() == 13
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits
            .bytes()
            .enumerate()
            .map(|(position, byte)| u32::from(byte - b'0') * if position % 2 == 0 { 1 } else { 3 })
            .sum::<u32>()
            .is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(position, byte)| {
            let digit = u32::from(byte - b'0');
            if position % 2 == 1 { digit * 2 / 10 + digit * 2 % 10 } else { digit }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2024-02-29T23:59:59.5+05:30", "2024-01-01T24:00:00Z"),
            ("datetime", "2024-01-01T01:01:01z", "2024-01-01 01:01:01Z"),
            ("date", "2024-02-29", "2023-02-29"),
            ("duration", "1h30m", "never"),
            ("duration", "22 ns", "1y"),
            ("duration", "1 hours", ""),
            ("byte", "aGk=", "aGk"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "fd00::/64", "fd00::"),
            ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("uri", "https://example.com/a", "example"),
            ("email", "someone@example.com", "someone"),
            ("hostname", "example.com", "-a"),
            ("isbn10", "0-321-75104-3", "0321751044"),
            ("isbn13", "978-0321751041", "9780321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111111111111112"),
            ("hexcolor", "#ffffff", "#ffff"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            let parsed = Format::parse(format).unwrap_or_else(|| panic!("{format} is checked"));
            assert!(parsed.accepts(good), "{format} takes {good}");
            assert!(!parsed.accepts(bad), "{format} refuses {bad}");
        }
        assert_eq!(Format::parse("int32"), None, "numbers have no format check");
    }
}
