//! The Leases of leader elections: who holds each, and whether the holder still renews it. The decision uses times in
//! the Lease, so the clocks of holder and reader must agree within the slack.

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;

use crate::Error;
use crate::kinds::{self, LEASE, text};

pub const NAME: &str = "karpenter-leader-election";
const SLACK: SignedDuration = SignedDuration::from_secs(5);
const DURATION_DEFAULT_SECS: i64 = 15;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    pub namespace: String,
    pub name: String,
    /// The identity of the holder; empty if the holder released the Lease.
    pub holder: String,
    pub renewed: Option<Timestamp>,
    pub duration_secs: i64,
}

impl Lease {
    pub(crate) fn read(object: &Value) -> Self {
        Self {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: kinds::name(object).to_owned(),
            holder: text(object, "/spec/holderIdentity").to_owned(),
            renewed: text(object, "/spec/renewTime").parse().ok(),
            duration_secs: object
                .pointer("/spec/leaseDurationSeconds")
                .and_then(Value::as_i64)
                .filter(|secs| (1..=3600).contains(secs))
                .unwrap_or(DURATION_DEFAULT_SECS),
        }
    }

    /// Whether a leader holds the Lease at the given time.
    pub fn is_held(&self, now: Timestamp) -> bool {
        let lasts = SignedDuration::from_secs(self.duration_secs) + SLACK;
        let is_fresh = self.renewed.is_some_and(|renewed| now.duration_since(renewed) <= lasts);
        !self.holder.is_empty() && is_fresh
    }

    /// How many seconds ago the Lease was renewed, by the reader's clock.
    pub fn age_secs(&self, now: Timestamp) -> Option<i64> {
        self.renewed.map(|renewed| now.duration_since(renewed).as_secs())
    }
}

/// All Leases, in every namespace, that have the name used by this and by upstream's Karpenter.
pub(crate) async fn find(client: &Client) -> Result<Vec<Lease>, Error> {
    let parameters = kube::api::ListParams::default().fields(&format!("metadata.name={NAME}"));
    let found = LEASE.all(client).list(&parameters).await.map_err(Error::api("cannot list leases"))?;
    let mut leases: Vec<Lease> =
        found.items.into_iter().map(|object| Lease::read(&kinds::plain(LEASE, object))).collect();
    leases.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lease_is_held_while_renewed() {
        let lease = |holder: &str| {
            Lease::read(&json!({"metadata": {"name": NAME, "namespace": "kube-system"},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
                    "renewTime": "2026-01-01T12:00:00.000000Z"}}))
        };
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert!(lease("pod_1").is_held(at("2026-01-01T12:00:20Z")));
        assert!(!lease("pod_1").is_held(at("2026-01-01T12:00:21Z")));
        assert!(!lease("").is_held(at("2026-01-01T12:00:01Z")));
        assert_eq!(lease("pod_1").age_secs(at("2026-01-01T12:01:00Z")), Some(60));
        assert!(!Lease::read(&json!({"spec": {"holderIdentity": "x"}})).is_held(at("2026-01-01T12:00:00Z")));
    }
}
