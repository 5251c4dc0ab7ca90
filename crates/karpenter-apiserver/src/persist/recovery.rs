//! Recovers the state from a data directory: reads the newest snapshot and the journals after it.
//!
//! The last journal may end within a record, because the process ended while it wrote the record. That commit was not
//! acknowledged, so the journal is truncated there. Any other damage is an error, because the server must not start
//! with only a part of its state.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::files::{self, JOURNAL_MAGIC, SNAPSHOT_HEAD_BYTES, SNAPSHOT_MAGIC};
use super::record::{self, Decoded};
use super::{Journal, PersistError};

/// The state that was read from a data directory, and the journal for further commits.
pub(crate) struct Recovered {
    pub(crate) revision: u64,
    /// The revision and JSON of each object, by storage id and key.
    pub(crate) objects: BTreeMap<(String, String), (u64, Vec<u8>)>,
    pub(crate) journal: Journal,
}

pub(crate) fn recover(directory: &Path) -> Result<Recovered, PersistError> {
    let lock = files::lock(directory)?;
    let mut state = State::default();
    let first = match files::numbers(directory, "snapshot-")?.last() {
        Some(number) => {
            state.read_snapshot(&files::snapshot(directory, *number))?;
            *number
        }
        None => 0,
    };
    let journals: Vec<u64> =
        files::numbers(directory, "journal-")?.into_iter().filter(|number| *number >= first).collect();
    for number in &journals {
        let is_last = Some(number) == journals.last();
        state.read_journal(&files::journal(directory, *number), is_last)?;
    }
    let number = match journals.last() {
        Some(number) => *number,
        None => {
            let path = files::journal(directory, first);
            files::create_journal(directory, first).map_err(PersistError::io(&path))?;
            first
        }
    };
    let journal = Journal::start(directory, number, state.revision, lock)?;
    Ok(Recovered { revision: state.revision, objects: state.objects, journal })
}

#[derive(Default)]
struct State {
    revision: u64,
    objects: BTreeMap<(String, String), (u64, Vec<u8>)>,
}

impl State {
    fn read_snapshot(&mut self, path: &Path) -> Result<(), PersistError> {
        let bytes = fs::read(path).map_err(PersistError::io(path))?;
        let (magic, rest) = bytes.split_at_checked(SNAPSHOT_MAGIC.len()).unwrap_or_default();
        if magic != SNAPSHOT_MAGIC {
            return Err(PersistError::UnknownFormat(path.to_path_buf()));
        }
        let corrupt = |at: usize, why| PersistError::Corrupt { file: path.to_path_buf(), at: at as u64, why };
        let number = |at: usize| {
            let bytes = rest.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
            bytes.ok_or_else(|| corrupt(at, "the snapshot has no header"))
        };
        let (revision, count) = (number(0)?, number(8)?);
        let mut at = SNAPSHOT_HEAD_BYTES;
        for _ in 0..count {
            match record::read(bytes.get(at..).unwrap_or_default()) {
                Decoded::Record(record, length) => {
                    self.apply(&record);
                    at += length;
                }
                _ => {
                    return Err(corrupt(
                        at,
                        "a record of the snapshot is truncated or its checksum does not match",
                    ));
                }
            }
        }
        self.revision = self.revision.max(revision);
        Ok(())
    }

    fn read_journal(&mut self, path: &Path, is_last: bool) -> Result<(), PersistError> {
        let bytes = fs::read(path).map_err(PersistError::io(path))?;
        // The process ended while it was creating this journal.
        if is_last && bytes.len() < JOURNAL_MAGIC.len() && JOURNAL_MAGIC.starts_with(&bytes) {
            return fs::write(path, JOURNAL_MAGIC).map_err(PersistError::io(path));
        }
        if !bytes.starts_with(JOURNAL_MAGIC) {
            return Err(PersistError::UnknownFormat(path.to_path_buf()));
        }
        let covered = self.revision;
        let mut at = JOURNAL_MAGIC.len();
        loop {
            let rest = &bytes[at..];
            match record::read(rest) {
                Decoded::End => return Ok(()),
                Decoded::Record(record, length) => {
                    if record.revision > covered {
                        self.apply(&record);
                    }
                    at += length;
                }
                Decoded::Truncated if is_last => return truncate(path, at),
                Decoded::Invalid(length) if is_last && (length >= rest.len() || is_blank(rest)) => {
                    return truncate(path, at);
                }
                Decoded::Truncated | Decoded::Invalid(_) => {
                    let why = "a record of the journal is truncated or its checksum does not match";
                    return Err(PersistError::Corrupt { file: PathBuf::from(path), at: at as u64, why });
                }
            }
        }
    }

    fn apply(&mut self, record: &record::Record<'_>) {
        self.revision = self.revision.max(record.revision);
        let object_key = (record.storage.to_string(), record.key.to_string());
        match record.object {
            Some(object) => self.objects.insert(object_key, (record.revision, object.to_vec())),
            None => self.objects.remove(&object_key),
        };
    }
}

/// Whether all bytes are zero, because the file system allocated them, but nothing was written to them.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Cuts the journal off after the last complete record.
fn truncate(path: &Path, length: usize) -> Result<(), PersistError> {
    let file = File::options().write(true).open(path).map_err(PersistError::io(path))?;
    file.set_len(length as u64).map_err(PersistError::io(path))?;
    file.sync_all().map_err(PersistError::io(path))
}
