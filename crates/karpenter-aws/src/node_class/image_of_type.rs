//! Decides which AMI of a node class an instance type boots: the first AMI in the status whose requirements are
//! compatible with the type.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use karpenter_api::labels::{LabelRules, Provider};
use karpenter_api::types::{AmiStatus, Requirement as WrittenRequirement};
use karpenter_model::requirements::{Operator, Requirement, Requirements};

/// Label keys on which an AMI may have requirements even if the instance type does not define them.
static WELL_KNOWN: LazyLock<BTreeSet<Arc<str>>> =
    LazyLock::new(|| LabelRules::for_provider(Provider::Aws).well_known().map(Arc::from).collect());

/// Converts requirements; those with an unknown operator are skipped, as the API server rejects them.
pub(crate) fn requirements(written: &[WrittenRequirement]) -> Requirements {
    let read = written.iter().filter_map(|one| {
        let operator = Operator::parse(&one.operator)?;
        Some(Requirement::new(one.key.as_str(), operator, one.values.iter().map(String::as_str)))
    });
    read.collect()
}

/// The first AMI that is compatible with the instance type; `None` if no AMI is.
pub fn image_of_type<'a>(of_type: &Requirements, images: &'a [AmiStatus]) -> Option<&'a AmiStatus> {
    images.iter().find(|image| of_type.compatible(&requirements(&image.requirements), &WELL_KNOWN).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn images(list: Value) -> Vec<AmiStatus> {
        serde_json::from_value(list).expect("images")
    }

    #[test]
    fn first_compatible_image_is_selected() {
        let arch = |value: &str| json!({"key": "kubernetes.io/arch", "operator": "In", "values": [value]});
        let gpu =
            |operator: &str| json!({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": operator});
        let list = images(json!([
            {"id": "ami-gpu", "requirements": [arch("amd64"), gpu("Exists")]},
            {"id": "ami-arm", "requirements": [arch("arm64")]},
            {"id": "ami-std", "requirements": [arch("amd64"), gpu("DoesNotExist")]},
            {"id": "ami-old", "requirements": [arch("amd64")]},
        ]));
        let with_gpu = Requirement::in_values("karpenter.k8s.aws/instance-gpu-count", ["4"]);
        let without_gpu = Requirement::does_not_exist("karpenter.k8s.aws/instance-gpu-count");
        let of = |arch: &str, gpu: Option<&Requirement>| -> Requirements {
            std::iter::once(Requirement::in_values("kubernetes.io/arch", [arch]))
                .chain(gpu.cloned())
                .collect()
        };
        let table = [
            ("with gpu", of("amd64", Some(&with_gpu)), Some("ami-gpu")),
            ("without gpu", of("amd64", Some(&without_gpu)), Some("ami-std")),
            ("arm", of("arm64", Some(&without_gpu)), Some("ami-arm")),
            ("gpu count undefined", of("amd64", None), Some("ami-gpu")),
            ("another architecture", of("riscv64", None), None),
        ];
        for (case, of_type, expected) in table {
            let found = image_of_type(&of_type, &list).map(|image| image.id.as_str());
            assert_eq!(found, expected, "{case}");
        }
        assert_eq!(image_of_type(&Requirements::new(), &[]), None);
    }
}
