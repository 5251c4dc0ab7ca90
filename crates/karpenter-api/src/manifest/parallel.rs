//! Processes items on several threads and passes the results to the caller in the order of the items.
//!
//! The caller gets early results while later items are processed, so results are not all in memory at once.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

/// Items that a thread processes at a time; enough that passing the results costs little compared with the work.
const BATCH: usize = 64;
/// The maximum number of threads. With more, memory bandwidth limits parsing.
const THREADS_MAX: usize = 8;

/// Calls `sink` with the result of every item, in the order of the items.
pub(super) fn in_order<T: Sync, R: Send>(
    pieces: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut sink: impl FnMut(&T, R),
) {
    let batches = pieces.len().div_ceil(BATCH);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX).min(batches);
    if threads < 2 {
        pieces.iter().for_each(|piece| sink(piece, work(piece)));
        return;
    }
    let batch_of = |batch: usize| &pieces[batch * BATCH..pieces.len().min((batch + 1) * BATCH)];
    let next = AtomicUsize::new(0);
    let (sender, receiver) = sync_channel::<(usize, Vec<R>)>(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, work, batch_of) = (sender.clone(), &next, &work, &batch_of);
            scope.spawn(move || {
                loop {
                    let batch = next.fetch_add(1, Ordering::Relaxed);
                    if batch >= batches {
                        return;
                    }
                    let results: Vec<R> = batch_of(batch).iter().map(work).collect();
                    // Sending fails only if the sink panicked and the channel is closed.
                    if sender.send((batch, results)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early: BTreeMap<usize, Vec<R>> = BTreeMap::new();
        let mut due = 0;
        // Iterating by value drops the receiver if the sink panics; this closes the channel before the threads are
        // joined.
        for (batch, results) in receiver {
            early.insert(batch, results);
            while let Some(results) = early.remove(&due) {
                batch_of(due).iter().zip(results).for_each(|(piece, result)| sink(piece, result));
                due += 1;
            }
        }
    });
}
