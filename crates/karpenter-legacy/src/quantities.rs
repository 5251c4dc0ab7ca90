//! Quantities in JSON, and volume sizes in the format that the v1 schema requires.

use karpenter_model::quantity::Quantity;
use serde_json::Value;

/// Parses a quantity, which may be a JSON number or a string.
pub(crate) fn parse(value: &Value) -> Result<Quantity, String> {
    let text = text(value).ok_or_else(|| "is not a quantity".to_owned())?;
    text.parse::<Quantity>().map_err(|error| error.to_string())
}

/// The quantity as a string; `None` if the value is neither a JSON string nor a number.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

const GIBIBYTE: i64 = 1 << 30;
const GIGABYTE: i64 = 1_000_000_000;
/// The maximum volume size in GiB that EC2 allows, and the maximum size in GB that v1's pattern accepts.
const GIBIBYTES_MAX: i64 = 59_000;
const GIGABYTES_MAX: i64 = 64_000;

/// The size in the format that the v1 schema requires: unchanged if it is valid, else rounded up to whole GiB.
pub(crate) fn volume_size(value: &Value) -> Result<String, String> {
    let written = text(value).ok_or_else(|| "is not a quantity".to_owned())?;
    if is_accepted(&written) {
        return Ok(written);
    }
    let bytes = written.parse::<Quantity>().map_err(|error| error.to_string())?.value_ceil();
    if bytes < GIGABYTE {
        return Err("is below 1G".to_owned());
    }
    let up = |unit: i64| bytes / unit + i64::from(bytes % unit != 0);
    match (up(GIBIBYTE), up(GIGABYTE)) {
        (gibibytes, _) if gibibytes <= GIBIBYTES_MAX => Ok(format!("{gibibytes}Gi")),
        (_, gigabytes) if gigabytes <= GIGABYTES_MAX => Ok(format!("{gigabytes}G")),
        _ => Err("is above 64T".to_owned()),
    }
}

/// Whether v1's pattern for volume sizes accepts the text; its ranges for Ti have gaps, such as 18Ti.
fn is_accepted(text: &str) -> bool {
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let unit = &text[digits.len()..];
    let plain =
        !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let Ok(number) = digits.parse::<i64>() else { return false };
    plain
        && match unit {
            "Gi" => number <= GIBIBYTES_MAX,
            "G" => number <= GIGABYTES_MAX,
            "Ti" => number < 10 || number == 58 || (number < 58 && number % 10 <= 7),
            "T" => number <= 64,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_are_kept_or_rounded_up() {
        for (written, expected) in [
            (json!("100Gi"), "100Gi"),
            (json!("20G"), "20G"),
            (json!("2Ti"), "2Ti"),
            (json!("18Ti"), "18432Gi"),
            (json!("1.5Gi"), "2Gi"),
            (json!("512000Mi"), "500Gi"),
            (json!(21_474_836_480_i64), "20Gi"),
            (json!("64000000M"), "64000G"),
        ] {
            assert_eq!(volume_size(&written).as_deref(), Ok(expected), "{written}");
        }
        for wrong in [json!("1Mi"), json!("65T"), json!("lots"), json!(true), json!("0Gi")] {
            assert!(volume_size(&wrong).is_err(), "{wrong}");
        }
    }
}
