//! Rejects words of an earlier style in prose. The words are in the table "Say / not" of docs/glossary.md. Prose is the
//! comments and string literals of Rust sources, and Markdown outside of code spans and fenced blocks. Identifiers and
//! other files are not read.

mod prose;

use std::path::{Path, PathBuf};

use super::Findings;

const GLOSSARY: &str = "docs/glossary.md";

/// Files that quote the words in order to define, explain or test them.
const EXEMPT: [&str; 2] = [GLOSSARY, "xtask/src/tidy/words"];
/// The section of CONTRIBUTING.md that has examples of the words.
const EXEMPT_SECTION: (&str, &str) = ("CONTRIBUTING.md", "## Language");

/// The word or phrase, and what to write instead. docs/glossary.md has the same table.
const WORDS: [(&str, &str); 29] = [
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
    ("tells", "shows, reports, distinguishes"),
    ("a look", "an evaluation, a pass, a reconcile"),
    ("doors", "gates"),
    ("all but", "almost, except"),
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Hit {
    file: PathBuf,
    line: usize,
    word: &'static str,
    instead: &'static str,
}

pub(crate) fn check(root: &Path, files: &[PathBuf], findings: &mut Findings) {
    for Hit { file, line, word, instead } in hits(root, files) {
        findings.error(format!("{}:{line}: \"{word}\": say instead: {instead}", file.display()));
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

/// The text with empty lines instead of one section, so that line numbers do not change.
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

/// The line number and the row of [`WORDS`] for each match. `text` is masked by [`prose`].
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
