//! Collects the log lines of this thread, with their fields as text.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) level: Level,
    /// Including `message`.
    pub(crate) fields: BTreeMap<&'static str, String>,
}

impl Line {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Collects log lines until it is dropped. Each test runs on its own thread, so lines of other tests are not included.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _listening: DefaultGuard,
}

impl Log {
    pub(crate) fn listen() -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let listening = tracing::subscriber::set_default(Listener(Arc::clone(&lines)));
        Self { lines, _listening: listening }
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn errors(&self) -> Vec<Line> {
        self.lines().into_iter().filter(|line| line.level == Level::ERROR).collect()
    }
}

struct Listener(Arc<Mutex<Vec<Line>>>);

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("karpenter")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = Line { level: *event.metadata().level(), fields: fields.0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
