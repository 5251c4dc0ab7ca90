//! Parses feature gates from text such as `NodeRepair=true,StaticCapacity=false`.

use std::str::FromStr;

use super::values::parse_go_bool;
use crate::settings::FeatureGates;

/// Upstream's default value of the flag.
pub(super) const DEFAULT_TEXT: &str = "NodeRepair=false,ReservedCapacity=true,SpotToSpotConsolidation=false,\
NodeOverlay=false,StaticCapacity=false,CapacityBuffer=false,TerminateFirstDrift=false,TerminateFirstRepair=false,\
PodDeletionCostManagement=false";

impl FeatureGates {
    fn gate(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "NodeRepair" => &mut self.node_repair,
            "ReservedCapacity" => &mut self.reserved_capacity,
            "SpotToSpotConsolidation" => &mut self.spot_to_spot_consolidation,
            "NodeOverlay" => &mut self.node_overlay,
            "StaticCapacity" => &mut self.static_capacity,
            "CapacityBuffer" => &mut self.capacity_buffer,
            "TerminateFirstDrift" => &mut self.terminate_first_drift,
            "TerminateFirstRepair" => &mut self.terminate_first_repair,
            "PodDeletionCostManagement" => &mut self.pod_deletion_cost_management,
            _ => return None,
        })
    }
}

impl FromStr for FeatureGates {
    type Err = String;

    /// Parses feature gates. Gates that are not in the text keep their default. If a gate is in it twice, the last
    /// value is used.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut gates = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!(
                    "{pair:?} is not a feature gate; valid: Name=true or Name=false, separated by commas"
                ));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(is_on) = parse_go_bool(value) else {
                return Err(format!("gate {name} cannot be {value:?}; valid: true, false"));
            };
            if let Some(gate) = gates.gate(name) {
                *gate = is_on;
            }
        }
        Ok(gates)
    }
}
