//! Compares the recorded results of the cases. Every difference must be listed in a file with its reason, and every
//! listed difference must still exist.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_api::validate;

use crate::table::tables;
use crate::{Answer, Error, Verdict};

/// The CRDs in the AWS provider's repository are built from an older version of Karpenter's core, with this rule added.
/// So only differences in this rule are compared.
const RULE_OF_THE_AWS_PROVIDER: &str = "label domain \"karpenter.k8s.aws\" is restricted";

/// Whether all results are equal, except for differences that the file lists.
pub(crate) fn compare(core: &str, aws: &str, ours: &str, differences: &str) -> Result<bool, Error> {
    let (core, aws, ours) = (answers(core)?, answers(aws)?, answers(ours)?);
    let listed = listed(differences)?;
    let admitted = admitted();
    let mut seen = BTreeSet::new();
    let (mut refused, mut unlisted) = (0, 0);
    for Answer { case, verdict } in &admitted {
        let missing = || format!("a server has not answered to {case}");
        let original = original(core.get(case).ok_or_else(missing)?, aws.get(case).ok_or_else(missing)?);
        let ours = ours.get(case).ok_or_else(missing)?;
        refused += usize::from(matches!(original, Verdict::Refused { .. }));
        if agree(original, ours) && agree(ours, verdict) {
            continue;
        }
        if listed.contains_key(case) {
            seen.insert(case);
            continue;
        }
        unlisted += 1;
        println!("\n===== {case}");
        show("original CRD, real server", original);
        show("our CRD, real server", ours);
        show("our CRD, our validation", verdict);
    }
    let unused: Vec<&String> = listed.keys().filter(|case| !seen.contains(case)).collect();
    for case in &unused {
        println!("listed as different, but it is not: {case}");
    }
    println!(
        "{} cases, {} accepted and {refused} refused by the original CRDs; {} differences listed, {unlisted} not \
         listed, {} listed for nothing",
        admitted.len(),
        admitted.len() - refused,
        seen.len(),
        unused.len()
    );
    Ok(unlisted == 0 && unused.is_empty())
}

fn original<'a>(core: &'a Verdict, aws: &'a Verdict) -> &'a Verdict {
    match (core, aws) {
        (Verdict::Accepted { .. }, Verdict::Refused { message, .. })
            if message.contains(RULE_OF_THE_AWS_PROVIDER) =>
        {
            aws
        }
        _ => core,
    }
}

/// Whether both results are equal: both accept and store the same object, or both reject and name the same fields.
/// Messages may differ.
fn agree(left: &Verdict, right: &Verdict) -> bool {
    match (left, right) {
        (
            Verdict::Accepted { spec, status },
            Verdict::Accepted { spec: other_spec, status: other_status },
        ) => spec == other_spec && status == other_status,
        (Verdict::Refused { fields, .. }, Verdict::Refused { fields: other, .. }) => {
            // A server that cannot decode an object names no field, so the fields are not compared.
            fields.is_empty() || other.is_empty() || comparable(fields) == comparable(other)
        }
        _ => false,
    }
}

/// Removes what makes error paths of the API server incomparable: it writes map keys as if they were field names,
/// reports metadata fields imprecisely, and adds an error for the whole object if it skipped rules.
fn comparable(fields: &BTreeSet<String>) -> BTreeSet<String> {
    fields.iter().filter(|field| *field != "<nil>").map(|field| comparable_field(field)).collect()
}

fn comparable_field(field: &str) -> String {
    if let Some(inner) = field.strip_prefix("metadata.") {
        return format!("metadata.{}", inner.split(['.', '[']).next().unwrap_or_default());
    }
    let mut text = String::new();
    for part in field.split_inclusive(['[', ']']) {
        let is_key = part.ends_with(']') && part.trim_end_matches(']').parse::<usize>().is_err();
        if is_key && text.ends_with('[') {
            text.pop();
            text.push('.');
            text.push_str(part.trim_end_matches(']'));
        } else {
            text.push_str(part);
        }
    }
    text
}

fn show(whose: &str, verdict: &Verdict) {
    match verdict {
        Verdict::Accepted { spec, status } => println!("{whose}: accepted: spec {spec}, status {status}"),
        Verdict::Refused { message, fields } => println!("{whose}: refused: {message}\n    at {fields:?}"),
    }
}

/// The results that this crate's validation gives for all cases.
fn admitted() -> Vec<Answer> {
    let mut answers = Vec::new();
    for (table_name, table) in tables() {
        for case in &table.cases {
            let object = case.object(&table.base);
            let verdict = match validate::admit(&object, case.old_object(&table.base).as_ref()) {
                Ok(stored) => {
                    Verdict::Accepted { spec: stored["spec"].clone(), status: stored["status"].clone() }
                }
                Err(errors) => Verdict::Refused {
                    message: errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                    fields: errors.into_iter().map(|error| error.path).collect(),
                },
            };
            answers.push(Answer { case: format!("{table_name}: {}", case.name), verdict });
        }
    }
    answers
}

fn answers(file: &str) -> Result<BTreeMap<String, Verdict>, Error> {
    let mut answers = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let Answer { case, verdict } = serde_json::from_str(line)?;
        if answers.insert(case.clone(), verdict).is_some() {
            return Err(format!("two cases have the name {case}").into());
        }
    }
    Ok(answers)
}

/// Reads the listed differences. Each line has the table and name of a case, a tab, and the reason.
fn listed(file: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut listed = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (case, reason) =
            line.split_once('\t').ok_or_else(|| format!("{file}: no reason given for: {line}"))?;
        listed.insert(case.to_string(), reason.to_string());
    }
    Ok(listed)
}
