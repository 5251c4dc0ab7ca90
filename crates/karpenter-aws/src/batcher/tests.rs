use std::sync::Mutex as StdMutex;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::time::{advance, sleep};

use super::*;

const WINDOWS: Windows = Windows {
    idle: Duration::from_millis(100),
    longest: Duration::from_secs(1),
    items_max: 5,
    concurrent_calls_max: 2,
};

type Calls = Arc<StdMutex<Vec<(&'static str, Vec<u32>, Duration)>>>;

/// A batcher whose calls return the double of each number after one second; every call is recorded with its time.
fn doubler(windows: Windows) -> (Batcher<&'static str, u32, u32>, Calls) {
    let calls = Calls::default();
    let (written, started) = (Arc::clone(&calls), Instant::now());
    let execute = move |key: &'static str, numbers: Vec<u32>| {
        written.lock().unwrap().push((key, numbers.clone(), started.elapsed()));
        async move {
            sleep(Duration::from_secs(1)).await;
            numbers.into_iter().map(|number| Ok(number * 2)).collect()
        }
        .boxed()
    };
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    (Batcher::new("test", clock, windows, execute, |_| ()), calls)
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_become_one_call() {
    let (batcher, calls) = doubler(WINDOWS);
    let answers = join_all((1..=3).map(|number| batcher.call("a", number))).await;
    assert_eq!(answers, [Ok(2), Ok(4), Ok(6)]);
    assert_eq!(*calls.lock().unwrap(), [("a", vec![1, 2, 3], millis(100))]);
}

#[tokio::test(start_paused = true)]
async fn each_key_gets_its_own_call() {
    let (batcher, calls) = doubler(WINDOWS);
    let answers = tokio::join!(batcher.call("a", 1), batcher.call("b", 2));
    assert_eq!(answers, (Ok(2), Ok(4)));
    assert_eq!(calls.lock().unwrap().len(), 2);
}

/// Requests with different keys alternate, as when NodeClaims of many NodePools are launched.
#[tokio::test(start_paused = true)]
async fn request_of_another_key_keeps_the_window_open() {
    let (batcher, calls) = doubler(Windows { items_max: 100, ..WINDOWS });
    let requests = (0..8).map(|number| {
        let batcher = batcher.clone();
        async move {
            sleep(millis(60 * u64::from(number))).await;
            batcher.call(["a", "b"][number as usize % 2], number).await
        }
    });
    join_all(requests).await;
    let closed = millis(7 * 60 + 100);
    assert_eq!(*calls.lock().unwrap(), [("a", vec![0, 2, 4, 6], closed), ("b", vec![1, 3, 5, 7], closed)]);
}

#[tokio::test(start_paused = true)]
async fn each_request_extends_idle_time_up_to_maximum() {
    let (batcher, calls) = doubler(Windows { items_max: 100, ..WINDOWS });
    let started = Instant::now();
    let requests = (0..15).map(|number| {
        let batcher = batcher.clone();
        async move {
            sleep(millis(90 * u64::from(number))).await;
            batcher.call("a", number).await
        }
    });
    join_all(requests).await;
    let calls = calls.lock().unwrap();
    // Requests that are 90 ms apart never leave 100 ms of idle time. So the first window closes after one second, and
    // the second after its idle time.
    assert_eq!(calls[0], ("a", (0..=11).collect(), millis(1000)), "from {started:?}");
    assert_eq!(calls[1], ("a", (12..15).collect(), millis(14 * 90 + 100)));
    assert_eq!(calls.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn full_window_closes_immediately() {
    let (batcher, calls) = doubler(WINDOWS);
    let answers = join_all((0..7).map(|number| batcher.call("a", number))).await;
    assert_eq!(answers, (0..7).map(|number| Ok(number * 2)).collect::<Vec<_>>());
    let calls = calls.lock().unwrap();
    assert_eq!(*calls, [("a", vec![0, 1, 2, 3, 4], millis(0)), ("a", vec![5, 6], millis(100))]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited() {
    let (batcher, calls) = doubler(WINDOWS);
    let keys = ["a", "b", "c"];
    join_all(keys.map(|key| batcher.call(key, 1))).await;
    let times: Vec<Duration> = calls.lock().unwrap().iter().map(|(_, _, at)| *at).collect();
    assert_eq!(times, [millis(100), millis(100), millis(1100)]);
}

#[tokio::test(start_paused = true)]
async fn cancelled_caller_does_not_affect_others() {
    let (batcher, calls) = doubler(WINDOWS);
    let first = batcher.call("a", 1);
    let gone = tokio::time::timeout(millis(10), first).await;
    assert!(gone.is_err());
    assert_eq!(batcher.call("a", 2).await, Ok(4));
    assert_eq!(calls.lock().unwrap()[0].1, [1, 2], "a request that was made is not taken back");
}

#[tokio::test(start_paused = true)]
async fn missing_response_is_an_error() {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let execute = |(): (), _: Vec<u32>| async { vec![Ok(1)] }.boxed();
    let batcher: Batcher<(), u32, u32> = Batcher::new("test", clock, WINDOWS, execute, |_| ());
    let answers = tokio::join!(batcher.call((), 1), batcher.call((), 2));
    assert_eq!(answers.0, Ok(1));
    assert!(answers.1.is_err_and(|error| error.is_transient()));
}

#[tokio::test(start_paused = true)]
async fn batch_sizes_are_recorded() {
    let recorded = Arc::new(StdMutex::new(Vec::new()));
    let recorder = Arc::clone(&recorded);
    let execute = |(): (), numbers: Vec<u32>| async move { numbers.into_iter().map(Ok).collect() }.boxed();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let batcher =
        Batcher::new("test", clock, WINDOWS, execute, move |batch| recorder.lock().unwrap().push(batch));
    let (one, two) = tokio::join!(batcher.call((), 1), batcher.call((), 2));
    assert_eq!((one, two), (Ok(1), Ok(2)));
    advance(millis(1)).await;
    assert_eq!(*recorded.lock().unwrap(), [BatchRecord { batcher: "test", size: 2, waited: millis(100) }]);
}
