//! Capacity reservations and placement groups of an AWS account.
//!
//! The types hold plain values. The AWS provider discovers reservations and groups and counts how many instances a
//! reservation has left.

use std::sync::Arc;

/// A capacity reservation that a node class selects, as in `status.capacityReservations`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityReservation {
    pub id: Arc<str>,
    pub instance_type: Arc<str>,
    pub zone: Arc<str>,
    pub kind: ReservationKind,
    /// Whether the owner of the reservation may reclaim instances from it.
    pub interruptible: bool,
    /// Whether the reservation ends soon: its instances are being drained, and no more instances are launched into it.
    pub expiring: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationKind {
    Default,
    CapacityBlock,
}

impl ReservationKind {
    /// The reservation kind as spelled in the node label and in the node class's status.
    pub fn as_str(self) -> &'static str {
        match self {
            ReservationKind::Default => "default",
            ReservationKind::CapacityBlock => "capacity-block",
        }
    }

    pub fn parse(text: &str) -> Option<ReservationKind> {
        [ReservationKind::Default, ReservationKind::CapacityBlock]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// The placement group that a node class selects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementGroup {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub strategy: PlacementStrategy,
    /// The number of partitions if the group's strategy is `partition`; otherwise zero.
    pub partition_count: u32,
}

impl PlacementGroup {
    /// The partition numbers of the group; empty if it has no partitions.
    pub fn partitions(&self) -> impl Iterator<Item = u32> + use<> {
        let count = if self.strategy == PlacementStrategy::Partition { self.partition_count } else { 0 };
        1..=count
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementStrategy {
    Cluster,
    Partition,
    Spread,
}

impl PlacementStrategy {
    /// EC2's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            PlacementStrategy::Cluster => "cluster",
            PlacementStrategy::Partition => "partition",
            PlacementStrategy::Spread => "spread",
        }
    }

    pub fn parse(text: &str) -> Option<PlacementStrategy> {
        [PlacementStrategy::Cluster, PlacementStrategy::Partition, PlacementStrategy::Spread]
            .into_iter()
            .find(|strategy| strategy.as_str() == text)
    }
}
