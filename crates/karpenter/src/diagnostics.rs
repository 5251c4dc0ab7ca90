//! Prints errors, warnings and notes to standard error: one line each, coloured only on a terminal. Callers decide
//! the severity.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};

pub(crate) fn print_error(message: &str) {
    print_line("error", AnsiColor::Red, message);
}

pub(crate) fn print_warning(message: &str) {
    print_line("warning", AnsiColor::Yellow, message);
}

pub(crate) fn print_note(message: &str) {
    print_line("note", AnsiColor::Cyan, message);
}

fn print_line(level: &str, colour: AnsiColor, message: &str) {
    let mut stderr = io::stderr().lock();
    let style = if stderr.is_terminal() && !no_colour() {
        Style::new().bold().fg_color(Some(colour.into()))
    } else {
        Style::new()
    };
    // Each message is printed in one line, even if the message of a parser has several lines. If stderr is closed, the
    // message is lost.
    let _ = writeln!(stderr, "{style}{level}{style:#}: {}", single_line(message));
}

/// Whether the user disabled colours (<https://no-color.org>).
pub(crate) fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn single_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut text = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        text.push_str("; ");
        text.push_str(line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::single_line;

    #[test]
    fn message_with_several_lines_is_printed_on_one() {
        assert_eq!(single_line("a: b\n  c\n\n d\n"), "a: b; c; d");
        assert_eq!(single_line(""), "");
    }
}
