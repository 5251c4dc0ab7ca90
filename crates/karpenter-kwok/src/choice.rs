//! Chooses an offering for a NodeClaim: the cheapest one that its requirements and requests allow.

use std::sync::Arc;

use karpenter_api::types::NodeClaim;
use karpenter_model::instance_type::{InstanceType, Offering};
use karpenter_model::labels;
use karpenter_model::requirements::{Operator, Requirement, Requirements};
use karpenter_model::resources::ResourceList;

/// An instance type, and one of its offerings.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    pub instance_type: &'a InstanceType,
    pub offering: &'a Offering,
}

/// The NodeClaim's requirements and, if the NodeClaim is launched, the labels of its instance. A requirement with an
/// invalid operator is skipped, as the API server rejects it.
pub(crate) fn requirements(claim: &NodeClaim) -> Requirements {
    claim
        .spec
        .requirements
        .iter()
        .filter_map(|requirement| {
            let operator = Operator::parse(&requirement.operator)?;
            let values = requirement.values.iter().map(|value| Arc::from(value.as_str()));
            let values: Vec<Arc<str>> = values.collect();
            Some(Requirement::new(labels::normalize(&requirement.key), operator, values))
        })
        .chain(launched_requirements(claim))
        .collect()
}

/// The instance type, zone and capacity type of a launched NodeClaim, as requirements. They are read from its labels,
/// because any controller may have launched it.
fn launched_requirements(claim: &NodeClaim) -> impl Iterator<Item = Requirement> {
    let is_launched = claim.status.as_ref().is_some_and(|status| status.provider_id.is_some());
    let found = claim.metadata.labels.iter().flatten().filter(move |_| is_launched);
    found
        .filter(|(key, _)| {
            [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].contains(&key.as_str())
        })
        .map(|(key, value)| Requirement::new(key.as_str(), Operator::In, vec![Arc::from(value.as_str())]))
}

/// The first instance type that the NodeClaim names and that the catalog does not contain; `None` if the catalog has
/// all of them.
pub(crate) fn unknown_type<'a>(claim: &'a NodeClaim, types: &[InstanceType]) -> Option<&'a str> {
    let named = claim.spec.requirements.iter().filter(|requirement| {
        requirement.operator == "In" && labels::normalize(&requirement.key) == labels::INSTANCE_TYPE
    });
    named
        .flat_map(|requirement| &requirement.values)
        .find(|name| !types.iter().any(|instance_type| *instance_type.name == ***name))
        .map(String::as_str)
}

/// All compatible offerings that can be launched now, cheapest first. Equal prices of one instance type are ordered by
/// a hash of `number`, so that NodeClaims are spread over zones; equal prices of different types are ordered as the
/// types are.
pub(crate) fn candidates<'a>(claim: &NodeClaim, types: &'a [InstanceType], number: u64) -> Vec<Choice<'a>> {
    let wanted = requirements(claim);
    let requested = claim.spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requested = ResourceList::from_requests(
        requested.into_iter().flatten().map(|(name, quantity)| (name.as_str(), quantity)),
    );
    let mut found = Vec::new();
    for (order, instance_type) in types.iter().enumerate() {
        if !instance_type.requirements.intersects(&wanted) {
            continue;
        }
        let base = instance_type.allocatable();
        let holds = |offering: &Offering| match offering.overrides {
            Some(_) => fits(&instance_type.allocatable_of(offering), &requested),
            None => fits(&base, &requested),
        };
        let offerings = instance_type.offerings.iter().filter(|offering| {
            offering.is_launchable() && offering.requirements.intersects(&wanted) && holds(offering)
        });
        for (index, offering) in offerings.enumerate() {
            let turn = number.wrapping_add(index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            found.push((offering.price_per_hour, order, turn, Choice { instance_type, offering }));
        }
    }
    found.sort_by(|one, two| one.0.total_cmp(&two.0).then((one.1, one.2).cmp(&(two.1, two.2))));
    found.into_iter().map(|(.., choice)| choice).collect()
}

/// Whether the requests fit. Resources that the instance type lacks are ignored, because device plugins or NodeOverlays
/// add them later.
fn fits(allocatable: &ResourceList, requested: &ResourceList) -> bool {
    requested.iter().all(|(name, amount)| allocatable.lookup(name).is_none_or(|room| amount <= room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(requirements: serde_json::Value, requests: serde_json::Value) -> NodeClaim {
        let object = json!({"metadata": {"name": "claim"}, "spec": {
            "requirements": requirements, "resources": {"requests": requests},
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}});
        serde_json::from_value(object).expect("a claim")
    }

    fn first(claim: &NodeClaim, number: u64) -> Option<(String, String, String)> {
        let types = karpenter_catalog::kwok::generic();
        let choice = *candidates(claim, &types, number).first()?;
        let text = |value: Option<&Arc<str>>| value.map(ToString::to_string).unwrap_or_default();
        let offering = choice.offering;
        Some((choice.instance_type.name.to_string(), text(offering.zone()), text(offering.capacity_type())))
    }

    #[test]
    fn cheapest_compatible_offering_is_chosen() {
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let linux = requirement(labels::OS, "In", &["linux"]);
        let amd64 = requirement(labels::ARCH, "In", &["amd64"]);
        let on_demand = requirement(labels::CAPACITY_TYPE, "In", &["on-demand"]);
        let zone_b = requirement(labels::ZONE, "In", &["test-zone-b"]);
        let table = [
            (json!([linux, amd64, zone_b]), json!({}), "c-1x-amd64-linux", "spot"),
            (json!([linux, amd64, zone_b, on_demand]), json!({}), "c-1x-amd64-linux", "on-demand"),
            // The kubelet reserves 100 millicores, so a request of one whole core needs an instance type with two
            // cores.
            (json!([linux, amd64, zone_b]), json!({"cpu": "1"}), "c-2x-amd64-linux", "spot"),
            (json!([linux, amd64, zone_b]), json!({"memory": "7Gi"}), "m-1x-amd64-linux", "spot"),
            (json!([linux, amd64, zone_b]), json!({"example.com/device": "1"}), "c-1x-amd64-linux", "spot"),
            (
                json!([
                    linux,
                    zone_b,
                    requirement(labels::INSTANCE_TYPE, "In", &["s-4x-arm64-linux", "m-4x-arm64-linux"])
                ]),
                json!({}),
                "s-4x-arm64-linux",
                "spot",
            ),
            (
                json!([linux, amd64, zone_b, requirement("karpenter.kwok.sh/instance-cpu", "Gt", &["8"])]),
                json!({}),
                "c-16x-amd64-linux",
                "spot",
            ),
        ];
        for (requirements, requests, name, capacity_type) in table {
            let claim = claim(requirements.clone(), requests);
            let expected = (name.to_owned(), "test-zone-b".to_owned(), capacity_type.to_owned());
            assert_eq!(first(&claim, 3), Some(expected), "{requirements}");
        }
        assert_eq!(first(&claim(json!([requirement(labels::ZONE, "In", &["nowhere"])]), json!({})), 3), None);
    }

    #[test]
    fn equal_claims_with_different_numbers_spread_over_zones() {
        let claim = claim(json!([]), json!({}));
        let zones: std::collections::BTreeSet<String> =
            (0..50).filter_map(|number| first(&claim, number)).map(|(_, zone, _)| zone).collect();
        assert_eq!(zones.len(), 4);
    }

    #[test]
    fn unknown_instance_type_is_named() {
        let requirements =
            json!([{"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["c-1x-amd64-linux", "x"]}]);
        let types = karpenter_catalog::kwok::generic();
        assert_eq!(unknown_type(&claim(requirements, json!({})), &types), Some("x"));
        assert_eq!(unknown_type(&claim(json!([]), json!({})), &types), None);
    }
}
