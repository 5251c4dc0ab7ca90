use proptest::prelude::*;

use super::*;

const SECOND: i64 = 1_000_000_000;

#[test]
fn parses_and_prints_like_go() {
    for (text, nanos, printed) in [
        ("0", 0, "0s"),
        ("-0", 0, "0s"),
        ("0s", 0, "0s"),
        ("5s", 5 * SECOND, "5s"),
        ("720h", 2_592_000 * SECOND, "720h0m0s"),
        ("1h30m", 5400 * SECOND, "1h30m0s"),
        ("1.5h", 5400 * SECOND, "1h30m0s"),
        (".5m", 30 * SECOND, "30s"),
        ("1.s", SECOND, "1s"),
        ("100ms", SECOND / 10, "100ms"),
        ("1500us", 1_500_000, "1.5ms"),
        ("12µs", 12_000, "12µs"),
        ("12μs", 12_000, "12µs"),
        ("1ns", 1, "1ns"),
        ("1001ns", 1001, "1.001µs"),
        ("-1h2m3.25s", -3_723_250_000_000, "-1h2m3.25s"),
        ("+60s", 60 * SECOND, "1m0s"),
        ("1m1h1m", 3720 * SECOND, "1h2m0s"),
        ("0.3333333333333333333h", 1200 * SECOND, "20m0s"),
        ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
        ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ("0.9223372036854775807h", 3_320_413_933_267, "55m20.413933267s"),
    ] {
        assert_eq!(parse_go_duration(text), Ok(nanos), "{text}");
        assert_eq!(GoDuration::from_nanos(nanos).to_string(), printed, "{text}");
    }
}

#[test]
fn invalid_durations_are_errors() {
    use DurationError::{Malformed, MissingUnit, TooLong, UnknownUnit};
    for text in ["", "-", "+", ".", "s", ".s", "h1", " 1h", "--1s"] {
        assert!(matches!(parse_go_duration(text), Err(Malformed { .. })), "{text}");
    }
    for text in ["1", "1h30", "3.5", "1h30.5"] {
        assert!(matches!(parse_go_duration(text), Err(MissingUnit { .. })), "{text}");
    }
    for text in ["1d", "1w", "1h ", "1H", "1h-1m", "1sec"] {
        assert!(matches!(parse_go_duration(text), Err(UnknownUnit { .. })), "{text}");
    }
    for text in [
        "9223372036854775808ns",
        "2562048h",
        "99999999999999999999h",
        "2562047h48m",
        "-9223372036854775809ns",
    ] {
        assert!(matches!(parse_go_duration(text), Err(TooLong { .. })), "{text}");
    }
}

#[test]
fn nillable_duration_prints_original_text() {
    for (json, nanos) in [
        ("\"Never\"", None),
        ("\"720h\"", Some(2_592_000 * SECOND)),
        ("\"1h30m\"", Some(5400 * SECOND)),
        ("\"90m\"", Some(5400 * SECOND)),
    ] {
        let duration: NillableDuration = serde_json::from_str(json).expect(json);
        assert_eq!(duration.nanos(), nanos);
        assert_eq!(serde_json::to_string(&duration).expect(json), json);
    }
    for json in ["\"never\"", "\"1d\"", "5", "null"] {
        assert!(serde_json::from_str::<NillableDuration>(json).is_err(), "{json}");
    }
}

#[test]
fn nillable_duration_without_text_prints_canonical_form() {
    assert_eq!(NillableDuration::NEVER.to_string(), "Never");
    assert_eq!(NillableDuration::from_nanos(5400 * SECOND).to_string(), "1h30m0s");
    assert_eq!("90m".parse(), Ok(NillableDuration::from_nanos(5400 * SECOND)));
    assert_ne!("90m".parse(), Ok(NillableDuration::NEVER));
}

proptest! {
    #[test]
    fn printed_form_round_trips(nanos in any::<i64>(), shift in 0u32..63) {
        let nanos = nanos >> shift;
        prop_assert_eq!(parse_go_duration(&GoDuration::from_nanos(nanos).to_string()), Ok(nanos));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "[-+]?([0-9]{0,22}(\\.[0-9]{0,22})?(ns|us|µs|ms|s|m|h|x|é)?){0,4}") {
        let _ = parse_go_duration(&text);
    }
}
