//! Names of reasons that programs may rely on; the messages next to them may change.

use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::propose::Why;

/// The stable name of why a node stays; listed in docs/plan-output.md.
pub(crate) fn why_name(why: &Why) -> &'static str {
    match why {
        Why::Chosen { .. } => "Chosen",
        Why::DryRun { .. } => "DryRun",
        Why::Blocked(blocked) => blocked_name(blocked),
        Why::NotDrifted => "NotDrifted",
        Why::NeverConsolidated { .. } => "NeverConsolidated",
        Why::OnlyWhenEmpty { .. } => "OnlyWhenEmpty",
        Why::HasBufferPods { .. } => "HasBufferPods",
        Why::UnknownInstanceType { .. } => "UnknownInstanceType",
        Why::MissingLabel { .. } => "MissingLabel",
        Why::Settling { .. } => "Settling",
        Why::CoolDown { .. } => "CoolDown",
        Why::BudgetExhausted { .. } => "BudgetExhausted",
        Why::MovesExhausted { .. } => "MovesExhausted",
        Why::WouldNotFit { .. } => "WouldNotFit",
        Why::NeedsSeveralNodes { .. } => "NeedsSeveralNodes",
        Why::NotCheaper { .. } => "NotCheaper",
        Why::TooFewTypes { .. } => "TooFewTypes",
        Why::SpotToSpotOff => "SpotToSpotOff",
        Why::SpotToSpotInflexible { .. } => "SpotToSpotInflexible",
        Why::BelowThreshold { .. } => "BelowThreshold",
        Why::Unbalanced { .. } => "Unbalanced",
        Why::PodBudgetJoint { .. } => "PodBudgetJoint",
        Why::RepairHalted { .. } => "RepairHalted",
        Why::StaticScalingDown => "StaticScalingDown",
        Why::StaticAtLimit => "StaticAtLimit",
        Why::StaticReservationsFull => "StaticReservationsFull",
        Why::LaunchesFail { .. } => "LaunchesFail",
        Why::NotNow => "NotNow",
        Why::Fine => "Fine",
    }
}

fn blocked_name(blocked: &Blocked) -> &'static str {
    match blocked {
        Blocked::InCommand => "InCommand",
        Blocked::Resting => "Resting",
        Blocked::RepairWithoutPool => "RepairWithoutPool",
        Blocked::NoNode => "NoNode",
        Blocked::Rebooting => "Rebooting",
        Blocked::Leaving => "Leaving",
        Blocked::NotRegistered => "NotRegistered",
        Blocked::NotInitialized => "NotInitialized",
        Blocked::Nominated => "Nominated",
        Blocked::Annotated => "Annotated",
        Blocked::NoPoolLabel => "NoPoolLabel",
        Blocked::NoPool(_) => "NoPool",
        Blocked::PodAnnotated(_) => "PodAnnotated",
        Blocked::PodHeld(_) => "PodHeld",
        Blocked::Unconsolidated => "Unconsolidated",
        Blocked::PodBudget(_) => "PodBudget",
        Blocked::PodBudgets(_) => "PodBudgets",
        Blocked::RepairVetoed => "RepairVetoed",
        Blocked::RepairUnbounded => "RepairUnbounded",
    }
}
