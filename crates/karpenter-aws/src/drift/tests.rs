use super::*;
use std::sync::Arc;
use std::sync::Mutex;

use futures::FutureExt;
use karpenter_model::requirements::{Requirement, Requirements};
use serde_json::{Value, json};

const HASH: &str = labels::AWS_ANNOTATION_NODE_CLASS_HASH;
const VERSION: &str = labels::AWS_ANNOTATION_NODE_CLASS_HASH_VERSION;

fn class(annotations: Value) -> EC2NodeClass {
    let arch = |value: &str| json!([{"key": "kubernetes.io/arch", "operator": "In", "values": [value]}]);
    serde_json::from_value(json!({
        "metadata": {"name": "default", "annotations": annotations},
        "spec": {},
        "status": {
            "amis": [
                {"id": "ami-arm", "requirements": arch("arm64")},
                {"id": "ami-new", "requirements": arch("amd64")},
                {"id": "ami-old", "requirements": arch("amd64")},
            ],
            "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
            "subnets": [{"id": "subnet-1", "zone": "a"}, {"id": "subnet-2", "zone": "b"}],
            "capacityReservations": [{"id": "cr-1"}],
        },
    }))
    .expect("a class")
}

fn claim(annotations: Value, image: Value, group: Value) -> NodeClaim {
    let mut claim = json!({
        "metadata": {"name": "c", "annotations": annotations, "labels": {labels::INSTANCE_TYPE: "m5.large"}},
        "spec": {"requirements": [], "nodeClassRef": {}},
        "status": {"imageID": image, "providerID": "aws:///a/i-1"},
    });
    if let Some(group) = group.as_str() {
        claim["metadata"]["labels"][labels::AWS_PLACEMENT_GROUP_ID] = json!(group);
    }
    serde_json::from_value(claim).expect("a claim")
}

fn instance_type() -> InstanceType {
    InstanceType {
        name: "m5.large".into(),
        requirements: Requirements::from_iter([Requirement::in_values("kubernetes.io/arch", ["amd64"])]),
        offerings: Vec::new(),
        capacity: Default::default(),
        overhead: Default::default(),
        volume_attachment_limits: Default::default(),
    }
}

fn machine(groups: &[&str], subnet: Option<&str>, reservation: Option<&str>) -> InstanceFacts {
    InstanceFacts {
        security_group_ids: groups.iter().map(|id| (*id).to_owned()).collect(),
        subnet_id: subnet.map(str::to_owned),
        reservation_id: reservation.map(str::to_owned),
    }
}

#[test]
fn spec_is_drifted_if_comparable_hashes_differ() {
    let table = [
        (json!({HASH: "1", VERSION: "v6"}), json!({HASH: "2", VERSION: "v6"}), true),
        (json!({HASH: "1", VERSION: "v5"}), json!({HASH: "2", VERSION: "v5"}), true),
        (json!({HASH: "1", VERSION: "v6"}), json!({HASH: "1", VERSION: "v6"}), false),
        (json!({HASH: "1", VERSION: "v5"}), json!({HASH: "2", VERSION: "v6"}), false),
        (json!({HASH: "1"}), json!({HASH: "2", VERSION: "v6"}), false),
        (json!({HASH: "1", VERSION: "v6"}), json!({VERSION: "v6"}), false),
        (json!({HASH: "1", VERSION: "v6"}), json!({HASH: "2"}), false),
        (json!({VERSION: "v6"}), json!({HASH: "2", VERSION: "v6"}), false),
        (json!({}), json!({}), false),
    ];
    for (of_class, of_claim, expected) in table {
        let claim = claim(of_claim.clone(), json!("ami-new"), json!(null));
        assert_eq!(has_spec_changed(&claim, &class(of_class.clone())), expected, "{of_class} {of_claim}");
    }
}

#[test]
fn ami_is_drifted_if_instance_type_would_boot_another() {
    let known = instance_type();
    let mut without_images = class(json!({}));
    without_images.status.as_mut().expect("a status").amis.clear();
    let mut only_arm = class(json!({}));
    only_arm.status.as_mut().expect("a status").amis.truncate(1);
    let table = [
        ("the first that fits", class(json!({})), json!("ami-new"), Some(&known), Ok(false)),
        ("one that fits, but not the first", class(json!({})), json!("ami-old"), Some(&known), Ok(true)),
        ("one of another architecture", class(json!({})), json!("ami-arm"), Some(&known), Ok(true)),
        ("one that is gone", class(json!({})), json!("ami-gone"), Some(&known), Ok(true)),
        ("none fits any more", only_arm, json!("ami-new"), Some(&known), Ok(true)),
        ("no image is known", without_images, json!("ami-new"), Some(&known), Err(MissingInput::Images)),
        (
            "the claim's image is not known",
            class(json!({})),
            json!(null),
            Some(&known),
            Err(MissingInput::ImageOfClaim),
        ),
        ("an empty image", class(json!({})), json!(""), Some(&known), Err(MissingInput::ImageOfClaim)),
        (
            "the type is not known",
            class(json!({})),
            json!("ami-new"),
            None,
            Err(MissingInput::InstanceType("m5.large".to_owned())),
        ),
    ];
    for (case, class, image, known, expected) in table {
        let claim = claim(json!({}), image, json!(null));
        assert_eq!(has_image_changed(&claim, &class, known), expected, "{case}");
    }
}

#[test]
fn drift_reasons_are_checked_in_order() {
    let both = ["sg-1", "sg-2"];
    let drifted = |drift| Ok(Comparison::Drifted(drift));
    // Columns: instance, placement group of the NodeClaim, placement group of the node class, whether the instance was
    // just read from EC2, expected result.
    let table = [
        ("same", machine(&both, Some("subnet-1"), None), None, None, false, Ok(Comparison::Same)),
        (
            "other subnet of the class",
            machine(&both, Some("subnet-2"), None),
            None,
            None,
            false,
            Ok(Comparison::Same),
        ),
        (
            "a group less",
            machine(&["sg-1"], Some("subnet-1"), None),
            None,
            None,
            false,
            drifted(Drift::SecurityGroup),
        ),
        (
            "a group more",
            machine(&["sg-1", "sg-2", "sg-3"], Some("subnet-1"), None),
            None,
            None,
            false,
            drifted(Drift::SecurityGroup),
        ),
        ("another subnet", machine(&both, Some("subnet-9"), None), None, None, false, drifted(Drift::Subnet)),
        ("no subnet", machine(&both, None, None), None, None, false, drifted(Drift::Subnet)),
        (
            "groups before subnets",
            machine(&[], Some("subnet-9"), None),
            None,
            None,
            false,
            drifted(Drift::SecurityGroup),
        ),
        (
            "in a reservation of the class",
            machine(&both, Some("subnet-1"), Some("cr-1")),
            None,
            None,
            false,
            Ok(Comparison::Same),
        ),
        (
            "in another one",
            machine(&both, Some("subnet-1"), Some("cr-9")),
            None,
            None,
            false,
            Ok(Comparison::ReadFresh),
        ),
        (
            "in another one for sure",
            machine(&both, Some("subnet-1"), Some("cr-9")),
            None,
            None,
            true,
            drifted(Drift::CapacityReservation),
        ),
        (
            "reservations before placement groups",
            machine(&both, Some("subnet-1"), Some("cr-9")),
            Some("pg-1"),
            None,
            true,
            drifted(Drift::CapacityReservation),
        ),
        (
            "in the group",
            machine(&both, Some("subnet-1"), None),
            Some("pg-1"),
            Some("pg-1"),
            false,
            Ok(Comparison::Same),
        ),
        (
            "in another group",
            machine(&both, Some("subnet-1"), None),
            Some("pg-1"),
            Some("pg-2"),
            false,
            drifted(Drift::PlacementGroup),
        ),
        (
            "the class got a group",
            machine(&both, Some("subnet-1"), None),
            None,
            Some("pg-1"),
            false,
            drifted(Drift::PlacementGroup),
        ),
        (
            "the class lost its group",
            machine(&both, Some("subnet-1"), None),
            Some("pg-1"),
            None,
            false,
            drifted(Drift::PlacementGroup),
        ),
    ];
    for (case, machine, of_claim, of_class, is_fresh, expected) in table {
        let claim = claim(json!({}), json!("ami-new"), json!(of_claim));
        assert_eq!(compare(&claim, &class(json!({})), &machine, of_class, is_fresh), expected, "{case}");
    }
}

#[test]
fn class_without_status_causes_no_drift() {
    let claim = claim(json!({}), json!("ami-new"), json!(null));
    let there = machine(&["sg-1", "sg-2"], Some("subnet-1"), None);
    let mut class = class(json!({}));
    class.status.as_mut().expect("a status").subnets.clear();
    assert_eq!(compare(&claim, &class, &there, None, false), Err(MissingInput::Subnets));
    class.status.as_mut().expect("a status").security_groups.clear();
    assert_eq!(compare(&claim, &class, &there, None, false), Err(MissingInput::SecurityGroups));
    class.status = None;
    assert_eq!(compare(&claim, &class, &there, None, false), Err(MissingInput::SecurityGroups));
}

/// Drift check inputs with configured values; records the calls.
struct Script {
    known_type: bool,
    remembered: InstanceFacts,
    fresh: InstanceFacts,
    asked: Mutex<Vec<&'static str>>,
}

impl Facts for Script {
    fn instance_type<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: &'a EC2NodeClass,
    ) -> CloudFuture<'a, Option<InstanceType>> {
        self.note("type");
        std::future::ready(Ok(self.known_type.then(instance_type))).boxed()
    }

    fn machine<'a>(&'a self, _: &'a NodeClaim, is_fresh: bool) -> CloudFuture<'a, InstanceFacts> {
        self.note(if is_fresh { "fresh machine" } else { "machine" });
        let machine = if is_fresh { &self.fresh } else { &self.remembered };
        std::future::ready(Ok(machine.clone())).boxed()
    }

    fn placement_group_id<'a>(&'a self, _: &'a EC2NodeClass) -> CloudFuture<'a, Option<String>> {
        self.note("group");
        std::future::ready(Ok(None)).boxed()
    }
}

impl Script {
    fn note(&self, what: &'static str) {
        self.asked.lock().expect("one thread").push(what);
    }
}

#[tokio::test]
async fn drift_check_makes_only_needed_calls() {
    let both = ["sg-1", "sg-2"];
    let good = machine(&both, Some("subnet-1"), None);
    let reserved = machine(&both, Some("subnet-1"), Some("cr-9"));
    let old = json!({HASH: "1", VERSION: "v6"});
    let new = json!({HASH: "2", VERSION: "v6"});
    type Row<'a> = (&'a str, Value, &'a str, InstanceFacts, InstanceFacts, Option<Drift>, &'a [&'a str]);
    let table: [Row; 6] = [
        ("the spec", new, "ami-old", good.clone(), good.clone(), Some(Drift::NodeClass), &[]),
        ("the image", old.clone(), "ami-old", good.clone(), good.clone(), Some(Drift::Ami), &["type"]),
        ("nothing", old.clone(), "ami-new", good.clone(), good.clone(), None, &["type", "machine", "group"]),
        (
            "the subnet",
            old.clone(),
            "ami-new",
            machine(&both, None, None),
            good.clone(),
            Some(Drift::Subnet),
            &["type", "machine", "group"],
        ),
        (
            "a reservation that it has left",
            old.clone(),
            "ami-new",
            reserved.clone(),
            good.clone(),
            None,
            &["type", "machine", "group", "fresh machine"],
        ),
        (
            "a reservation that it is still in",
            old.clone(),
            "ami-new",
            reserved.clone(),
            reserved.clone(),
            Some(Drift::CapacityReservation),
            &["type", "machine", "group", "fresh machine"],
        ),
    ];
    for (case, of_class, image, remembered, fresh, expected, asked) in table {
        let script = Script { known_type: true, remembered, fresh, asked: Mutex::default() };
        let claim = claim(old.clone(), json!(image), json!(null));
        let found = find(&claim, &class(of_class), &script).await;
        assert_eq!(found, Ok(expected), "{case}");
        assert_eq!(*script.asked.lock().expect("one thread"), asked, "{case}");
    }
    let script = Arc::new(Script {
        known_type: false,
        remembered: good.clone(),
        fresh: good,
        asked: Mutex::default(),
    });
    let claim = claim(json!({}), json!("ami-new"), json!(null));
    let found = find(&claim, &class(json!({})), &*script).await;
    assert!(matches!(found, Err(CloudError::Transient { .. })), "{found:?}");
}

#[test]
fn drift_reasons_equal_upstream() {
    let all = [
        (Drift::NodeClass, "NodeClassDrift"),
        (Drift::Ami, "AMIDrift"),
        (Drift::SecurityGroup, "SecurityGroupDrift"),
        (Drift::Subnet, "SubnetDrift"),
        (Drift::CapacityReservation, "CapacityReservationDrift"),
        (Drift::PlacementGroup, "PlacementGroupDrift"),
    ];
    for (drift, expected) in all {
        assert_eq!(drift.as_str(), expected);
    }
}
