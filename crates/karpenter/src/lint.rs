//! `karpenter lint`: reports settings in manifests that are valid but probably wrong, with a fix, and sets the exit
//! code.
//!
//! v1alpha5 and v1beta1 objects are converted first; conversion errors are findings. `karpenter-lint` has the rules;
//! this module reads input, resolves instance types and prints.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Result, bail};
use karpenter_api::error::one_line;
use karpenter_api::manifest::Document;
use karpenter_catalog::aws::{self, AwsNodeClass};
use karpenter_legacy::{Options, Severity as LegacySeverity};
use karpenter_lint::{Code, Finding, Input, Severity, Subject, lint};
use karpenter_state::{CatalogChoice, ObjectReader, assemble};
use serde_json::{Value, json};

use crate::cli::{FailOn, LintArguments, LintFormat};
use crate::legacy::{self, place};
use crate::{Outcome, convert};

pub(crate) fn run(arguments: &LintArguments) -> Result<Outcome> {
    let known: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    if let Some(unknown) = arguments.ignore.iter().find(|code| !known.contains(&code.as_str())) {
        bail!("--ignore {unknown:?} is not a code of a finding; valid: {}", known.join(", "));
    }
    let (documents, mut error_count) = convert::read(&arguments.filenames)?;
    let (old, mut current): (Vec<Document>, Vec<Document>) =
        documents.into_iter().partition(|document| karpenter_legacy::is_legacy(&document.value));
    let conversion = legacy::convert(&old, &Options::default());
    // Only conversion errors are reported; `convert` reports everything that changes with v1.
    conversion.print(LegacySeverity::Error);
    error_count += conversion.error_count();
    let mut provisioners: Vec<Option<String>> = vec![None; current.len()];
    for converted in conversion.documents {
        current.push(converted.document);
        provisioners.push(converted.provisioner);
    }
    let mut findings = find(&current, &provisioners, settings(arguments)?);
    findings.retain(|finding| !arguments.ignore.iter().any(|code| code == finding.code.as_str()));
    write(&findings, &current, arguments.output)?;
    let worst = findings.iter().map(|finding| finding.code.severity()).max();
    let fails = match arguments.fail_on {
        FailOn::Never => false,
        FailOn::Error => worst == Some(Severity::Error),
        FailOn::Warning => worst.is_some(),
    };
    Ok(if fails || error_count > 0 { Outcome::InputRefused } else { Outcome::Done })
}

fn find(documents: &[Document], provisioners: &[Option<String>], aws: AwsNodeClass) -> Vec<Finding> {
    // Instance types are resolved as `karpenter plan` does. NodePools that are invalid get none.
    let mut reader = ObjectReader::default();
    let is_catalog = |document: &&Document| {
        let kind = document.value.get("kind").and_then(Value::as_str).unwrap_or_default();
        kind == "NodePool" || kind == "NodeOverlay" || kind.ends_with("NodeClass")
    };
    documents.iter().filter(is_catalog).for_each(|document| reader.read(document.clone()));
    let reading = reader.finish();
    let (problem, _) = assemble(&reading.objects, &CatalogChoice::ByNodeClass(Box::new(aws)));
    let catalogs: BTreeMap<String, _> = problem
        .pools
        .iter()
        .map(|pool| (pool.name.to_string(), problem.catalogs[pool.catalog].clone()))
        .collect();
    let objects = documents.iter().zip(provisioners).map(|(document, provisioner)| Subject {
        value: &document.value,
        provisioner: provisioner.as_deref(),
    });
    lint(&Input { objects: objects.collect(), catalogs, well_known: problem.well_known })
}

fn settings(arguments: &LintArguments) -> Result<AwsNodeClass> {
    let Some(region) = &arguments.region else { return Ok(AwsNodeClass::default()) };
    let zones = aws::catalog().zones(region).to_vec();
    if zones.is_empty() {
        let known: Vec<&str> = aws::catalog().regions().collect();
        bail!("--region {region:?} is not in the catalog; valid: {}", known.join(", "));
    }
    Ok(AwsNodeClass { region: region.clone(), zones, ..AwsNodeClass::default() })
}

fn write(findings: &[Finding], documents: &[Document], format: LintFormat) -> Result<()> {
    let count = |severity| findings.iter().filter(|finding| finding.code.severity() == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let mut text = String::new();
    match format {
        LintFormat::Text => {
            for finding in findings {
                let Finding { code, object, field, why, fix, input } = finding;
                let head = format!("{} {} {object} {field}", code.severity().as_str(), code.as_str());
                for (indent, line) in [
                    ("", head),
                    ("  at: ", place(&documents[*input])),
                    ("  why: ", why.clone()),
                    ("  fix: ", fix.clone()),
                ] {
                    text.push_str(indent);
                    text.push_str(&one_line(&line));
                    text.push('\n');
                }
            }
            text.push_str(&format!("{errors} errors, {warnings} warnings\n"));
        }
        LintFormat::Json => {
            let all = findings.iter().map(|finding| {
                let document = &documents[finding.input];
                json!({
                    "code": finding.code.as_str(),
                    "severity": finding.code.severity().as_str(),
                    "object": finding.object,
                    "field": finding.field,
                    "why": finding.why,
                    "fix": finding.fix,
                    "source": &*document.source,
                    "document": document.index,
                    "line": document.line,
                })
            });
            let report = json!({
                "findings": all.collect::<Vec<_>>(),
                "summary": {"errors": errors, "warnings": warnings},
            });
            text = serde_json::to_string_pretty(&report)? + "\n";
        }
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}
