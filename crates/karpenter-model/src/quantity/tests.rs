use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn prints_the_canonical_form() {
    for (text, canonical) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1024Gi", "1Ti"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1023Ki", "1023Ki"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("-0.5Ki", "-512"),
        ("-1024Ki", "-1Mi"),
        ("0.0001Ki", "102400u"),
        ("1.0001Ki", "1024102400u"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e+3", "1e3"),
        ("12e1", "120"),
        ("1e4", "10e3"),
        ("1e-1", "100e-3"),
        ("1e-3", "1e-3"),
        ("1e-9", "1e-9"),
        ("1e-30", "1e-9"),
        ("1e0", "1"),
        ("100000", "100k"),
        ("123456", "123456"),
        ("1000000", "1M"),
        ("1500k", "1500k"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("1n", "1n"),
        ("1000n", "1u"),
        ("1000u", "1m"),
        ("1E", "1E"),
        ("1000P", "1E"),
        ("1000E", "1000E"),
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("-8Ei", "-9223372036854775807"),
        ("99999999999999999999999999999999999999999999Ki", "9223372036854775807"),
        ("000000000000000000000000000000000000000000000001", "1"),
        ("0e1000", "0"),
        ("1.500000000000000000000000000000000000000000000000Ki", "1536"),
        ("2048Mi", "2Gi"),
        ("3.7Gi", "3972844748800m"),
    ] {
        assert_eq!(parsed(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn invalid_quantities_are_errors() {
    use QuantityError::{Empty, NoDigits, TooLarge, UnknownSuffix};
    assert_eq!("".parse::<Quantity>(), Err(Empty));
    for text in ["-", "+", ".", "Ki", "m", "-.", "--1", " 1", "é"] {
        assert!(matches!(text.parse::<Quantity>(), Err(NoDigits { .. })), "{text}");
    }
    for text in [
        "1 ",
        "1K",
        "1mi",
        "1ki",
        "1e",
        "1e1.5",
        "1e+",
        "1kk",
        "1.2.3",
        "1,5",
        "1Gi ",
        "10%",
        "1KiB",
        "1µ",
        "0x10",
        "1e99999999999999999999",
    ] {
        assert!(matches!(text.parse::<Quantity>(), Err(UnknownSuffix { .. })), "{text}");
    }
    for text in ["1e30", "1e9223372036854775807", "999999999999999999999999999999", "1000000000000E"] {
        assert!(matches!(text.parse::<Quantity>(), Err(TooLarge { .. })), "{text}");
    }
    let endless = "9".repeat(100_000);
    let error = endless.parse::<Quantity>().expect_err("too large");
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn error_messages_contain_valid_values() {
    assert_eq!(
        "1K".parse::<Quantity>().map_err(|error| error.to_string()),
        Err("quantity \"1K\" has unknown suffix \"K\"; valid suffixes are n u m k M G T P E Ki Mi Gi Ti Pi Ei or an \
             exponent such as e3"
            .to_owned())
    );
}

#[test]
fn rounds_to_units_and_thousandths() {
    let cases = [
        ("1500u", 2, 1, 1, 0),
        ("1", 1000, 1000, 1, 1),
        ("-1500u", -1, -2, 0, -1),
        ("2500m", 2500, 2500, 3, 2),
        ("1e28", i64::MAX, i64::MAX, i64::MAX, i64::MAX),
        ("-1e28", i64::MIN, i64::MIN, i64::MIN, i64::MIN),
    ];
    for (text, milli_ceil, milli_floor, value_ceil, value_floor) in cases {
        let quantity = parsed(text);
        assert_eq!(
            (quantity.milli_ceil(), quantity.milli_floor(), quantity.value_ceil(), quantity.value_floor()),
            (milli_ceil, milli_floor, value_ceil, value_floor),
            "{text}"
        );
    }
}

#[test]
fn comparison_and_addition_use_the_value() {
    assert_eq!(parsed("1"), parsed("1000m"));
    assert_eq!(parsed("1Ki"), parsed("1024"));
    assert!(parsed("1G") < parsed("1Gi"));
    assert_eq!((parsed("512Mi") + parsed("512Mi")).to_string(), "1Gi");
    assert_eq!((Quantity::ZERO + parsed("1Gi")).to_string(), "1Gi");
    assert_eq!((Quantity::ZERO - parsed("1Gi")).to_string(), "-1Gi");
    assert_eq!((parsed("100m") + parsed("1Gi")).to_string(), "1073741824100m");
    assert_eq!((parsed("1") - parsed("1500m")).to_string(), "-500m");
    assert_eq!([parsed("250m"); 4].into_iter().sum::<Quantity>().to_string(), "1");
}

#[test]
fn deserializes_strings_numbers_and_null() {
    for (json, canonical) in [
        ("\"1.5Gi\"", "\"1536Mi\""),
        ("2", "\"2\""),
        ("-2", "\"-2\""),
        ("0.1", "\"100m\""),
        ("1e3", "\"1k\""),
        ("18446744073709551615", "\"18446744073709551615\""),
        ("null", "\"0\""),
    ] {
        let quantity: Quantity = serde_json::from_str(json).expect(json);
        assert_eq!(serde_json::to_string(&quantity).expect(json), canonical, "{json}");
    }
    for json in ["\"\"", "true", "[]", "1e300", "\"1K\""] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
}

fn any_format() -> impl Strategy<Value = QuantityFormat> {
    prop_oneof![
        Just(QuantityFormat::BinarySi),
        Just(QuantityFormat::DecimalSi),
        Just(QuantityFormat::DecimalExponent)
    ]
}

proptest! {
    #[test]
    fn printed_form_round_trips(nanos in any::<i128>(), shift in 0u32..127, format in any_format()) {
        let quantity = Quantity::from_nanos(nanos >> shift, format);
        let again = parsed(&quantity.to_string());
        prop_assert!(again == quantity || quantity.format() == QuantityFormat::BinarySi && quantity.value_ceil() == i64::MAX
            || quantity.value_floor() == i64::MIN, "{quantity} {again}");
        prop_assert_eq!(parsed(&again.to_string()).to_string(), again.to_string());
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*") {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn number_like_text_never_panics(text in "[-+]?[0-9]{0,45}\\.?[0-9]{0,45}([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,20})?") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(parsed(&quantity.to_string()), quantity);
        }
    }

    #[test]
    fn binary_fractions_round_up_to_the_next_nanounit(units in 0u64..100_000, fraction in 0u64..1_000_000_000_000, power in 1u32..5) {
        let suffix = ["", "Ki", "Mi", "Gi", "Ti"][power as usize];
        let quantity = parsed(&format!("{units}.{fraction:012}{suffix}"));
        let exact_times_1000 = (u128::from(units) * 1_000_000_000_000 + u128::from(fraction)) << (10 * power);
        prop_assert_eq!(quantity.nanos().unsigned_abs(), exact_times_1000.div_ceil(1000));
    }

    #[test]
    fn ordering_agrees_with_subtraction(a in any::<i64>(), b in any::<i64>()) {
        let (a, b) = (Quantity::from_milli(a), Quantity::from_milli(b));
        prop_assert_eq!(a < b, (a - b).is_negative());
        prop_assert_eq!((a - b) + b, a);
    }
}
