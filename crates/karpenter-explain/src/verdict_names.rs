//! Stable names of reasons for programs; messages may change.

use karpenter_disruption::candidate::Blocked;
use karpenter_disruption::evaluate::Verdict;

/// The stable name of the reason why a node is not disrupted; docs/plan-output.md lists them.
pub fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Chosen { .. } => "Chosen",
        Verdict::DryRun { .. } => "DryRun",
        Verdict::Blocked(blocked) => blocked_name(blocked),
        Verdict::NotDrifted => "NotDrifted",
        Verdict::NeverConsolidated { .. } => "NeverConsolidated",
        Verdict::OnlyWhenEmpty { .. } => "OnlyWhenEmpty",
        Verdict::HasBufferPods { .. } => "HasBufferPods",
        Verdict::UnknownInstanceType { .. } => "UnknownInstanceType",
        Verdict::MissingLabel { .. } => "MissingLabel",
        Verdict::Settling { .. } => "Settling",
        Verdict::CoolDown { .. } => "CoolDown",
        Verdict::BudgetExhausted { .. } => "BudgetExhausted",
        Verdict::MovesExhausted { .. } => "MovesExhausted",
        Verdict::WouldNotFit { .. } => "WouldNotFit",
        Verdict::NeedsSeveralNodes { .. } => "NeedsSeveralNodes",
        Verdict::NotCheaper { .. } => "NotCheaper",
        Verdict::TooFewTypes { .. } => "TooFewTypes",
        Verdict::SpotToSpotOff => "SpotToSpotOff",
        Verdict::SpotToSpotInflexible { .. } => "SpotToSpotInflexible",
        Verdict::BelowThreshold { .. } => "BelowThreshold",
        Verdict::Unbalanced { .. } => "Unbalanced",
        Verdict::PodBudgetJoint { .. } => "PodBudgetJoint",
        Verdict::RepairHalted { .. } => "RepairHalted",
        Verdict::StaticScalingDown => "StaticScalingDown",
        Verdict::StaticAtLimit => "StaticAtLimit",
        Verdict::StaticReservationsFull => "StaticReservationsFull",
        Verdict::LaunchesFail { .. } => "LaunchesFail",
        Verdict::NotNow => "NotNow",
        Verdict::Stays { .. } => "Stays",
        Verdict::Fine => "Fine",
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
