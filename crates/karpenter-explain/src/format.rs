//! Times, durations, quantities and money as text.

use jiff::Timestamp;
use karpenter_model::resources::ResourceList;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;
const HOURS_PER_MONTH: f64 = 730.0;

/// RFC 3339.
pub(crate) fn time(secs: i64) -> String {
    Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |time| time.to_string())
}

/// `HH:MM:SS`, in UTC, of an RFC 3339 time.
pub(crate) fn clock(time: &str) -> &str {
    time.get(11..19).unwrap_or(time)
}

/// The two largest units: `6m12s`, `3h`, `2d4h`.
pub(crate) fn duration(secs: i64) -> String {
    let secs = secs.max(0);
    let two = |large: i64, name: char, rest: i64, small: char| match rest {
        0 => format!("{large}{name}"),
        rest => format!("{large}{name}{rest}{small}"),
    };
    if secs >= DAY {
        two(secs / DAY, 'd', secs % DAY / HOUR, 'h')
    } else if secs >= HOUR {
        two(secs / HOUR, 'h', secs % HOUR / MINUTE, 'm')
    } else if secs >= MINUTE {
        two(secs / MINUTE, 'm', secs % MINUTE, 's')
    } else {
        format!("{secs}s")
    }
}

pub(crate) fn quantity(resource: &str, amount: i64) -> String {
    ResourceList::quantity(resource, amount).to_string()
}

pub(crate) fn dollars(per_hour: f64) -> String {
    format!("${:.4}/h", per_hour + 0.0)
}

pub(crate) fn dollars_per_month(per_hour: f64) -> String {
    format!("${:.0}/month", per_hour * HOURS_PER_MONTH)
}

/// Rounds to 6 digits, without -0.
pub(crate) fn money(per_hour: f64) -> f64 {
    let rounded = (per_hour * 1e6).round() / 1e6;
    if rounded.is_finite() { rounded + 0.0 } else { 0.0 }
}

/// `1 pod`, `2 pods`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let cases = [(0, "0s"), (59, "59s"), (372, "6m12s"), (3_600, "1h"), (86_400 + 4 * 3_600 + 5, "1d4h")];
        for (secs, text) in cases {
            assert_eq!(duration(secs), text);
        }
        assert_eq!(duration(-5), "0s");
    }

    #[test]
    fn money_has_no_negative_zero() {
        assert_eq!(money(-0.0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(money(-1e-9).to_bits(), 0.0_f64.to_bits());
        assert_eq!(dollars(-0.0), "$0.0000/h");
        assert_eq!(money(0.123_456_78), 0.123_457);
    }
}
