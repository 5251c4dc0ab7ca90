//! Finds instances that EC2 reports as impaired or for which EC2 has scheduled an event.
//!
//! The controller queries EC2 every minute. A failed status check counts after two minutes. A scheduled event counts
//! immediately, because it concerns the host. Checks of EBS volumes are ignored, because it is unknown whether the node
//! depends on the volume. [`crate::interruption`] deletes the NodeClaims of the instances found.
//!
//! Upstream: `pkg/providers/instancestatus`

mod controller;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use karpenter_runtime::clock::since;

use crate::api::ErrorKind;
use crate::api::ec2::{InstanceStatus, InstanceStatusQuery, ScheduledEvent, StatusCheck};
use crate::interruption::message::Kind;

pub use controller::InstanceStatusPoller;

const PERIOD: Duration = Duration::from_secs(60);
const PERIOD_MAX: Duration = Duration::from_secs(30 * 60);
const RETRY_FIRST: Duration = Duration::from_secs(10);
const UNHEALTHY_AFTER: Duration = Duration::from_secs(120);
const EVENT_CODES: [&str; 5] =
    ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];
const FAILED: &str = "failed";

/// The failed check or scheduled event that makes an instance unhealthy. The names are values of a metrics label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    InstanceStatus,
    SystemStatus,
    EventStatus,
}

impl Category {
    pub const fn name(self) -> &'static str {
        match self {
            Self::InstanceStatus => "InstanceStatus",
            Self::SystemStatus => "SystemStatus",
            Self::EventStatus => "EventStatus",
        }
    }

    pub const fn kind(self) -> Kind {
        match self {
            Self::InstanceStatus => Kind::InstanceStatus,
            Self::SystemStatus => Kind::SystemStatus,
            Self::EventStatus => Kind::EventStatus,
        }
    }
}

/// The EC2 queries. All filters of one query must match, so each alternative needs its own query.
pub fn queries() -> [InstanceStatusQuery; 3] {
    [
        InstanceStatusQuery::InstanceImpaired,
        InstanceStatusQuery::SystemImpaired,
        InstanceStatusQuery::EventCodes(EVENT_CODES.map(str::to_owned).to_vec()),
    ]
}

/// The unhealthy instances, each with its categories. An instance may be in the results of several queries.
pub fn unhealthy(statuses: &[InstanceStatus], now: Timestamp) -> BTreeMap<String, BTreeSet<Category>> {
    let mut found: BTreeMap<String, BTreeSet<Category>> = BTreeMap::new();
    for status in statuses {
        let is_bad = |checks: &[StatusCheck]| checks.iter().any(|check| is_failed(check, now));
        let is_scheduled = status.events.iter().any(is_ahead);
        let categories = [
            (Category::InstanceStatus, is_bad(&status.instance_checks)),
            (Category::SystemStatus, is_bad(&status.system_checks)),
            (Category::EventStatus, is_scheduled),
        ];
        for (category, _) in categories.into_iter().filter(|(_, is_bad)| *is_bad) {
            found.entry(status.instance_id.clone()).or_default().insert(category);
        }
    }
    found
}

/// Whether the check failed for long enough; a failed check without a start time counts.
fn is_failed(check: &StatusCheck, now: Timestamp) -> bool {
    check.status == FAILED && check.impaired_since.is_none_or(|at| since(now, at) >= UNHEALTHY_AFTER)
}

/// Whether the event is still to come. EC2 lists finished events for another week, with a marker in their description.
fn is_ahead(event: &ScheduledEvent) -> bool {
    let is_over = ["[Completed]", "[Canceled]"].iter().any(|word| event.description.starts_with(word));
    EVENT_CODES.contains(&event.code.as_str()) && !is_over
}

/// The delay before the next query, given the number of consecutive failures. A missing permission may be granted at
/// any time, so even that error is retried, with increasing back-off.
pub fn next_delay(failure: Option<ErrorKind>, failures: u32) -> Duration {
    let doubled = |first: Duration, max: Duration| {
        first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(max)
    };
    match failure {
        None => PERIOD,
        Some(ErrorKind::Unauthorized | ErrorKind::BadCredentials) => doubled(PERIOD, PERIOD_MAX),
        Some(_) => doubled(RETRY_FIRST, PERIOD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().expect("a time")
    }

    fn check(status: &str, secs_ago: Option<i64>) -> Vec<StatusCheck> {
        let impaired_since = secs_ago.map(|secs| now() - SignedDuration::from_secs(secs));
        vec![StatusCheck { name: "reachability".to_owned(), status: status.to_owned(), impaired_since }]
    }

    fn events(code: &str) -> Vec<ScheduledEvent> {
        vec![ScheduledEvent { code: code.to_owned(), ..ScheduledEvent::default() }]
    }

    #[test]
    fn failed_checks_count_after_two_minutes_and_events_immediately() {
        use Category::{EventStatus, InstanceStatus as OfInstance, SystemStatus};
        let status = |instance_checks, system_checks, events| InstanceStatus {
            instance_id: "i-1".to_owned(),
            instance_checks,
            system_checks,
            events,
            ..InstanceStatus::default()
        };
        let table: Vec<(InstanceStatus, Vec<Category>)> = vec![
            (status(vec![], vec![], vec![]), vec![]),
            (status(check("failed", Some(120)), vec![], vec![]), vec![OfInstance]),
            (status(check("failed", Some(119)), vec![], vec![]), vec![]),
            (status(check("failed", None), vec![], vec![]), vec![OfInstance]),
            (status(check("passed", Some(600)), vec![], vec![]), vec![]),
            (status(check("insufficient-data", Some(600)), vec![], vec![]), vec![]),
            (status(check("initializing", Some(600)), vec![], vec![]), vec![]),
            (status(vec![], check("failed", Some(3600)), vec![]), vec![SystemStatus]),
            (status(vec![], vec![], events("instance-retirement")), vec![EventStatus]),
            (status(vec![], vec![], events("system-maintenance")), vec![EventStatus]),
            (status(vec![], vec![], events("something-new")), vec![]),
            (
                status(check("failed", Some(500)), check("failed", Some(500)), events("instance-stop")),
                vec![OfInstance, SystemStatus, EventStatus],
            ),
        ];
        for (status, expected) in table {
            let found = unhealthy(std::slice::from_ref(&status), now());
            let categories: Vec<Category> = found.into_values().flatten().collect();
            assert_eq!(categories, expected, "{status:?}");
        }
    }

    #[test]
    fn finished_events_do_not_count() {
        for (description, expected) in [
            ("The instance is running on degraded hardware", true),
            ("[Completed] The instance is running on degraded hardware", false),
            ("[Canceled] The instance is running on degraded hardware", false),
        ] {
            let mut events = events("system-reboot");
            events[0].description = description.to_owned();
            let status =
                InstanceStatus { instance_id: "i-1".to_owned(), events, ..InstanceStatus::default() };
            assert_eq!(unhealthy(&[status], now()).len() == 1, expected, "{description}");
        }
    }

    #[test]
    fn categories_of_one_instance_are_merged() {
        let one = InstanceStatus {
            instance_id: "i-1".to_owned(),
            instance_checks: check("failed", Some(500)),
            ..InstanceStatus::default()
        };
        let other =
            InstanceStatus { instance_checks: vec![], events: events("system-reboot"), ..one.clone() };
        let found = unhealthy(&[one.clone(), other, one], now());
        let expected = BTreeSet::from([Category::InstanceStatus, Category::EventStatus]);
        assert_eq!(found, BTreeMap::from([("i-1".to_owned(), expected)]));
    }

    #[test]
    fn failures_are_retried_with_back_off() {
        let secs = |failure, failures| next_delay(failure, failures).as_secs();
        assert_eq!(secs(None, 0), 60);
        let denied = Some(ErrorKind::Unauthorized);
        assert_eq!([1, 2, 3, 6, 40].map(|times| secs(denied, times)), [60, 120, 240, 1800, 1800]);
        let broken = Some(ErrorKind::Transient);
        assert_eq!([1, 2, 3, 4, 40].map(|times| secs(broken, times)), [10, 20, 40, 60, 60]);
    }
}
