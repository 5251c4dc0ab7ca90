//! `karpenter convert`: converts v1alpha5 and v1beta1 manifests to v1.
//!
//! All input is read, converted and validated against the v1 schemas before anything is written. An object with an
//! error is omitted, and the exit code is 1.

use std::io::{self, Write};

use anyhow::{Result, bail};
use karpenter_api::manifest::{self, Document};
use karpenter_legacy::{Options, Severity};
use serde_json::{Value, json};

use crate::cli::{ConvertArguments, ManifestFormat};
use crate::legacy::{self, Conversion};
use crate::plan::input;
use crate::{Outcome, diagnostics};

pub(crate) fn run(arguments: &ConvertArguments) -> Result<Outcome> {
    let (documents, mut error_count) = read(&arguments.filenames)?;
    let conversion = legacy::convert(&documents, &options(arguments));
    conversion.print(Severity::Note);
    error_count += conversion.error_count();
    if !conversion.skipped.is_empty() {
        diagnostics::print_note(&format!("skipped, not Karpenter's: {}", conversion.skipped.join(", ")));
    }
    if conversion.documents.is_empty() && error_count == 0 {
        diagnostics::print_error(
            "nothing to convert in the input; valid: Provisioner, AWSNodeTemplate, or NodePool and EC2NodeClass of v1beta1",
        );
        return Ok(Outcome::InputRefused);
    }
    let text = written(&conversion, arguments.output)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(if error_count == 0 { Outcome::Done } else { Outcome::InputRefused })
}

/// Returns all documents that can be read, and the number of documents that cannot be read. Prints the errors of the
/// latter.
pub(crate) fn read(filenames: &[std::path::PathBuf]) -> Result<(Vec<Document>, usize)> {
    let inputs = input::read_all(filenames)?;
    inputs.errors.iter().for_each(|error| diagnostics::print_error(error));
    let mut error_count = inputs.errors.len();
    let mut documents = Vec::new();
    for (source, text) in inputs.texts {
        let errors = manifest::read_each(&source, &text, |document| documents.push(document));
        errors.iter().for_each(|error| diagnostics::print_error(&error.to_string()));
        error_count += errors.len();
    }
    if documents.is_empty() && error_count == 0 {
        let names: Vec<String> = filenames.iter().map(|path| path.display().to_string()).collect();
        bail!("{}: no object in the input; valid: at least one Kubernetes manifest", names.join(", "));
    }
    Ok((documents, error_count))
}

fn options(arguments: &ConvertArguments) -> Options {
    Options {
        ignore_defaults: arguments.ignore_defaults,
        v1_defaults: arguments.v1_defaults,
        default_instance_profile: arguments.default_instance_profile.clone(),
        role: arguments.role.clone(),
        cluster_name: arguments.cluster_name.clone(),
        tags: arguments.default_tags.iter().cloned().collect(),
        drift_enabled: arguments.drift_enabled,
        ..Options::default()
    }
}

fn written(conversion: &Conversion, format: ManifestFormat) -> Result<String> {
    let objects: Vec<&Value> = conversion.documents.iter().map(|one| &one.document.value).collect();
    Ok(match (format, objects.as_slice()) {
        (_, []) => String::new(),
        (ManifestFormat::Yaml, objects) => {
            let mut text = String::new();
            for object in objects {
                text.push_str("---\n");
                text.push_str(&serde_saphyr::to_string(object)?);
                if !text.ends_with('\n') {
                    text.push('\n');
                }
            }
            text
        }
        (ManifestFormat::Json, [object]) => serde_json::to_string_pretty(object)? + "\n",
        // Several objects are printed as a `List`, as kubectl prints them.
        (ManifestFormat::Json, objects) => {
            serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?
                + "\n"
        }
    })
}
