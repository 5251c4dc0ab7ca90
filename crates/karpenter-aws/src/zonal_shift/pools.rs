//! Decides whether a NodePool can launch in a zone. Shifts have zone ids, while NodePools mostly have zone names; the
//! subnets of the node class have both.

use karpenter_api::labels;
use karpenter_api::types::{NodePool, Requirement};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) name: String,
    pub(super) id: String,
}

/// The name of the zone; `None` if the node class has no subnet in it or the NodePool's requirements exclude it.
pub(super) fn reachable_zone<'a>(pool: &NodePool, zones: &'a [Zone], zone_id: &str) -> Option<&'a str> {
    let zone = zones.iter().find(|zone| zone.id == zone_id)?;
    let requirements = &pool.spec.template.spec.requirements;
    let is_allowed = requirements.iter().all(|requirement| match requirement.key.as_str() {
        labels::ZONE | labels::AWS_EBS_ZONE => allows(requirement, &zone.name),
        labels::AWS_ZONE_ID => allows(requirement, &zone.id),
        _ => true,
    });
    is_allowed.then_some(zone.name.as_str())
}

/// Whether a label value satisfies the requirement. `Gt` and `Lt` never match, because zones are not numbers.
fn allows(requirement: &Requirement, value: &str) -> bool {
    let is_listed = requirement.values.iter().any(|listed| listed == value);
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn nodepool_reaches_allowed_zones_of_its_subnets() {
        let zone = |name: &str, id: &str| Zone { name: name.to_owned(), id: id.to_owned() };
        let zones = [zone("us-east-1a", "use1-az4"), zone("us-east-1b", "use1-az6")];
        let requirement = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let by_name = labels::ZONE;
        let by_id = labels::AWS_ZONE_ID;
        let table: Vec<(Vec<Value>, &str, Option<&str>)> = vec![
            (vec![], "use1-az4", Some("us-east-1a")),
            (vec![], "use1-az1", None),
            (vec![requirement(by_name, "In", &["us-east-1a"])], "use1-az4", Some("us-east-1a")),
            (vec![requirement(by_name, "In", &["us-east-1a"])], "use1-az6", None),
            (vec![requirement(by_name, "NotIn", &["us-east-1a"])], "use1-az4", None),
            (vec![requirement(by_name, "Exists", &[])], "use1-az6", Some("us-east-1b")),
            (vec![requirement(by_name, "DoesNotExist", &[])], "use1-az6", None),
            (vec![requirement(by_id, "In", &["use1-az6"])], "use1-az6", Some("us-east-1b")),
            (vec![requirement(by_id, "In", &["use1-az6"])], "use1-az4", None),
            (vec![requirement("other", "In", &["x"])], "use1-az4", Some("us-east-1a")),
        ];
        for (requirements, zone_id, expected) in table {
            let pool: NodePool = serde_json::from_value(json!({
                "spec": {"template": {"spec": {"requirements": requirements, "nodeClassRef": {}}}},
            }))
            .expect("a pool");
            assert_eq!(reachable_zone(&pool, &zones, zone_id), expected, "{requirements:?} {zone_id}");
        }
    }
}
