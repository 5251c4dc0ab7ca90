//! Formats log lines.

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use serde_json::Value;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use super::fields::{FieldValue, Fields, of_pass};
use super::pass::{Object, Pass};
use crate::COMMIT;

/// The name of the logger in log lines, as in upstream.
const LOGGER: &str = "controller";

/// Formats tracing events as log lines.
pub struct Lines {
    pub format: LogFormat,
    pub now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = (self.now)().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let (level, pass) = (event.metadata().level(), Pass::current());
        let line = match self.format {
            LogFormat::Json => json_line(level, &time, pass.as_ref(), fields),
            LogFormat::Console => console_line(level, &time, pass.as_ref(), &fields),
        };
        writeln!(out, "{line}")
    }
}

/// Formats an event as JSON. The keys are in upstream's order, because users parse lines with regular expressions.
fn json_line(level: &Level, time: &str, pass: Option<&Pass>, fields: Fields) -> String {
    let text = |text: &str| FieldValue::Text(text.to_owned());
    let fixed = [
        ("level", text(level.as_str())),
        ("time", text(time)),
        ("logger", text(LOGGER)),
        ("message", text(&fields.message)),
        ("commit", text(COMMIT)),
    ];
    // A call site may set the field `controller`; it replaces the controller of the pass.
    let has_controller = fields.has("controller");
    let of_pass = pass.map(of_pass).unwrap_or_default().into_iter();
    let of_pass = of_pass.filter(|(key, _)| !(has_controller && key == "controller"));
    let parts: Vec<String> = fixed
        .into_iter()
        .map(|(key, value)| (key.into(), value))
        .chain(of_pass)
        .chain(fields.others)
        .map(|(key, value)| {
            let key = match &value {
                FieldValue::Reference(kind, _) => Value::from(*kind),
                _ => Value::from(&*key),
            };
            format!("{key}:{}", value.json())
        })
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// Formats an event as text: message, controller, object, and the fields of the call site. Fields that only programs
/// need are left out.
fn console_line(level: &Level, time: &str, pass: Option<&Pass>, fields: &Fields) -> String {
    let mut line = format!("{time} {level:5} {}", fields.message);
    if let Some(pass) = pass {
        if !fields.has("controller") {
            append(&mut line, "controller", pass.controller);
        }
        if let Object::Of(kind, key) = &pass.object {
            let name = kind.kind.to_lowercase();
            if !fields.has(&name) {
                append(&mut line, &name, &key.to_string());
            }
        }
    }
    for (key, value) in &fields.others {
        match value {
            FieldValue::Text(text) | FieldValue::Reference(_, text) => append(&mut line, key, text),
            FieldValue::Json(json) => {
                let _ = write!(line, " {key}={json}");
            }
        }
    }
    line
}

/// Appends a field to the line. The value is quoted if it contains spaces, quotes or equals signs.
fn append(line: &mut String, key: &str, text: &str) {
    let _ = match text.is_empty() || text.contains([' ', '"', '=']) {
        true => write!(line, " {key}={}", Value::from(text)),
        false => write!(line, " {key}={text}"),
    };
}
