//! A cache of SSM parameter values.
//!
//! A parameter may not exist, which is a valid result. After any other error the last value, if there is one, is used,
//! so that a failure of SSM does not remove AMIs and cause drift. If a parameter cannot be read, this is logged once
//! until the parameter can be read again.
//!
//! Upstream: `pkg/providers/ssm`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_runtime::clock::Clock;

use crate::api::{AwsError, Ssm};
use crate::single_flight::SingleFlight;

const TTL: Duration = Duration::from_secs(24 * 60 * 60);
const CUSTOM_TTL: Duration = Duration::from_secs(5 * 60);

/// How long the value of a parameter is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// The parameter belongs to a fixed release, so its value never changes.
    Fixed,
    /// The parameter's value changes with every AMI release; see [`super::AmiInvalidation`].
    Mutable,
    /// A parameter that the user created.
    Custom,
}

impl Lifetime {
    fn ttl(self) -> Duration {
        match self {
            Self::Fixed | Self::Mutable => TTL,
            Self::Custom => CUSTOM_TTL,
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    value: String,
    lifetime: Lifetime,
    /// The time after which the value is read again; the old value is used until that succeeds.
    expires_at: Timestamp,
}

/// Parameter values by name. All clones share the cache.
#[derive(Clone)]
pub struct Parameters {
    ssm: Arc<dyn Ssm>,
    clock: Clock,
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    /// Names of parameters that cannot be read and for which this was logged.
    logged: Arc<Mutex<BTreeSet<String>>>,
    flights: SingleFlight<String, Result<String, AwsError>>,
}

impl Parameters {
    pub fn new(ssm: Arc<dyn Ssm>, clock: Clock) -> Self {
        Self { ssm, clock, entries: Arc::default(), logged: Arc::default(), flights: SingleFlight::default() }
    }

    /// The parameter's value; `None` if the parameter does not exist.
    pub async fn get(&self, name: &str, lifetime: Lifetime) -> Result<Option<String>, AwsError> {
        let known = self.lock().get(name).cloned();
        if let Some(entry) = &known
            && entry.expires_at > self.clock.now()
        {
            return Ok(Some(entry.value.clone()));
        }
        let (ssm, own_name) = (Arc::clone(&self.ssm), name.to_owned());
        let question = || async move { ssm.get_parameter(&own_name).await };
        match self.flights.run(name.to_owned(), question).await {
            Ok(value) => {
                if known.is_none_or(|entry| entry.value != value) {
                    tracing::info!(parameter = name, value, "discovered ssm parameter");
                }
                self.put(name, &value, lifetime);
                self.logged.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                Ok(Some(value))
            }
            Err(error) if error.is_not_found() => {
                self.lock().remove(name);
                Ok(None)
            }
            Err(error) => match known {
                None => Err(error),
                Some(entry) => {
                    let value = entry.value;
                    if self.is_first_failure(name) {
                        tracing::warn!(parameter = name, value, %error, "failed to read ssm parameter, using last known value");
                    }
                    Ok(Some(value))
                }
            },
        }
    }

    /// Whether a failure to read this parameter is the first since it was last read, so that the caller logs it.
    pub(super) fn is_first_failure(&self, name: &str) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
    }

    fn put(&self, name: &str, value: &str, lifetime: Lifetime) {
        let ttl = SignedDuration::try_from(lifetime.ttl()).unwrap_or(SignedDuration::MAX);
        let expires_at = self.clock.now().checked_add(ttl).unwrap_or(Timestamp::MAX);
        self.lock().insert(name.to_owned(), Entry { value: value.to_owned(), lifetime, expires_at });
    }

    /// The parameters whose values change with releases, with their cached values.
    pub(super) fn mutable(&self) -> BTreeMap<String, String> {
        let entries = self.lock();
        let mutable = entries.iter().filter(|(_, entry)| entry.lifetime == Lifetime::Mutable);
        mutable.map(|(name, entry)| (name.clone(), entry.value.clone())).collect()
    }

    /// Drops the cached value of a parameter, unless it is no longer `value`.
    pub(super) fn expire(&self, name: &str, value: &str) {
        if let Some(entry) = self.lock().get_mut(name).filter(|entry| entry.value == value) {
            entry.expires_at = Timestamp::MIN;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // Every statement leaves the map consistent, so a poisoned lock can be used.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
