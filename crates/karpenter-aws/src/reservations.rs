//! The capacity reservations that an EC2NodeClass selects, and how many instances can be launched into each.
//!
//! [`queries`] translates selector terms, [`status`] builds the entries of the node class's status, and [`Counts`]
//! tracks how many instances can still be launched. [`crate::reserved_claims`] handles NodeClaims whose reservation
//! expires.
//!
//! Upstream: pkg/providers/capacityreservation (karpenter-provider-aws)

mod counts;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karpenter_api::types::{CapacityReservationSelectorTerm, CapacityReservationStatus};
use karpenter_catalog::aws::{self, ReservationKind};
use karpenter_runtime::clock::{Clock, until};

use crate::api::ec2::{CapacityReservation, ReservationQuery};
use crate::api::{AwsError, Ec2, tag_filters};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

pub use counts::{AvailableCounts, Counts};

/// How long EC2's response is cached.
const REFRESH: Duration = Duration::from_secs(60);
/// How long before its end a capacity block counts as expiring. EC2 terminates its instances 30 minutes before the end,
/// and launches stop ten minutes before that.
const EXPIRING_BEFORE_END: Duration = Duration::from_secs(40 * 60);

const ACTIVE: &str = "active";
const EXPIRING: &str = "expiring";

/// The EC2 queries for the selector terms. Each id has its own query, because one unknown id makes a whole call fail.
pub fn queries(terms: &[CapacityReservationSelectorTerm]) -> Vec<ReservationQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut queries = Vec::new();
    for term in terms {
        if let Some(id) = given(&term.id) {
            queries.push(ReservationQuery { ids: vec![id], ..ReservationQuery::default() });
        }
        let tags = term.tags.as_ref().map(tag_filters).unwrap_or_default();
        let instance_match_criteria = given(&term.instance_match_criteria);
        // A term with nothing but an owner selects no reservations; the API server rejects such a term.
        if !tags.is_empty() || instance_match_criteria.is_some() {
            queries.push(ReservationQuery {
                ids: Vec::new(),
                owner_id: given(&term.owner_id),
                instance_match_criteria,
                tags,
            });
        }
    }
    queries.sort();
    queries.dedup();
    queries
}

/// Why a reservation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error(
        "capacity reservation {id} has instance match criteria {criteria:?}, which is neither open nor targeted"
    )]
    MatchCriteria { id: String, criteria: String },
    #[error("capacity reservation {id} is of type {kind:?}, which is neither default nor capacity-block")]
    Kind { id: String, kind: String },
}

/// The entry for a reservation in the status of a node class. Only capacity blocks become `expiring`, because EC2 does
/// not announce the end of other reservations.
pub fn shown(
    reservation: &CapacityReservation,
    now: Timestamp,
) -> Result<CapacityReservationStatus, Unusable> {
    let CapacityReservation { id, instance_match_criteria: criteria, reservation_type, .. } = reservation;
    if !["open", "targeted"].contains(&criteria.as_str()) {
        return Err(Unusable::MatchCriteria { id: id.clone(), criteria: criteria.clone() });
    }
    let Some(kind) = ReservationKind::parse(reservation_type) else {
        return Err(Unusable::Kind { id: id.clone(), kind: reservation_type.clone() });
    };
    let is_expiring = kind == ReservationKind::CapacityBlock
        && reservation.ends_at.is_some_and(|end| until(now, end) <= EXPIRING_BEFORE_END);
    Ok(CapacityReservationStatus {
        availability_zone: reservation.zone.clone(),
        end_time: reservation.ends_at.map(Time),
        id: id.clone(),
        instance_match_criteria: criteria.clone(),
        instance_type: reservation.instance_type.clone(),
        owner_id: reservation.owner_id.clone(),
        reservation_type: Some(kind.as_str().to_owned()),
        interruptible: Some(reservation.is_interruptible),
        state: Some(if is_expiring { EXPIRING } else { ACTIVE }.to_owned()),
    })
}

/// The status entries of the reservations that can be used, sorted by id, and the errors of the others.
pub fn status(
    reservations: &[CapacityReservation],
    now: Timestamp,
) -> (Vec<CapacityReservationStatus>, Vec<Unusable>) {
    let mut usable = Vec::new();
    let mut unusable = Vec::new();
    for reservation in current(reservations, now) {
        match shown(reservation, now) {
            Ok(shown) => usable.push(shown),
            Err(why) => unusable.push(why),
        }
    }
    (usable, unusable)
}

/// The reservations that have not ended, sorted by id and without duplicates.
fn current(reservations: &[CapacityReservation], now: Timestamp) -> Vec<&CapacityReservation> {
    let by_id: BTreeMap<&str, &CapacityReservation> = reservations
        .iter()
        .filter(|reservation| reservation.ends_at.is_none_or(|end| end > now))
        .map(|reservation| (reservation.id.as_str(), reservation))
        .collect();
    by_id.into_values().collect()
}

/// The reservations in a status, as input for resolving instance types. The status may have been written by another
/// version of the controller, so reservations of unknown type are ignored.
pub fn facts(status: &[CapacityReservationStatus]) -> Vec<aws::CapacityReservation> {
    status
        .iter()
        .filter_map(|shown| {
            Some(aws::CapacityReservation {
                id: shown.id.as_str().into(),
                instance_type: shown.instance_type.as_str().into(),
                zone: shown.availability_zone.as_str().into(),
                kind: ReservationKind::parse(shown.reservation_type.as_deref().unwrap_or("default"))?,
                interruptible: shown.interruptible.unwrap_or(false),
                expiring: shown.state.as_deref() == Some(EXPIRING),
            })
        })
        .collect()
}

type Answer = Result<Arc<Vec<CapacityReservation>>, AwsError>;

/// Reads reservations from EC2 through a cache, and updates the counts. All clones share their state.
#[derive(Clone)]
pub struct Reservations {
    ec2: Arc<dyn Ec2>,
    clock: Clock,
    answers: Arc<Cache<ReservationQuery, Arc<Vec<CapacityReservation>>>>,
    flights: SingleFlight<ReservationQuery, Answer>,
    counts: Counts,
}

impl Reservations {
    pub fn new(ec2: Arc<dyn Ec2>, clock: Clock) -> Self {
        Self {
            ec2,
            clock,
            answers: Arc::new(Cache::new(clock, REFRESH)),
            flights: SingleFlight::default(),
            counts: Counts::new(clock),
        }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The reservations that the terms select, sorted by id and without duplicates, as known at most a minute ago.
    pub async fn list(
        &self,
        terms: &[CapacityReservationSelectorTerm],
    ) -> Result<Vec<CapacityReservation>, AwsError> {
        let mut found = Vec::new();
        for answer in futures::future::join_all(queries(terms).into_iter().map(|query| self.ask(query))).await
        {
            found.extend_from_slice(&answer?);
        }
        Ok(current(&found, self.clock.now()).into_iter().cloned().collect())
    }

    /// The status entries for the reservations that the terms select.
    pub async fn status(
        &self,
        terms: &[CapacityReservationSelectorTerm],
    ) -> Result<Vec<CapacityReservationStatus>, AwsError> {
        let (usable, unusable) = status(&self.list(terms).await?, self.clock.now());
        for why in unusable {
            tracing::error!(error = %why, "ignoring capacity reservation");
        }
        Ok(usable)
    }

    async fn ask(&self, query: ReservationQuery) -> Answer {
        if let Some(answer) = self.answers.get(&query) {
            return Ok(answer);
        }
        let (ec2, clock) = (Arc::clone(&self.ec2), self.clock);
        let (answers, counts, asked) = (Arc::clone(&self.answers), self.counts.clone(), query.clone());
        let question = move || async move {
            // The time is taken before the call, because the response may or may not include launches that finish while
            // the call is made.
            let asked_at = clock.now();
            let found = match ec2.describe_capacity_reservations(&asked).await {
                Ok(found) => Arc::new(found),
                Err(error) if error.is_not_found() => Arc::default(),
                Err(error) => return Err(error),
            };
            let left =
                found.iter().map(|one| (one.id.clone(), u32::try_from(one.available_count).unwrap_or(0)));
            counts.sync(left, asked_at);
            answers.insert(asked, Arc::clone(&found));
            Ok(found)
        };
        self.flights.run(query, question).await
    }
}
