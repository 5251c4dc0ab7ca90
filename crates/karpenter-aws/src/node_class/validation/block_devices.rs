//! Finds block device mappings that the API server accepts although EC2 rejects them.

use std::collections::BTreeSet;

use karpenter_api::types::BlockDeviceMapping;

/// The errors of all mappings, in the order in which the node class lists the mappings.
pub fn problems(mappings: &[BlockDeviceMapping]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        match mapping.device_name.as_deref() {
            None | Some("") => {
                problems.push(format!("spec.blockDeviceMappings[{index}].deviceName is missing"))
            }
            Some(name) if !names.insert(name) => {
                problems
                    .push(format!("spec.blockDeviceMappings[{index}].deviceName {name:?} is a duplicate"));
            }
            Some(_) => {}
        }
        if mapping.ebs.is_none() {
            problems.push(format!("spec.blockDeviceMappings[{index}].ebs is missing"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn block_device_needs_unique_name_and_ebs() {
        let good = json!({"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}});
        let table: [(Value, &[&str]); 8] = [
            (json!([]), &[]),
            (json!([good]), &[]),
            (json!([good, {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-1"}}]), &[]),
            (
                json!([{"ebs": {"volumeSize": "20Gi"}}]),
                &["spec.blockDeviceMappings[0].deviceName is missing"],
            ),
            (
                json!([{"deviceName": "", "ebs": {"volumeSize": "20Gi"}}]),
                &["spec.blockDeviceMappings[0].deviceName is missing"],
            ),
            (json!([good, {"deviceName": "/dev/xvdb"}]), &["spec.blockDeviceMappings[1].ebs is missing"]),
            (
                json!([{}, {"rootVolume": true}]),
                &[
                    "spec.blockDeviceMappings[0].deviceName is missing",
                    "spec.blockDeviceMappings[0].ebs is missing",
                    "spec.blockDeviceMappings[1].deviceName is missing",
                    "spec.blockDeviceMappings[1].ebs is missing",
                ],
            ),
            (json!([good, good]), &["spec.blockDeviceMappings[1].deviceName \"/dev/xvda\" is a duplicate"]),
        ];
        for (given, expected) in table {
            let mappings: Vec<BlockDeviceMapping> = serde_json::from_value(given.clone()).expect("disks");
            assert_eq!(problems(&mappings), expected, "{given}");
        }
    }
}
