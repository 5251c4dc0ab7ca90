//! The responses of a server to a script, after masking, in the form in which they are recorded and compared.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, folder};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Transcript {
    /// The `gitVersion` that the server reports.
    pub(crate) server: String,
    pub(crate) steps: Vec<StepResponse>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepResponse {
    pub(crate) name: String,
    /// The fingerprint of the step, see [`super::script::Step::fingerprint`].
    pub(crate) fingerprint: String,
    pub(crate) answer: Value,
}

fn path(script: &str) -> PathBuf {
    folder().join("recorded").join(format!("{script}.json"))
}

pub(crate) fn load(script: &str) -> Result<Transcript, Error> {
    let path = path(script);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

pub(crate) fn save(script: &str, transcript: &Transcript) -> Result<(), Error> {
    let mut text = serde_json::to_string_pretty(transcript)?;
    text.push('\n');
    fs::write(path(script), text)?;
    Ok(())
}

pub(crate) fn recorded_names() -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder().join("recorded"))? {
        let name = entry?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
