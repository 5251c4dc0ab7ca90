//! Parses a cron schedule into one bit set per field.

use super::{CalendarFields, ScheduleKind};
use crate::duration::parse_go_duration;

/// Why a string is not a cron schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error(
        "schedule is empty; write five cron fields (minute hour day-of-month month day-of-week) or @daily"
    )]
    Empty,
    #[error("schedule {text:?} sets a time zone; schedules are always in UTC, remove the prefix")]
    TimeZone { text: String },
    #[error(
        "schedule {text:?} has {found} fields; write exactly five (minute hour day-of-month month day-of-week) or a \
         descriptor such as @daily"
    )]
    FieldCount { text: String, found: usize },
    #[error(
        "schedule descriptor {text:?} is unknown; valid are @yearly, @annually, @monthly, @weekly, @daily, \
         @midnight, @hourly and @every <duration>"
    )]
    UnknownDescriptor { text: String },
    #[error("schedule field {field} has invalid part {part:?}: {problem}")]
    Field { field: &'static str, part: String, problem: String },
}

struct FieldRange {
    name: &'static str,
    min: u32,
    max: u32,
    value_names: &'static [(&'static str, u32)],
}

const MINUTE: FieldRange = FieldRange { name: "minute", min: 0, max: 59, value_names: &[] };
const HOUR: FieldRange = FieldRange { name: "hour", min: 0, max: 23, value_names: &[] };
const DAY_OF_MONTH: FieldRange = FieldRange { name: "day-of-month", min: 1, max: 31, value_names: &[] };
const MONTH: FieldRange = FieldRange {
    name: "month",
    min: 1,
    max: 12,
    value_names: &[
        ("jan", 1),
        ("feb", 2),
        ("mar", 3),
        ("apr", 4),
        ("may", 5),
        ("jun", 6),
        ("jul", 7),
        ("aug", 8),
        ("sep", 9),
        ("oct", 10),
        ("nov", 11),
        ("dec", 12),
    ],
};
const DAY_OF_WEEK: FieldRange = FieldRange {
    name: "day-of-week",
    min: 0,
    max: 6,
    value_names: &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)],
};

/// The allowed values of one cron field, and whether a part of the field is an unrestricted star.
struct FieldBits {
    bits: u64,
    star: bool,
}

pub(super) fn parse(text: &str) -> Result<ScheduleKind, CronError> {
    if text.trim().is_empty() {
        return Err(CronError::Empty);
    }
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        return Err(CronError::TimeZone { text: excerpt(text) });
    }
    if text.starts_with('@') {
        return parse_descriptor(text);
    }
    parse_fields(text)
}

fn parse_descriptor(text: &str) -> Result<ScheduleKind, CronError> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => return parse_every(text),
    };
    parse_fields(fields)
}

fn parse_every(text: &str) -> Result<ScheduleKind, CronError> {
    let unknown = || CronError::UnknownDescriptor { text: excerpt(text) };
    let nanos =
        text.strip_prefix("@every ").and_then(|rest| parse_go_duration(rest).ok()).ok_or_else(unknown)?;
    // A delay below one second counts as one second; longer delays are truncated to whole seconds.
    Ok(ScheduleKind::Every { seconds: (nanos / 1_000_000_000).max(1) })
}

fn parse_fields(text: &str) -> Result<ScheduleKind, CronError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let &[minute, hour, day_of_month, month, day_of_week] = fields.as_slice() else {
        return Err(CronError::FieldCount { text: excerpt(text), found: fields.len() });
    };
    let minutes = parse_field(minute, &MINUTE)?;
    let hours = parse_field(hour, &HOUR)?;
    let days_of_month = parse_field(day_of_month, &DAY_OF_MONTH)?;
    let months = parse_field(month, &MONTH)?;
    let days_of_week = parse_field(day_of_week, &DAY_OF_WEEK)?;
    Ok(ScheduleKind::Calendar(CalendarFields {
        minutes: minutes.bits,
        hours: hours.bits,
        days_of_month: days_of_month.bits,
        months: months.bits,
        days_of_week: days_of_week.bits,
        day_fields_both_required: days_of_month.star || days_of_week.star,
    }))
}

fn parse_field(text: &str, range: &FieldRange) -> Result<FieldBits, CronError> {
    let mut field = FieldBits { bits: 0, star: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let parsed = parse_part(part, range).map_err(|problem| CronError::Field {
            field: range.name,
            part: excerpt(part),
            problem,
        })?;
        field.bits |= parsed.bits;
        field.star |= parsed.star;
    }
    Ok(field)
}

/// One of `*`, `?`, `N`, `N-M`, each optionally followed by `/STEP`.
fn parse_part(part: &str, range: &FieldRange) -> Result<FieldBits, String> {
    let (bounds, step_text) = match part.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err("at most one / is valid".to_owned()),
        Some((bounds, step)) => (bounds, Some(step)),
        None => (part, None),
    };
    let (low, high) = match bounds.split_once('-') {
        Some((low, high)) => (low, Some(high)),
        None => (bounds, None),
    };
    let mut star = false;
    let (first, mut last) = if low == "*" || low == "?" {
        star = true;
        (range.min, range.max)
    } else {
        let first = parse_value(low, range)?;
        match high {
            Some(high) if high.contains('-') => return Err("at most one - is valid".to_owned()),
            Some(high) => (first, parse_value(high, range)?),
            None => (first, first),
        }
    };
    let step = match step_text {
        Some(text) => parse_number(text)?,
        None => 1,
    };
    if step_text.is_some() && high.is_none() {
        // `N/STEP` means all values from `N` to the end of the field's range, in steps.
        last = range.max;
    }
    if step > 1 {
        star = false;
    }
    if first < range.min || last > range.max {
        return Err(format!("valid values are {} to {}", range.min, range.max));
    }
    if first > last {
        return Err(format!("the range starts at {first}, after its end {last}"));
    }
    if step == 0 {
        return Err("a step must be at least 1".to_owned());
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let bits = (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value);
    Ok(FieldBits { bits, star })
}

fn parse_value(text: &str, range: &FieldRange) -> Result<u32, String> {
    match range.value_names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((_, value)) => Ok(*value),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{:?} is not a whole number or a known name", excerpt(text)))
}

fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
