//! What each kind of message means for the claim of an instance: what is told, what is no longer on offer, and whether
//! the claim ends. A table and nothing else; who carries it out is next door.

use super::message::Kind;

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its node is drained and its pods are planned elsewhere.
    Drain,
    /// The machine is broken: nothing on it can be waited for.
    Force,
}

impl Ending {
    /// As upstream's log names it.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Drain => "CordonAndDrain",
            Self::Force => "ForcefulTermination",
        }
    }
}

/// An event on the claim and on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub reason: &'static str,
    pub message: &'static str,
    pub is_warning: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    pub told: Option<Told>,
    /// The claim's instance type is not to be had as spot in its zone for a while.
    pub closes_spot_pool: bool,
    /// The claim's reservation has nothing left.
    pub closes_reservation: bool,
    pub ending: Option<Ending>,
}

const fn warning(reason: &'static str, message: &'static str) -> Option<Told> {
    Some(Told { reason, message, is_warning: true })
}

const UNHEALTHY: Option<Told> =
    warning("InstanceUnhealthy", "An unhealthy warning was triggered for the instance");

pub const fn reaction(kind: Kind) -> Reaction {
    let told = match kind {
        Kind::RebalanceRecommendation => Some(Told {
            reason: "SpotRebalanceRecommendation",
            message: "Spot rebalance recommendation was triggered",
            is_warning: false,
        }),
        Kind::ScheduledChange | Kind::InstanceStatus | Kind::SystemStatus | Kind::EventStatus => UNHEALTHY,
        Kind::SpotInterrupted => warning("SpotInterrupted", "Spot interruption warning was triggered"),
        Kind::InstanceStopped => warning("InstanceStopping", "Instance is stopping"),
        Kind::InstanceTerminated => warning("InstanceTerminating", "Instance is terminating"),
        Kind::CapacityReservationInterrupted => warning(
            "CapacityReservationInstanceInterrupted",
            "Capacity Reservation interruption warning was triggered",
        ),
        Kind::NoOp => None,
    };
    let ending = match kind {
        Kind::ScheduledChange
        | Kind::SpotInterrupted
        | Kind::InstanceStopped
        | Kind::InstanceTerminated
        | Kind::CapacityReservationInterrupted
        | Kind::EventStatus => Some(Ending::Drain),
        Kind::InstanceStatus | Kind::SystemStatus => Some(Ending::Force),
        Kind::RebalanceRecommendation | Kind::NoOp => None,
    };
    Reaction {
        told,
        closes_spot_pool: matches!(kind, Kind::SpotInterrupted),
        closes_reservation: matches!(kind, Kind::CapacityReservationInterrupted),
        ending,
    }
}

/// Told on the claim when it ends because of a message.
pub const TERMINATING_REASON: &str = "TerminatingOnInterruption";
pub const TERMINATING_CLAIM: &str = "Interruption triggered termination for the NodeClaim";
pub const TERMINATING_NODE: &str = "Interruption triggered termination for the Node";

/// What is still to be written about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// The moment from which on nothing is waited for is set to now.
    pub deadline_now: bool,
    pub delete: bool,
}

/// A claim that is ending already is not ended again, but a broken machine is still not waited for.
pub const fn writes(ending: Option<Ending>, is_deleting: bool, has_deadline: bool) -> Writes {
    match ending {
        None => Writes { deadline_now: false, delete: false },
        Some(Ending::Drain) => Writes { deadline_now: false, delete: !is_deleting },
        Some(Ending::Force) => Writes { deadline_now: !has_deadline, delete: !is_deleting },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_reaction() {
        // Kind, event, what is closed (spot pool, reservation), how the claim ends.
        let drain = Some(Ending::Drain);
        let table = [
            (Kind::RebalanceRecommendation, "SpotRebalanceRecommendation", (false, false), None),
            (Kind::ScheduledChange, "InstanceUnhealthy", (false, false), drain),
            (Kind::SpotInterrupted, "SpotInterrupted", (true, false), drain),
            (Kind::InstanceStopped, "InstanceStopping", (false, false), drain),
            (Kind::InstanceTerminated, "InstanceTerminating", (false, false), drain),
            (
                Kind::CapacityReservationInterrupted,
                "CapacityReservationInstanceInterrupted",
                (false, true),
                drain,
            ),
            (Kind::InstanceStatus, "InstanceUnhealthy", (false, false), Some(Ending::Force)),
            (Kind::SystemStatus, "InstanceUnhealthy", (false, false), Some(Ending::Force)),
            (Kind::EventStatus, "InstanceUnhealthy", (false, false), drain),
            (Kind::NoOp, "", (false, false), None),
        ];
        assert_eq!(table.map(|row| row.0), Kind::ALL);
        for (kind, reason, closed, ending) in table {
            let found = reaction(kind);
            assert_eq!(found.told.map_or("", |told| told.reason), reason, "{kind:?}");
            assert_eq!((found.closes_spot_pool, found.closes_reservation), closed, "{kind:?}");
            assert_eq!(found.ending, ending, "{kind:?}");
            let is_warning = found.told.is_some_and(|told| told.is_warning);
            assert_eq!(is_warning, ending.is_some(), "{kind:?}: what ends a claim is a warning");
        }
    }

    #[test]
    fn what_is_written_depends_on_what_the_claim_already_says() {
        let write = |deadline_now, delete| Writes { deadline_now, delete };
        let table = [
            (None, false, false, write(false, false)),
            (Some(Ending::Drain), false, false, write(false, true)),
            (Some(Ending::Drain), true, false, write(false, false)),
            (Some(Ending::Force), false, false, write(true, true)),
            (Some(Ending::Force), false, true, write(false, true)),
            (Some(Ending::Force), true, false, write(true, false)),
            (Some(Ending::Force), true, true, write(false, false)),
        ];
        for (ending, is_deleting, has_deadline, expected) in table {
            assert_eq!(writes(ending, is_deleting, has_deadline), expected, "{ending:?} {is_deleting}");
        }
    }
}
