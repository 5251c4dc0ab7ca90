//! Parsers of option values. An empty value means the default, because charts leave variables empty.

use std::time::Duration;

use clap::ValueEnum;
use karpenter_model::duration::parse_go_duration;
use karpenter_model::node_count_tolerance::NodeCountTolerance;
use karpenter_model::spread_share::SpreadShare;

use crate::settings::FeatureGates;

pub fn text(value: &str) -> Result<String, String> {
    Ok(value.to_owned())
}

pub fn port<const DEFAULT: u16>(value: &str) -> Result<u16, String> {
    or_default(value, DEFAULT, |value| value.parse().ok(), "valid: a port from 0 to 65535")
}

pub fn integer<const DEFAULT: i64>(value: &str) -> Result<i64, String> {
    or_default(value, DEFAULT, |value| value.parse().ok(), "valid: a whole number")
}

pub fn float<const DEFAULT: i64>(value: &str) -> Result<f64, String> {
    let read = |value: &str| value.parse().ok().filter(|number: &f64| number.is_finite());
    or_default(value, DEFAULT as f64, read, "valid: a number")
}

pub fn boolean<const DEFAULT: bool>(value: &str) -> Result<bool, String> {
    or_default(value, DEFAULT, parse_go_bool, "valid: true, false")
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub fn parse_go_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

pub fn duration<const DEFAULT_SECS: u64>(value: &str) -> Result<Duration, String> {
    let read = |value: &str| {
        let nanos = parse_go_duration(value).ok()?;
        u64::try_from(nanos).ok().map(Duration::from_nanos)
    };
    let valid = "valid: a duration of zero or more, for example 1s, 500ms or 1m30s";
    or_default(value, Duration::from_secs(DEFAULT_SECS), read, valid)
}

pub(super) fn node_count_tolerance(value: &str) -> Result<NodeCountTolerance, String> {
    if value.is_empty() {
        Ok(NodeCountTolerance::default())
    } else {
        value.parse().map_err(|error| format!("{error}"))
    }
}

pub(super) fn spread_share(value: &str) -> Result<SpreadShare, String> {
    if value.is_empty() {
        Ok(SpreadShare::default())
    } else {
        value.parse().map_err(|error| format!("{error}"))
    }
}

/// A number that is not negative; 0.08 if empty.
pub(super) fn ratio(value: &str) -> Result<f64, String> {
    if value.is_empty() {
        return Ok(0.08);
    }
    let ratio = value.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| "valid: a number from 0, such as 0.08".to_owned())
}

pub(super) fn gates(value: &str) -> Result<FeatureGates, String> {
    value.parse()
}

/// Parses one of the variants of an enum. Upper and lower case are different. An empty value is the default.
pub fn choice<T: ValueEnum + Clone>(value: &str, default: T) -> Result<T, String> {
    if value.is_empty() {
        return Ok(default);
    }
    T::from_str(value, false).map_err(|_| {
        let names: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|variant| Some(variant.to_possible_value()?.get_name().to_owned()))
            .collect();
        format!("valid: {}", names.join(", "))
    })
}

fn or_default<T>(
    value: &str,
    default: T,
    read: impl Fn(&str) -> Option<T>,
    valid: &str,
) -> Result<T, String> {
    if value.is_empty() { Ok(default) } else { read(value).ok_or_else(|| valid.to_owned()) }
}
