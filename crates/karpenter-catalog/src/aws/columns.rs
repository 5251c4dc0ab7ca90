//! Reads the container format of the catalog file: varints, strings and compressed columns.
//!
//! `tools/catalog/columns.py` writes the format and documents it. A corrupt file gives an error that states the
//! position, never a panic.

use std::collections::BTreeMap;

use crate::CatalogError;

/// A reading position in the file.
pub(super) struct Reader {
    data: &'static [u8],
    at: usize,
    /// The offset of `data` in the whole file, for error messages.
    offset: usize,
}

impl Reader {
    pub(super) fn new(data: &'static [u8]) -> Reader {
        Reader { data, at: 0, offset: 0 }
    }

    /// A reader for the next `length` bytes only; `self` continues after them.
    fn part(&mut self, length: usize) -> Result<Reader, CatalogError> {
        let offset = self.offset + self.at;
        Ok(Reader { data: self.bytes(length)?, at: 0, offset })
    }

    pub(super) fn damaged(&self, what: &str) -> CatalogError {
        CatalogError::Damaged { at: self.offset + self.at, what: what.to_owned() }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.data.len()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'static [u8], CatalogError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.data.len());
        let end = end.ok_or_else(|| self.damaged("the file ends too early"))?;
        let bytes = &self.data[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn varint(&mut self) -> Result<u64, CatalogError> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.bytes(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damaged("an integer is longer than 63 bits"))
    }

    /// Reads how many items follow. Each item takes at least one byte, so a corrupt number cannot allocate more memory
    /// than the file's size.
    pub(super) fn count(&mut self) -> Result<usize, CatalogError> {
        let count = self.varint()?;
        let remaining = self.data.len() - self.at;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= remaining)
            .ok_or_else(|| self.damaged("a count is larger than the rest of the file"))
    }

    pub(super) fn string(&mut self) -> Result<&'static str, CatalogError> {
        let length = self.count()?;
        let bytes = self.bytes(length)?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("a string is not UTF-8"))
    }

    fn sequence(&mut self) -> Result<Vec<u64>, CatalogError> {
        (0..self.count()?).map(|_| self.varint()).collect()
    }
}

/// A column of the file: one value per instance type or other row.
enum Column {
    Scalars(Vec<u64>),
    Sequences { distinct: Vec<Vec<u64>>, rows: Vec<usize> },
}

/// All columns, by name.
pub(super) struct Columns {
    row_count: usize,
    columns: BTreeMap<&'static str, Column>,
}

const SHAPE_SCALAR: u8 = 0;
const SHAPE_SEQUENCE: u8 = 1;
const ENCODING_PLAIN: u8 = 0;
const ENCODING_DICTIONARY: u8 = 1;
const ENCODING_RUNS: u8 = 2;

impl Columns {
    pub(super) fn read(reader: &mut Reader) -> Result<Columns, CatalogError> {
        let row_count = reader.count()?;
        let mut columns = BTreeMap::new();
        for _ in 0..reader.count()? {
            let name = reader.string()?;
            let (shape, encoding) = match reader.bytes(2)? {
                [shape, encoding] => (*shape, *encoding),
                _ => return Err(reader.damaged("a column has no header")),
            };
            let length = reader.count()?;
            let mut body = reader.part(length)?;
            let column = match shape {
                SHAPE_SCALAR => {
                    let (distinct, rows) = read_values(&mut body, encoding, row_count, Reader::varint)?;
                    Column::Scalars(rows.into_iter().map(|row| distinct[row]).collect())
                }
                SHAPE_SEQUENCE => {
                    let (distinct, rows) = read_values(&mut body, encoding, row_count, Reader::sequence)?;
                    Column::Sequences { distinct, rows }
                }
                _ => return Err(reader.damaged("a column has an unknown shape")),
            };
            if !body.is_at_end() {
                return Err(reader.damaged("a column is longer than its values"));
            }
            columns.insert(name, column);
        }
        Ok(Columns { row_count, columns })
    }

    pub(super) fn row_count(&self) -> usize {
        self.row_count
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.columns.keys().copied()
    }

    pub(super) fn scalars(&self, name: &str) -> Result<&[u64], CatalogError> {
        match self.columns.get(name) {
            Some(Column::Scalars(values)) => Ok(values),
            _ => Err(CatalogError::MissingColumn { name: name.to_owned() }),
        }
    }

    pub(super) fn sequences(&self, name: &str) -> Result<Sequences<'_>, CatalogError> {
        match self.columns.get(name) {
            Some(Column::Sequences { distinct, rows }) => Ok(Sequences { distinct, rows }),
            _ => Err(CatalogError::MissingColumn { name: name.to_owned() }),
        }
    }
}

/// A column in which every row holds a sequence; equal sequences are stored once.
#[derive(Clone, Copy)]
pub(super) struct Sequences<'a> {
    distinct: &'a [Vec<u64>],
    rows: &'a [usize],
}

impl<'a> Sequences<'a> {
    pub(super) fn row(&self, row: usize) -> &'a [u64] {
        &self.distinct[self.rows[row]]
    }
}

/// Reads the body of a column: its distinct values, and for each row a checked index into them.
fn read_values<T>(
    reader: &mut Reader,
    encoding: u8,
    row_count: usize,
    read: impl Fn(&mut Reader) -> Result<T, CatalogError>,
) -> Result<(Vec<T>, Vec<usize>), CatalogError> {
    if encoding == ENCODING_PLAIN {
        let values = (0..row_count).map(|_| read(reader)).collect::<Result<Vec<T>, _>>()?;
        return Ok((values, (0..row_count).collect()));
    }
    let distinct = (0..reader.count()?).map(|_| read(reader)).collect::<Result<Vec<T>, _>>()?;
    let mut rows = Vec::with_capacity(row_count);
    match encoding {
        ENCODING_DICTIONARY => {
            for _ in 0..row_count {
                rows.push(index(reader, distinct.len())?);
            }
        }
        ENCODING_RUNS => {
            for _ in 0..reader.count()? {
                let index = index(reader, distinct.len())?;
                let length = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
                if length > row_count - rows.len() {
                    return Err(reader.damaged("a run goes past the last row"));
                }
                rows.resize(rows.len() + length, index);
            }
        }
        _ => return Err(reader.damaged("a column has an unknown encoding")),
    }
    if rows.len() != row_count {
        return Err(reader.damaged("a column has too few rows"));
    }
    Ok((distinct, rows))
}

fn index(reader: &mut Reader, count: usize) -> Result<usize, CatalogError> {
    let index = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if index < count { Ok(index) } else { Err(reader.damaged("an index is out of range")) }
}
