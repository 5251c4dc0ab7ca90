//! Prices that NodeOverlays state for instance types that have no other price. Only overlays whose only requirement is
//! on the instance type are used.

use std::collections::BTreeMap;

use karpenter_api::labels;
use karpenter_api::types::{ConditionStatus, NodeOverlay};

use crate::pricing::is_price;

/// The stated prices by instance type. If several overlays state a price for a type, the one with the alphabetically
/// last name is used.
pub fn stated_prices<'a>(overlays: impl IntoIterator<Item = &'a NodeOverlay>) -> BTreeMap<String, f64> {
    let mut overlays: Vec<&NodeOverlay> = overlays.into_iter().filter(|overlay| is_valid(overlay)).collect();
    overlays.sort_by_key(|overlay| overlay.metadata.name.clone());
    let mut prices = BTreeMap::new();
    for overlay in overlays {
        let [requirement] = overlay.spec.requirements.as_slice() else { continue };
        let price = overlay.spec.price.as_deref().and_then(|text| text.parse::<f64>().ok());
        let Some(price) = price.filter(|price| is_price(*price)) else { continue };
        if requirement.key == labels::INSTANCE_TYPE && requirement.operator == "In" {
            prices.extend(requirement.values.iter().map(|name| (name.clone(), price)));
        }
    }
    prices
}

fn is_valid(overlay: &NodeOverlay) -> bool {
    let conditions = overlay.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions.iter().any(|condition| {
        condition.type_ == "ValidationSucceeded" && condition.status == ConditionStatus::True
    })
}

#[cfg(test)]
mod tests {
    use karpenter_api::types::{Condition, NodeOverlaySpec, NodeOverlayStatus, Requirement};

    use super::*;

    fn overlay(name: &str, price: Option<&str>, requirements: &[(&str, &str, &[&str])]) -> NodeOverlay {
        let mut overlay = NodeOverlay::default();
        overlay.metadata.name = Some(name.to_owned());
        overlay.spec = NodeOverlaySpec {
            requirements: requirements
                .iter()
                .map(|(key, operator, values)| Requirement {
                    key: (*key).to_owned(),
                    operator: (*operator).to_owned(),
                    values: values.iter().map(|value| (*value).to_owned()).collect(),
                    min_values: None,
                })
                .collect(),
            price: price.map(str::to_owned),
            ..NodeOverlaySpec::default()
        };
        let valid = Condition {
            type_: "ValidationSucceeded".to_owned(),
            status: ConditionStatus::True,
            ..Condition::default()
        };
        overlay.status = Some(NodeOverlayStatus { conditions: vec![valid] });
        overlay
    }

    #[test]
    fn only_overlays_with_instance_type_and_price_count() {
        let of_type = (labels::INSTANCE_TYPE, "In", &["m5.large", "m5.xlarge"][..]);
        let table: [(NodeOverlay, usize); 9] = [
            (overlay("a", Some("0.5"), &[of_type]), 2),
            (overlay("a", None, &[of_type]), 0),
            (overlay("a", Some("cheap"), &[of_type]), 0),
            (overlay("a", Some("0"), &[of_type]), 0),
            (overlay("a", Some("-1"), &[of_type]), 0),
            (overlay("a", Some("0.5"), &[]), 0),
            (overlay("a", Some("0.5"), &[of_type, ("zone", "In", &["a"])]), 0),
            (overlay("a", Some("0.5"), &[(labels::INSTANCE_TYPE, "NotIn", &["m5.large"])]), 0),
            (overlay("a", Some("0.5"), &[("zone", "In", &["a"])]), 0),
        ];
        for (overlay, expected) in table {
            assert_eq!(stated_prices([&overlay]).len(), expected, "{:?}", overlay.spec);
        }
        let mut unchecked = overlay("a", Some("0.5"), &[of_type]);
        unchecked.status = None;
        assert!(stated_prices([&unchecked]).is_empty());
    }

    #[test]
    fn last_overlay_by_name_wins() {
        let of_type = (labels::INSTANCE_TYPE, "In", &["m5.large"][..]);
        let overlays = [overlay("b", Some("0.2"), &[of_type]), overlay("a", Some("0.1"), &[of_type])];
        assert_eq!(stated_prices(&overlays), BTreeMap::from([("m5.large".to_owned(), 0.2)]));
    }
}
