//! Feature gates of the AWS provider.

use std::str::FromStr;

use karpenter_controllers::operator::options::values::parse_go_bool;

/// Upstream's default.
pub(super) const DEFAULT_TEXT: &str = "NodeClassCEL=false";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AwsFeatureGates {
    /// Whether `spec.kubelet` of an EC2NodeClass may contain CEL expressions.
    pub node_class_cel: bool,
}

impl FromStr for AwsFeatureGates {
    type Err = String;

    /// Parses gates. A gate that is not named keeps its default, unknown gates are ignored, and if a gate is named
    /// twice, the last value applies.
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
            if name == "NodeClassCEL" {
                gates.node_class_cel = is_on;
            }
        }
        Ok(gates)
    }
}
