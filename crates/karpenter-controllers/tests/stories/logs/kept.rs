//! Captures the formatted log in memory.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use karpenter_controllers::logs::{Lines, LogFormat};
use tracing::Level;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// Captures the log of the current thread until this value is dropped.
pub(crate) struct KeptLog {
    bytes: Bytes,
    _listening: DefaultGuard,
}

#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("a log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl KeptLog {
    pub(crate) fn start(format: LogFormat, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let bytes = Bytes::default();
        let out = bytes.clone();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Lines { format, now: Box::new(now) })
            .with_writer(move || out.clone());
        let filter = Targets::new().with_target("karpenter", Level::INFO);
        let subscriber = tracing_subscriber::registry().with(filter).with(lines);
        Self { bytes, _listening: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.0.lock().expect("a log").clone()).expect("text")
    }
}
