//! Manages the copies of the CustomResourceDefinitions in the charts. Helm reads only files of a chart, so both charts
//! need copies of their own. The task `charts` writes the copies, and `tidy` reports differences. `tidy` also compares
//! the versions of the charts with the version of the workspace.
//!
//! This module does not parse definitions or templates; `e2e/charts` renders the charts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tidy::Findings;

const SOURCE: &str = "crates/karpenter-api/crds";
const CHARTS: [&str; 3] = ["karpenter", "karpenter-config", "karpenter-crd"];

/// A folder of a chart, and the files that it must have, by file name.
struct Copy {
    target: PathBuf,
    files: BTreeMap<String, String>,
}

/// Writes copies that are missing or differ, and deletes copies of definitions that were removed.
pub(crate) fn write(root: &Path) -> Result<()> {
    let mut changed = 0;
    for copy in copies(root)? {
        let present = yaml_files(&root.join(&copy.target))?;
        if !copy.files.is_empty() {
            fs::create_dir_all(root.join(&copy.target))?;
        }
        for name in present.keys().filter(|name| !copy.files.contains_key(*name)) {
            fs::remove_file(root.join(&copy.target).join(name))?;
            changed += 1;
        }
        for (name, text) in copy.files.iter().filter(|(name, text)| present.get(*name) != Some(text)) {
            fs::write(root.join(&copy.target).join(name), text)?;
            changed += 1;
        }
    }
    println!("charts: {changed} files changed");
    Ok(())
}

pub(crate) fn check(root: &Path, findings: &mut Findings) -> Result<()> {
    for copy in copies(root)? {
        let present = yaml_files(&root.join(&copy.target))?;
        for name in differing(&present, &copy.files) {
            findings.error(format!(
                "{}/{name}: differs from {SOURCE}; run cargo run -p xtask -- charts",
                copy.target.display()
            ));
        }
    }
    let manifest = read(&root.join("Cargo.toml"))?;
    let Some(version) = value_of(&manifest, "version = ") else {
        findings.error("Cargo.toml: the workspace has no version");
        return Ok(());
    };
    for chart in CHARTS {
        let name = format!("charts/{chart}/Chart.yaml");
        let text = read(&root.join(&name))?;
        for key in ["version: ", "appVersion: "] {
            if value_of(&text, key) != Some(version) {
                findings.error(format!("{name}: {key}must be {version}, as in Cargo.toml"));
            }
        }
    }
    Ok(())
}

fn copies(root: &Path) -> Result<Vec<Copy>> {
    let current = yaml_files(&root.join(SOURCE))?;
    let legacy = yaml_files(&root.join(SOURCE).join("legacy"))?;
    Ok(vec![
        Copy { target: "charts/karpenter/crds".into(), files: current.clone() },
        Copy { target: "charts/karpenter-crd/files".into(), files: current },
        Copy { target: "charts/karpenter-crd/files/legacy".into(), files: legacy },
    ])
}

/// The text of the YAML files of a folder, by file name; empty if the folder does not exist.
fn yaml_files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(files) };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml")
            && let Some(name) = path.file_name()
        {
            files.insert(name.to_string_lossy().into_owned(), read(&path)?);
        }
    }
    Ok(files)
}

/// File names that are in only one of the two maps, or whose texts differ.
fn differing(present: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = present.keys().chain(wanted.keys()).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| present.get(name) != wanted.get(name));
    names
}

/// The value of a key, without quotes, on the first line that starts with it.
fn value_of<'text>(text: &'text str, key: &str) -> Option<&'text str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().trim_matches('"'))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn missing_changed_and_removed_files_differ() {
        let wanted = files(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let present = files(&[("a", "1"), ("b", "2"), ("d", "1")]);
        assert_eq!(differing(&present, &wanted), ["b", "c", "d"]);
        assert!(differing(&wanted, &wanted).is_empty());
    }

    #[test]
    fn value_is_read_from_the_first_line_with_the_key() {
        assert_eq!(value_of("name = \"x\"\nversion = \"0.1.0\"\n", "version = "), Some("0.1.0"));
        assert_eq!(
            value_of("apiVersion: v2\nversion: 0.1.0\nappVersion: 0.2.0\n", "version: "),
            Some("0.1.0")
        );
        assert_eq!(value_of("appVersion: 0.2.0\n", "version: "), None);
    }
}
