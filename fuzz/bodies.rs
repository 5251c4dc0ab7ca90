//! The functions that are fuzzed, and the properties that must hold for every input: no panic, and no plan that
//! violates a rule.
//!
//! These are plain functions of bytes, so that the fuzz targets and the stable test `fuzz_smoke` run the same code. The
//! inputs are generated elsewhere.

use std::sync::Arc;

use karpenter_api::manifest;
use karpenter_model::problem::{Mode, PodNames, Problem};
use karpenter_model::quantity::Quantity;
use karpenter_state::{CatalogChoice, Objects, assemble};

/// The maximum number of pods per group. More replicas take longer and test no new cases.
const PODS_PER_GROUP_MAX: u32 = 40;

/// Reads, assembles and plans manifests in both modes, and validates the plans.
pub(crate) fn manifest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let manifests = manifest::read("fuzz", &text);
    for error in &manifests.errors {
        assert!(!error.to_string().is_empty());
    }
    let reading = Objects::from_documents(manifests.documents);
    for error in &reading.errors {
        assert!(!error.to_string().is_empty());
    }
    let (mut problem, notes) = assemble(&reading.objects, &CatalogChoice::Kwok);
    for note in &notes {
        assert!(!note.to_string().is_empty());
    }
    shorten(&mut problem);
    problem.options.effort = 1;
    for mode in [Mode::Compat, Mode::Cost] {
        problem.options.mode = mode;
        let plan = karpenter_scheduling::schedule(&problem);
        let violations = karpenter_scheduling::validate::validate(&problem, &plan);
        let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(texts.is_empty(), "{mode:?}: {texts:#?}");
    }
}

/// A quantity that can be parsed can be printed, and parsing the text again gives the same quantity.
pub(crate) fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let written = quantity.to_string();
    let again = written.parse::<Quantity>();
    assert_eq!(again.as_ref().ok(), Some(&quantity), "{text:?} was written as {written:?}");
    assert!(quantity.milli_floor() <= quantity.milli_ceil(), "{text:?}");
    assert!(quantity.value_floor() <= quantity.value_ceil(), "{text:?}");
    assert!(!quantity.to_f64_lossy().is_nan(), "{text:?}");
    assert!((quantity + -quantity).is_zero(), "{text:?}");
}

/// Validates objects of our own kinds against the CRDs and the rules of the controllers. An object that was admitted
/// must be admitted again.
pub(crate) fn validate(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for document in manifest::read("fuzz", &text).documents {
        match karpenter_api::validate::validate(&document.value, None) {
            Ok(stored) => {
                let again = karpenter_api::validate::validate(&stored, Some(&stored));
                assert_eq!(again.as_ref(), Ok(&stored), "an admitted object must be accepted unchanged");
            }
            Err(errors) => {
                assert!(!errors.is_empty(), "refused without a reason");
                for error in errors {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}

fn shorten(problem: &mut Problem) {
    for group in &mut problem.pods {
        match &mut group.names {
            PodNames::Listed(names) => names.truncate(PODS_PER_GROUP_MAX as usize),
            PodNames::Numbered { count, .. } => *count = (*count).min(PODS_PER_GROUP_MAX),
        }
    }
    // The catalog is the same for every input. Most of its instance types are removed, so that a run is short.
    for catalog in &mut problem.catalogs {
        let few = catalog.iter().step_by(5).cloned().collect();
        *catalog = Arc::new(few);
    }
}
