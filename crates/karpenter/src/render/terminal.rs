//! The capabilities of the output: colour, width and characters.

use std::io::{self, IsTerminal};

use anstyle::{AnsiColor, Style};

use crate::diagnostics::no_colour;

/// A terminal narrower than this gets the narrow layout, and long lines are wrapped.
const WIDTH_MIN: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terminal {
    pub(crate) colour: bool,
    /// Whether block characters and the multiplication sign can be printed; otherwise only ASCII.
    pub(crate) unicode: bool,
    /// The number of columns; `usize::MAX` if the width is not limited.
    pub(crate) width: usize,
}

impl Terminal {
    /// Plain text without a width limit, for files, pipes and tests.
    pub(crate) const PLAIN: Self = Self { colour: false, unicode: false, width: usize::MAX };

    pub(crate) fn of_stdout() -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
        let is_terminal = io::stdout().is_terminal();
        if !is_terminal {
            return Self { width: columns.unwrap_or(usize::MAX).max(WIDTH_MIN), ..Self::PLAIN };
        }
        let detected = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        Self {
            colour: !no_colour() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            unicode: locale_is_utf8(),
            width: columns.or(detected).unwrap_or(80).max(WIDTH_MIN),
        }
    }

    pub(crate) fn bold(&self) -> Style {
        if self.colour { Style::new().bold() } else { Style::new() }
    }

    pub(crate) fn dim(&self) -> Style {
        if self.colour { Style::new().dimmed() } else { Style::new() }
    }

    pub(crate) fn coloured(&self, colour: AnsiColor) -> Style {
        if self.colour { Style::new().fg_color(Some(colour.into())) } else { Style::new() }
    }

    /// The multiplication sign "×" if the output supports it, otherwise the letter "x".
    pub(crate) fn times(&self) -> &'static str {
        if self.unicode { "×" } else { "x" }
    }
}

fn locale_is_utf8() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .is_some_and(|value| {
            let value = value.to_ascii_lowercase();
            value.contains("utf-8") || value.contains("utf8")
        })
}
