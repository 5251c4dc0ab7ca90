//! Finds environment variables whose values Go cannot parse. Like upstream, this process ignores such a value and uses
//! the default; it also logs a warning.

use std::any::TypeId;
use std::time::Duration;

use clap::{Arg, Command};
use karpenter_model::duration::parse_go_duration;
use karpenter_model::node_count_tolerance::NodeCountTolerance;
use karpenter_model::spread_share::SpreadShare;

use super::values::parse_go_bool;

/// A variable that is ignored because of its value, and the default that is used instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredVariable {
    pub variable: String,
    pub value: String,
    pub default: String,
}

/// Removes the environment variables with invalid values from the command, so that clap uses the defaults, and returns
/// these variables. `value_of` reads the environment.
pub fn without_unreadable(
    command: Command,
    value_of: impl Fn(&str) -> Option<String>,
) -> (Command, Vec<IgnoredVariable>) {
    let mut ignored = Vec::new();
    let command = command.mut_args(|argument| match unreadable(&argument, &value_of) {
        Some(variable) => {
            ignored.push(variable);
            argument.env(None)
        }
        None => argument,
    });
    (command, ignored)
}

fn unreadable(argument: &Arg, value_of: impl Fn(&str) -> Option<String>) -> Option<IgnoredVariable> {
    let variable = argument.get_env()?.to_str()?;
    let value = value_of(variable).filter(|value| !value.is_empty())?;
    let kind = argument.get_value_parser().type_id();
    let is = |of: TypeId| kind == of;
    let is_readable = if is(TypeId::of::<bool>()) {
        parse_go_bool(&value).is_some()
    } else if is(TypeId::of::<u16>()) || is(TypeId::of::<u32>()) || is(TypeId::of::<i64>()) {
        value.parse::<i64>().is_ok()
    } else if is(TypeId::of::<f64>()) {
        value.parse::<f64>().is_ok()
    } else if is(TypeId::of::<Duration>()) {
        parse_go_duration(&value).is_ok()
    } else if is(TypeId::of::<SpreadShare>()) {
        value.parse::<SpreadShare>().is_ok()
    } else if is(TypeId::of::<NodeCountTolerance>()) {
        value.parse::<NodeCountTolerance>().is_ok()
    } else {
        // An invalid value of another type is not ignored: upstream exits with an error, and so does this process.
        true
    };
    let defaults = argument.get_default_values().iter().map(|default| default.to_string_lossy());
    let default = defaults.collect::<Vec<_>>().join(",");
    (!is_readable).then(|| IgnoredVariable { variable: variable.to_owned(), value, default })
}
