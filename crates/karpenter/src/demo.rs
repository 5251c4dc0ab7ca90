//! `karpenter demo`: runs a scenario on an embedded cluster with a simulated clock.
//!
//! The API server, the scheduler, the workload controllers and Karpenter's controllers are the same as in `karpenter
//! up` and `karpenter controller`; only instances are simulated. When all tasks are idle, the clock advances to the
//! next timer. Equal seeds give equal output.

mod chronicle;
mod fleet;
mod objects;
mod report;
mod story;
mod timeline;
mod world;

use std::io::{self, Write};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cli::{BenchFormat, DemoArguments};
use crate::render::terminal::Terminal;
use crate::{Outcome, diagnostics};
use timeline::Timeline;
use world::World;

pub(crate) fn run(arguments: &DemoArguments) -> Result<Outcome> {
    let started = Instant::now();
    // One thread and a paused clock make the run deterministic.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot start the demo's clock")?;
    let is_table = arguments.output == BenchFormat::Table;
    let terminal = Terminal::of_stdout();
    let timeline = Timeline::new(is_table.then_some(terminal), arguments.verbose);
    let (timeline, summary) = runtime.block_on(async {
        let mut world = World::start(arguments.seed, timeline).await?;
        let summary = story::run(&mut world).await;
        // The world is stopped even if the scenario failed, so that the steps up to the failure are printed.
        let timeline = world.stop().await;
        summary.map(|summary| (timeline, summary))
    })?;
    let mut out = io::stdout().lock();
    if is_table {
        report::write_table(&summary, &terminal, &mut out)?;
        out.flush()?;
        let took = started.elapsed().as_secs_f64();
        diagnostics::print_note(&format!("simulated {} in {took:.1} s", report::span(summary.duration)));
    } else {
        report::write_json(timeline.entries(), &summary, &mut out)?;
    }
    Ok(Outcome::Done)
}
