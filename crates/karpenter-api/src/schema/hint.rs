//! Finds the known name that is closest to a misspelled one, for the hint "Did you mean" in error messages.

/// Names longer than this are not compared, because they are no typing errors and comparing them is slow.
const NAME_BYTES_MAX: usize = 64;

/// The candidate closest to the name; `None` if all of them differ too much.
///
/// If several candidates are equally close, the first one is returned.
pub fn closest_name<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    let distance_max = (wanted.len() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let known: Vec<char> = candidate.to_lowercase().chars().collect();
            let distance = edit_distance(&wanted, &known);
            (distance <= distance_max).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit distance of two texts: how many insertions, deletions, replacements and swaps of adjacent characters turn
/// one into the other.
fn edit_distance(left: &[char], right: &[char]) -> usize {
    let mut before_previous: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, left_char) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, right_char) in right.iter().enumerate() {
            let replace = previous[column] + usize::from(left_char != right_char);
            let mut best = replace.min(previous[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *left_char == right[column - 1] && left[row - 1] == *right_char {
                best = best.min(before_previous[column - 1] + 1);
            }
            current.push(best);
        }
        before_previous = std::mem::replace(&mut previous, current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_name_is_found() {
        let names = ["limits", "replicas", "requirements", "template", "weight"];
        for (typed, meant) in [
            ("replica", Some("replicas")),
            ("wieght", Some("weight")),
            ("Limits", Some("limits")),
            ("requirement", Some("requirements")),
            ("tmplate", Some("template")),
            ("disruption", None),
            ("", None),
        ] {
            assert_eq!(closest_name(typed, names), meant, "for {typed:?}");
        }
    }

    #[test]
    fn swap_of_adjacent_characters_has_distance_one() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(edit_distance(&chars("ab"), &chars("ba")), 1);
        assert_eq!(edit_distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(edit_distance(&chars(""), &chars("abc")), 3);
    }
}
