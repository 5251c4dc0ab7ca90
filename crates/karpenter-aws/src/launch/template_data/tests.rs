use serde_json::{Value, json};

use super::*;

fn class(spec: Value) -> EC2NodeClass {
    let mut merged = json!({
        "amiFamily": "AL2023",
        "metadataOptions": {
            "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"
        },
    });
    json_merge(&mut merged, spec);
    serde_json::from_value(json!({
        "metadata": {"name": "default"},
        "spec": merged,
        "status": {"instanceProfile": "profile", "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}]},
    }))
    .expect("a class")
}

fn json_merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (key, value) in from {
            if value.is_null() {
                into.remove(&key)
            } else {
                into.insert(key, value)
            };
        }
    }
}

struct Given {
    spec: Value,
    family: AmiFamily,
    region: &'static str,
    is_ipv6: bool,
    capacity_type: &'static str,
    efa_count: i64,
    reservation: Option<Reservation>,
    targets: bool,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            spec: json!({}),
            family: AmiFamily::Al2023,
            region: "us-west-2",
            is_ipv6: false,
            capacity_type: "on-demand",
            efa_count: 0,
            reservation: None,
            targets: true,
        }
    }
}

fn spec(spec: Value) -> Given {
    Given { spec, ..Given::default() }
}

fn made(given: Given) -> LaunchTemplateData {
    let class = class(given.spec);
    let tags = Tags::from([("team".to_owned(), "a".to_owned())]);
    template_data(&TemplateInput {
        class: &class,
        family: given.family,
        region: given.region,
        cluster_is_ipv6: given.is_ipv6,
        image_id: "ami-1",
        user_data: "dXNlcg==".to_owned(),
        capacity_type: given.capacity_type,
        tenancy: "default",
        efa_count: given.efa_count,
        is_enclave_enabled: false,
        reservation: given.reservation,
        targets_reservations: given.targets,
        placement_group_id: None,
        partition: None,
        tags: &tags,
    })
}

#[test]
fn template_of_default_class() {
    let data = made(Given::default());
    assert_eq!((data.image_id.as_str(), data.user_data.as_str()), ("ami-1", "dXNlcg=="));
    assert_eq!(data.instance_profile_name.as_deref(), Some("profile"));
    assert!(data.security_group_ids.is_empty(), "the interface names the groups");
    assert_eq!(data.network_interfaces.len(), 1);
    let interface = &data.network_interfaces[0];
    assert_eq!(interface.security_group_ids, ["sg-1", "sg-2"]);
    assert_eq!((interface.device_index, interface.network_card_index), (0, None));
    assert_eq!(interface.associate_public_ip_address, None);
    assert!(!data.detailed_monitoring && !data.enclave_enabled);
    assert_eq!(data.placement.tenancy.as_deref(), Some("default"));
    let tags: Vec<&str> = data.tag_specifications.iter().map(|tags| tags.resource_type.as_str()).collect();
    assert_eq!(tags, ["network-interface"]);
    let metadata = data.metadata_options.expect("metadata options");
    assert_eq!(metadata.instance_metadata_tags.as_deref(), Some("disabled"));
    assert_eq!(metadata.http_endpoint.as_deref(), Some("enabled"));
    assert_eq!(metadata.http_put_response_hop_limit, Some(1));
}

#[test]
fn spot_requests_are_tagged() {
    let data = made(Given { capacity_type: "spot", ..Given::default() });
    let tags: Vec<&str> = data.tag_specifications.iter().map(|tags| tags.resource_type.as_str()).collect();
    assert_eq!(tags, ["network-interface", "spot-instances-request"]);
    assert!(data.tag_specifications.iter().all(|tags| tags.tags["team"] == "a"));
}

#[test]
fn reservations() {
    let held = |kind: &str, is_interruptible| {
        Some(Reservation { id: "cr-1".to_owned(), reservation_type: kind.to_owned(), is_interruptible })
    };
    let reserved = |reservation, targets| {
        made(Given { capacity_type: "reserved", reservation, targets, ..Given::default() })
    };
    let of = |data: &LaunchTemplateData| {
        let spec = data.capacity_reservation.as_ref();
        let spec = spec.map(|spec| (spec.preference.clone(), spec.target_id.clone()));
        (spec, data.market_type.clone())
    };
    let only = Some(("capacity-reservations-only".to_owned(), Some("cr-1".to_owned())));
    let none = Some(("none".to_owned(), None));
    assert_eq!(of(&reserved(held("default", false), true)), (only.clone(), None));
    assert_eq!(
        of(&reserved(held("capacity-block", false), true)),
        (only.clone(), Some("capacity-block".to_owned()))
    );
    let interruptible = Some("interruptible-capacity-reservation".to_owned());
    assert_eq!(of(&reserved(held("default", true), true)), (only, interruptible));
    assert_eq!(
        of(&made(Given::default())),
        (none.clone(), None),
        "other launches stay out of open reservations"
    );
    assert_eq!(of(&made(Given { capacity_type: "spot", ..Given::default() })), (none, None));
    let without_gate = made(Given { targets: false, ..Given::default() });
    assert_eq!(of(&without_gate), (None, None), "without the gate EC2 fills open reservations as it likes");
}

#[test]
fn interfaces() {
    let shown = |data: &LaunchTemplateData| {
        let texts = data.network_interfaces.iter().map(|interface| {
            let card = interface.network_card_index.map_or("-".to_owned(), |card| card.to_string());
            let kind = interface.interface_type.as_deref().unwrap_or("-");
            let mut text = format!("{card}/{}/{kind}", interface.device_index);
            for (name, value) in [
                ("v4", interface.ipv4_prefix_count),
                ("v6", interface.ipv6_prefix_count),
                ("addresses6", interface.ipv6_address_count),
            ] {
                text.extend(value.map(|value| format!(" {name}={value}")));
            }
            text.extend(interface.primary_ipv6.map(|primary| format!(" primary6={primary}")));
            text.extend(interface.associate_public_ip_address.map(|public| format!(" public={public}")));
            if let Some(tracking) = interface.connection_tracking {
                text += &format!(" tcp={:?}", tracking.tcp_established_timeout_secs);
            }
            assert_eq!(interface.security_group_ids, ["sg-1", "sg-2"]);
            text
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    let own = json!([
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]);
    let table = [
        ("plain", Given::default(), "-/0/-"),
        ("public address", spec(json!({"associatePublicIPAddress": true})), "-/0/- public=true"),
        ("no public address", spec(json!({"associatePublicIPAddress": false})), "-/0/- public=false"),
        ("prefixes", spec(json!({"ipPrefixCount": 2})), "-/0/- v4=2"),
        ("no prefixes, said so", spec(json!({"ipPrefixCount": 0})), "-/0/- v4=0"),
        (
            "prefixes on ipv6",
            Given { is_ipv6: true, ..spec(json!({"ipPrefixCount": 1})) },
            "-/0/- v6=1 addresses6=1 primary6=true",
        ),
        ("ipv6", Given { is_ipv6: true, ..Given::default() }, "-/0/- addresses6=1 primary6=true"),
        (
            "tracking",
            spec(json!({"connectionTracking": {"tcpEstablishedTimeout": 60}})),
            "-/0/- tcp=Some(60)",
        ),
        ("tracking of nothing", spec(json!({"connectionTracking": {}})), "-/0/-"),
        ("efa", Given { efa_count: 3, ..Given::default() }, "0/0/efa, 1/1/efa, 2/1/efa"),
        (
            "efa with a public address",
            Given { efa_count: 1, ..spec(json!({"associatePublicIPAddress": true})) },
            "0/0/efa public=true",
        ),
        ("interfaces of the class", spec(json!({"networkInterfaces": own})), "0/0/interface, 1/1/efa-only"),
        (
            "win over efa",
            Given { efa_count: 4, ..spec(json!({"networkInterfaces": own})) },
            "0/0/interface, 1/1/efa-only",
        ),
        (
            "efa-only has no addresses",
            Given {
                is_ipv6: true,
                ..spec(json!({
                    "networkInterfaces": own, "ipPrefixCount": 1, "associatePublicIPAddress": true,
                    "connectionTracking": {"tcpEstablishedTimeout": 60},
                }))
            },
            "0/0/interface v6=1 addresses6=1 primary6=true public=true tcp=Some(60), 1/1/efa-only",
        ),
        ("an empty list is none", spec(json!({"networkInterfaces": []})), "-/0/-"),
    ];
    for (case, given, expected) in table {
        assert_eq!(shown(&made(given)), expected, "{case}");
    }
}

#[test]
fn disks() {
    let shown = |data: &LaunchTemplateData| {
        let texts = data.block_device_mappings.iter().map(|disk| {
            let mut text = disk.device_name.clone().unwrap_or_default();
            text.extend(disk.volume_size_gib.map(|size| format!(" {size}")));
            text.extend(disk.volume_type.iter().map(|kind| format!(" {kind}")));
            text.extend(disk.encrypted.map(|encrypted| format!(" encrypted={encrypted}")));
            text.extend(disk.iops.map(|iops| format!(" iops={iops}")));
            text.extend(disk.throughput.map(|throughput| format!(" throughput={throughput}")));
            text.extend(disk.snapshot_id.iter().map(|id| format!(" {id}")));
            text.extend(disk.volume_initialization_rate.map(|rate| format!(" rate={rate}")));
            text.extend(disk.kms_key_id.iter().map(|key| format!(" key={key}")));
            text.extend(disk.delete_on_termination.map(|deleted| format!(" deleted={deleted}")));
            text
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    let disk = |ebs: Value| spec(json!({"blockDeviceMappings": [{"deviceName": "/dev/x", "ebs": ebs}]}));
    let family = |family| Given { family, ..Given::default() };
    let table = [
        ("AL2023", family(AmiFamily::Al2023), "/dev/xvda 20 gp3 encrypted=true"),
        (
            "Bottlerocket",
            family(AmiFamily::Bottlerocket),
            "/dev/xvda 4 gp3 encrypted=true, /dev/xvdb 20 gp3 encrypted=true",
        ),
        ("Windows", family(AmiFamily::Windows2022), "/dev/sda1 50 gp3 encrypted=true"),
        ("Custom", family(AmiFamily::Custom), ""),
        (
            "own",
            disk(json!({"volumeSize": "100Gi", "volumeType": "io2", "iops": 5000})),
            "/dev/x 100 io2 iops=5000",
        ),
        ("rounded up", disk(json!({"volumeSize": "100G"})), "/dev/x 94"),
        ("decimal terabytes", disk(json!({"volumeSize": "1T"})), "/dev/x 932"),
        ("binary terabytes", disk(json!({"volumeSize": "2Ti"})), "/dev/x 2048"),
        ("zero is not sent", disk(json!({"volumeSize": "1Gi", "iops": 0, "throughput": 0})), "/dev/x 1"),
        (
            "snapshot",
            disk(json!({"snapshotID": "snap-1", "volumeInitializationRate": 200})),
            "/dev/x snap-1 rate=200",
        ),
        (
            "everything",
            disk(json!({
                "deleteOnTermination": false, "encrypted": false, "iops": 4000, "kmsKeyID": "alias/k",
                "snapshotID": "snap-1", "throughput": 300, "volumeInitializationRate": 100, "volumeSize": "58Ti",
                "volumeType": "gp3",
            })),
            "/dev/x 59392 gp3 encrypted=false iops=4000 throughput=300 snap-1 rate=100 key=alias/k deleted=false",
        ),
        ("no disk", spec(json!({"blockDeviceMappings": [{"deviceName": "/dev/x"}]})), "/dev/x"),
    ];
    for (case, given, expected) in table {
        assert_eq!(shown(&made(given)), expected, "{case}");
    }
}

#[test]
fn metadata_follows_region_and_class() {
    let shown = |given: Given| {
        let options = made(given).metadata_options.expect("options");
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let limit = options.http_put_response_hop_limit.map_or("-".to_owned(), |limit| limit.to_string());
        format!(
            "{} {} {limit} {}",
            text(options.http_endpoint),
            text(options.http_protocol_ipv6),
            text(options.http_tokens)
        )
    };
    let without = || json!({"metadataOptions": null});
    let table = [
        ("class", Given::default(), "enabled disabled 1 required"),
        (
            "class in a region without",
            Given { region: "us-iso-east-1", ..Given::default() },
            "enabled - 1 required",
        ),
        ("no options", spec(without()), "disabled disabled 2 required"),
        ("no options on ipv6", Given { is_ipv6: true, ..spec(without()) }, "disabled enabled 2 required"),
        (
            "no options without",
            Given { region: "us-isob-east-1", ..spec(without()) },
            "disabled - 2 required",
        ),
    ];
    for (case, given, expected) in table {
        assert_eq!(shown(given), expected, "{case}");
    }
}

#[test]
fn optional_settings_of_class() {
    let data =
        made(spec(json!({"detailedMonitoring": true, "cpuOptions": {"nestedVirtualization": "enabled"}})));
    assert!(data.detailed_monitoring);
    assert_eq!(data.nested_virtualization.as_deref(), Some("enabled"));
    assert_eq!(made(spec(json!({"cpuOptions": {}}))).nested_virtualization, None);
}
