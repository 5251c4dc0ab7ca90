//! Sets up the log outputs. `karpenter_controllers::logs` formats the lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use jiff::Timestamp;
use karpenter_controllers::logs::Lines;
use karpenter_controllers::operator::Options;
use karpenter_controllers::operator::options::LogLevel;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Configures logging. Must be called once per process.
pub(super) fn start(options: &Options) -> Result<()> {
    let level = match options.log_level {
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Info => Level::INFO,
        LogLevel::Warn => Level::WARN,
        LogLevel::Error => Level::ERROR,
    };
    // Log lines of other libraries are written only if they are errors.
    let filter = Targets::new().with_target("karpenter", level).with_default(Level::ERROR);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines { format: options.log_format, now: Box::new(Timestamp::now) })
        .with_writer(Outputs::open(&options.log_output_paths)?);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .try_init()
        .context("logging is already configured")
}

/// The outputs; each line is written to all of them.
#[derive(Clone)]
struct Outputs(Arc<Vec<Output>>);

enum Output {
    Stdout,
    Stderr,
    File(Mutex<File>),
}

impl Outputs {
    fn open(paths: &str) -> Result<Self> {
        let mut outputs = Vec::new();
        for path in paths.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            outputs.push(match path {
                "stdout" => Output::Stdout,
                "stderr" => Output::Stderr,
                file => {
                    let open = OpenOptions::new().create(true).append(true).open(file);
                    let open = open.with_context(|| format!("cannot write --log-output-paths {file}"))?;
                    Output::File(Mutex::new(open))
                }
            });
        }
        if outputs.is_empty() {
            outputs.push(Output::Stdout);
        }
        Ok(Self(Arc::new(outputs)))
    }
}

impl Write for Outputs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for output in self.0.iter() {
            match output {
                Output::Stdout => io::stdout().write_all(bytes)?,
                Output::Stderr => io::stderr().write_all(bytes)?,
                Output::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Outputs {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
