//! The task `cases`: counts the test cases of the AWS provider and writes the counts to docs/aws-cases.md. The part of
//! that document from [`HAND_WRITTEN`] on is not changed.
//!
//! A case is a row of a table in a test: an element of a list of tuples over which the test iterates. A test without a
//! table counts as one case. Golden files, properties and loops over whole catalogs count as one case each, so the
//! numbers are lower bounds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::rust_text;

const DOCUMENT: &str = "docs/aws-cases.md";
/// The heading of the part of the document that is not generated.
const HAND_WRITTEN: &str = "\n## On the wire\n";
const CASES_MIN: usize = 300;
const CRATES: [(&str, &str); 4] = [
    (
        "crates/karpenter-aws",
        "Tests of the provider, with an in-process fake of AWS and an embedded API server:",
    ),
    ("crates/karpenter-aws-sdk", "Tests of requests and responses of the AWS SDK:"),
    ("crates/karpenter-catalog/src/aws", "Tests of instance types: labels, capacity, overhead, offerings:"),
    ("crates/karpenter-userdata", "Tests of user data:"),
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    tests: usize,
    cases: usize,
}

pub(crate) fn write(root: &Path) -> Result<()> {
    let mut text = String::from(
        "# Test cases of the AWS provider\n\nFor contributors. This page states how many cases the tests of the AWS provider have, \
         and what no test covers. The counts are\nwritten by `cargo run -p xtask -- cases`. Each row of a test's table of \
         inputs and expected results is one case. A test without\nsuch a table, a golden file, a property test, and a loop \
         over the whole catalog count as one case each. Tests of the CRDs' CEL\nrules and comparisons with upstream's \
         hashes are not counted.\n",
    );
    let mut total = Count::default();
    for (folder, what) in CRATES {
        let areas = count_folder(&root.join(folder))?;
        writeln!(
            text,
            "\n## {}\n\n{what}\n\n| area | tests | cases |\n|---|---|---|",
            folder.trim_start_matches("crates/")
        )?;
        for (area, count) in &areas {
            writeln!(text, "| {area} | {} | {} |", count.tests, count.cases)?;
            total.tests += count.tests;
            total.cases += count.cases;
        }
    }
    writeln!(text, "\n{} cases in {} tests.", total.cases, total.tests)?;
    let document = root.join(DOCUMENT);
    let present = fs::read_to_string(&document).with_context(|| document.display().to_string())?;
    text += hand_written(&present)?;
    fs::write(document, text)?;
    println!("cases: {} cases in {} tests", total.cases, total.tests);
    if total.cases < CASES_MIN {
        bail!("{} cases, at least {CASES_MIN} are required", total.cases);
    }
    Ok(())
}

fn hand_written(document: &str) -> Result<&str> {
    let begin =
        document.find(HAND_WRITTEN).with_context(|| format!("{DOCUMENT} has no {}", HAND_WRITTEN.trim()))?;
    Ok(&document[begin..])
}

/// Counts by area: the file or folder directly below `src` or `tests`.
fn count_folder(folder: &Path) -> Result<BTreeMap<String, Count>> {
    let mut areas: BTreeMap<String, Count> = BTreeMap::new();
    for file in rust_files(folder)? {
        let found = count(&fs::read_to_string(&file).with_context(|| file.display().to_string())?);
        if found.tests == 0 {
            continue;
        }
        let below: Vec<String> = file
            .strip_prefix(folder)?
            .with_extension("")
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .filter(|part| !["src", "tests", "stories"].contains(&part.as_str()))
            .collect();
        let area = areas.entry(below.first().cloned().unwrap_or_else(|| "all".to_owned())).or_default();
        area.tests += found.tests;
        area.cases += found.cases;
    }
    Ok(areas)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn count(source: &str) -> Count {
    let code = rust_text::code(source);
    let mut count = Count::default();
    let mut rest = 0;
    while let Some(at) = next_test(&code, rest) {
        let Some(open) = code[at..].find('{').map(|offset| at + offset) else { break };
        let end = closing(&code, open);
        count.tests += 1;
        count.cases += rows(&code[open..end]).max(1);
        rest = end;
    }
    count
}

fn next_test(code: &str, from: usize) -> Option<usize> {
    ["#[test]", "#[tokio::test"]
        .iter()
        .filter_map(|mark| code[from..].find(mark).map(|offset| from + offset + mark.len()))
        .min()
}

/// The number of tuples in the outermost lists of tuples.
fn rows(body: &str) -> usize {
    let bytes = body.as_bytes();
    let mut total = 0;
    let mut at = 0;
    while at < bytes.len() {
        let is_list = bytes[at] == b'[' && body[at + 1..].trim_start().starts_with('(');
        if !is_list {
            at += 1;
            continue;
        }
        let end = closing(body, at);
        total += tuples(&body[at + 1..end.saturating_sub(1)]);
        at = end;
    }
    total
}

/// The number of elements of a list if all of them are tuples, else 0.
fn tuples(list: &str) -> usize {
    let (mut found, mut depth, mut is_start) = (0, 0_usize, true);
    for byte in list.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                if depth == 0 && is_start {
                    if byte != b'(' {
                        return 0;
                    }
                    found += 1;
                    is_start = false;
                }
                depth += 1;
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => is_start = true,
            byte if depth == 0 && !byte.is_ascii_whitespace() => return 0,
            _ => {}
        }
    }
    found
}

/// The position after the bracket that closes the bracket at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_written_part_is_kept() {
        let document = "# Title\n\n| area | 1 |\n\n## On the wire\n\ntext\n\n## More\n";
        assert_eq!(hand_written(document).ok(), Some("\n## On the wire\n\ntext\n\n## More\n"));
        assert!(hand_written("# Title\n").is_err());
    }

    #[test]
    fn rows_of_tables_are_counted() {
        let source = r##"
fn helper() { let no = [(1, 2), (3, 4)]; }
#[test]
fn plain() { assert_eq!(1, 1); }
#[tokio::test(start_paused = true)]
async fn with_a_table<'a>() {
    let table: [(&'a str, char); 3] = [
        // A ] in a comment, (
        ("a ] text", '['), ("b\"(", ']'),
        (r#"c "( "#, '\''), // the last ]
    ];
    for (one, other) in [(1, [(1, 2), (3, 4)]), (2, [])] {}
    let no_tuples = [f(1), g(2)];
    let neither = vec![(1 + 2) * 3, 4];
}
"##;
        assert_eq!(count(source), Count { tests: 2, cases: 1 + 3 + 2 });
    }
}
