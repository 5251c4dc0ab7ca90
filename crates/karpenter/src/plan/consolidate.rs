//! `karpenter plan --consolidate`: reads a dump of a cluster, and prints the commands that disruption would execute and
//! the reason for every node that is not disrupted.
//!
//! One round is one evaluation of the controller. The next round starts from the cluster after all commands so far. For
//! limits per hour, all rounds count as the same hour.

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

/// The maximum number of rounds; a run with more would be caused by a bug.
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
        // Every cluster has system pods, so a dump without pods is probably incomplete.
        diagnostics::print_warning(
            "the input has no pods, so every node counts as empty; valid: a dump with all pods, as `kubectl get pods -A -o yaml` prints them",
        );
    }
    let waiting = dump.live.pending.iter().filter(|pod| node_name(pod).is_none()).count();
    if waiting > 0 {
        diagnostics::print_note(&format!(
            "pending pods: {waiting}; nodes that provisioning would launch for them are not part of the result"
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
    if arguments.explain {
        explain_staying_nodes(&cluster, &settings, &mut evaluation);
    }
    report.finish(&cluster, &evaluation);
    timings.decide = started.elapsed();
    report.set_timings(&timings);

    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write_report(&report, arguments.output, &Terminal::of_stdout(), &mut out)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// Warns that the price of some nodes is unknown and therefore not part of the sums.
fn unpriced_note(cluster: &Cluster) -> Option<String> {
    let names = unpriced_nodes(cluster);
    let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    (!names.is_empty()).then(|| {
        format!(
            "nodes without a known price count as 0: {shown}{more}; set --region or --instance-types for the prices of other regions and instance types"
        )
    })
}

/// The time given with `--now`, or the newest time in the dump.
fn moment(arguments: &PlanArguments, objects: &Objects) -> Result<Timestamp> {
    match arguments.now.or_else(|| captured_at(objects)) {
        Some(now) => Ok(now),
        None => bail!(
            "no object of the input has a timestamp; set the time of the dump with --now, for example --now 2026-01-31T12:00:00Z"
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

/// Finds the reason why each node without a command is not consolidated, with one simulation per node.
fn explain_staying_nodes(cluster: &Cluster, settings: &Settings, evaluation: &mut Evaluation) {
    let is_something_else_done = !evaluation.commands.is_empty() || !evaluation.dry_run_commands.is_empty();
    for node_verdict in &mut evaluation.verdicts {
        // Verdicts of repair and drift are not replaced.
        let is_about_savings = node_verdict.method.is_none_or(|method| method.is_for_savings());
        if !is_about_savings || !matches!(node_verdict.verdict, Verdict::Fine | Verdict::NotNow) {
            continue;
        }
        match explain_node(cluster, settings, node_verdict.state_node) {
            Err(why) => node_verdict.verdict = why,
            // The node could be consolidated if it were the only one, but not in addition to the commands that were
            // found.
            Ok(_) if is_something_else_done => node_verdict.verdict = Verdict::NotNow,
            Ok(_) => {}
        }
    }
}
