//! A utilisation bar: a fraction drawn in a fixed number of cells, followed by the percentage.

use anstyle::AnsiColor;

use super::columns::Cell;
use super::terminal::Terminal;

/// Draws a fraction. If `cells` is 0, only the percentage is printed.
pub(crate) fn cell(fraction: Option<f64>, cells: usize, terminal: &Terminal) -> Cell {
    let Some(fraction) = fraction else { return Cell::plain("-") };
    let percent = format!("{:>3.0}%", fraction * 100.0);
    let colour = match fraction {
        fraction if fraction >= 0.8 => AnsiColor::Green,
        fraction if fraction >= 0.5 => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    let text = match cells {
        0 => percent,
        cells if terminal.unicode => format!("{} {percent}", unicode_bar(fraction, cells)),
        cells => format!("{} {percent}", ascii_bar(fraction, cells)),
    };
    Cell::styled(text, terminal.coloured(colour))
}

fn ascii_bar(fraction: f64, cells: usize) -> String {
    let filled = ((fraction.clamp(0.0, 1.0) * cells as f64).round() as usize).min(cells);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(cells - filled))
}

fn unicode_bar(fraction: f64, cells: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (fraction.clamp(0.0, 1.0) * cells as f64 * 8.0).round() as usize;
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut text = "█".repeat(full);
    if full < cells {
        text.push(if rest == 0 { '░' } else { EIGHTHS[rest] });
        text.push_str(&"░".repeat(cells - full - 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_has_requested_width_at_every_fraction() {
        for step in 0..=120 {
            let fraction = f64::from(step) / 100.0;
            assert_eq!(ascii_bar(fraction, 10).chars().count(), 12);
            assert_eq!(unicode_bar(fraction, 10).chars().count(), 10, "{fraction}");
        }
        assert_eq!(ascii_bar(0.5, 4), "[##..]");
        assert_eq!(unicode_bar(1.0, 3), "███");
        assert_eq!(unicode_bar(0.5, 3), "█▌░");
    }
}
