//! The `karpenter` command: parses arguments, calls the command, and converts the result into an exit code. It makes
//! no decisions about pods or nodes.

mod bench;
#[cfg(feature = "aws")]
mod bootstrap;
mod cli;
mod cluster_objects;
mod connect;
mod controller;
mod convert;
mod crds;
mod demo;
mod diagnostics;
mod doctor;
mod explain;
mod install;
mod legacy;
mod lint;
mod plan;
mod render;
mod simulated_ec2;
mod up;

use std::io;
use std::process::ExitCode;

use karpenter_memory::heap::SampledHeap;

use crate::cli::{Cli, Command};

/// The C library's allocator, which records allocations if profiling is enabled.
#[global_allocator]
static HEAP: SampledHeap = SampledHeap;

/// The result of a command. The exit codes are documented (docs/plan-output.md) and must not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The input left nothing to plan, or an error was found under `--strict`.
    InputRefused,
    /// The planner has a fault: the pods concerned are not in the output.
    InternalError,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::InputRefused => Self::from(1),
            Outcome::InternalError => Self::from(3),
        }
    }
}

fn main() -> ExitCode {
    karpenter_controllers::compute::abort_on_other_panics();
    let arguments =
        cli::implied::with_subcommand(std::env::args_os(), cli::implied::ProcessEnvironment::of_process());
    let (cli, ignored) = Cli::read(cli::go_flags::with_two_dashes(arguments));
    let result = match cli.command {
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Up(arguments) => up::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Controller(arguments) => controller::run(&arguments, &ignored),
        Command::Install(arguments) => install::run(&arguments),
        Command::Uninstall(arguments) => install::run_uninstall(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "aws")]
        Command::Bootstrap(arguments) => bootstrap::run(&arguments),
    };
    match result {
        Ok(outcome) => outcome.into(),
        // If the reader has closed the pipe (`| head`), this is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            diagnostics::print_error(&format!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|error| error.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}
