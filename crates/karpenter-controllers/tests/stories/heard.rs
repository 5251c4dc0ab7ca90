//! What is logged while a story is told.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Listens until it is dropped, on the thread of its story.
pub(crate) struct Heard {
    lines: Lines,
    _listening: DefaultGuard,
}

type Lines = Arc<Mutex<Vec<(Level, String)>>>;

impl Heard {
    pub(crate) fn listen() -> Self {
        let lines = Lines::default();
        let listening = tracing::subscriber::set_default(Listener { lines: lines.clone() });
        Self { lines, _listening: listening }
    }

    /// Lines of the level that begin so, each with its fields.
    pub(crate) fn lines(&self, level: Level, begin: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let of_level = lines.iter().filter(|(of, line)| *of == level && line.starts_with(begin));
        of_level.map(|(_, line)| line.clone()).collect()
    }
}

struct Listener {
    lines: Lines,
}

impl Subscriber for Listener {
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
        // Nothing is ever wrong with writing to a string.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
