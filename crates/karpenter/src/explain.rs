//! `karpenter explain`: explains one pod, node, NodeClaim or NodePool of a cluster, of a dump or of manifests.

use std::io::{self, BufWriter, Write};

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use karpenter_api::labels;
use karpenter_catalog::aws;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_explain::input::ExplainInput;
use karpenter_explain::{NotFound, explain_node, explain_node_claim, explain_node_pool, explain_pod, text};
use karpenter_state::{ExplainSettings, explain_input};
use karpenter_view::{Resolution, ResolutionKind, Source};
use serde::Serialize;

use crate::cli::{ExplainArguments, ExplainFormat, ExplainKind, ModeChoice};
use crate::plan::{Input, catalog_choice, read_objects, read_texts};
use crate::render::{write_value_json, write_value_yaml};
use crate::{Outcome, cluster_objects, diagnostics};

pub(crate) fn run(arguments: &ExplainArguments) -> Result<Outcome> {
    let is_cluster = arguments.input.filenames.is_empty();
    let Input { mut reading, error_count, lost_pools: _ } = if is_cluster {
        read_texts(cluster_objects::read(arguments.kubeconfig.as_deref())?)?
    } else {
        read_objects(&arguments.input)?
    };
    if error_count > 0 {
        diagnostics::print_warning(
            "objects with errors are left out, so the explanation may be incomplete; correct or remove the objects above",
        );
    }
    reading.objects.scheduler_config.clone_from(&arguments.input.scheduler_config);
    let mut input_arguments = arguments.input.clone();
    if input_arguments.region.is_none() {
        input_arguments.region = region_of(&reading.objects.nodes);
    }
    let catalog = catalog_choice(&input_arguments)?;
    let settings = ExplainSettings {
        source: if is_cluster { Source::Cluster } else { Source::Dump },
        now: arguments.now.or_else(|| is_cluster.then(Timestamp::now)),
        options: arguments.knobs.options(),
        settings: Settings {
            mode: match arguments.knobs.mode {
                ModeChoice::Cost => Mode::Cost,
                ModeChoice::Compat => Mode::Compat,
            },
            spot_to_spot: arguments.spot_to_spot,
            effort: arguments.knobs.effort.0,
            ..Settings::default()
        },
    };
    let input = explain_input(reading.objects, &catalog, &settings);
    let mut out = BufWriter::new(io::stdout().lock());
    let is_blocked = answer(arguments, &input, &mut out)?;
    out.flush()?;
    Ok(if arguments.check && is_blocked { Outcome::InputRefused } else { Outcome::Done })
}

/// The region of the nodes, if the AWS catalog has it: instance types and prices are those of this region.
fn region_of(nodes: &[Node]) -> Option<String> {
    let region = nodes.iter().find_map(|node| node.metadata.labels.as_ref()?.get(labels::REGION))?;
    (!aws::catalog().zones(region).is_empty()).then(|| region.clone())
}

/// Prints the document, and returns whether its object is blocked.
fn answer(arguments: &ExplainArguments, input: &ExplainInput, out: &mut dyn Write) -> Result<bool> {
    let name = &arguments.name;
    match arguments.kind {
        ExplainKind::Pod => {
            let document = found(input, explain_pod(input, &arguments.namespace, name))?;
            print(arguments.output, &document, &text::pod(&document), &document.resolution, out)
        }
        ExplainKind::Node => {
            let document = found(input, explain_node(input, name))?;
            print(arguments.output, &document, &text::node(&document), &document.resolution, out)
        }
        ExplainKind::Nodeclaim => {
            let document = found(input, explain_node_claim(input, name))?;
            print(arguments.output, &document, &text::node_claim(&document), &document.resolution, out)
        }
        ExplainKind::Nodepool => {
            let document = found(input, explain_node_pool(input, name))?;
            print(arguments.output, &document, &text::node_pool(&document), &document.resolution, out)
        }
    }
}

fn found<T>(input: &ExplainInput, answer: Result<T, NotFound>) -> Result<T> {
    match answer {
        Ok(document) => Ok(document),
        Err(missing) => {
            let known = names(input, &missing.object.kind);
            let valid = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            bail!("{missing}; the input has: {valid}")
        }
    }
}

/// Some names of existing objects of this kind, for the message about a missing object.
fn names(input: &ExplainInput, kind: &str) -> Vec<String> {
    const SHOWN_MAX: usize = 10;
    let cluster = &input.cluster;
    let all: Vec<String> = match kind {
        "Pod" => input.facts.pods.keys().cloned().collect(),
        "Node" => cluster.state_nodes.iter().filter_map(|one| Some(one.node.as_ref()?.to_string())).collect(),
        "NodeClaim" => input.facts.claims.keys().cloned().collect(),
        _ => input.facts.pools.keys().cloned().collect(),
    };
    let more = all.len().saturating_sub(SHOWN_MAX);
    let mut shown: Vec<String> = all.into_iter().take(SHOWN_MAX).collect();
    if more > 0 {
        shown.push(format!("{more} others"));
    }
    shown
}

fn print(
    format: ExplainFormat,
    document: &impl Serialize,
    text: &str,
    resolution: &Resolution,
    out: &mut dyn Write,
) -> Result<bool> {
    match format {
        ExplainFormat::Text => out.write_all(text.as_bytes())?,
        ExplainFormat::Json => write_value_json(document, out)?,
        ExplainFormat::Yaml => write_value_yaml(document, out)?,
    }
    Ok(resolution.is == ResolutionKind::Blocked)
}
