//! Rules about source text: calls that pure crates must not make, module headers, file sizes, and no absolute paths of
//! a developer's machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Findings;
use super::table::CRATES;

const LINES_MAX: usize = 900;

/// Text that must not appear in a pure crate outside of its tests, and the reason for each.
const NOT_PURE: [(&str, &str); 12] = [
    ("HashMap", "iteration order varies between runs; use BTreeMap, or FxHashMap where order cannot matter"),
    ("HashSet", "iteration order varies between runs; use BTreeSet, or FxHashSet where order cannot matter"),
    ("SystemTime::now", NO_CLOCK),
    ("Instant::now", NO_CLOCK),
    ("Timestamp::now", NO_CLOCK),
    ("println!", NO_PRINTING),
    ("eprintln!", NO_PRINTING),
    ("dbg!", NO_PRINTING),
    ("std::fs", "a pure crate must not read or write files; pass the content of the file as an argument"),
    ("std::env", "a pure crate must not read the environment; pass the setting as an argument"),
    ("std::net", "a pure crate must not use the network; pass the data as an argument"),
    (
        "thread::spawn",
        "a pure crate must not spawn threads, because results could depend on their timing; use rayon",
    ),
];

const NO_CLOCK: &str = "a pure crate must not read the clock; pass the time as an argument";
const NO_PRINTING: &str = "a pure crate must not print; return the value and let the caller print it";

pub(crate) fn check(root: &Path, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    check_clippy_files(root, findings);
    for file in files {
        let path = root.join(file);
        let Ok(bytes) = std::fs::read(&path) else {
            // The file is tracked by git, but deleted in the work tree.
            continue;
        };
        let Ok(text) = String::from_utf8(bytes) else { continue };
        check_machine_paths(file, &text, findings);
        if file.extension().is_some_and(|extension| extension == "rs") {
            check_rust(file, &text, findings);
        }
    }
    Ok(())
}

fn check_machine_paths(file: &Path, text: &str, findings: &mut Findings) {
    // The patterns are written in pieces, so that this file does not contain them itself.
    let needles =
        [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
    for (number, line) in text.lines().enumerate() {
        for needle in needles {
            let absolute = line.match_indices(needle).any(|(at, _)| {
                line[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != '.')
            });
            if absolute {
                findings.error(format!(
                    "{}:{}: absolute path of a developer's machine: {needle}",
                    file.display(),
                    number + 1
                ));
            }
        }
    }
}

fn check_rust(file: &Path, text: &str, findings: &mut Findings) {
    let shown = file.display();
    if file.file_name().is_some_and(|name| name == "mod.rs") {
        findings.error(format!("{shown}: name it after its directory instead of mod.rs"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.warning(format!("{shown}: {lines} lines, more than {LINES_MAX}; split it"));
    }
    if is_source(file) && !is_test(file) && !text.starts_with("//!") {
        findings.error(format!(
            "{shown}: no module header (//!); state what it decides or holds, and what it does not"
        ));
    }
    if !is_pure(file) || is_test(file) {
        return;
    }
    for (number, line) in code_lines(text) {
        for (needle, why) in NOT_PURE {
            if mentions(line, needle) {
                findings.error(format!("{shown}:{number}: {needle}: {why}"));
            }
        }
    }
}

fn is_source(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "src")
}

fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests")
        || file.file_stem().is_some_and(|stem| stem == "tests")
}

fn is_pure(file: &Path) -> bool {
    CRATES
        .iter()
        .filter(|entry| entry.pure)
        .any(|entry| file.starts_with(Path::new("crates").join(entry.name).join("src")))
}

/// Numbered lines of code, without comments and without the test module at the end.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]" || line.starts_with(' '))
        .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

/// Whether the text occurs as a whole word: `FxHashMap` does not contain the word `HashMap`.
fn mentions(line: &str, needle: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(needle).any(|(at, found)| {
        let before = line[..at].chars().next_back();
        let after = line[at + found.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The clippy.toml of a crate replaces that of the workspace, so each pure crate needs a copy of the same file.
fn check_clippy_files(root: &Path, findings: &mut Findings) {
    let mut first: Option<(&str, String)> = None;
    for entry in CRATES.iter().filter(|entry| entry.pure) {
        let path = root.join("crates").join(entry.name).join("clippy.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string());
        match (text, &first) {
            (Err(_), _) => findings.error(format!("crates/{}/clippy.toml is missing", entry.name)),
            (Ok(text), None) => first = Some((entry.name, text)),
            (Ok(text), Some((name, expected))) if text != *expected => {
                findings.error(format!("crates/{}/clippy.toml differs from that of {name}", entry.name));
            }
            (Ok(_), Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(file: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_machine_paths(Path::new(file), text, &mut findings);
        check_rust(Path::new(file), text, &mut findings);
        findings.errors
    }

    #[test]
    fn impure_calls_are_found_in_code_but_not_in_comments_or_tests() {
        let file = "crates/karpenter-model/src/x.rs";
        let text = "//! x\nuse rustc_hash::FxHashMap; // not HashMap\n#[cfg(test)]\nmod tests { fn f() { println!(); } }\n";
        assert_eq!(errors(file, text), Vec::<String>::new());
        assert_eq!(errors(file, "//! x\nuse std::collections::HashMap;\n").len(), 1);
        assert_eq!(errors("crates/karpenter/src/x.rs", "//! x\nuse std::collections::HashMap;\n").len(), 0);
    }

    #[test]
    fn headers_names_and_machine_paths_are_checked() {
        assert_eq!(errors("crates/karpenter/src/x.rs", "fn main() {}\n").len(), 1);
        assert_eq!(errors("crates/karpenter/src/x/mod.rs", "//! x\n").len(), 1);
        let path = concat!("/ho", "me/someone/x");
        assert_eq!(errors("README.md", path).len(), 1);
        assert_eq!(errors("README.md", &format!("https://example.org{path}")).len(), 0);
    }
}
