//! Compares the embedded API server with kube-apiserver: every step of `conformance/steps/*.yaml` is sent to the
//! embedded server, and the responses must equal those of a real kube-apiserver, which are recorded in
//! `conformance/recorded/*.json`. `conformance/differences.yaml` lists the exceptions with their reasons.
//!
//! `CONFORMANCE_REPORT=FILE` writes the differences to a file, grouped by area of the server; `CONFORMANCE_ONLY=SCRIPT`
//! runs only one script.

#[path = "../conformance/runner/runner.rs"]
mod runner;

use std::time::Duration;

use karpenter_apiserver::{ApiServer, Config};
use runner::compare::{self, Difference};
use runner::run::{self, CHANGES_TO_FORGET, Target};
use runner::{script, transcript};

#[tokio::test]
async fn embedded_server_matches_recorded_responses() -> Result<(), runner::Error> {
    let only = std::env::var("CONFORMANCE_ONLY").ok();
    let mut differences: Vec<Difference> = Vec::new();
    let mut steps = 0;
    for script in script::load_all()? {
        if only.as_ref().is_some_and(|only| *only != script.name) {
            continue;
        }
        let recorded = transcript::load(&script.name)?;
        // Each script gets its own server, so the order of scripts does not matter.
        let server = ApiServer::new(Config { history_limit: CHANGES_TO_FORGET - 50, ..Config::default() });
        let client = kube::Client::new(server, "default");
        let answered = run::run(&script, &Target { client, cache_lag: Duration::ZERO, etcd: None }).await?;
        steps += answered.steps.len();
        differences.extend(compare::differences(&script, &recorded, &answered)?);
    }
    let mut known = compare::load_known()?;
    if let Some(only) = &only {
        for entry in &mut known {
            entry.places.retain(|place| place.script.as_ref() == Some(only));
        }
    }
    let (unknown, unused) = compare::match_known(&differences, &known);
    let report = compare::report(&unknown);
    if let Ok(file) = std::env::var("CONFORMANCE_REPORT") {
        std::fs::write(file, &report)?;
    }
    assert!(
        unknown.is_empty() && unused.is_empty(),
        "{report}\n{} of {steps} steps differ from the recorded responses; known differences that do not occur: {unused:#?}",
        compare::count_steps(&unknown),
    );
    Ok(())
}

#[test]
fn known_differences_are_documented() -> Result<(), runner::Error> {
    let document = std::fs::read_to_string(runner::folder().join("../../../../docs/embedded-cluster.md"))?;
    for entry in compare::load_known()? {
        let title = format!("| {} |", entry.title);
        assert!(document.contains(&title), "docs/embedded-cluster.md has no row about {:?}", entry.title);
    }
    Ok(())
}

#[test]
fn every_script_has_recorded_responses() -> Result<(), runner::Error> {
    let scripts: Vec<String> = script::load_all()?.into_iter().map(|script| script.name).collect();
    assert_eq!(scripts, transcript::recorded_names()?);
    for name in scripts {
        let recorded = transcript::load(&name)?;
        assert!(recorded.server.starts_with("v1.35."), "{name} was recorded from {}", recorded.server);
        for step in recorded.steps {
            assert!(
                step.answer.get("failed").is_none(),
                "{name}: no response was recorded for {:?}",
                step.name
            );
        }
    }
    Ok(())
}
