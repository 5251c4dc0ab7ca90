//! Aligned text columns. If the terminal is too narrow, the least important columns are omitted first.

use std::io::{self, Write};

use anstyle::Style;

use super::terminal::Terminal;

const GAP: &str = "  ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

pub(crate) struct Column {
    pub(crate) header: String,
    pub(crate) align: Align,
    /// 0: the column is never omitted. Of the other columns, the one with the highest rank is omitted first.
    pub(crate) rank: u8,
}

impl Column {
    pub(crate) fn new(header: impl Into<String>, align: Align, rank: u8) -> Self {
        Self { header: header.into(), align, rank }
    }
}

pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::new() }
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

pub(crate) struct Columns {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Columns {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    fn widths(&self) -> Vec<usize> {
        self.columns
            .iter()
            .enumerate()
            .map(|(position, column)| {
                let cells = self.rows.iter().map(|row| row[position].width()).max().unwrap_or(0);
                cells.max(column.header.chars().count())
            })
            .collect()
    }

    /// The width of the table with only the columns whose rank is at most `rank`.
    pub(crate) fn width_up_to(&self, rank: u8) -> usize {
        let widths = self.widths();
        let shown = widths.iter().zip(&self.columns).filter(|(_, column)| column.rank <= rank);
        shown.map(|(width, _)| width + GAP.len()).sum::<usize>().saturating_sub(GAP.len())
    }

    pub(crate) fn write(&self, terminal: &Terminal, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        let shown = self.fitting(&widths, terminal.width);
        let header: Vec<Cell> =
            self.columns.iter().map(|column| Cell::styled(column.header.clone(), terminal.bold())).collect();
        self.write_row(&header, &widths, &shown, out)?;
        self.rows.iter().try_for_each(|row| self.write_row(row, &widths, &shown, out))
    }

    fn fitting(&self, widths: &[usize], available: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        loop {
            let width = shown.iter().map(|column| widths[*column] + GAP.len()).sum::<usize>();
            if width <= available.saturating_add(GAP.len()) {
                return shown;
            }
            let least = shown.iter().copied().max_by_key(|column| (self.columns[*column].rank, *column));
            match least {
                Some(column) if self.columns[column].rank > 0 => shown.retain(|other| *other != column),
                _ => return shown,
            }
        }
    }

    fn write_row(
        &self,
        row: &[Cell],
        widths: &[usize],
        shown: &[usize],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for (position, column) in shown.iter().enumerate() {
            let cell = &row[*column];
            let padding = widths[*column] - cell.width();
            let is_last = position + 1 == shown.len();
            if position > 0 {
                out.write_all(GAP.as_bytes())?;
            }
            let style = cell.style;
            match self.columns[*column].align {
                Align::Right => write!(out, "{:padding$}{style}{}{style:#}", "", cell.text)?,
                // The last column has no trailing spaces, because they would show up in diffs.
                Align::Left if is_last => write!(out, "{style}{}{style:#}", cell.text)?,
                Align::Left => write!(out, "{style}{}{style:#}{:padding$}", cell.text, "")?,
            }
        }
        out.write_all(b"\n")
    }
}
