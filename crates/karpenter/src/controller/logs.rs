//! Log lines: one JSON object each with upstream's keys, or text for people.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use jiff::Timestamp;
use karpenter_controllers::COMMIT;
use karpenter_controllers::metrics::cloud::acting_controller;
use karpenter_controllers::operator::Options;
use karpenter_controllers::operator::options::{LogFormat, LogLevel};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The name under which upstream logs.
const LOGGER: &str = "controller";

/// Sends what is logged where the options say. To be called once per process.
pub(super) fn start(options: &Options) -> Result<()> {
    let level = match options.log_level {
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Info => Level::INFO,
        LogLevel::Warn => Level::WARN,
        LogLevel::Error => Level::ERROR,
    };
    // Libraries only when they complain.
    let filter = Targets::new().with_target("karpenter", level).with_default(Level::ERROR);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines { format: options.log_format })
        .with_writer(Outputs::open(&options.log_output_paths)?);
    tracing_subscriber::registry().with(filter).with(lines).try_init().context("logs are set up already")
}

struct Lines {
    format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(controller) = acting_controller().filter(|_| !fields.has("controller")) {
            fields.others.insert(0, ("controller", controller.into()));
        }
        let line = line(self.format, event.metadata().level(), Timestamp::now(), &fields);
        writeln!(out, "{line}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn has(&self, name: &str) -> bool {
        self.others.iter().any(|(known, _)| *known == name)
    }

    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

fn line(format: LogFormat, level: &Level, time: Timestamp, fields: &Fields) -> String {
    let time = time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    match format {
        LogFormat::Json => {
            let fixed = [
                ("level", Value::from(level.as_str())),
                ("time", Value::from(time)),
                ("logger", Value::from(LOGGER)),
                ("message", Value::from(fields.message.as_str())),
            ];
            let commit = Some(("commit", Value::from(COMMIT))).filter(|_| !COMMIT.is_empty());
            let others = fields.others.iter().map(|(key, value)| reference(key, value));
            // By hand, because the order of the keys is for the eyes of people.
            let parts: Vec<String> = fixed
                .into_iter()
                .chain(commit)
                .chain(others)
                .map(|(key, value)| format!("{}:{value}", Value::from(key)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        LogFormat::Console => {
            let mut line = format!("{time} {level:5} {}", fields.message);
            for (key, value) in &fields.others {
                let _ = match value {
                    Value::String(text) if !text.contains([' ', '"', '=']) && !text.is_empty() => {
                        write!(line, " {key}={text}")
                    }
                    value => write!(line, " {key}={value}"),
                };
            }
            line
        }
    }
}

/// Objects as upstream's lines name them: `"NodeClaim":{"name":"default-x"}`.
fn reference(key: &'static str, value: &Value) -> (&'static str, Value) {
    let kind = match key {
        "nodeclaim" => "NodeClaim",
        "nodepool" => "NodePool",
        "node" => "Node",
        "pod" => "Pod",
        _ => return (key, value.clone()),
    };
    let Value::String(name) = value else { return (key, value.clone()) };
    let value = match name.split_once('/') {
        Some((namespace, name)) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": name}),
    };
    (kind, value)
}

/// Where lines go; all of these at once.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        Fields {
            message: "launched \"it\"".to_owned(),
            others: vec![
                ("nodeclaim", "default-x".into()),
                ("pod", "default/web".into()),
                ("error", "a b".into()),
                ("count", 3.into()),
            ],
        }
    }

    #[test]
    fn a_json_line_has_upstreams_keys_first() {
        let time = "2026-01-02T03:04:05.678Z".parse().expect("a time");
        let line = line(LogFormat::Json, &Level::INFO, time, &fields());
        assert!(
            line.starts_with(r#"{"level":"INFO","time":"2026-01-02T03:04:05.678Z","logger":"controller","#)
        );
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["message"], "launched \"it\"");
        assert_eq!((&read["NodeClaim"], &read["count"]), (&json!({"name": "default-x"}), &3.into()));
        assert_eq!(read["Pod"], json!({"name": "web", "namespace": "default"}));
    }

    #[test]
    fn a_console_line_quotes_what_needs_it() {
        let time = "2026-01-02T03:04:05.678Z".parse().expect("a time");
        let line = line(LogFormat::Console, &Level::ERROR, time, &fields());
        assert_eq!(
            line,
            "2026-01-02T03:04:05.678Z ERROR launched \"it\" nodeclaim=default-x pod=default/web error=\"a b\" count=3"
        );
    }
}
