//! The reaction to each kind of interruption message: the event, the capacity that becomes unavailable, and whether the
//! NodeClaim is deleted. The functions are pure; [`super::Handler`] applies the reaction.

use super::message::Kind;

/// How a NodeClaim is terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// The node is drained before its instance is terminated.
    Drain,
    /// The instance is impaired, so it is terminated without waiting for the drain.
    Force,
}

impl Termination {
    /// The value of the log field `action`, as in upstream.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Drain => "CordonAndDrain",
            Self::Force => "ForcefulTermination",
        }
    }
}

/// An event that is published for the NodeClaim and for its Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventText {
    pub reason: &'static str,
    pub message: &'static str,
    pub is_warning: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaction {
    pub event: Option<EventText>,
    /// Whether the spot offering of the NodeClaim's instance type and zone becomes unavailable for some minutes.
    pub marks_spot_unavailable: bool,
    /// Whether the NodeClaim's capacity reservation counts as full.
    pub marks_reservation_exhausted: bool,
    pub ending: Option<Termination>,
}

const fn warning(reason: &'static str, message: &'static str) -> Option<EventText> {
    Some(EventText { reason, message, is_warning: true })
}

const UNHEALTHY: Option<EventText> =
    warning("InstanceUnhealthy", "An unhealthy warning was triggered for the instance");

pub const fn reaction(kind: Kind) -> Reaction {
    let event = match kind {
        Kind::RebalanceRecommendation => Some(EventText {
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
        | Kind::EventStatus => Some(Termination::Drain),
        Kind::InstanceStatus | Kind::SystemStatus => Some(Termination::Force),
        Kind::RebalanceRecommendation | Kind::NoOp => None,
    };
    Reaction {
        event,
        marks_spot_unavailable: matches!(kind, Kind::SpotInterrupted),
        marks_reservation_exhausted: matches!(kind, Kind::CapacityReservationInterrupted),
        ending,
    }
}

/// The reason of the event that reports the deletion of a NodeClaim because of an interruption.
pub const TERMINATING_REASON: &str = "TerminatingOnInterruption";
pub const TERMINATING_CLAIM: &str = "Interruption triggered termination for the NodeClaim";
pub const TERMINATING_NODE: &str = "Interruption triggered termination for the Node";

/// The writes that a NodeClaim still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writes {
    /// Whether the annotation with the termination deadline is set to the current time.
    pub deadline_now: bool,
    pub delete: bool,
}

/// The writes for a NodeClaim. A NodeClaim that is already terminating is not deleted again, but it gets a deadline if
/// its instance is impaired.
pub const fn writes(ending: Option<Termination>, is_deleting: bool, has_deadline: bool) -> Writes {
    match ending {
        None => Writes { deadline_now: false, delete: false },
        Some(Termination::Drain) => Writes { deadline_now: false, delete: !is_deleting },
        Some(Termination::Force) => Writes { deadline_now: !has_deadline, delete: !is_deleting },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_kind_has_its_reaction() {
        // Columns: kind of message, reason of the event, capacity that becomes unavailable (spot offering,
        // reservation), how the NodeClaim is terminated.
        let drain = Some(Termination::Drain);
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
            (Kind::InstanceStatus, "InstanceUnhealthy", (false, false), Some(Termination::Force)),
            (Kind::SystemStatus, "InstanceUnhealthy", (false, false), Some(Termination::Force)),
            (Kind::EventStatus, "InstanceUnhealthy", (false, false), drain),
            (Kind::NoOp, "", (false, false), None),
        ];
        assert_eq!(table.map(|row| row.0), Kind::ALL);
        for (kind, reason, closed, ending) in table {
            let found = reaction(kind);
            assert_eq!(found.event.map_or("", |event| event.reason), reason, "{kind:?}");
            assert_eq!((found.marks_spot_unavailable, found.marks_reservation_exhausted), closed, "{kind:?}");
            assert_eq!(found.ending, ending, "{kind:?}");
            let is_warning = found.event.is_some_and(|event| event.is_warning);
            assert_eq!(is_warning, ending.is_some(), "{kind:?}: a deletion comes with a warning");
        }
    }

    #[test]
    fn writes_depend_on_deletion_timestamp_and_deadline() {
        let write = |deadline_now, delete| Writes { deadline_now, delete };
        let table = [
            (None, false, false, write(false, false)),
            (Some(Termination::Drain), false, false, write(false, true)),
            (Some(Termination::Drain), true, false, write(false, false)),
            (Some(Termination::Force), false, false, write(true, true)),
            (Some(Termination::Force), false, true, write(false, true)),
            (Some(Termination::Force), true, false, write(true, false)),
            (Some(Termination::Force), true, true, write(false, false)),
        ];
        for (ending, is_deleting, has_deadline, expected) in table {
            assert_eq!(writes(ending, is_deleting, has_deadline), expected, "{ending:?} {is_deleting}");
        }
    }
}
