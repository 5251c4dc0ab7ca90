//! `karpenter demo`: a story about Karpenter, on an embedded cluster in virtual time.
//!
//! Everything in it is real but the machines: the API server, the scheduler, the workload controllers and Karpenter's
//! own controllers are those of `up` and `controller`. Only time is not: whenever nothing has anything to do, it jumps
//! to the next thing that happens. The same seed tells the same story to the letter.

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
    // One thread, and a clock that moves only when nothing else can: nothing is left to chance.
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
        let summary = story::tell(&mut world).await;
        // What was told up to a failure is worth seeing too.
        let timeline = world.stop().await;
        summary.map(|summary| (timeline, summary))
    })?;
    let mut out = io::stdout().lock();
    if is_table {
        report::write_table(&summary, &terminal, &mut out)?;
        out.flush()?;
        let took = started.elapsed().as_secs_f64();
        diagnostics::print_note(&format!(
            "{} of the cluster's time passed in {took:.1} s",
            report::span(summary.told)
        ));
    } else {
        report::write_json(timeline.entries(), &summary, &mut out)?;
    }
    Ok(Outcome::Done)
}
