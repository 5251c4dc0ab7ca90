//! `tidy`: rules of this repository that rustc and clippy do not check. Every finding names a file and the fix.
//!
//! Errors fail the check. Warnings (about long files) are only printed, because where to split a file is a matter of
//! judgement.

mod dependencies;
mod modules;
mod sources;
mod table;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Findings {
    pub(crate) fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    fn warning(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// Prints the findings; true if there are no errors.
pub(crate) fn run() -> Result<bool> {
    let root = root();
    let mut findings = Findings::default();
    dependencies::check(&root, &mut findings)?;
    table::check_document(&root, &mut findings)?;
    let files = tracked_files(&root)?;
    sources::check(&root, &files, &mut findings)?;
    modules::check(&root, &files, &mut findings)?;
    words::check(&root, &files, &mut findings);
    crate::charts::check(&root, &mut findings)?;
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    println!("tidy: {} errors, {} warnings", findings.errors.len(), findings.warnings.len());
    Ok(findings.errors.is_empty())
}

/// Removes the exceptions to the layers of modules that no source file needs any longer.
pub(crate) fn shorten_exceptions() -> Result<()> {
    let root = root();
    modules::shorten(&root, &tracked_files(&root)?)
}

pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let listing = output(Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]))?;
    Ok(listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

fn output(command: &mut Command) -> Result<String> {
    let result = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !result.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&result.stderr).trim());
    }
    Ok(String::from_utf8(result.stdout)?)
}
