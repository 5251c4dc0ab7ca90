//! Properties of explanations: if the patches of all fixes are applied to the objects, a second explanation gives the
//! result that the first one promised.

mod apply;
mod objects;

use karpenter_api::manifest::Document;
use karpenter_explain::input::ExplainInput;
use karpenter_explain::{explain_node, explain_pod};
use karpenter_state::{CatalogChoice, ExplainSettings, Objects, explain_input};
use karpenter_view::{Chain, NodeDocument, PodDocument, Reason, ResolutionKind};
use proptest::prelude::*;
use serde_json::Value;

use objects::{NodeScenario, PodScenario};

const STEPS_MAX: usize = 6;

fn input(documents: &[Value], spot_to_spot: bool) -> ExplainInput {
    let documents = documents.iter().enumerate().map(|(index, value)| Document {
        source: "test".into(),
        index: index + 1,
        item: None,
        line: None,
        value: value.clone(),
    });
    let reading = Objects::from_documents(documents.collect());
    assert!(reading.errors.is_empty(), "{:?}", reading.errors);
    let mut settings = ExplainSettings::default();
    settings.settings.spot_to_spot = spot_to_spot;
    explain_input(reading.objects, &CatalogChoice::Kwok, &settings)
}

fn pod(documents: &[Value], name: &str) -> PodDocument {
    explain_pod(&input(documents, false), "default", name).expect("the pod is in the input")
}

fn node(documents: &[Value], spot_to_spot: bool) -> NodeDocument {
    explain_node(&input(documents, spot_to_spot), objects::NODE).expect("the node is in the input")
}

/// The documents with the patches of all blockers; `None` if a fix is not a patch.
fn patched(documents: &[Value], chain: &Chain) -> Option<Vec<Value>> {
    let mut documents = documents.to_vec();
    for blocker in chain.blockers.iter().filter(|blocker| !is_gate(blocker)) {
        let fix = blocker.fix.as_ref()?;
        apply::patch(&mut documents, fix.object.as_ref()?, fix.patch.as_ref()?, fix.patch_type?);
    }
    Some(documents)
}

/// Whether the fix is a feature gate, which is an option of the controller.
fn is_gate(blocker: &Reason) -> bool {
    blocker.code == "SpotToSpotOff"
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn patches_of_a_pending_pod_give_the_stated_result(scenario in objects::any_pod_scenario()) {
        let documents = scenario.documents();
        let explained = pod(&documents, PodScenario::POD);
        prop_assert!(explained.chain.blockers.len() <= STEPS_MAX);
        if explained.resolution.is != ResolutionKind::Blocked {
            prop_assert!(explained.plan.is_some() && explained.chain.blockers.is_empty(), "{:#?}", explained);
            return Ok(());
        }
        if let Some(result) = &explained.chain.result
            && let Some(documents) = patched(&documents, &explained.chain)
        {
            let again = pod(&documents, PodScenario::POD);
            prop_assert_eq!(again.plan.as_ref(), Some(result), "{:#?}\n{:#?}", explained, again);
        }
    }

    #[test]
    fn patches_of_a_kept_node_give_the_stated_result(scenario in objects::any_node_scenario()) {
        let documents = scenario.documents();
        let explained = node(&documents, false);
        prop_assert!(explained.chain.blockers.len() <= STEPS_MAX);
        let Some(result) = &explained.chain.result else {
            prop_assert!(explained.resolution.is != ResolutionKind::Blocked, "{:#?}", explained);
            return Ok(());
        };
        let spot_to_spot = explained.chain.blockers.iter().any(is_gate);
        if let Some(documents) = patched(&documents, &explained.chain) {
            let again = node(&documents, spot_to_spot);
            let outcome = again.command.as_ref().map(|command| &command.outcome);
            prop_assert_eq!(outcome, Some(result), "{:#?}\n{:#?}", explained, again);
        }
    }
}

/// The properties above would hold trivially if no scenario had a chain with a result.
#[test]
fn scenarios_have_chains_with_results() {
    let scenario = PodScenario { limit: Some(8), has_taint: true, cpu: 3, ..PodScenario::default() };
    let explained = pod(&scenario.documents(), PodScenario::POD);
    let codes: Vec<&str> = explained.chain.blockers.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["Taint", "LimitExceeded"], "{explained:#?}");
    assert!(explained.chain.result.is_some());
    let documents = patched(&scenario.documents(), &explained.chain).expect("patches");
    assert_eq!(pod(&documents, PodScenario::POD).plan, explained.chain.result);

    let scenario = NodeScenario { max_unavailable: Some(0), budget: "0", ..NodeScenario::default() };
    let explained = node(&scenario.documents(), false);
    let codes: Vec<&str> = explained.chain.blockers.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["PodBudget", "BudgetExhausted"], "{explained:#?}");
    assert_eq!(explained.resolution.is, ResolutionKind::Blocked);
    let documents = patched(&scenario.documents(), &explained.chain).expect("patches");
    let command = node(&documents, false).command.expect("a command");
    assert_eq!(Some(command.outcome), explained.chain.result);
}

/// The annotation of a pod excludes it from evictions, so the PodDisruptionBudget blocks only after the annotation was
/// removed.
#[test]
fn pod_budget_appears_when_the_annotation_of_the_pod_is_removed() {
    let scenario = NodeScenario {
        max_unavailable: Some(0),
        is_pod_annotated: true,
        cpu: 8,
        pods: 1,
        ..NodeScenario::default()
    };
    let explained = node(&scenario.documents(), false);
    let codes: Vec<&str> = explained.chain.blockers.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["PodAnnotated", "PodBudget"], "{explained:#?}");
}

#[test]
fn order_of_the_input_does_not_change_the_explanation() {
    let scenario = PodScenario { limit: Some(8), has_taint: true, cpu: 3, ..PodScenario::default() };
    let mut documents = scenario.documents();
    let explained = pod(&documents, PodScenario::POD);
    documents.reverse();
    assert_eq!(pod(&documents, PodScenario::POD), explained);
    let scenario = NodeScenario { max_unavailable: Some(0), limit: Some(20), ..NodeScenario::default() };
    let mut documents = scenario.documents();
    let explained = node(&documents, false);
    documents.reverse();
    assert_eq!(node(&documents, false), explained);
}
