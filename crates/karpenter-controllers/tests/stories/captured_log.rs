//! Captures log lines during a test.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Captures the log lines of the current thread until this value is dropped.
pub(crate) struct CapturedLog {
    lines: Lines,
    _listening: DefaultGuard,
}

type Lines = Arc<Mutex<Vec<(Level, String)>>>;

impl CapturedLog {
    pub(crate) fn start() -> Self {
        let lines = Lines::default();
        let listening = tracing::subscriber::set_default(CapturingSubscriber { lines: lines.clone() });
        Self { lines, _listening: listening }
    }

    /// The captured lines of this level whose message starts with `begin`, with their fields.
    pub(crate) fn lines(&self, level: Level, begin: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let of_level = lines.iter().filter(|(of, line)| *of == level && line.starts_with(begin));
        of_level.map(|(_, line)| line.clone()).collect()
    }
}

struct CapturingSubscriber {
    lines: Lines,
}

impl Subscriber for CapturingSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push((*event.metadata().level(), text));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
