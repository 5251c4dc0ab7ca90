use super::*;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_apiserver::clock::Clock as ServerClock;
use karpenter_apiserver::{ApiServer, Config};

struct TokioClock(Clock);

impl ServerClock for TokioClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

fn world() -> (Client, Clock) {
    let clock = Clock::starting_at("2026-01-01T12:00:00Z".parse().expect("a time"));
    let server = ApiServer::new(Config { clock: Arc::new(TokioClock(clock)), ..Config::default() });
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
async fn action_depends_on_holder_and_last_renewal() {
    let now = Instant::now() + Duration::from_secs(100);
    let duration = Duration::from_secs(15);
    let renewed_ago = |secs| now - Duration::from_secs(secs);
    for (seen, expected) in [
        (None, LeaseAction::Create),
        (Some(observed("me", renewed_ago(99))), LeaseAction::Renew),
        (Some(observed("", renewed_ago(0))), LeaseAction::Acquire),
        (Some(observed("other", renewed_ago(14))), LeaseAction::Wait),
        (Some(observed("other", renewed_ago(15))), LeaseAction::Acquire),
    ] {
        assert_eq!(decide(seen.as_ref(), "me", duration, now), expected, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn second_candidate_acquires_released_lease() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let held = lease(&client).await;
    assert_eq!(held.holder_identity.as_deref(), Some("first_1"));
    assert_eq!((held.lease_duration_seconds, held.lease_transitions), (Some(15), Some(0)));

    let mut second = candidate(&client, clock, "second_2");
    let candidate_task = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    let kept = tokio::time::timeout(Duration::from_secs(3600), first.keep()).await;
    assert!(kept.is_err(), "a renewed lease is kept for an hour");
    assert!(!candidate_task.is_finished());

    first.release().await.expect("released");
    let released = Instant::now();
    let free = lease(&client).await;
    assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
    candidate_task.await.expect("acquired");
    assert!(released.elapsed() <= Duration::from_millis(4400), "within one try: {:?}", released.elapsed());
    let taken = lease(&client).await;
    assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("second_2"), Some(1)));
}

/// At shutdown, the passes in progress may take longer than the lease duration.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_passes_end() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let mut second = candidate(&client, clock, "second_2");
    let candidate_task = tokio::spawn(async move { second.acquire().await });
    let work = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        "done"
    };
    assert_eq!(first.keep_during(work).await, Some("done"));
    assert!(!candidate_task.is_finished(), "no other replica is leader meanwhile");
    assert_eq!(lease(&client).await.holder_identity.as_deref(), Some("first_1"));
    first.release().await.expect("released");
    candidate_task.await.expect("acquired");
}

/// The renew deadline does not start again at the shutdown, because the lease may be almost expired at that time.
#[tokio::test(start_paused = true)]
async fn renew_deadline_counts_from_last_renewal() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    first.api = Api::namespaced(unresponsive_client(), "kube-system");
    let since = Instant::now();
    let keeping = tokio::time::timeout(Duration::from_secs(7), first.keep());
    assert!(keeping.await.is_err());
    assert_eq!(first.keep_during(std::future::pending::<()>()).await, None);
    assert_eq!(since.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn lease_is_acquired_after_its_duration_without_renewal() {
    let (client, clock) = world();
    candidate(&client, clock, "first_1").acquire().await;
    let since = Instant::now();
    candidate(&client, clock, "second_2").acquire().await;
    let waited = since.elapsed();
    assert!((Duration::from_secs(15)..=Duration::from_millis(19_400)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn holder_stops_if_another_candidate_acquired_the_lease() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let api: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let mut stolen = api.get("karpenter-leader-election").await.expect("there");
    stolen.spec.get_or_insert_default().holder_identity = Some("other".to_owned());
    api.replace("karpenter-leader-election", &PostParams::default(), &stolen).await.expect("replaced");
    let since = Instant::now();
    first.keep().await;
    assert_eq!(since.elapsed(), Duration::from_secs(2));
    first.release().await.expect("nothing to release");
    assert_eq!(lease(&client).await.holder_identity.as_deref(), Some("other"));
}

/// The API server does not respond, so the lease cannot be renewed.
#[tokio::test(start_paused = true)]
async fn holder_stops_at_renew_deadline() {
    let (client, clock) = world();
    let mut first = candidate(&client, clock, "first_1");
    first.acquire().await;
    let silent = unresponsive_client();
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
    assert!((3..=5).contains(&count.get()), "one every two seconds for ten seconds: {}", count.get());
}

fn unresponsive_client() -> Client {
    use http::{Request, Response};
    use kube::client::Body;
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    Client::new(service, "default")
}
