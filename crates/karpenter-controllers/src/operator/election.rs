//! Who of several copies works: the one that holds a Lease, by client-go's rules and with its timings.
//!
//! A lease is judged by when this process saw it change, never by the times written in it, so clocks need not agree.
//! Nothing is decided here about what a copy does that holds the lease or has lost it.

mod decide;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use karpenter_cluster::clock::Clock;
use karpenter_cluster::controllers::context::{is_already_exists, is_conflict};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use prometheus::IntCounter;
use tokio::time::{Instant, timeout_at};

use decide::{Move, Observed, decide};

/// Which lease, who asks for it, and how often.
#[derive(Debug, Clone)]
pub struct Settings {
    pub namespace: String,
    pub name: String,
    /// `<pod name>_<unique text>`.
    pub identity: String,
    /// How long a lease that nobody renews stays its holder's.
    pub duration: Duration,
    /// The holder gives up if it could not renew for this long.
    pub renew_deadline: Duration,
    pub retry: Duration,
}

impl Settings {
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A candidate, and what it has seen of the lease.
pub struct Election {
    api: Api<Lease>,
    clock: Clock,
    settings: Settings,
    observed: Option<Observed>,
    /// When it was last written as ours.
    renewed: Instant,
    attempts: u64,
    failed_renewals: Option<IntCounter>,
}

impl Election {
    pub fn new(client: Client, clock: Clock, settings: Settings) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            api,
            clock,
            settings,
            observed: None,
            renewed: Instant::now(),
            attempts: 0,
            failed_renewals: None,
        }
    }

    /// Counts renewals that failed and are tried again.
    pub fn counting(mut self, failed_renewals: IntCounter) -> Self {
        self.failed_renewals = Some(failed_renewals);
        self
    }

    /// Waits until the lease is ours. Failures to reach the server are tried again.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(lease = %self.lease(), %error, "cannot read or write the lease")
                }
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Keeps the lease; returns once it is lost.
    pub async fn keep(&mut self) {
        loop {
            tokio::time::sleep(self.settings.retry).await;
            let deadline = self.renewed + self.settings.renew_deadline;
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) if self.is_held_by_other() => return,
                Ok(Ok(false)) => self.count_failed_renewal(),
                Ok(Err(error)) => {
                    tracing::error!(lease = %self.lease(), %error, "cannot renew the lease");
                    self.count_failed_renewal();
                }
                Err(_) => return,
            }
            if Instant::now() >= self.renewed + self.settings.renew_deadline {
                return;
            }
        }
    }

    /// Keeps the lease while something ends that nobody else may do meanwhile. `None` if it was lost before that.
    pub async fn keep_during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.keep() => None,
        }
    }

    /// Gives the lease back, so that another copy need not wait for it to run out.
    pub async fn release(&mut self) -> kube::Result<()> {
        let Some(mut lease) = self.api.get_opt(&self.settings.name).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
            return Ok(());
        }
        let now = self.clock.micro_time();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.clone());
        spec.acquire_time = Some(now);
        match self.api.replace(&self.settings.name, &PostParams::default(), &lease).await {
            // Somebody else has written it: then it is not ours any more.
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// One look, and the write that follows from it. Whether the lease is ours now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let found = self.api.get_opt(&self.settings.name).await?;
        self.observe(found);
        let settings = &self.settings;
        let chosen = decide(self.observed.as_ref(), &settings.identity, settings.duration, Instant::now());
        let answer = match chosen {
            Move::Wait => return Ok(false),
            Move::Create => self.api.create(&PostParams::default(), &self.new_lease()).await,
            Move::Take => {
                let lease = self.with_holder(true);
                self.api.replace(&self.settings.name, &PostParams::default(), &lease).await
            }
            Move::Renew => {
                let lease = self.with_holder(false);
                self.api.replace(&self.settings.name, &PostParams::default(), &lease).await
            }
        };
        match answer {
            Ok(lease) => {
                self.observe(Some(lease));
                self.renewed = Instant::now();
                Ok(true)
            }
            // Another copy was quicker; the next look shows it.
            Err(error) if is_conflict(&error) || is_already_exists(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observe(&mut self, found: Option<Lease>) {
        self.observed = found.map(|lease| match self.observed.take() {
            Some(before) if before.lease.spec == lease.spec => Observed { lease, since: before.since },
            _ => Observed { lease, since: Instant::now() },
        });
    }

    fn count_failed_renewal(&self) {
        if let Some(count) = &self.failed_renewals {
            count.inc();
        }
    }

    fn is_held_by_other(&self) -> bool {
        let holder = self.observed.as_ref().and_then(Observed::holder);
        holder.is_some_and(|holder| holder != self.settings.identity)
    }

    fn new_lease(&self) -> Lease {
        let now = self.clock.micro_time();
        Lease {
            metadata: ObjectMeta {
                namespace: Some(self.settings.namespace.clone()),
                name: Some(self.settings.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: Some(self.duration_seconds()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }

    /// The lease as we saw it last, held by us from now on.
    fn with_holder(&self, is_taken: bool) -> Lease {
        let mut lease = self.observed.as_ref().map(|observed| observed.lease.clone()).unwrap_or_default();
        let now = self.clock.micro_time();
        let duration_seconds = self.duration_seconds();
        let spec = lease.spec.get_or_insert_default();
        if is_taken {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_duration_seconds = Some(duration_seconds);
        spec.renew_time = Some(now);
        lease
    }

    fn duration_seconds(&self) -> i32 {
        i32::try_from(self.settings.duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Between one and 2.2 times the retry period, different for each candidate, so that they do not march in step.
    fn pause(&mut self) -> Duration {
        self.attempts += 1;
        let seed =
            self.settings.identity.bytes().fold(self.attempts, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let share = (seed >> 11) as f64 / (1u64 << 53) as f64;
        self.settings.retry.mul_f64(1.0 + 1.2 * share)
    }

    /// Namespace and name.
    pub fn lease(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }
}
