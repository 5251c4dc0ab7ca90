//! What an account holds that changes where a class can launch: capacity reservations and placement groups.
//!
//! Plain values. Finding them, and counting what is left of them, is done elsewhere.

use std::sync::Arc;

/// One reservation that a class selects, as its status shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityReservation {
    pub id: Arc<str>,
    pub instance_type: Arc<str>,
    pub zone: Arc<str>,
    pub kind: ReservationKind,
    /// Whether its owner may take the instances back.
    pub interruptible: bool,
    /// About to end: what runs in it is moved out, and nothing new is launched.
    pub expiring: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationKind {
    Default,
    CapacityBlock,
}

impl ReservationKind {
    /// The spelling of the node label and of the class's status.
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

/// The placement group that a class selects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementGroup {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub strategy: PlacementStrategy,
    /// Of a partition group; zero for others.
    pub partition_count: u32,
}

impl PlacementGroup {
    /// The partitions an instance can be launched into; empty if the group has none.
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
