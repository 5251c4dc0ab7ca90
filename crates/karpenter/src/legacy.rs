//! Converts v1alpha5 and v1beta1 documents to v1 with their source positions and findings, and validates the results.
//! `karpenter-legacy` converts single objects.

use std::sync::Arc;

use karpenter_api::error::one_line;
use karpenter_api::manifest::Document;
use karpenter_api::validate;
use karpenter_legacy::{Converted, Finding, Options, Severity};
use serde_json::Value;

use crate::diagnostics;

/// The result for a list of documents.
pub(crate) struct Conversion {
    /// Valid v1 objects with the position of the document they come from.
    pub(crate) documents: Vec<ConvertedDocument>,
    /// Findings with the position of their document.
    pub(crate) findings: Vec<(String, Finding)>,
    /// Validation errors of converted objects, as whole lines.
    pub(crate) refusals: Vec<String>,
    /// Objects of kinds that are not Karpenter's, counted by kind, such as `2 Service`.
    pub(crate) skipped: Vec<String>,
}

pub(crate) struct ConvertedDocument {
    pub(crate) document: Document,
    /// The name of the Provisioner, for NodePools that were converted from one.
    pub(crate) provisioner: Option<String>,
}

impl Conversion {
    pub(crate) fn error_count(&self) -> usize {
        let is_error = |(_, finding): &&(String, Finding)| finding.code.severity() == Severity::Error;
        self.findings.iter().filter(is_error).count() + self.refusals.len()
    }

    /// Prints the findings to standard error.
    pub(crate) fn print(&self, least: Severity) {
        for (place, finding) in self.findings.iter().filter(|(_, finding)| finding.code.severity() >= least) {
            let line = format!("{place}: {}", one_line(&finding.to_string()));
            match finding.code.severity() {
                Severity::Error => diagnostics::print_error(&line),
                Severity::Warning => diagnostics::print_warning(&line),
                Severity::Note => diagnostics::print_note(&line),
            }
        }
        self.refusals.iter().for_each(|refusal| diagnostics::print_error(refusal));
    }
}

pub(crate) fn convert(documents: &[Document], options: &Options) -> Conversion {
    let values: Vec<Value> = documents.iter().map(|document| document.value.clone()).collect();
    let Converted { objects, findings, skipped } = karpenter_legacy::convert(&values, options);
    let findings = findings.into_iter().map(|finding| (place(&documents[finding.input]), finding)).collect();
    let mut conversion = Conversion {
        documents: Vec::new(),
        findings,
        refusals: Vec::new(),
        skipped: skipped.into_iter().map(|(kind, count)| format!("{count} {}", one_line(&kind))).collect(),
    };
    for object in objects {
        let from = &documents[object.input];
        let refusals: Vec<String> = match validate::validate(&object.value, None) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        if refusals.is_empty() {
            let is_pool = object.value["kind"] == "NodePool" && from.value["kind"] == "Provisioner";
            let name = from.value.pointer("/metadata/name").and_then(Value::as_str);
            conversion.documents.push(ConvertedDocument {
                document: Document {
                    source: Arc::clone(&from.source),
                    index: from.index,
                    item: from.item,
                    line: from.line,
                    value: object.value,
                },
                provisioner: name.filter(|_| is_pool).map(str::to_owned),
            });
        } else {
            let (new, old) = (title(&object.value), title(&from.value));
            let origin = if new == old { String::new() } else { format!(" (from {old})") };
            let line =
                |refusal| format!("{}: {}{}: {refusal}", place(from), one_line(&new), one_line(&origin));
            conversion.refusals.extend(refusals.iter().map(line));
        }
    }
    conversion
}

/// The position of a document in the format that other commands use.
pub(crate) fn place(document: &Document) -> String {
    let mut place = format!("{}: document {}", document.source, document.index);
    if let Some(item) = document.item {
        place.push_str(&format!(", item {item}"));
    }
    if let Some(line) = document.line {
        place.push_str(&format!(", line {line}"));
    }
    place
}

fn title(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", text("/kind"), text("/metadata/name"))
}
