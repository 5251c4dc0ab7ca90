//! Validates a time, with the error messages of Go's `time.Parse`.

use crate::field::go_quote;

enum Part {
    /// A literal.
    Text(&'static str),
    /// A fixed number of digits, with the element of the layout, the valid range, and the element's name in error
    /// messages.
    Digits(usize, &'static str, Option<(u32, u32, &'static str)>),
}

const PARTS: [Part; 11] = [
    Part::Digits(4, "2006", None),
    Part::Text("-"),
    Part::Digits(2, "01", Some((1, 12, "month"))),
    Part::Text("-"),
    Part::Digits(2, "02", Some((1, 31, "day"))),
    Part::Text("T"),
    Part::Digits(2, "15", Some((0, 23, "hour"))),
    Part::Text(":"),
    Part::Digits(2, "04", Some((0, 59, "minute"))),
    Part::Text(":"),
    Part::Digits(2, "05", Some((0, 59, "second"))),
];

/// Checks a time. `micro` requires six digits for fractions of a second, as in `metav1.MicroTime`.
pub(super) fn check(text: &str, micro: bool) -> Result<(), String> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let mismatch = |rest: &str, element: &str| {
        let (text, rest) = (go_quote(text), go_quote(rest));
        Err(format!("parsing time {text} as \"{layout}\": cannot parse {rest} as \"{element}\""))
    };
    let mut rest = text;
    for part in &PARTS {
        match part {
            Part::Text(expected) => match rest.strip_prefix(expected) {
                Some(after) => rest = after,
                None => return mismatch(rest, expected),
            },
            Part::Digits(count, element, range) => {
                let digits = rest.get(..*count).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let Some(digits) = digits else { return mismatch(rest, element) };
                if let Some((low, high, name)) = range
                    && !digits.parse().is_ok_and(|number: u32| (*low..=*high).contains(&number))
                {
                    return Err(format!("parsing time {}: {name} out of range", go_quote(text)));
                }
                rest = &rest[*count..];
            }
        }
    }
    let fraction =
        rest.strip_prefix('.').map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    if micro {
        if fraction < 6 {
            return mismatch(rest, ".000000");
        }
        rest = &rest[7..];
    } else if fraction > 0 {
        rest = &rest[fraction + 1..];
    }
    let after = match rest.as_bytes() {
        [b'Z', ..] => &rest[1..],
        [b'+' | b'-', a, b, b':', c, d, ..] if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit()) => {
            &rest[6..]
        }
        _ => return mismatch(rest, "Z07:00"),
    };
    if after.is_empty() {
        Ok(())
    } else {
        Err(format!("parsing time {}: extra text: {}", go_quote(text), go_quote(after)))
    }
}
