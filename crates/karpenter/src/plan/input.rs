//! Reads files, directories and standard input with the name of each source; does not interpret the content.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// Name and text of every source, in the order of the arguments. The files of a directory are in the order of their
    /// paths.
    pub(crate) texts: Vec<(String, String)>,
    /// Files of a directory that could not be read.
    pub(crate) errors: Vec<String>,
}

/// Reads all paths. A named path that cannot be read is an error: a plan without it would be misleading.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
            let text = utf8(bytes).context("standard input")?;
            inputs.texts.push(("-".to_owned(), text));
        } else if path.is_dir() {
            read_directory(path, &mut inputs)?;
        } else {
            let name = path.display().to_string();
            if ["http://", "https://"].iter().any(|scheme| name.starts_with(scheme)) {
                bail!(
                    "{name}: URLs are not supported; valid: a file, a directory, or - to read the output of curl"
                );
            }
            let text = read_text(path).with_context(|| name.clone())?;
            inputs.texts.push((name, text));
        }
    }
    Ok(inputs)
}

fn read_directory(directory: &Path, inputs: &mut Inputs) -> Result<()> {
    let mut files = BTreeSet::new();
    let mut seen = BTreeSet::new();
    collect(directory, &mut seen, &mut files).with_context(|| directory.display().to_string())?;
    if files.is_empty() {
        bail!(
            "{}: no manifest in this directory; valid: files named *.yaml, *.yml or *.json",
            directory.display()
        );
    }
    for file in files {
        let name = file.display().to_string();
        match read_text(&file) {
            Ok(text) => inputs.texts.push((name, text)),
            Err(error) => inputs.errors.push(format!("{name}: {error}")),
        }
    }
    Ok(())
}

/// All manifests below a directory. Symbolic links are followed, no directory is entered twice, and hidden files and
/// directories are skipped.
fn collect(directory: &Path, seen: &mut BTreeSet<PathBuf>, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if !seen.insert(fs::canonicalize(directory)?) {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        if path.is_dir() {
            collect(&path, seen, files)?;
        } else if path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
        {
            files.insert(path);
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> io::Result<String> {
    utf8(fs::read(path)?)
}

fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8 text: {error}")))
}
