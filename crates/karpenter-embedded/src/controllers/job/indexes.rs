//! Sets of completion indexes in the format of the status: `1,3-5,7`.
//!
//! Upstream: pkg/controller/job/indexed_job_utils.go

use std::collections::BTreeSet;

pub(super) fn parse(text: &str) -> BTreeSet<i32> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<i32>().ok()?..=last.parse::<i32>().ok()?)
        })
        .flatten()
        .collect()
}

pub(super) fn print(indexes: &BTreeSet<i32>) -> String {
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for index in indexes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *index => *last = *index,
            _ => runs.push((*index, *index)),
        }
    }
    let parts: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            // Two consecutive indexes are listed one by one; three or more form a range.
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_round_trip() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,2,3,5-9"] {
            assert_eq!(print(&parse(text)), text);
        }
    }
}
