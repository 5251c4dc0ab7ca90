use karpenter_model::instance_type::Offering;
use karpenter_model::requirements::Requirement;
use karpenter_model::resources::ResourceList;
use serde_json::{Value, json};

use super::*;

/// The kubelet configuration has the pod capacity of the instance type; types with `bad` in their name have no
/// configuration.
struct ByPods;

impl KubeletConfigs for ByPods {
    fn kubelet(&self, _: &EC2NodeClass, instance_type: &InstanceType) -> Result<Kubelet, String> {
        if instance_type.name.contains("bad") {
            return Err("no value".to_owned());
        }
        let max_pods = i32::try_from(instance_type.capacity.get("pods")).ok();
        Ok(Kubelet { max_pods, ..Kubelet::default() })
    }
}

fn class(images: Value) -> EC2NodeClass {
    serde_json::from_value(json!({"metadata": {"name": "default"}, "status": {"amis": images}}))
        .expect("a class")
}

fn images() -> Value {
    let arch = |value: &str| json!([{"key": "kubernetes.io/arch", "operator": "In", "values": [value]}]);
    json!([{"id": "ami-x86", "requirements": arch("amd64")}, {"id": "ami-arm", "requirements": arch("arm64")}])
}

fn instance_type(name: &str, arch: &str, pods: i64, efa: i64, reservations: &[(&str, &str)]) -> InstanceType {
    let offering = |zone: &str, reservation: Option<&str>| {
        let kind = if reservation.is_some() { "reserved" } else { "on-demand" };
        let mut requirements = vec![
            Requirement::in_values(labels::ZONE, [zone]),
            Requirement::in_values(labels::CAPACITY_TYPE, [kind]),
        ];
        requirements
            .extend(reservation.map(|id| Requirement::in_values(labels::AWS_CAPACITY_RESERVATION_ID, [id])));
        Offering {
            requirements: requirements.into_iter().collect(),
            price_per_hour: 1.0,
            available: true,
            reservation_capacity: reservation.map(|_| 1),
            ..Offering::default()
        }
    };
    let mut offerings = vec![offering("a", None)];
    offerings.extend(reservations.iter().map(|(zone, id)| offering(zone, Some(id))));
    let mut capacity = ResourceList::new();
    capacity.set("pods", pods);
    capacity.set(AWS_EFA, efa);
    InstanceType {
        name: name.into(),
        requirements: [Requirement::in_values(labels::ARCH, [arch])].into_iter().collect(),
        offerings,
        capacity,
        overhead: ResourceList::new(),
        volume_attachment_limits: Default::default(),
    }
}

fn shown(class: &EC2NodeClass, types: &[InstanceType], capacity_type: &str, wants_efa: bool) -> String {
    let candidates: Vec<Candidate<'_>> = types
        .iter()
        .map(|instance_type| Candidate { instance_type, offerings: instance_type.offerings.iter().collect() })
        .collect();
    let mut constraints = LaunchConstraints::default();
    if wants_efa {
        constraints.requests.set(AWS_EFA, 1);
    }
    let found = match template_groups(class, &candidates, &constraints, capacity_type, &ByPods) {
        Ok(found) => found,
        Err(error) => return error.to_string(),
    };
    let texts = found.iter().map(|group| {
        let names: Vec<&str> =
            group.candidates.iter().map(|candidate| &*candidate.instance_type.name).collect();
        let reservation = group.reservation.as_ref().map(|held| format!(" {}", held.id)).unwrap_or_default();
        let efa = if group.efa_count > 0 { format!(" efa={}", group.efa_count) } else { String::new() };
        format!(
            "{} {}{efa}{reservation}: {}",
            group.image.id,
            group.kubelet.max_pods.unwrap_or(0),
            names.join(" ")
        )
    });
    texts.collect::<Vec<_>>().join("; ")
}

#[test]
fn templates_differ_by_ami_pods_interfaces_and_reservation() {
    let class_with = |images| class(images);
    let t = instance_type;
    let plain = vec![t("a", "amd64", 29, 0, &[]), t("b", "amd64", 58, 0, &[]), t("c", "amd64", 29, 4, &[])];
    let table = [
        ("pods", class_with(images()), plain.clone(), "on-demand", false, "ami-x86 29: a c; ami-x86 58: b"),
        (
            "efa when it is asked for",
            class_with(images()),
            plain,
            "on-demand",
            true,
            "ami-x86 29: a; ami-x86 29 efa=4: c; ami-x86 58: b",
        ),
        (
            "images in the status's order",
            class_with(images()),
            vec![t("arm", "arm64", 29, 0, &[]), t("x86", "amd64", 29, 0, &[])],
            "on-demand",
            false,
            "ami-x86 29: x86; ami-arm 29: arm",
        ),
        (
            "a type without an image is left out",
            class_with(images()),
            vec![t("riscv", "riscv64", 29, 0, &[]), t("x86", "amd64", 29, 0, &[])],
            "on-demand",
            false,
            "ami-x86 29: x86",
        ),
        (
            "one per reservation",
            class_with(images()),
            vec![
                t("a", "amd64", 29, 0, &[("a", "cr-1"), ("b", "cr-2")]),
                t("b", "amd64", 29, 0, &[("a", "cr-3")]),
            ],
            "reserved",
            false,
            "ami-x86 29 cr-1: a; ami-x86 29 cr-2: a; ami-x86 29 cr-3: b",
        ),
        (
            "reservations do not matter on demand",
            class_with(images()),
            vec![t("a", "amd64", 29, 0, &[("a", "cr-1")]), t("b", "amd64", 29, 0, &[])],
            "on-demand",
            false,
            "ami-x86 29: a b",
        ),
        (
            "no images",
            class_with(json!([])),
            vec![t("a", "amd64", 29, 0, &[])],
            "on-demand",
            false,
            "no amis exist given constraints",
        ),
        (
            "none that fits",
            class_with(images()),
            vec![t("riscv", "riscv64", 29, 0, &[])],
            "on-demand",
            false,
            "no instance types satisfy requirements of amis [\"ami-x86\", \"ami-arm\"]",
        ),
        (
            "no kubelet configuration",
            class_with(images()),
            vec![t("bad", "amd64", 29, 0, &[])],
            "on-demand",
            false,
            "kubelet configuration for bad: no value",
        ),
    ];
    for (case, class, types, capacity_type, wants_efa, expected) in table {
        assert_eq!(shown(&class, &types, capacity_type, wants_efa), expected, "{case}");
    }
}
