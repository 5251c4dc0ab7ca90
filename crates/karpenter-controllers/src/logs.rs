//! The log format: one JSON object per line, in the format of upstream's logger, or text.
//!
//! Call sites write field names in snake_case; [`Lines`] prints them with hyphens, as upstream. Names that upstream
//! writes differently (`messageKind`, `taint.Key`) are written like that at the call site. `nodeclaim`, `nodepool`,
//! `node` and `pod` hold a name, with its namespace before a slash, and are printed as references to objects. Nested
//! values are made with [`json`]. Every line of a pass starts with the fields of its [`Pass`].

mod fields;
mod lines;
mod pass;

use std::fmt::Display;

use clap::ValueEnum;
use serde::Serialize;

pub use lines::Lines;
pub use pass::{Pass, PassIds};

/// How many names of pods or instance types a list in a log line contains at most.
const NAMED_MAX: usize = 5;

/// The log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Json,
    Console,
}

/// A nested value of a field, as JSON text in bytes: [`Lines`] prints fields of type bytes as JSON.
pub fn json(value: impl Serialize) -> Box<[u8]> {
    let text = serde_json::to_vec(&value);
    // Serialization fails only for maps whose keys are not strings, and for types whose `Serialize` fails.
    text.unwrap_or_else(|_| b"null".to_vec()).into_boxed_slice()
}

/// The first names and the number of the others: `a, b, c, d, e and 50 other(s)`.
pub fn names<T: Display>(names: impl ExactSizeIterator<Item = T>) -> String {
    let others = names.len().saturating_sub(NAMED_MAX);
    let mut text = names.take(NAMED_MAX).map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
    if others > 0 {
        text.push_str(&format!(" and {others} other(s)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_five_names_and_the_number_of_others() {
        let table = [
            (0, ""),
            (1, "t0"),
            (5, "t0, t1, t2, t3, t4"),
            (6, "t0, t1, t2, t3, t4 and 1 other(s)"),
            (60, "t0, t1, t2, t3, t4 and 55 other(s)"),
        ];
        for (count, expected) in table {
            assert_eq!(names((0..count).map(|number| format!("t{number}"))), expected);
        }
    }
}
