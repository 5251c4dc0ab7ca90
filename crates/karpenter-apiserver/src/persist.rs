//! Persistence: a journal of commits, which a snapshot replaces when the journal has grown.
//!
//! A commit is written and synced before it is acknowledged. Commits that arrive during a sync share the next sync.
//! After a restart, all objects have the same revisions as before. The history is empty then, so a watch from an
//! earlier revision gets `410 Expired` and the client lists again. A lock file ensures that only one process uses a
//! directory.

mod files;
mod record;
mod recovery;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::server::Core;
use crate::store::{CommitSink, Entry, StorageId};

pub(crate) use recovery::{Recovered, recover};

/// When the journal is larger than this and larger than the previous snapshot, a new snapshot replaces it.
const JOURNAL_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    #[error("{}: the directory is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("{}: unknown format; the file was written by another program or another version of this server", .0.display())]
    UnknownFormat(PathBuf),
    #[error("{}: corrupt at byte {at}: {why}", .file.display())]
    Corrupt { file: PathBuf, at: u64, why: &'static str },
    #[error("{}: {source}", .file.display())]
    Io { file: PathBuf, source: io::Error },
}

impl PersistError {
    fn io(file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_path_buf();
        move |source| Self::Io { file, source }
    }
}

/// How far the writer thread has written commits to disk.
#[derive(Debug, Clone, Default)]
struct Durable {
    revision: u64,
    /// The error of a write or sync that failed. After it, no further commit is acknowledged.
    failure: Option<String>,
}

/// Commits that are waiting to be written.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    revision: u64,
    closed: bool,
}

/// The state that the store and the writer thread share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    durable: watch::Sender<Durable>,
    core: OnceLock<Weak<Core>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal of a running server. When it is dropped, it writes the queued commits and waits for the writer thread to
/// end.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CommitSink for Journal {
    fn committed(&self, storage: &StorageId, entry: &Entry, deleted: bool) {
        let mut queue = self.shared.queue();
        let object = if deleted { None } else { Some(entry.object().as_ref()) };
        record::append(&mut queue.bytes, entry.revision(), storage, entry.key(), object);
        queue.revision = entry.revision();
        self.shared.wake.notify_one();
    }
}

impl Journal {
    /// Starts the writer thread on the journal file with this number, which must exist.
    pub(crate) fn start(
        directory: &Path,
        number: u64,
        revision: u64,
        lock: File,
    ) -> Result<Self, PersistError> {
        let path = files::journal(directory, number);
        let file = File::options().append(true).open(&path).map_err(PersistError::io(&path))?;
        let length = file.metadata().map_err(PersistError::io(&path))?.len();
        let durable = Durable { revision, failure: None };
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { revision, ..Queue::default() }),
            wake: Condvar::new(),
            durable: watch::Sender::new(durable),
            core: OnceLock::new(),
        });
        let writer = Writer {
            shared: shared.clone(),
            directory: directory.to_path_buf(),
            number,
            file,
            journal_bytes: length,
            snapshot_bytes: files::snapshot_length(directory, number),
            snapshot: None,
            _lock: lock,
        };
        let thread = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run())
            .map_err(PersistError::io(directory))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the server whose commits the journal writes. The journal calls the server to publish commits and to read
    /// objects for snapshots.
    pub(crate) fn attach(&self, core: &Arc<Core>) {
        // A server calls this once; a second call has no effect.
        let _ = self.shared.core.set(Arc::downgrade(core));
    }

    /// Waits until all commits up to `revision` are on disk.
    pub(crate) async fn durable(&self, revision: u64) -> Result<(), String> {
        let mut durable = self.shared.durable.subscribe();
        let reached = durable
            .wait_for(|state| state.revision >= revision || state.failure.is_some())
            .await
            .map_err(|_| "the journal is closed".to_string())?;
        match &reached.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.wake.notify_one();
        let Some(thread) = self.thread.take() else { return };
        // The last reference to the server may be dropped in the writer thread, which cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// The writer thread.
struct Writer {
    shared: Arc<Shared>,
    directory: PathBuf,
    number: u64,
    file: File,
    journal_bytes: u64,
    snapshot_bytes: u64,
    /// The thread that writes a snapshot; it returns the length of the snapshot file.
    snapshot: Option<JoinHandle<Option<u64>>>,
    /// The lock of the data directory, which is held as long as the thread runs.
    _lock: File,
}

impl Writer {
    fn run(mut self) {
        loop {
            let (bytes, revision, closed) = self.next_batch();
            if !bytes.is_empty()
                && let Err(error) = self.write(&bytes)
            {
                let failure = format!("cannot write the journal: {error}");
                self.shared.durable.send_modify(|state| state.failure = Some(failure));
                return;
            }
            // Commits are published before they are acknowledged, so a client whose write was acknowledged sees the
            // write in watches.
            if let Some(core) = self.shared.core.get().and_then(Weak::upgrade) {
                core.store.publish(revision);
            }
            self.shared.durable.send_modify(|state| state.revision = revision);
            if closed {
                if let Some(snapshot) = self.snapshot.take() {
                    let _ = snapshot.join();
                }
                return;
            }
            self.compact();
        }
    }

    fn next_batch(&self) -> (Vec<u8>, u64, bool) {
        let mut queue = self.shared.queue();
        while queue.bytes.is_empty() && !queue.closed {
            queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        (std::mem::take(&mut queue.bytes), queue.revision, queue.closed)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        use std::io::Write;
        self.file.write_all(bytes)?;
        self.file.sync_data()?;
        self.journal_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Starts a snapshot if the journal is large enough. The old files are kept until the snapshot is complete.
    fn compact(&mut self) {
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.is_finished())
            && let Ok(Some(length)) = snapshot.join()
        {
            self.snapshot_bytes = length;
        }
        if self.snapshot.is_some() || self.journal_bytes < JOURNAL_BYTES_MIN.max(self.snapshot_bytes) {
            return;
        }
        let Some(core) = self.shared.core.get().and_then(Weak::upgrade) else { return };
        // From here on, commits go to the next journal. When recovering, those that the snapshot contains are skipped.
        let Ok(file) = files::create_journal(&self.directory, self.number + 1) else { return };
        self.number += 1;
        self.file = file;
        self.journal_bytes = 0;
        let (directory, number) = (self.directory.clone(), self.number);
        // The entries are read here and not in the snapshot thread. Otherwise that thread could hold the last reference
        // to the server, and dropping the server would wait for this thread.
        let (revision, entries) = core.store.all_entries();
        drop(core);
        self.snapshot = std::thread::Builder::new()
            .name("snapshot".into())
            .spawn(move || {
                let length = files::write_snapshot(&directory, number, revision, &entries).ok()?;
                // If obsolete files cannot be removed, this does no harm.
                let _ = files::remove_before(&directory, number);
                Some(length)
            })
            .ok();
    }
}
