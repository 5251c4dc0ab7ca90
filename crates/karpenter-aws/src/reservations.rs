//! Capacity that was paid for ahead: which of it a class selects, and how much of it is left.
//!
//! What selector terms mean and how a reservation is shown in a class's status is decided by [`queries`] and [`status`];
//! how many machines still fit, by [`Counts`]. Which claims have to leave a reservation is decided elsewhere.

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
use karpenter_cluster::clock::{Clock, until};

use crate::api::ec2::{CapacityReservation, ReservationQuery};
use crate::api::{AwsError, Ec2, tag_filters};
use crate::cache::Cache;
use crate::single_flight::SingleFlight;

pub use counts::{Counts, Left};

/// How old an answer may be.
const REFRESH: Duration = Duration::from_secs(60);
/// EC2 takes the machines of a capacity block half an hour before its end; ten minutes earlier nothing new is started.
const EXPIRING_BEFORE_END: Duration = Duration::from_secs(40 * 60);

const ACTIVE: &str = "active";
const EXPIRING: &str = "expiring";

/// What has to be asked for the terms. One question for each id: one that is gone would spoil the answer for others.
pub fn queries(terms: &[CapacityReservationSelectorTerm]) -> Vec<ReservationQuery> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut queries = Vec::new();
    for term in terms {
        if let Some(id) = given(&term.id) {
            queries.push(ReservationQuery { ids: vec![id], ..ReservationQuery::default() });
        }
        let tags = term.tags.as_ref().map(tag_filters).unwrap_or_default();
        let instance_match_criteria = given(&term.instance_match_criteria);
        // An owner alone is no selection; the API server refuses it.
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

/// A reservation as a class's status shows it. Only capacity blocks expire: others end without a warning from EC2.
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

/// All of them that can be shown, by id, and what is wrong with the others.
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

/// Each reservation once, by id, without those that have ended.
fn current(reservations: &[CapacityReservation], now: Timestamp) -> Vec<&CapacityReservation> {
    let by_id: BTreeMap<&str, &CapacityReservation> = reservations
        .iter()
        .filter(|reservation| reservation.ends_at.is_none_or(|end| end > now))
        .map(|reservation| (reservation.id.as_str(), reservation))
        .collect();
    by_id.into_values().collect()
}

/// What a status says, as instance types are resolved with it. A status is written by us, but by whichever version:
/// a reservation of an unknown kind is left out.
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

/// Asks EC2 for reservations, not too often, and keeps count of what is left. Clones share everything.
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

    /// The reservations that the terms select, each once, by id, as EC2 told not longer than a minute ago.
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

    /// What the terms select, as a class's status shows it.
    pub async fn status(
        &self,
        terms: &[CapacityReservationSelectorTerm],
    ) -> Result<Vec<CapacityReservationStatus>, AwsError> {
        let (usable, unusable) = status(&self.list(terms).await?, self.clock.now());
        for why in unusable {
            tracing::error!(error = %why, "a capacity reservation is left out");
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
            // Launches that are answered while the question is under way may or may not be in the answer.
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
