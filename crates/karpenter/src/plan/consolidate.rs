//! `karpenter plan --consolidate`: a dump of a cluster in, the moves that disruption would make out, and for every node
//! that stays the reason why.
//!
//! One round is one pass of the controller. Further rounds start from the cluster that the moves so far leave behind,
//! all of them within the same hour.

pub(crate) mod launched;
pub(crate) mod report;

use std::io::{self, BufWriter, Write};
use std::time::Instant;

use anyhow::{Result, bail};
use jiff::Timestamp;
use karpenter_disruption::apply;
use karpenter_disruption::cluster::Cluster;
use karpenter_disruption::evaluate::{Evaluation, Verdict, evaluate, explain_node};
use karpenter_disruption::lower_bound::lower_bound_per_hour;
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_model::problem::ReservedMode;
use karpenter_state::dump::captured_at;
use karpenter_state::pods::node_name;
use karpenter_state::{CatalogChoice, Objects, assemble_disruption, read_dump};

use crate::cli::{ModeChoice, PlanArguments, Rounds};
use crate::render::consolidation::write_report;
use crate::render::terminal::Terminal;
use crate::{Outcome, diagnostics};
use report::{Report, Timings, unpriced_nodes};

/// A cluster that never comes to rest would be a bug; a run still ends.
const ROUNDS_MAX: u32 = 1_000;
const NAMES_SHOWN_MAX: usize = 5;

pub(crate) fn run(
    arguments: &PlanArguments,
    objects: Objects,
    catalog: &CatalogChoice,
    read: std::time::Duration,
) -> Result<Outcome> {
    let mut timings = Timings { read, ..Timings::default() };
    let started = Instant::now();
    let now = moment(arguments, &objects)?;
    let has_pods = !objects.pods.is_empty();
    let dump = read_dump(objects, catalog, now);
    let mut round = assemble_disruption(&dump.live, &dump.input);
    round.cluster.problem.options = arguments.knobs.options();
    round.cluster.problem.options.reserved_mode = ReservedMode::Fallback;
    timings.assemble = started.elapsed();
    for note in &dump.notes {
        diagnostics::print_note(&note.to_string());
    }
    for error in &round.control_errors {
        diagnostics::print_warning(&error.to_string());
    }
    for error in &round.budget_errors {
        diagnostics::print_warning(&error.to_string());
    }
    if round.cluster.state_nodes.is_empty() {
        diagnostics::print_error(
            "the input has no node of a NodePool, so there is nothing to consolidate; valid: nodes with the label karpenter.sh/nodepool, as `kubectl get nodes,pods,nodeclaims,nodepools,pdb -A -o yaml` prints them",
        );
        return Ok(Outcome::InputRefused);
    }

    if !has_pods {
        // Even an idle cluster has pods of its own; more likely they were forgotten.
        diagnostics::print_warning(
            "the input has no pods, so every node counts as empty; valid: a dump with all pods, as `kubectl get pods -A -o yaml` prints them",
        );
    }
    let waiting = dump.live.pending.iter().filter(|pod| node_name(pod).is_none()).count();
    if waiting > 0 {
        diagnostics::print_note(&format!(
            "pods that wait for a node: {waiting}; nodes that would be launched for them are not part of the answer"
        ));
    }
    if let Some(note) = unpriced_note(&round.cluster) {
        diagnostics::print_note(&note);
    }

    let settings = settings(arguments);
    let started = Instant::now();
    let mut report = Report::new(&round.cluster, now, settings.mode);
    let rounds = match arguments.rounds {
        Rounds::AtMost(count) => count,
        Rounds::All => ROUNDS_MAX,
    };
    let mut cluster = round.cluster;
    let mut evaluation = Evaluation::default();
    for number in 1..=rounds {
        evaluation = evaluate(&cluster, &settings);
        report.add_round(number, &cluster, &evaluation);
        if number == 1 {
            report.bound_by(|| lower_bound_per_hour(&cluster, settings.effort));
        }
        if evaluation.commands.is_empty() || number == rounds {
            break;
        }
        cluster = apply::after(&cluster, &evaluation.commands);
        report.apply(&cluster);
    }
    if arguments.verdict {
        ask_why(&cluster, &settings, &mut evaluation);
    }
    report.finish(&cluster, &evaluation);
    timings.decide = started.elapsed();
    report.set_timings(&timings);

    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write_report(&report, arguments.output, &Terminal::of_stdout(), &mut out)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// A sum that leaves nodes out says so.
fn unpriced_note(cluster: &Cluster) -> Option<String> {
    let names = unpriced_nodes(cluster);
    let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "nodes whose price is not known count as free: {shown}{more}; prices of other regions and types come with --region and --instance-types"
        )
    })
}

/// The moment asked for, or the newest one that the dump shows.
fn moment(arguments: &PlanArguments, objects: &Objects) -> Result<Timestamp> {
    match arguments.now.or_else(|| captured_at(objects)) {
        Some(now) => Ok(now),
        None => bail!(
            "no object of the input carries a time; say with --now when it was taken, for example --now 2026-01-31T12:00:00Z"
        ),
    }
}

fn settings(arguments: &PlanArguments) -> Settings {
    Settings {
        mode: match arguments.knobs.mode {
            ModeChoice::Cost => Mode::Cost,
            ModeChoice::Compat => Mode::Compat,
        },
        spot_to_spot: arguments.spot_to_spot,
        effort: arguments.knobs.effort.0,
        saving_ratio: arguments.consolidation_saving_ratio,
        ..Settings::default()
    }
}

/// Gives every node that merely was not chosen an answer of its own, at the price of one simulation each.
fn ask_why(cluster: &Cluster, settings: &Settings, evaluation: &mut Evaluation) {
    let is_something_else_done = !evaluation.commands.is_empty() || !evaluation.dry_run_commands.is_empty();
    for node_verdict in &mut evaluation.verdicts {
        // What a node that has to go waits for is not a matter of its price.
        let is_about_savings = node_verdict.method.is_none_or(|method| method.is_for_savings());
        if !is_about_savings || !matches!(node_verdict.verdict, Verdict::Fine | Verdict::NotNow) {
            continue;
        }
        match explain_node(cluster, settings, node_verdict.state_node) {
            Err(why) => node_verdict.verdict = why,
            // Alone it could go; with what is done, it stays.
            Ok(_) if is_something_else_done => node_verdict.verdict = Verdict::NotNow,
            Ok(_) => {}
        }
    }
}
