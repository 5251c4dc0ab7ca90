//! String formats that the API server checks. Its `date-time` accepts more than RFC 3339 (any character before the
//! fraction of a second), but rejects leap seconds.

use std::sync::LazyLock;

use regex::Regex;

static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
        .expect("a constant pattern")
});

/// Whether the API server accepts the string as `date-time`.
pub(crate) fn is_date_time(text: &str) -> bool {
    // Valid values are much shorter. The limit avoids converting megabytes to lower case.
    if text.len() > 128 {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if !is_date(date) {
        return false;
    }
    TIME.captures(time).is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
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

#[cfg(test)]
mod tests {
    use super::is_date_time;

    #[test]
    fn date_times() {
        for text in [
            "2024-01-01T01:01:01Z",
            "2024-02-29t23:59:59.123+05:30",
            "0000-01-01T00:00:00Z",
            "2024-01-01T01:01:01z",
        ] {
            assert!(is_date_time(text), "{text} should be accepted");
        }
        for text in [
            "",
            "now",
            "2024-01-01",
            "2024-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
        ] {
            assert!(!is_date_time(text), "{text} should be rejected");
        }
    }
}
