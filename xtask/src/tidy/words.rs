//! Rejects words of an earlier style in prose: the table "Say / not" of docs/glossary.md. Prose is comments and string
//! literals of Rust sources, and Markdown outside of code spans and fenced blocks. Identifiers and other files are not
//! read.
//!
//! Old text still has such words. `words_allowed.txt` has the number of hits that remain, by path prefix. More hits are an
//! error, fewer too: so the numbers only fall. [`lower`] writes the lower numbers.

mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Findings;

const GLOSSARY: &str = "docs/glossary.md";
const ALLOWED: &str = "xtask/src/tidy/words_allowed.txt";

/// Text that quotes the words in order to define, explain or test them.
const EXEMPT: [&str; 2] = [GLOSSARY, "xtask/src/tidy/words"];
/// The section of CONTRIBUTING.md that has examples of the words.
const EXEMPT_SECTION: (&str, &str) = ("CONTRIBUTING.md", "## Language");

/// The word or phrase, and what to write instead. docs/glossary.md has the same table.
const WORDS: [(&str, &str); 25] = [
    ("API before v1", "v1alpha5 API (Provisioner, AWSNodeTemplate), v1beta1 API"),
    ("the old API", "v1alpha5 API"),
    ("of today", "v1, current"),
    ("on its way", "in flight, pending, terminating"),
    ("on their way", "in flight, pending, terminating"),
    ("anew", "again, from scratch; full repack"),
    ("second look", "validation (of a command), second relaxation"),
    ("looked at again", "retried, re-evaluated"),
    ("dear", "expensive; or give the gap in percent"),
    ("dearer", "more expensive"),
    ("somebody", "name the actor: user, controller, scheduler"),
    ("whoever", "name the actor"),
    ("nobody", "name the actor that does not"),
    ("told", "logged, recorded, patched, configured, published"),
    ("hear so", "get an event"),
    ("go for nothing", "are deleted without a replacement"),
    ("left alone", "not disrupted, not retried"),
    ("trouble", "failure, error; disruption cost"),
    ("weather", "faults, fault plan"),
    ("door", "gate"),
    ("kin", "shared metadata"),
    ("lately", "recently"),
    ("ever more", "with increasing back-off"),
    ("fluid bound", "bound of the resource relaxation"),
    ("Go original", "upstream"),
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Hit {
    file: PathBuf,
    line: usize,
    word: &'static str,
    instead: &'static str,
}

pub(crate) fn check(root: &Path, files: &[PathBuf], findings: &mut Findings) -> Result<()> {
    let hits = hits(root, files);
    // The work tree first; after a commit, its last commit. A repository without history has no older commit.
    let new = ["HEAD", "HEAD~1"].map(|base| {
        let mut command = Command::new("git");
        let diff = command.arg("-C").arg(root).args(["diff", "--unified=0", "--no-color", base]);
        super::output(diff).map(|diff| added_lines(&diff)).unwrap_or_default()
    });
    compare(&allowances(&read_allowed(root)?)?, &hits, &new, findings);
    Ok(())
}

/// Lines that a diff adds, by file and number.
fn added_lines(diff: &str) -> BTreeSet<(PathBuf, usize)> {
    let mut lines = BTreeSet::new();
    let mut file = PathBuf::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            file = name.into();
        } else if let Some((_, range)) = line.strip_prefix("@@ ").and_then(|header| header.split_once('+')) {
            let range = range.split(' ').next().unwrap_or_default();
            let (start, count) = range.split_once(',').unwrap_or((range, "1"));
            let (start, count) = (start.parse().unwrap_or(0), count.parse().unwrap_or(0));
            lines.extend((start..start + count).map(|number| (file.clone(), number)));
        }
    }
    lines
}

/// Writes the numbers of hits that are below their allowance. It never raises one.
pub(crate) fn lower(root: &Path, files: &[PathBuf]) -> Result<()> {
    let text = read_allowed(root)?;
    let allowed = allowances(&text)?;
    let hits = hits(root, files);
    let found = by_prefix(&allowed, &hits);
    let mut written: String =
        text.lines().filter(|line| line.starts_with('#')).fold(String::new(), |all, line| all + line + "\n");
    for (prefix, allowed) in &allowed {
        let left = found.get(prefix.as_str()).map_or(0, Vec::len).min(*allowed);
        if left > 0 {
            writeln!(written, "{prefix} {left}")?;
        }
    }
    std::fs::write(root.join(ALLOWED), written).context(ALLOWED)
}

fn read_allowed(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(ALLOWED)).context(ALLOWED)
}

/// The number of hits by path prefix: lines `<prefix> <number>`, without comments.
fn allowances(text: &str) -> Result<BTreeMap<String, usize>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    rows.map(|line| {
        let (prefix, number) =
            line.rsplit_once(' ').with_context(|| format!("{ALLOWED}: no number: {line}"))?;
        let number = number.parse().with_context(|| format!("{ALLOWED}: not a number: {line}"))?;
        Ok((prefix.trim().to_owned(), number))
    })
    .collect()
}

/// The hits by the longest prefix in the table; a file without one stands for itself.
fn by_prefix<'a>(allowed: &'a BTreeMap<String, usize>, hits: &'a [Hit]) -> BTreeMap<&'a str, Vec<&'a Hit>> {
    let mut groups: BTreeMap<&str, Vec<&Hit>> = BTreeMap::new();
    for hit in hits {
        let longest =
            allowed.keys().filter(|prefix| hit.file.starts_with(prefix)).max_by_key(|prefix| prefix.len());
        let prefix = longest.map_or_else(|| hit.file.to_str().unwrap_or_default(), String::as_str);
        groups.entry(prefix).or_default().push(hit);
    }
    groups
}

/// `new` has sets of new lines; the hits in the first set that has any are named, else all hits.
fn compare(
    allowed: &BTreeMap<String, usize>,
    hits: &[Hit],
    new: &[BTreeSet<(PathBuf, usize)>],
    findings: &mut Findings,
) {
    let mut groups = by_prefix(allowed, hits);
    for prefix in allowed.keys() {
        groups.entry(prefix).or_default();
    }
    for (prefix, hits) in groups {
        let allowed = allowed.get(prefix).copied().unwrap_or_default();
        if hits.len() > allowed {
            let named = new
                .iter()
                .map(|lines| {
                    hits.iter().filter(|hit| lines.contains(&(hit.file.clone(), hit.line))).collect()
                })
                .find(|named: &Vec<_>| !named.is_empty())
                .unwrap_or_else(|| hits.iter().collect());
            for Hit { file, line, word, instead } in named {
                findings.error(format!("{}:{line}: \"{word}\": say instead: {instead}", file.display()));
            }
            findings.error(format!(
                "{prefix}: {} words of the table \"Say / not\" in {GLOSSARY}, {allowed} allowed: reword new text",
                hits.len()
            ));
        } else if hits.len() < allowed {
            findings.error(format!(
                "{ALLOWED}: lower {prefix} from {allowed} to {}, or run cargo run -p xtask -- lower-words",
                hits.len()
            ));
        }
    }
}

fn hits(root: &Path, files: &[PathBuf]) -> Vec<Hit> {
    let phrases = phrases();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_exempt(file)) {
        let extension = file.extension().and_then(|extension| extension.to_str());
        let mask = match extension {
            Some("rs") => prose::of_rust,
            Some("md") => prose::of_markdown,
            _ => continue,
        };
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        let text =
            if Path::new(EXEMPT_SECTION.0) == file { without_section(&text, EXEMPT_SECTION.1) } else { text };
        for (line, index) in find(&mask(&text), &phrases) {
            let (word, instead) = WORDS[index];
            found.push(Hit { file: file.clone(), line, word, instead });
        }
    }
    found.sort();
    found
}

fn is_exempt(file: &Path) -> bool {
    let name = file.to_string_lossy();
    EXEMPT.iter().any(|prefix| name.starts_with(prefix))
}

/// The text with empty lines instead of one section, so that line numbers stay.
fn without_section(text: &str, heading: &str) -> String {
    let mut is_inside = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.starts_with("## ") {
            is_inside = line == heading;
        }
        kept.push_str(if is_inside { "" } else { line });
        kept.push('\n');
    }
    kept
}

/// The words of each row of [`WORDS`] in lower case.
fn phrases() -> Vec<Vec<String>> {
    WORDS.iter().map(|(phrase, _)| phrase.split(' ').map(str::to_lowercase).collect()).collect()
}

/// The line and the row of [`WORDS`] of each hit. `text` is masked by [`prose`].
fn find(text: &str, phrases: &[Vec<String>]) -> Vec<(usize, usize)> {
    let words = prose::words(text);
    let mut found = Vec::new();
    for at in 0..words.len() {
        for (index, phrase) in phrases.iter().enumerate() {
            let Some(candidate) = words.get(at..at + phrase.len()) else { continue };
            let is_joined = candidate[1..].iter().all(|word| word.continues);
            if is_joined
                && candidate.iter().zip(phrase).all(|(word, wanted)| word.text.to_lowercase() == *wanted)
            {
                found.push((candidate[0].line, index));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
