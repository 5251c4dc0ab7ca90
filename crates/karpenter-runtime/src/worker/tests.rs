use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::queue::{InProgress, Measure};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

struct Recorder {
    started: Instant,
    seen: Mutex<Vec<(u64, String)>>,
    fail_first: u32,
    again: BTreeMap<String, Duration>,
}

impl Reconcile for Recorder {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((self.started.elapsed().as_millis() as u64, key.name.clone()));
        let tries = seen.iter().filter(|(_, name)| *name == key.name).count() as u32;
        if tries <= self.fail_first {
            return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
        }
        Ok(self.again.get(&key.name).copied().filter(|_| tries == 1).into())
    }
}

async fn record(fail_first: u32, again: &[(&str, u64)], keys: &[&str]) -> Vec<(u64, String)> {
    let again =
        again.iter().map(|(name, millis)| (name.to_string(), Duration::from_millis(*millis))).collect();
    let recorder =
        Arc::new(Recorder { started: Instant::now(), seen: Mutex::new(Vec::new()), fail_first, again });
    let queue = Queue::default();
    for name in keys {
        queue.add(key(name));
    }
    let shutdown = Shutdown::default();
    let task = tokio::spawn(run(recorder.clone(), queue, 1, Clock::system(), shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    shutdown.request();
    task.await.expect("runs to its end");
    let seen = recorder.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.clone()
}

#[tokio::test(start_paused = true)]
async fn keys_are_processed_once_in_order_of_first_change() {
    let seen = record(0, &[], &["b", "a", "b", "c"]).await;
    let names: Vec<&str> = seen.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_exponentially() {
    let seen = record(3, &[], &["a"]).await;
    let at: Vec<u64> = seen.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [0, 10, 30, 70]);
}

#[derive(Debug, Default)]
struct Counted(Mutex<Vec<String>>);

impl Counted {
    fn note(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

impl Measure for Counted {
    fn added(&self) {
        self.note("added".to_owned());
    }
    fn requeued(&self) {
        self.note("requeued".to_owned());
    }
    fn started(&self, waited: Duration) {
        self.note(format!("started after {} ms", waited.as_millis()));
    }
    fn finished(&self, took: Duration) {
        self.note(format!("finished after {} ms", took.as_millis()));
    }
}

/// A controller whose passes take 100 ms; the first one fails.
struct Slow(Mutex<bool>);

impl Reconcile for Slow {
    async fn reconcile(&self, _: &ObjectKey) -> kube::Result<Requeue> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let has_failed = std::mem::replace(&mut *self.0.lock().expect("not poisoned"), true);
        if has_failed { Ok(Requeue::No) } else { Err(kube::Error::LinesCodecMaxLineLengthExceeded) }
    }
}

#[tokio::test(start_paused = true)]
async fn queue_metrics_have_waits_and_durations() {
    let counted = Arc::new(Counted::default());
    let queue = Queue::measured(counted.clone());
    queue.add(key("a"));
    tokio::time::sleep(Duration::from_millis(7)).await;
    let shutdown = Shutdown::default();
    let work = Arc::new(Slow(Mutex::new(false)));
    let task = tokio::spawn(run(work, queue.clone(), 1, Clock::system(), shutdown.clone()));
    tokio::time::sleep(Duration::from_millis(40)).await;
    let forty = Duration::from_millis(40);
    assert_eq!(queue.in_progress(), InProgress { total: forty, longest: forty });
    // A key that is in the queue and added again is counted once.
    queue.add(key("b"));
    queue.add(key("b"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.in_progress(), InProgress::default());
    shutdown.request();
    task.await.expect("runs to its end");
    let seen = counted.0.lock().expect("not poisoned").clone();
    let expected = [
        "added",
        "started after 7 ms",
        "added",
        "finished after 100 ms",
        "requeued",
        "started after 60 ms",
        "added",
        "finished after 100 ms",
        "started after 90 ms",
        "finished after 100 ms",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn requeue_after_is_respected() {
    let seen = record(0, &[("a", 700), ("b", 300)], &["a", "b"]).await;
    let at: Vec<(u64, &str)> = seen.iter().map(|(at, name)| (*at, name.as_str())).collect();
    assert_eq!(at, [(0, "a"), (0, "b"), (300, "b"), (700, "a")]);
}
