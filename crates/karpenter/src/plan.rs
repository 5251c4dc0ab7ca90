//! `karpenter plan`: reads manifests, plans, validates and prints the plan.
//!
//! Nothing is written to standard output before the plan is validated. Pods affected by a planner fault are omitted
//! and named on standard error, and the exit code is 3.

pub(crate) mod consolidate;
mod decide;
mod default_pool;
pub(crate) mod input;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use karpenter_api::labels::{DERIVED_FROM, DERIVED_FROM_PROVISIONER};
use karpenter_api::manifest::{self, Document};
use karpenter_catalog::aws::{self, AwsNodeClass, AwsZone};
use karpenter_catalog::kwok;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::problem::ReservedMode;
use karpenter_state::{CatalogChoice, Note, ObjectReader, Reading, Severity, assemble};

use self::input::Inputs;
use crate::cli::{self, InputArguments, PlanArguments};
use crate::render::terminal::Terminal;
use crate::render::{self, Timings, View};
use crate::{Outcome, diagnostics, legacy};

pub(crate) fn run(arguments: &PlanArguments) -> Result<Outcome> {
    let mut timings = Timings::default();
    let started = Instant::now();
    let Input { mut reading, error_count, lost_pools } = read_objects(&arguments.input)?;
    // With `--strict`, warnings count as errors, because an unknown field may have been important.
    if arguments.strict && (error_count > 0 || !reading.errors.is_empty()) {
        return Ok(Outcome::InputRefused);
    }
    // If a pod or PodDisruptionBudget of a dump was left out, it may be the one that prevents the disruption of a node.
    if arguments.consolidate && error_count > 0 {
        diagnostics::print_error(
            "consolidation is not simulated for a dump with errors, because an unreadable object may prevent the disruption of a node; correct or remove the objects above",
        );
        return Ok(Outcome::InputRefused);
    }
    if reading.objects.node_pools.is_empty() {
        if lost_pools || reading.errors.iter().any(is_lost_pool) {
            diagnostics::print_error("all NodePools of the input are invalid");
            return Ok(Outcome::InputRefused);
        }
        if arguments.consolidate {
            diagnostics::print_error(
                "the input has no NodePool, but consolidation needs the disruption settings of NodePools; add the nodepools to the dump",
            );
            return Ok(Outcome::InputRefused);
        }
        default_pool::add(&mut reading.objects, default_provider(&arguments.input));
    }
    reading.objects.scheduler_config.clone_from(&arguments.input.scheduler_config);
    let catalog = catalog_choice(&arguments.input)?;
    timings.read = started.elapsed();
    if arguments.consolidate {
        return consolidate::run(arguments, reading.objects, &catalog, timings.read);
    }

    let started = Instant::now();
    let (mut problem, notes) = assemble(&reading.objects, &catalog);
    drop(reading);
    problem.options = arguments.knobs.options();
    // A plan is final: there is no later pass in which a reservation could have capacity again.
    problem.options.reserved_mode = ReservedMode::Exhaust;
    timings.assemble = started.elapsed();
    print_notes(&notes);
    if problem.pods.is_empty() {
        if error_count > 0 {
            return Ok(Outcome::InputRefused);
        }
        diagnostics::print_note("the input has no pods that need a node");
    }

    let decision = decide::decide(&mut problem, &karpenter_scheduling::validated::DefaultPlanner);
    timings.schedule = decision.schedule;
    timings.validate = decision.validate;
    for line in decision.lines(&problem) {
        match decision.is_faulty() {
            true => diagnostics::print_error(&line),
            false => diagnostics::print_warning(&line),
        }
    }

    let view = View::new(&problem, &decision.planned.plan, timings);
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    render::write_plan(&view, arguments.output, arguments.explain, &Terminal::of_stdout(), &mut out)?;
    out.flush()?;
    Ok(if decision.is_faulty() { Outcome::InternalError } else { Outcome::Done })
}

/// The objects that were read, and errors.
pub(crate) struct Input {
    pub(crate) reading: Reading,
    pub(crate) error_count: usize,
    /// Whether a v1alpha5 Provisioner could not be converted.
    pub(crate) lost_pools: bool,
}

/// Reads and validates all objects, prints errors, and counts them.
pub(crate) fn read_objects(arguments: &InputArguments) -> Result<Input> {
    read_texts(input::read_all(&arguments.filenames)?)
}

/// Reads and validates the objects of texts, prints errors, and counts them.
pub(crate) fn read_texts(inputs: Inputs) -> Result<Input> {
    let names: Vec<String> = inputs.texts.iter().map(|(name, _)| name.clone()).collect();
    let mut error_count = inputs.errors.len();
    for error in &inputs.errors {
        diagnostics::print_error(error);
    }
    let mut reader = ObjectReader::default();
    let mut old_documents = Vec::new();
    let mut document_count = 0_usize;
    for (source, text) in inputs.texts {
        let errors = manifest::read_each(&source, &text, |document| {
            document_count += 1;
            if karpenter_legacy::is_legacy(&document.value) {
                old_documents.push(document);
            } else {
                reader.read(document);
            }
        });
        error_count += errors.len();
        for error in &errors {
            diagnostics::print_error(&error.to_string());
        }
    }
    if document_count == 0 && error_count == 0 {
        bail!("{}: no object in the input; valid: at least one Kubernetes manifest", names.join(", "));
    }
    let old_error_count = read_old(&old_documents, &mut reader);
    error_count += old_error_count;
    let reading = reader.finish();
    for error in &reading.errors {
        match error.severity {
            Severity::Error => {
                error_count += 1;
                diagnostics::print_error(&error.to_string());
            }
            Severity::Warning => diagnostics::print_warning(&error.to_string()),
        }
    }
    if !reading.ignored.is_empty() {
        let kinds: Vec<String> =
            reading.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        diagnostics::print_note(&format!("not needed for planning: {}", kinds.join(", ")));
    }
    Ok(Input { reading, error_count, lost_pools: old_error_count > 0 })
}

/// Converts v1alpha5 and v1beta1 objects, which are planned as v1 objects; returns the number of those that cannot be
/// converted.
fn read_old(documents: &[Document], reader: &mut ObjectReader) -> usize {
    if documents.is_empty() {
        return 0;
    }
    let conversion = legacy::convert(documents, &karpenter_legacy::Options::default());
    conversion.print(karpenter_legacy::Severity::Error);
    let error_count = conversion.error_count();
    diagnostics::print_note(&format!(
        "{} v1alpha5 or v1beta1 objects are planned as the v1 objects that karpenter convert creates",
        documents.len()
    ));
    for mut converted in conversion.documents {
        // The label with the Provisioner's name is added to the NodePool, so that pods that select the Provisioner by
        // this label can be planned.
        if converted.provisioner.is_some() {
            converted.document.value["metadata"]["labels"][DERIVED_FROM] = DERIVED_FROM_PROVISIONER.into();
        }
        reader.read(converted.document);
    }
    error_count
}

fn is_lost_pool(error: &karpenter_state::ObjectError) -> bool {
    error.severity == Severity::Error && error.object.starts_with("NodePool")
}

fn print_notes(notes: &[Note]) {
    for note in notes {
        match note {
            Note::AnnotationUnusable(error) => diagnostics::print_warning(&error.to_string()),
            note => diagnostics::print_note(&note.to_string()),
        }
    }
}

fn default_provider(arguments: &InputArguments) -> cli::CatalogChoice {
    match (arguments.catalog, &arguments.instance_types) {
        (Some(choice), _) => choice,
        (None, Some(_)) => cli::CatalogChoice::Kwok,
        (None, None) => cli::CatalogChoice::Aws,
    }
}

pub(crate) fn catalog_choice(arguments: &InputArguments) -> Result<CatalogChoice> {
    if let Some(path) = &arguments.instance_types {
        return Ok(CatalogChoice::InstanceTypes(Arc::new(read_instance_types(path)?)));
    }
    Ok(match arguments.catalog {
        Some(cli::CatalogChoice::Kwok) => CatalogChoice::Kwok,
        Some(cli::CatalogChoice::Aws) => CatalogChoice::Aws(Box::new(aws_settings(arguments)?)),
        None => CatalogChoice::ByNodeClass(Box::new(aws_settings(arguments)?)),
    })
}

fn read_instance_types(path: &Path) -> Result<Vec<InstanceType>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    kwok::parse(&text).with_context(|| path.display().to_string())
}

/// The default settings of node classes. With `--region` the zones are all zones of that region, otherwise some zones
/// of the default region.
fn aws_settings(arguments: &InputArguments) -> Result<AwsNodeClass> {
    let Some(region) = &arguments.region else { return Ok(AwsNodeClass::default()) };
    let zones: Vec<AwsZone> = aws::catalog().zones(region).to_vec();
    if zones.is_empty() {
        let known: Vec<&str> = aws::catalog().regions().collect();
        bail!("--region {region:?} is not in the catalog; valid: {}", known.join(", "));
    }
    Ok(AwsNodeClass { region: region.clone(), zones, ..AwsNodeClass::default() })
}
