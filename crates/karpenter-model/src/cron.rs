//! Cron schedules of disruption budgets: five fields or an `@` descriptor, always in UTC.
//!
//! The rules are those of Go's cron library (github.com/robfig/cron), which upstream uses. If both day-of-month and
//! day-of-week are restricted, a day must match one of them; if one is a star, a day must match both. Sunday is 0 only.
//! A search ends after five years. As in budgets, a time zone prefix is an error.

mod parse;
#[cfg(test)]
mod tests;

pub use parse::CronError;

use std::str::FromStr;

const SECONDS_PER_MINUTE: i64 = 60;
const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// The number of calendar years after the current one in which the next scheduled time is searched.
const YEARS_SEARCHED: i64 = 5;
/// About 30 000 years before and after 1970. Timestamps beyond that count as invalid, because calendar arithmetic could
/// overflow.
const UNIX_SECONDS_MAX: i64 = 1 << 40;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronSchedule {
    kind: ScheduleKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ScheduleKind {
    Calendar(CalendarFields),
    /// The schedule `@every <duration>`: the duration counts from the given time, not from a calendar boundary.
    Every {
        seconds: i64,
    },
}

/// For each field: one bit per allowed value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CalendarFields {
    minutes: u64,
    hours: u64,
    days_of_month: u64,
    months: u64,
    days_of_week: u64,
    /// Whether a day must match both day fields, because one of them is an unrestricted star; otherwise one match is
    /// enough.
    day_fields_both_required: bool,
}

impl FromStr for CronSchedule {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::parse(text).map(|kind| Self { kind })
    }
}

impl CronSchedule {
    /// The first scheduled time strictly after `unix_seconds`, or `None` if there is none within five years.
    pub fn next_after(&self, unix_seconds: i64) -> Option<i64> {
        if !(-UNIX_SECONDS_MAX..=UNIX_SECONDS_MAX).contains(&unix_seconds) {
            return None;
        }
        match &self.kind {
            ScheduleKind::Every { seconds } => unix_seconds.checked_add(*seconds),
            ScheduleKind::Calendar(fields) => fields.first_at_or_after(unix_seconds + 1),
        }
    }
}

impl CalendarFields {
    fn first_at_or_after(&self, unix_seconds: i64) -> Option<i64> {
        let first_day = unix_seconds.div_euclid(SECONDS_PER_DAY);
        let year_limit = civil_from_days(first_day).0 + YEARS_SEARCHED;
        let second_of_day = unix_seconds.rem_euclid(SECONDS_PER_DAY);
        // Scheduled times are whole minutes, so the search starts at the next one.
        let mut minute_of_day_min = (second_of_day + SECONDS_PER_MINUTE - 1) / SECONDS_PER_MINUTE;
        let mut day = first_day;
        loop {
            let (year, month, day_of_month) = civil_from_days(day);
            if year > year_limit {
                return None;
            }
            if self.day_matches(day, month, day_of_month)
                && let Some(minute_of_day) = self.first_minute_of_day(minute_of_day_min)
            {
                return Some(day * SECONDS_PER_DAY + minute_of_day * SECONDS_PER_MINUTE);
            }
            minute_of_day_min = 0;
            day += 1;
        }
    }

    fn day_matches(&self, day: i64, month: u32, day_of_month: u32) -> bool {
        // 1970-01-01 was a Thursday.
        let day_of_week = (day + 4).rem_euclid(7);
        let month_matches = self.months & (1 << month) != 0;
        let by_month_day = self.days_of_month & (1 << day_of_month) != 0;
        let by_week_day = self.days_of_week & (1 << day_of_week) != 0;
        month_matches
            && if self.day_fields_both_required {
                by_month_day && by_week_day
            } else {
                by_month_day || by_week_day
            }
    }

    fn first_minute_of_day(&self, minute_of_day_min: i64) -> Option<i64> {
        let (first_hour, first_minute) = (minute_of_day_min / 60, minute_of_day_min % 60);
        (first_hour..24).filter(|hour| self.hours & (1 << hour) != 0).find_map(|hour| {
            let from = if hour == first_hour { first_minute } else { 0 };
            (from..60).find(|minute| self.minutes & (1 << minute) != 0).map(|minute| hour * 60 + minute)
        })
    }
}

/// The year, month (1-12) and day (1-31) of a day number, where day 0 is 1970-01-01, in the proleptic Gregorian
/// calendar.
fn civil_from_days(day: i64) -> (i64, u32, u32) {
    // If years begin on 1 March, the leap day is the last day of its year and of its 400-year era, which simplifies the
    // arithmetic.
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as u32, day_of_month as u32)
}

/// Whether a budget with this schedule and duration is active at `now_unix_seconds`: a scheduled time was within the last
/// `duration_nanos`.
///
/// A budget whose schedule never occurs (30 February) counts as active, as in upstream. This restricts disruption, so
/// it is the safe choice.
pub fn budget_is_active(schedule: &CronSchedule, duration_nanos: i64, now_unix_seconds: i64) -> bool {
    let window_start_nanos = i128::from(now_unix_seconds) * NANOS_PER_SECOND - i128::from(duration_nanos);
    let Ok(window_start_seconds) = i64::try_from(window_start_nanos.div_euclid(NANOS_PER_SECOND)) else {
        return true;
    };
    schedule.next_after(window_start_seconds).is_none_or(|next| next <= now_unix_seconds)
}
