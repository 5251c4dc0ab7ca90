use super::*;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};

struct OnTokio(Clock);

impl ServerClock for OnTokio {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

fn world() -> (Client, Clock) {
    let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
    let server = ApiServer::new(Config { clock: Arc::new(OnTokio(clock)), ..Config::default() });
    (Client::new(server, "default"), clock)
}

fn candidate(client: &Client, clock: Clock, identity: &str) -> Election {
    let settings = Settings::new("kube-system", "karpenter-leader-election", identity);
    Election::new(client.clone(), clock, settings)
}

async fn lease(client: &Client) -> LeaseSpec {
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    api.get("karpenter-leader-election").await.expect("there").spec.expect("has one")
}

fn observed(holder: &str, since: Instant) -> Observed {
    let spec = LeaseSpec { holder_identity: Some(holder.to_owned()), ..LeaseSpec::default() };
    Observed { lease: Lease { spec: Some(spec), ..Lease::default() }, since }
}

#[tokio::test(start_paused = true)]
async fn moves_follow_from_holder_and_silence() {
    let now = Instant::now() + Duration::from_secs(100);
    let duration = Duration::from_secs(15);
    let silent_for = |secs| now - Duration::from_secs(secs);
    for (seen, expected) in [
        (None, Move::Create),
        (Some(observed("me", silent_for(99))), Move::Renew),
        (Some(observed("", silent_for(0))), Move::Take),
        (Some(observed("other", silent_for(14))), Move::Wait),
        (Some(observed("other", silent_for(15))), Move::Take),
    ] {
        assert_eq!(decide(seen.as_ref(), "me", duration, now), expected, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_candidate_waits_until_the_lease_is_given_back() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let held = lease(&client).await;
    assert_eq!(held.holder_identity.as_deref(), Some("first_1"));
    assert_eq!((held.lease_duration_seconds, held.lease_transitions), (Some(15), Some(0)));

    let mut second = candidate(&client, clock, "second_2");
    let waiting = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    let kept = tokio::time::timeout(Duration::from_secs(3600), first.keep()).await;
    assert!(kept.is_err(), "an hour long nobody takes what is renewed");
    assert!(!waiting.is_finished());

    first.release().await.expect("released");
    let released = Instant::now();
    let free = lease(&client).await;
    assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
    waiting.await.expect("acquired");
    assert!(released.elapsed() <= Duration::from_millis(4400), "within one try: {:?}", released.elapsed());
    let taken = lease(&client).await;
    assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("second_2"), Some(1)));
}

/// Passes that end slowly take longer than a lease lasts.
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_while_work_ends() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let mut second = candidate(&client, clock, "second_2");
    let waiting = tokio::spawn(async move { second.acquire().await });
    let work = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        "done"
    };
    assert_eq!(first.keep_during(work).await, Some("done"));
    assert!(!waiting.is_finished(), "nobody else works meanwhile");
    assert_eq!(lease(&client).await.holder_identity.as_deref(), Some("first_1"));
    first.release().await.expect("released");
    waiting.await.expect("acquired");
}

/// Not from the moment that it begins to stop: the lease may be nearly over by then.
#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_last_renewal() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    first.api = Api::namespaced(tower_silent(), "kube-system");
    let since = Instant::now();
    let keeping = tokio::time::timeout(Duration::from_secs(7), first.keep());
    assert!(keeping.await.is_err());
    assert_eq!(first.keep_during(std::future::pending::<()>()).await, None);
    assert_eq!(since.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_loses_the_lease_after_its_duration() {
    let (client, clock) = world();
    candidate(&client, clock, "first_1").acquire().await;
    let since = Instant::now();
    candidate(&client, clock, "second_2").acquire().await;
    let waited = since.elapsed();
    assert!((Duration::from_secs(15)..=Duration::from_millis(19_400)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_lease_was_taken_notices_at_the_next_try() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let mut stolen = api.get("karpenter-leader-election").await.expect("there");
    stolen.spec.get_or_insert_default().holder_identity = Some("thief".to_owned());
    api.replace("karpenter-leader-election", &PostParams::default(), &stolen).await.expect("replaced");
    let since = Instant::now();
    first.keep().await;
    assert_eq!(since.elapsed(), Duration::from_secs(2));
    first.release().await.expect("not ours, so nothing to do");
    assert_eq!(lease(&client).await.holder_identity.as_deref(), Some("thief"));
}

/// A server that answers nothing any more.
#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_gives_up_at_the_deadline() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let silent = tower_silent();
    first.api = Api::namespaced(silent, "kube-system");
    let since = Instant::now();
    first.keep().await;
    assert_eq!(since.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_counted_until_the_deadline() {
    let (client, clock) = world();
    let count = IntCounter::new("failed", "x").expect("a counter");
    let mut first = candidate(&client, clock, "first_1").counting(count.clone());
    first.acquire().await;
    assert!(tokio::time::timeout(Duration::from_secs(60), first.keep()).await.is_err());
    assert_eq!(count.get(), 0);
    let refusing = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::ready(Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("refused")))
    });
    first.api = Api::namespaced(Client::new(refusing, "default"), "kube-system");
    first.keep().await;
    assert!((3..=5).contains(&count.get()), "one in two seconds, for ten: {}", count.get());
}

fn tower_silent() -> Client {
    use http::{Request, Response};
    use kube::client::Body;
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    Client::new(service, "default")
}
