//! `karpenter plan --consolidate`: a dump of a cluster in, the moves that disruption would make out, and for every node
//! that stays the reason why.
//!
//! One round is one pass of the controller. Further rounds start from the fleet that the moves so far leave behind; no
//! time passes between them.

pub(crate) mod report;

use std::io::{self, BufWriter, Write};
use std::time::Instant;

use anyhow::{Result, bail};
use jiff::Timestamp;
use karpenter_disruption::carried_out;
use karpenter_disruption::fleet::Fleet;
use karpenter_disruption::propose::{Proposal, Why, propose, why_not};
use karpenter_disruption::settings::{Mode, Settings};
use karpenter_model::problem::ReservedMode;
use karpenter_state::dump::newest_time;
use karpenter_state::{CatalogChoice, Objects, assemble_fleet, read_dump};

use crate::cli::{ModeChoice, PlanArguments, Rounds};
use crate::render::consolidation::write_report;
use crate::render::terminal::Terminal;
use crate::{Outcome, diagnostics};
use report::{Report, Timings};

/// A fleet that never comes to rest would be a bug; a run still ends.
const ROUNDS_MAX: u32 = 1_000;

pub(crate) fn run(
    arguments: &PlanArguments,
    objects: Objects,
    catalog: &CatalogChoice,
    read: std::time::Duration,
) -> Result<Outcome> {
    let mut timings = Timings { read, ..Timings::default() };
    let started = Instant::now();
    let now = moment(arguments, &objects)?;
    let dump = read_dump(objects, catalog, now);
    let mut round = assemble_fleet(&dump.live, &dump.input);
    round.fleet.problem.options = arguments.knobs.options();
    round.fleet.problem.options.reserved_mode = ReservedMode::Fallback;
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
    if round.fleet.machines.is_empty() {
        diagnostics::print_error(
            "the input has no node of a NodePool, so there is nothing to consolidate; valid: nodes with the label karpenter.sh/nodepool, as `kubectl get nodes,pods,nodeclaims,nodepools,pdb -A -o yaml` prints them",
        );
        return Ok(Outcome::InputRefused);
    }

    let settings = settings(arguments);
    let started = Instant::now();
    let mut report = Report::new(&round.fleet, now, settings.mode);
    let rounds = match arguments.rounds {
        Rounds::AtMost(count) => count,
        Rounds::All => ROUNDS_MAX,
    };
    let mut fleet = round.fleet;
    let mut proposal = Proposal::default();
    for number in 1..=rounds {
        proposal = propose(&fleet, &settings);
        report.add_round(number, &fleet, &proposal);
        if proposal.commands.is_empty() || number == rounds {
            break;
        }
        fleet = carried_out::after(&fleet, &proposal.commands);
    }
    if arguments.explain {
        ask_why(&fleet, &settings, &mut proposal);
    }
    report.finish(&fleet, &proposal);
    timings.decide = started.elapsed();
    report.set_timings(&timings);

    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write_report(&report, arguments.output, &Terminal::of_stdout(), &mut out)?;
    out.flush()?;
    Ok(Outcome::Done)
}

/// The moment asked for, or the newest one that the dump shows.
fn moment(arguments: &PlanArguments, objects: &Objects) -> Result<Timestamp> {
    match arguments.now.or_else(|| newest_time(objects)) {
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
        ..Settings::default()
    }
}

/// Gives every node that merely was not chosen an answer of its own, at the price of one simulation each.
fn ask_why(fleet: &Fleet, settings: &Settings, proposal: &mut Proposal) {
    for standing in &mut proposal.standings {
        if matches!(standing.why, Why::Fine | Why::NotNow)
            && let Err(why) = why_not(fleet, settings, standing.machine)
        {
            standing.why = why;
        }
    }
}
