//! Features of the AWS provider that are switched on and off by name.

use std::str::FromStr;

use karpenter_controllers::operator::options::values::parse_go_bool;

/// What upstream's default text says.
pub(super) const DEFAULT_TEXT: &str = "NodeClassCEL=false";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AwsFeatureGates {
    /// Expressions in `spec.kubelet` of a class.
    pub node_class_cel: bool,
}

impl FromStr for AwsFeatureGates {
    type Err = String;

    /// Gates that are not named keep their default, gates that are not known are passed over, and the last word on a
    /// gate counts.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut gates = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(format!(
                    "{pair:?} is no gate; valid: Name=true or Name=false, separated by commas"
                ));
            };
            let (name, value) = (name.trim(), value.trim());
            let Some(is_on) = parse_go_bool(value) else {
                return Err(format!("gate {name} cannot be {value:?}; valid: true, false"));
            };
            if name == "NodeClassCEL" {
                gates.node_class_cel = is_on;
            }
        }
        Ok(gates)
    }
}
