//! The output of the scenario. Lines of the table are printed immediately; JSON and YAML are printed at the end.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::AnsiColor;
use serde::Serialize;

use crate::render::terminal::Terminal;

/// Who caused a step of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Actor {
    You,
    Karpenter,
    Cloud,
    Cluster,
}

impl Actor {
    fn name(self) -> &'static str {
        match self {
            Self::You => "you",
            Self::Karpenter => "karpenter",
            Self::Cloud => "cloud",
            Self::Cluster => "cluster",
        }
    }

    fn colour(self) -> AnsiColor {
        match self {
            Self::You => AnsiColor::Cyan,
            Self::Karpenter => AnsiColor::Green,
            Self::Cloud => AnsiColor::Yellow,
            Self::Cluster => AnsiColor::BrightBlack,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Entry {
    /// The seconds since the start of the scenario.
    pub(super) seconds: f64,
    pub(super) actor: Actor,
    pub(super) text: String,
}

pub(super) struct Timeline {
    terminal: Option<Terminal>,
    is_verbose: bool,
    entries: Vec<Entry>,
}

impl Timeline {
    /// Prints to standard output.
    pub(super) fn new(terminal: Option<Terminal>, is_verbose: bool) -> Self {
        Self { terminal, is_verbose, entries: Vec::new() }
    }

    pub(super) fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Records a step at this simulated time.
    pub(super) fn record(&mut self, at: Duration, actor: Actor, text: impl Into<String>) -> io::Result<()> {
        let text = text.into();
        if let Some(terminal) = &self.terminal {
            let (style, dim) = (terminal.coloured(actor.colour()), terminal.dim());
            let (time, name) = (clock_face(at), actor.name());
            let mut out = io::stdout().lock();
            writeln!(out, "{dim}{time:>7}{dim:#}  {style}{name:<9}{style:#}  {text}")?;
            out.flush()?;
        }
        self.entries.push(Entry { seconds: (at.as_millis() as f64) / 1000.0, actor, text });
        Ok(())
    }
}

/// Formats a duration as minutes and seconds.
fn clock_face(at: Duration) -> String {
    let tenths = at.as_millis() / 100;
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_shows_minutes_seconds_and_tenths() {
        assert_eq!(clock_face(Duration::from_millis(0)), "0:00.0");
        assert_eq!(clock_face(Duration::from_millis(65_390)), "1:05.3");
        assert_eq!(clock_face(Duration::from_secs(3600)), "60:00.0");
    }
}
