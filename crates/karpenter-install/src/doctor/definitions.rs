//! Findings about CustomResourceDefinitions: whether they exist, are served, have only one stored version, equal those
//! of this program, and have no conversion webhook of an old release.

mod schema;

use karpenter_api::crds;
use karpenter_api::labels::Provider;
use serde_json::Value;

use super::Finding;
use super::facts::Facts;
use crate::controllers::{Controller, Program};
use crate::kinds::{self, condition, text};

const CHECK: &str = "definitions";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let found = match &facts.definitions {
        Ok(found) => found,
        Err(error) => return vec![Finding::unreadable(CHECK, error)],
    };
    let by_name = |name: &str| found.iter().find(|definition| kinds::name(definition) == name);
    let mut findings = Vec::new();
    let mut good = 0;
    let serves_old = is_switched_on(facts, |controller| controller.is_switched_on("LEGACY_API"));
    let old: &[crds::Crd] = if serves_old { crds::legacy() } else { &[] };
    for crd in crds::all().iter().filter(|crd| is_needed(crd, facts)).chain(old) {
        match by_name(crd.name) {
            None => findings.push(missing(crd)),
            Some(definition) => {
                let wrong = faults(definition, crd);
                good += usize::from(wrong.is_empty());
                findings.extend(wrong);
            }
        }
    }
    for crd in crds::legacy().iter().filter(|_| !serves_old) {
        if let Some(definition) = by_name(crd.name) {
            findings.extend(webhook(definition));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{good} definitions exist and are served")));
    }
    findings.extend(old_api(facts, by_name("provisioners.karpenter.sh").is_some()));
    findings
}

/// Whether some controller has a setting enabled.
fn is_switched_on(facts: &Facts, what: impl Fn(&Controller) -> bool) -> bool {
    facts
        .controllers
        .iter()
        .flatten()
        .any(|controller| controller.program == Program::Ours && what(controller))
}

fn is_needed(crd: &crds::Crd, facts: &Facts) -> bool {
    match (crd.kind, facts.provider) {
        ("NodePool" | "NodeClaim", _) => true,
        ("EC2NodeClass", Some(Provider::Aws)) | ("KWOKNodeClass", Some(Provider::Kwok)) => true,
        // These feature gates have the same names as the kinds that they enable.
        ("NodeOverlay" | "CapacityBuffer", _) => {
            is_switched_on(facts, |controller| controller.has_gate(crd.kind))
        }
        _ => false,
    }
}

fn missing(crd: &crds::Crd) -> Finding {
    let is_legacy = crds::legacy().iter().any(|legacy| legacy.name == crd.name);
    match (is_legacy, crd.kind) {
        (true, _) => Finding::fail(
            CHECK,
            format!("{} is missing, and the controller has --legacy-api for the v1alpha5 API", crd.name),
            "karpenter crds --legacy-api | kubectl apply -f -, or legacy: true of the chart karpenter-crd",
        ),
        (_, "NodeOverlay" | "CapacityBuffer") => Finding::fail(
            CHECK,
            format!("{} is missing, and the feature gate {} is enabled", crd.name, crd.kind),
            "karpenter install --crds-only, or the chart karpenter-crd; or disable the gate",
        ),
        _ => Finding::fail(
            CHECK,
            format!("{} is missing", crd.name),
            "karpenter install --crds-only, or the chart karpenter-crd",
        ),
    }
}

fn faults(definition: &Value, crd: &crds::Crd) -> Vec<Finding> {
    let mut findings = Vec::new();
    let versions: Vec<&Value> =
        definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten().collect();
    let ours = versions.iter().find(|version| version["name"] == crd.version);
    let names: Vec<&str> = versions.iter().map(|version| text(version, "/name")).collect();
    match ours {
        Some(version) if version["served"] == true => {
            if version["storage"] != true {
                let storage = versions.iter().find(|version| version["storage"] == true);
                findings.push(Finding::warn(
                    CHECK,
                    format!(
                        "{} is stored as {}, not as {}",
                        crd.name,
                        storage.map(|version| text(version, "/name")).unwrap_or("nothing"),
                        crd.version
                    ),
                    "apply the definitions of this version: karpenter install --crds-only --take-over",
                ));
            }
            findings.extend(schema::difference(version, crd).map(|difference| {
                Finding::warn(
                    CHECK,
                    format!(
                        "the CRD {} in the cluster differs from the one of this Karpenter version: {difference}",
                        crd.name
                    ),
                    update(crd),
                )
            }));
        }
        _ => findings.push(Finding::fail(
            CHECK,
            format!("{} does not serve {}, only {}", crd.name, crd.version, names.join(", ")),
            "apply the definitions of this version: karpenter install --crds-only --take-over",
        )),
    }
    let stored: Vec<&str> = definition
        .pointer("/status/storedVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|stored| *stored != crd.version)
        .collect();
    if !stored.is_empty() {
        let plural = text(definition, "/spec/names/plural");
        findings.push(Finding::warn(
            CHECK,
            format!("objects of {} may still be stored as {}", crd.name, stored.join(", ")),
            format!(
                "store them again with kubectl get {plural} -o yaml | kubectl replace -f -, then kubectl patch crd {} \
                 --subresource status --type merge -p '{{\"status\":{{\"storedVersions\":[\"{}\"]}}}}'",
                crd.name, crd.version
            ),
        ));
    }
    if condition(definition, "Established").is_some_and(|(status, ..)| status != "True") {
        let (_, reason, message) = condition(definition, "NamesAccepted").unwrap_or_default();
        findings.push(Finding::fail(
            CHECK,
            format!("{} is not served: {reason} {message}", crd.name),
            "remove the definition whose names clash: kubectl get crds",
        ));
    }
    findings.extend(webhook(definition));
    findings
}

fn update(crd: &crds::Crd) -> &'static str {
    match crds::legacy().iter().any(|legacy| legacy.name == crd.name) {
        true => "karpenter crds --legacy-api | kubectl apply --server-side --force-conflicts -f -",
        false => {
            "apply the definitions of this version: karpenter install --crds-only --take-over, or the chart karpenter-crd"
        }
    }
}

/// The finding that a CRD has a conversion webhook. Karpenter 1.0 converted objects through one, which later versions
/// do not serve.
fn webhook(definition: &Value) -> Option<Finding> {
    (text(definition, "/spec/conversion/strategy") == "Webhook").then(|| {
        let service = definition.pointer("/spec/conversion/webhook/clientConfig/service");
        let place = service
            .map(|service| format!("{}/{}", text(service, "/namespace"), text(service, "/name")))
            .unwrap_or_default();
        Finding::fail(
            CHECK,
            format!(
                "{} has the conversion webhook {place}, which no controller serves",
                kinds::name(definition)
            ),
            "apply the definitions of this version: karpenter install --crds-only --take-over",
        )
    })
}

/// The finding that objects of the v1alpha5 API exist, but no controller serves them.
fn old_api(facts: &Facts, is_defined: bool) -> Option<Finding> {
    let old = facts.old.as_ref().ok()?;
    if !is_defined && old.is_empty() {
        return None;
    }
    let is_served = is_switched_on(facts, |controller| controller.is_switched_on("LEGACY_API"));
    Some(match (old.len(), is_served) {
        (0, _) => Finding::ok("old-api", "the definitions of the v1alpha5 API exist, without objects"),
        (count, true) => Finding::ok("old-api", format!("{count} objects of the v1alpha5 API are served")),
        (count, false) => Finding::warn(
            "old-api",
            format!("{count} objects of the v1alpha5 API exist, and no installed controller serves them"),
            "serve them with karpenter install --legacy-api, or convert them to v1: karpenter convert",
        ),
    })
}
