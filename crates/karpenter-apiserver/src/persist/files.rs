//! The files of a data directory: the file `lock`, and numbered journals and snapshots.
//!
//! Snapshot `n` has the state after all journals with numbers below `n`; journal `n` has the commits that follow.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{PersistError, record};
use crate::store::{Entry, StorageId};

pub(super) const JOURNAL_MAGIC: &[u8; 16] = b"kapi journal 1\r\n";
pub(super) const SNAPSHOT_MAGIC: &[u8; 16] = b"kapi snapshot1\r\n";
/// The size of a snapshot's header: magic number, revision and number of records.
pub(super) const SNAPSHOT_HEAD_BYTES: usize = 32;

pub(super) fn journal(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("journal-{number:08}"))
}

pub(super) fn snapshot(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("snapshot-{number:08}"))
}

pub(super) fn snapshot_length(directory: &Path, number: u64) -> u64 {
    fs::metadata(snapshot(directory, number)).map_or(0, |metadata| metadata.len())
}

/// How often to try to lock the directory. After a server in this process was dropped, its writer thread may still hold
/// the lock for a moment.
const LOCK_TRIES: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks the directory for this process. Closing the returned file releases the lock.
pub(super) fn lock(directory: &Path) -> Result<File, PersistError> {
    fs::create_dir_all(directory).map_err(PersistError::io(directory))?;
    let path = directory.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(PersistError::io(&path))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(source)) => return Err(PersistError::Io { file: path, source }),
        }
    }
    Err(PersistError::InUse(directory.to_path_buf()))
}

/// The numbers of files with this prefix, in ascending order.
pub(super) fn numbers(directory: &Path, prefix: &str) -> Result<Vec<u64>, PersistError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(PersistError::io(directory))? {
        let name = entry.map_err(PersistError::io(directory))?.file_name();
        let number: Option<u64> = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(super) fn create_journal(directory: &Path, number: u64) -> io::Result<File> {
    let mut file = File::options().append(true).create_new(true).open(journal(directory, number))?;
    file.write_all(JOURNAL_MAGIC)?;
    file.sync_all()?;
    sync_directory(directory)?;
    Ok(file)
}

/// Writes a snapshot to a temporary file and then renames it, so that a snapshot is either complete or absent.
pub(super) fn write_snapshot(
    directory: &Path,
    number: u64,
    revision: u64,
    entries: &[(StorageId, Arc<Entry>)],
) -> io::Result<u64> {
    let path = snapshot(directory, number);
    let unfinished = path.with_extension("unfinished");
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
    writer.write_all(SNAPSHOT_MAGIC)?;
    writer.write_all(&revision.to_le_bytes())?;
    writer.write_all(&(entries.len() as u64).to_le_bytes())?;
    let mut bytes = Vec::new();
    for (storage, entry) in entries {
        bytes.clear();
        record::append(&mut bytes, entry.revision(), storage, entry.key(), Some(entry.object()));
        writer.write_all(&bytes)?;
    }
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    sync_directory(directory)?;
    Ok(file.metadata()?.len())
}

/// Removes the older files that snapshot `number` makes obsolete.
pub(super) fn remove_before(directory: &Path, number: u64) -> Result<(), PersistError> {
    for (prefix, path) in [
        ("journal-", journal as fn(&Path, u64) -> PathBuf),
        ("snapshot-", snapshot as fn(&Path, u64) -> PathBuf),
    ] {
        for old in numbers(directory, prefix)?.into_iter().filter(|old| *old < number) {
            let file = path(directory, old);
            fs::remove_file(&file).map_err(PersistError::io(&file))?;
        }
    }
    Ok(())
}

/// Syncs the directory, so that the names of new files survive a crash.
fn sync_directory(directory: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}
