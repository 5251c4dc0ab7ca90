use jiff::civil::Weekday;
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use proptest::prelude::*;

use super::*;

fn unix(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_second()
}

fn schedule(text: &str) -> CronSchedule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn next_after_returns_the_next_scheduled_time() {
    for (text, after, expected) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        ("* * * * *", "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z"),
        ("0 9 * * 1-5", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("0 9 * * mon-FRI", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"),
        ("*/15 * * * *", "2026-01-01T00:16:00Z", "2026-01-01T00:30:00Z"),
        ("5/20 * * * *", "2026-01-01T00:26:00Z", "2026-01-01T00:45:00Z"),
        ("0-30/10 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T01:00:00Z"),
        ("0 0 1 jan,Jul *", "2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("@annually", "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z"),
        ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
        ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-01T23:59:59Z", "2026-01-02T00:00:00Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("@every 90m", "2026-01-01T00:00:07Z", "2026-01-01T01:30:07Z"),
        ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
        // Both day fields are restricted, so a day must match one of them. 2026-01-13 is a Tuesday.
        ("0 0 13 * fri", "2026-01-10T00:00:00Z", "2026-01-13T00:00:00Z"),
        ("0 0 13 * fri", "2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"),
        // One of the day fields is a star, so a day must match both.
        ("0 0 13 * *", "2026-01-10T00:00:00Z", "2026-01-13T00:00:00Z"),
        ("0 0 ? * fri", "2026-01-10T00:00:00Z", "2026-01-16T00:00:00Z"),
        // A star with a step counts as a restriction, except with step 1.
        ("0 0 */2 * fri", "2026-01-10T00:00:00Z", "2026-01-11T00:00:00Z"),
        ("0 0 */1 * fri", "2026-01-10T00:00:00Z", "2026-01-16T00:00:00Z"),
        // A star at any position of a list makes the whole field count as a star.
        ("0 0 13,* * fri", "2026-01-10T00:00:00Z", "2026-01-16T00:00:00Z"),
        ("1,,3 * * * *", "2026-01-01T00:01:00Z", "2026-01-01T00:03:00Z"),
        ("+5 * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"),
        (" 0  0 * * * ", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
        ("30 6 * * *", "1969-12-31T06:30:00Z", "1970-01-01T06:30:00Z"),
    ] {
        assert_eq!(schedule(text).next_after(unix(after)), Some(unix(expected)), "{text} after {after}");
    }
}

#[test]
fn search_ends_after_five_years() {
    assert_eq!(schedule("0 0 30 2 *").next_after(unix("2026-01-01T00:00:00Z")), None);
    // 2100 is not a leap year: after March 2096, the next 29 February is in 2104.
    assert_eq!(schedule("0 0 29 2 *").next_after(unix("2098-12-31T00:00:00Z")), None);
    assert_eq!(
        schedule("0 0 29 2 *").next_after(unix("2099-01-01T00:00:00Z")),
        Some(unix("2104-02-29T00:00:00Z"))
    );
    assert_eq!(schedule(", * * * *").next_after(0), None);
    assert_eq!(schedule("* * * * *").next_after(i64::MAX), None);
    assert_eq!(schedule("* * * * *").next_after(i64::MIN), None);
}

#[test]
fn invalid_schedules_are_errors() {
    for (text, message) in [
        ("", "schedule is empty"),
        ("   ", "schedule is empty"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("TZ=UTC * * * * *", "always in UTC"),
        ("CRON_TZ=Asia/Tokyo * * * * *", "always in UTC"),
        ("@fortnightly", "is unknown"),
        ("@daily extra", "is unknown"),
        ("@every soon", "is unknown"),
        ("60 * * * *", "minute has invalid part \"60\": valid values are 0 to 59"),
        ("* 24 * * *", "valid values are 0 to 23"),
        ("* * 0 * *", "valid values are 1 to 31"),
        ("* * 32 * *", "valid values are 1 to 31"),
        ("* * * 13 *", "valid values are 1 to 12"),
        ("* * * * 7", "valid values are 0 to 6"),
        ("* * * foo *", "\"foo\" is not a whole number"),
        ("30-10 * * * *", "starts at 30"),
        ("1-2-3 * * * *", "at most one -"),
        ("1/2/3 * * * *", "at most one /"),
        ("*/0 * * * *", "at least 1"),
        ("*/-1 * * * *", "not a whole number"),
        ("- * * * *", "not a whole number"),
        ("mon * * * *", "not a whole number"),
        ("99999999999999999999 * * * *", "not a whole number"),
    ] {
        let error = text.parse::<CronSchedule>().expect_err(text).to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn budget_is_active_for_its_duration_after_each_scheduled_time() {
    const HOUR: i64 = 3_600_000_000_000;
    let nine_to_five = schedule("0 9 * * 1-5");
    for (now, active) in [
        ("2026-01-05T08:59:59Z", false),
        ("2026-01-05T09:00:00Z", true),
        ("2026-01-05T16:59:59Z", true),
        ("2026-01-05T17:00:00Z", false),
        ("2026-01-04T12:00:00Z", false),
    ] {
        assert_eq!(budget_is_active(&nine_to_five, 8 * HOUR, unix(now)), active, "{now}");
    }
    // The duration is longer than the interval between scheduled times, so the budget is always active.
    assert!(budget_is_active(&schedule("@daily"), 24 * HOUR, unix("2026-01-05T23:59:59Z")));
    assert!(budget_is_active(&schedule("@daily"), 48 * HOUR, unix("2026-01-05T12:00:00Z")));
    // With a duration of zero the budget is never active, not even at the scheduled time: the window contains no time.
    assert!(!budget_is_active(&schedule("@daily"), 0, unix("2026-01-05T00:00:00Z")));
    assert!(budget_is_active(&schedule("@daily"), 1, unix("2026-01-05T00:00:00Z")));
    assert!(budget_is_active(&schedule("0 0 30 2 *"), HOUR, unix("2026-01-05T00:00:00Z")));
    assert!(budget_is_active(&schedule("@daily"), i64::MAX, unix("2026-01-05T00:00:00Z")));
    assert!(budget_is_active(&schedule("@daily"), HOUR, i64::MIN));
}

/// A random cron field as text, with the list of values that it allows.
#[derive(Clone, Debug)]
struct AnyField {
    text: String,
    values: Vec<i64>,
    star: bool,
}

fn any_field(min: i64, max: i64) -> impl Strategy<Value = AnyField> {
    let part = prop_oneof![
        2 => Just(("*".to_owned(), (min..=max).collect::<Vec<_>>(), true)),
        1 => (2..=(max - min + 1)).prop_map(move |step| {
            (format!("*/{step}"), (min..=max).step_by(step as usize).collect(), false)
        }),
        3 => (min..=max).prop_map(|value| (value.to_string(), vec![value], false)),
        2 => (min..=max, min..=max, 1..5i64).prop_map(|(a, b, step)| {
            let (low, high) = (a.min(b), a.max(b));
            (format!("{low}-{high}/{step}"), (low..=high).step_by(step as usize).collect(), false)
        }),
    ];
    proptest::collection::vec(part, 1..3).prop_map(|parts| AnyField {
        text: parts.iter().map(|part| part.0.as_str()).collect::<Vec<_>>().join(","),
        values: parts.iter().flat_map(|part| part.1.clone()).collect(),
        star: parts.iter().any(|part| part.2),
    })
}

fn weekday_number(weekday: Weekday) -> i64 {
    i64::from(weekday.to_sunday_zero_offset())
}

proptest! {
    /// The result must equal that of a search day by day with another calendar library.
    #[test]
    fn next_scheduled_time_equals_naive_search(
        minute in any_field(0, 59), hour in any_field(0, 23), day in any_field(1, 31), month in any_field(1, 12),
        week_day in any_field(0, 6), after in 0i64..4_000_000_000,
    ) {
        let text = format!("{} {} {} {} {}", minute.text, hour.text, day.text, month.text, week_day.text);
        let start = Timestamp::from_second(after + 1).expect("in range").to_zoned(TimeZone::UTC);
        let mut expected = None;
        let mut date = start.date();
        while expected.is_none() && i64::from(date.year()) <= i64::from(start.year()) + 5 {
            let by_day = day.values.contains(&i64::from(date.day()));
            let by_week_day = week_day.values.contains(&weekday_number(date.weekday()));
            let day_matches = if day.star || week_day.star { by_day && by_week_day } else { by_day || by_week_day };
            if month.values.contains(&i64::from(date.month())) && day_matches {
                let midnight = date.to_zoned(TimeZone::UTC).expect("in range").timestamp().as_second();
                expected = hour.values.iter()
                    .flat_map(|hour| minute.values.iter().map(move |minute| midnight + hour * 3600 + minute * 60))
                    .filter(|time| *time > after)
                    .min();
            }
            date = date.checked_add(1.day()).expect("in range");
        }
        prop_assert_eq!(schedule(&text).next_after(after), expected, "{}", text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[-*?/,0-9a-z@ =+TZ]{0,30}", after in any::<i64>(), nanos in any::<i64>()) {
        if let Ok(schedule) = text.parse::<CronSchedule>() {
            if let Some(next) = schedule.next_after(after) {
                prop_assert!(next > after);
            }
            budget_is_active(&schedule, nanos, after);
        }
    }
}
