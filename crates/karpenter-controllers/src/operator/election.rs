//! Leader election with a Lease, with client-go's rules and timings.
//!
//! A lease expires when this process has not seen it change for the lease duration. The times in the lease are not
//! used, so clocks of different replicas need not agree. What a leader does is decided elsewhere. Upstream: client-go
//! tools/leaderelection/leaderelection.go.

mod decide;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use karpenter_runtime::clock::Clock;
use karpenter_runtime::object::{is_already_exists, is_conflict};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use prometheus::IntCounter;
use tokio::time::{Instant, timeout_at};

use decide::{LeaseAction, Observed, decide};

/// The lease, the identity of the candidate, and the timings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub namespace: String,
    pub name: String,
    /// `<pod name>_<unique suffix>`.
    pub identity: String,
    /// Another candidate may acquire the lease if the holder has not renewed it for this long.
    pub duration: Duration,
    /// The holder gives up the lease if it could not renew it for this long.
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

/// A candidate for the lease.
pub struct Election {
    api: Api<Lease>,
    clock: Clock,
    settings: Settings,
    observed: Option<Observed>,
    /// When this candidate last wrote the lease as its holder.
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

    /// Counts failed renewals that are retried with this counter.
    pub fn counting(mut self, failed_renewals: IntCounter) -> Self {
        self.failed_renewals = Some(failed_renewals);
        self
    }

    /// Waits until the lease is acquired. Failed requests are retried.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(lease = %self.lease(), %error, "failed to acquire lease")
                }
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Renews the lease until it is lost.
    pub async fn keep(&mut self) {
        loop {
            tokio::time::sleep(self.settings.retry).await;
            let deadline = self.renewed + self.settings.renew_deadline;
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) if self.is_held_by_other() => return,
                Ok(Ok(false)) => self.count_failed_renewal(),
                Ok(Err(error)) => {
                    tracing::error!(lease = %self.lease(), %error, "failed to renew lease");
                    self.count_failed_renewal();
                }
                Err(_) => return,
            }
            if Instant::now() >= self.renewed + self.settings.renew_deadline {
                return;
            }
        }
    }

    /// Renews the lease until `work` has ended, so that no other replica becomes leader before that. Returns `None` if
    /// the lease was lost earlier.
    pub async fn keep_during<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.keep() => None,
        }
    }

    /// Releases the lease, so that another replica can acquire it at once.
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
            // Another candidate has written the lease since it was read, so this process no longer holds it.
            Err(error) if is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Reads the lease and acquires or renews it if possible. Returns whether this candidate holds it.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let found = self.api.get_opt(&self.settings.name).await?;
        self.observe(found);
        let settings = &self.settings;
        let chosen = decide(self.observed.as_ref(), &settings.identity, settings.duration, Instant::now());
        let answer = match chosen {
            LeaseAction::Wait => return Ok(false),
            LeaseAction::Create => self.api.create(&PostParams::default(), &self.new_lease()).await,
            LeaseAction::Acquire => {
                let lease = self.with_holder(true);
                self.api.replace(&self.settings.name, &PostParams::default(), &lease).await
            }
            LeaseAction::Renew => {
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
            // Another candidate wrote the lease first; the next attempt reads what it wrote.
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

    /// The lease to write: the lease as it was read, with this candidate as holder.
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

    /// The wait before the next attempt: between 1 and 2.2 times the retry period. It differs between candidates, so
    /// that they do not retry at the same times.
    fn pause(&mut self) -> Duration {
        self.attempts += 1;
        let seed =
            self.settings.identity.bytes().fold(self.attempts, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let share = (seed >> 11) as f64 / (1u64 << 53) as f64;
        self.settings.retry.mul_f64(1.0 + 1.2 * share)
    }

    /// Namespace and name of the lease.
    pub fn lease(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }
}
