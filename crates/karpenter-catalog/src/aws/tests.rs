//! Tests of the arithmetic against values computed by hand, of the settings of node classes, and of invariants that
//! hold for all types of the catalog.

use std::collections::{BTreeMap, BTreeSet};

use karpenter_model::instance_type::InstanceType;
use karpenter_model::labels as core;
use karpenter_model::quantity::Quantity;
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};

use super::*;

mod live;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

fn resolve_with(name: &str, change: impl FnOnce(&mut AwsNodeClass)) -> InstanceType {
    let mut class = AwsNodeClass::default();
    change(&mut class);
    catalog().resolve_one(name, &class).unwrap_or_else(|| panic!("{name} is not in the catalog"))
}

fn quantity(text: &str) -> Quantity {
    text.parse().expect("a quantity")
}

fn label(resolved: &InstanceType, key: &str) -> Option<String> {
    resolved.requirements.get(key).expect(key).single_value().map(|value| value.to_string())
}

#[test]
fn m5_large_matches_hand_computed_values() {
    let m5 = resolve_with("m5.large", |_| {});
    // 8192 MiB minus ceil(8192 × 0.075 = 614.4).
    assert_eq!(m5.capacity.get(MEMORY), (8192 - 615) * MIB);
    assert_eq!(m5.capacity.get(CPU), 2000);
    // 3 interfaces with 10 addresses: 3 × 9 + 2.
    assert_eq!(m5.capacity.get(PODS), 29);
    assert_eq!(m5.capacity.get(EPHEMERAL_STORAGE), 20 * GIB);
    assert_eq!(m5.capacity.get(AWS_POD_ENI), 9);
    // The kubelet reserves 60 millicores of the first core and 10 of the second.
    assert_eq!(m5.overhead.get(CPU), 70);
    // The kubelet reserves 11 × 29 + 255 MiB, and the eviction threshold is 100 MiB.
    assert_eq!(m5.overhead.get(MEMORY), (574 + 100) * MIB);
    // The kubelet reserves 1 GiB, and the eviction threshold is a tenth of the volume.
    assert_eq!(m5.overhead.get(EPHEMERAL_STORAGE), 3 * GIB);

    assert_eq!(label(&m5, labels::INSTANCE_CATEGORY).as_deref(), Some("m"));
    assert_eq!(label(&m5, labels::INSTANCE_GENERATION).as_deref(), Some("5"));
    assert_eq!(label(&m5, labels::INSTANCE_CPU_CLOCK_MHZ).as_deref(), Some("3100"));
    assert_eq!(label(&m5, labels::INSTANCE_NETWORK_BANDWIDTH).as_deref(), Some("750"));
    assert_eq!(label(&m5, labels::INSTANCE_EBS_BANDWIDTH).as_deref(), Some("4750"));
    assert_eq!(label(&m5, labels::NITRO_SANDBOX).as_deref(), Some("false"));
    assert_eq!(label(&m5, labels::INSTANCE_GPU_COUNT), None);
    assert_eq!(label(&m5, core::WINDOWS_BUILD), None);
    assert_eq!(label(&m5, core::REGION).as_deref(), Some("us-east-1"));
}

#[test]
fn arm_reserves_64_mib_before_overhead() {
    let t4g = resolve_with("t4g.nano", |_| {});
    // 512 − 64 = 448; minus ceil(33.6).
    assert_eq!(t4g.capacity.get(MEMORY), (448 - 34) * MIB);
    assert_eq!(label(&t4g, core::ARCH).as_deref(), Some("arm64"));
}

#[test]
fn reserved_share_of_cores_decreases() {
    // 96 vCPU: 60 + 10 + 10 + trunc(92000 × 0.0025) = 310.
    assert_eq!(resolve_with("m5.24xlarge", |_| {}).overhead.get(CPU), 310);
    // With 1 vCPU, only the reservation for the first core applies.
    assert_eq!(resolve_with("m7g.medium", |_| {}).overhead.get(CPU), 60);
}

#[test]
fn offerings_cover_zones_and_capacity_types() {
    let m5 = resolve_with("m5.large", |_| {});
    let listed: Vec<(String, String, f64, bool)> = m5
        .offerings
        .iter()
        .map(|offering| {
            let zone = offering.zone().expect("a zone").to_string();
            let capacity_type = offering.capacity_type().expect("a capacity type").to_string();
            (zone, capacity_type, offering.price_per_hour, offering.available)
        })
        .collect();
    let expected: Vec<(String, String, f64, bool)> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|letter| {
            let zone = format!("us-east-1{letter}");
            [
                (zone.clone(), "on-demand".to_owned(), 0.096, true),
                (zone, "spot".to_owned(), 0.096 * 0.4, true),
            ]
        })
        .collect();
    assert_eq!(listed, expected);
    for offering in &m5.offerings {
        let reservation = offering.requirements.get(labels::CAPACITY_RESERVATION_ID).expect("defined");
        assert!(!reservation.complement && reservation.values.is_empty());
    }

    let halved = resolve_with("m5.large", |class| class.spot_price_factor = 0.5);
    assert_eq!(halved.cheapest_price(), Some(0.048));
}

#[test]
fn zone_without_the_type_has_no_available_offering() {
    // us-east-1e has only older hardware.
    let zones =
        || vec![AwsZone::named("us-east-1a"), AwsZone::named("us-east-1e"), AwsZone::named("nowhere-1a")];
    let c7g = resolve_with("c7g.large", |class| class.zones = zones());
    assert_eq!(label(&c7g, core::ZONE).as_deref(), Some("us-east-1a"));
    for offering in &c7g.offerings {
        assert_eq!(offering.available, offering.zone().is_some_and(|zone| &**zone == "us-east-1a"));
    }
}

#[test]
fn order_and_duplicates_of_zones_do_not_matter() {
    let zone = |letter: &str, id: Option<&str>| AwsZone {
        name: format!("us-east-1{letter}"),
        id: id.map(str::to_owned),
    };
    let once =
        resolve_with("m5.large", |class| class.zones = vec![zone("a", Some("use1-az6")), zone("b", None)]);
    let repeated = resolve_with("m5.large", |class| {
        class.zones = vec![zone("b", None), zone("a", None), zone("a", Some("use1-az6")), zone("b", None)];
    });
    assert_eq!(once, repeated);
    assert_eq!(once.offerings.len(), 4);
}

#[test]
fn zone_ids_are_included_if_known() {
    let mut class = AwsNodeClass { region: "eu-west-1".to_owned(), ..AwsNodeClass::default() };
    class.zones = catalog().zones("eu-west-1").to_vec();
    assert_eq!(class.zones.len(), 3);
    let m5 = catalog().resolve_one("m5.large", &class).expect("known");
    let ids = &m5.requirements.get(labels::ZONE_ID).expect("defined").values;
    assert_eq!(ids.iter().map(|id| &**id).collect::<Vec<_>>(), ["euw1-az1", "euw1-az2", "euw1-az3"]);
    // The region has no price table, so the prices of us-east-1 are used.
    assert_eq!(m5.offerings[0].price_per_hour, 0.096);
    assert!(!resolve_with("m5.large", |_| {}).requirements.has_key(labels::ZONE_ID));
}

#[test]
fn price_table_of_region_or_partition_is_used() {
    let table = catalog().price_table("us-gov-west-1").expect("a table");
    assert_eq!((table.region, table.currency), ("us-gov-west-1", "USD"));
    assert_eq!(catalog().price_table("cn-north-1").map(|table| table.currency), Some("CNY"));
    assert_eq!(catalog().price_table("eu-west-1").map(|table| table.region), Some("us-east-1"));
    // A region without a price table uses one of its own partition, in that partition's currency.
    let fallback = |region| catalog().price_table(region).map(|table| (table.region, table.currency));
    assert_eq!(fallback("cn-northwest-1"), Some(("cn-north-1", "CNY")));
    assert!(catalog().is_offered("cn-northwest-1", "cn-northwest-1a", "m5.large"));
    assert!(fallback("us-gov-east-1").is_some_and(|(region, _)| region.starts_with("us-gov-")));
    assert_eq!(fallback("us-gov-middle-1"), Some(("us-gov-west-1", "USD")));
    assert_eq!(fallback("us-iso-east-1"), Some(("us-east-1", "USD")));
    let gov = catalog().on_demand_price("us-gov-west-1", "m5.large").expect("priced");
    assert!(gov > catalog().on_demand_price("us-east-1", "m5.large").expect("priced"));
    assert!(catalog().is_offered("us-gov-west-1", "us-gov-west-1a", "m5.large"));
    assert!(!catalog().is_offered("us-gov-west-1", "us-gov-west-1a", "c9g.large"));
    assert!(catalog().is_offered("unheard-of-1", "unheard-of-1a", "m5.large"));
}

#[test]
fn pod_settings_depend_on_ami_family() {
    let pods = |change: fn(&mut AwsNodeClass)| resolve_with("m5.large", change).capacity.get(PODS);
    assert_eq!(pods(|class| class.max_pods = Some(110)), 110);
    assert_eq!(pods(|class| class.pods_per_core = 8), 16);
    assert_eq!(pods(|class| class.reserved_enis = 1), 2 * 9 + 2);
    assert_eq!(pods(|class| class.reserved_enis = 3), 0);
    assert_eq!(pods(|class| class.ami_family = AmiFamily::Windows2022), 110);
    let bottlerocket = |class: &mut AwsNodeClass| {
        class.ami_family = AmiFamily::Bottlerocket;
        class.pods_per_core = 8;
    };
    assert_eq!(pods(bottlerocket), 29, "Bottlerocket has no pods-per-core setting");
}

#[test]
fn kubelet_memory_depends_on_eni_limit_or_pods() {
    let reserved = |family: AmiFamily| {
        resolve_with("m5.large", |class| {
            class.ami_family = family;
            class.max_pods = Some(110);
            class.reserved_enis = 1;
        })
        .overhead
        .get(MEMORY)
    };
    for family in [AmiFamily::Al2, AmiFamily::Al2023, AmiFamily::Custom] {
        assert_eq!(reserved(family), (11 * 29 + 255 + 100) * MIB, "{family:?}");
    }
    for family in [AmiFamily::Bottlerocket, AmiFamily::Windows2019, AmiFamily::Windows2025] {
        assert_eq!(reserved(family), (11 * 110 + 255 + 100) * MIB, "{family:?}");
    }
}

#[test]
fn kubelet_reservations_and_thresholds_replace_defaults() {
    let m5 = resolve_with("m5.large", |class| {
        class.kube_reserved =
            BTreeMap::from([("cpu".to_owned(), quantity("200m")), ("pid".to_owned(), quantity("1000"))]);
        class.system_reserved =
            BTreeMap::from([("cpu".to_owned(), quantity("50m")), ("memory".to_owned(), quantity("64Mi"))]);
        class.eviction_hard = BTreeMap::from([
            ("memory.available".to_owned(), "5%".parse().expect("a threshold")),
            ("nodefs.available".to_owned(), "3Gi".parse().expect("a threshold")),
        ]);
    });
    assert_eq!(m5.overhead.get(CPU), 250);
    let five_percent = (7577 * MIB * 5 + 99) / 100;
    assert_eq!(m5.overhead.get(MEMORY), (574 + 64) * MIB + five_percent);
    assert_eq!(m5.overhead.get(EPHEMERAL_STORAGE), GIB + 3 * GIB);
    assert_eq!(m5.overhead.lookup("pid"), None);

    let off = resolve_with("m5.large", |class| {
        class.eviction_hard =
            BTreeMap::from([("memory.available".to_owned(), EvictionThreshold::Percent(100.0))]);
    });
    assert_eq!(off.overhead.get(MEMORY), 574 * MIB);
}

#[test]
fn thresholds_are_percentages_or_amounts() {
    assert_eq!("12.5%".parse(), Ok(EvictionThreshold::Percent(12.5)));
    assert_eq!("100Mi".parse(), Ok(EvictionThreshold::Amount(quantity("100Mi"))));
    for wrong in ["", "%", "101%", "-1%", "NaN%", "-1Mi", "many"] {
        let expected = Err(crate::CatalogError::EvictionThreshold { value: wrong.to_owned() });
        assert_eq!(wrong.parse::<EvictionThreshold>(), expected);
    }
}

#[test]
fn ephemeral_storage_comes_from_node_class() {
    let device = |name: &str, root_volume: bool, size: Option<&str>| BlockDevice {
        device_name: Some(name.to_owned()),
        root_volume,
        volume_size: size.map(quantity),
        ..BlockDevice::default()
    };
    let storage = |name: &str, family: AmiFamily, devices: Vec<BlockDevice>, raid0: bool| {
        let resolved = resolve_with(name, |class| {
            class.ami_family = family;
            class.block_devices = devices;
            class.instance_store_raid0 = raid0;
        });
        resolved.capacity.get(EPHEMERAL_STORAGE)
    };
    let xvda = || vec![device("/dev/xvda", false, Some("100Gi")), device("/dev/xvdb", false, Some("200Gi"))];
    assert_eq!(storage("m5.large", AmiFamily::Al2023, xvda(), false), 100 * GIB);
    assert_eq!(storage("m5.large", AmiFamily::Bottlerocket, xvda(), false), 200 * GIB);
    assert_eq!(storage("m5.large", AmiFamily::Windows2022, xvda(), false), 50 * GIB);
    assert_eq!(storage("m5.large", AmiFamily::Custom, xvda(), false), 200 * GIB);
    assert_eq!(
        storage("m5.large", AmiFamily::Custom, vec![device("/dev/sda", false, None)], false),
        20 * GIB
    );
    let root = vec![device("/dev/sdz", true, Some("30G")), device("/dev/xvda", false, Some("100Gi"))];
    assert_eq!(storage("m5.large", AmiFamily::Al2, root, false), 30_000_000_000);
    // With RAID0, local disks are the ephemeral storage if the type has any.
    assert_eq!(storage("m5d.large", AmiFamily::Al2, xvda(), true), 75_000_000_000);
    assert_eq!(storage("m5.large", AmiFamily::Al2, xvda(), true), 100 * GIB);
}

#[test]
fn windows_needs_amd64() {
    let windows = |name| resolve_with(name, |class| class.ami_family = AmiFamily::Windows2022);
    let m5 = windows("m5.large");
    assert_eq!(label(&m5, core::OS).as_deref(), Some("windows"));
    assert_eq!(label(&m5, core::WINDOWS_BUILD).as_deref(), Some("10.0.20348"));
    assert_eq!(m5.capacity.get(AWS_PRIVATE_IPV4), 9);
    let m7g = windows("m7g.large");
    assert_eq!(label(&m7g, core::OS), None);
    assert_eq!(m7g.capacity.lookup(AWS_PRIVATE_IPV4), None);
}

#[test]
fn accelerators_become_resources_and_labels() {
    let p5 = resolve_with("p5.48xlarge", |_| {});
    assert_eq!((p5.capacity.get(NVIDIA_GPU), p5.capacity.get(AWS_EFA)), (8, 32));
    assert_eq!(label(&p5, labels::INSTANCE_GPU_NAME).as_deref(), Some("h100"));
    let inf2 = resolve_with("inf2.48xlarge", |_| {});
    assert_eq!((inf2.capacity.get(AWS_NEURON), inf2.capacity.get(AWS_NEURON_CORE)), (12, 24));
    assert_eq!(label(&inf2, labels::INSTANCE_ACCELERATOR_MANUFACTURER).as_deref(), Some("aws"));
    let dl2q = resolve_with("dl2q.24xlarge", |_| {});
    assert_eq!(label(&dl2q, labels::INSTANCE_ACCELERATOR_NAME).as_deref(), Some("qualcomm-ai100"));

    // No instance type of the catalog has devices of these manufacturers, so the test changes one.
    let mut info = catalog().find("g5.xlarge").expect("known").clone();
    let gpu = |manufacturer: &str, count| Accelerator {
        name: "Some Thing".into(),
        manufacturer: manufacturer.into(),
        count,
        memory_mib: 1024,
    };
    info.gpus = vec![gpu("AMD", 2), gpu("Habana", 8)];
    let class = AwsNodeClass::default();
    let resolved = resolve(&info, &class, &catalog().market(&class));
    assert_eq!((resolved.capacity.get(AMD_GPU), resolved.capacity.get(HABANA_GAUDI)), (2, 8));
    assert_eq!(resolved.capacity.lookup(NVIDIA_GPU), None);
    assert_eq!(label(&resolved, labels::INSTANCE_GPU_NAME), None, "a type with two kinds has no such label");
}

#[test]
fn node_class_settings_exclude_types() {
    let check = |name: &str, change: fn(&mut AwsNodeClass), expected: Option<Incompatibility>| {
        let mut class = AwsNodeClass::default();
        change(&mut class);
        let info = catalog().find(name).expect("known");
        assert_eq!(incompatibility(info, &class), expected, "{name}");
        let resolved = catalog().resolve_one(name, &class).expect("known");
        assert_eq!(resolved.cheapest_price().is_some(), expected.is_none(), "{name}");
    };
    check("a1.large", |_| {}, Some(Incompatibility::ImageFamily));
    check("a1.large", |class| class.ami_family = AmiFamily::Al2, None);
    check("m5.metal", |class| class.connection_tracking = true, Some(Incompatibility::NoConnectionTracking));
    check("m5.large", |class| class.connection_tracking = true, None);
    check(
        "m5.large",
        |class| class.nested_virtualization = true,
        Some(Incompatibility::NoNestedVirtualization),
    );
    check("c8i.large", |class| class.nested_virtualization = true, None);
    fn interfaces(class: &mut AwsNodeClass, listed: &[(u32, u32, bool)]) {
        let interface = |(network_card_index, device_index, efa_only): &(u32, u32, bool)| NetworkInterface {
            network_card_index: *network_card_index,
            device_index: *device_index,
            efa_only: *efa_only,
        };
        class.network_interfaces = Some(listed.iter().map(interface).collect());
    }
    check("m5.large", |class| interfaces(class, &[(0, 0, false)]), None);
    check("m5.large", |class| interfaces(class, &[(0, 3, false)]), Some(Incompatibility::NoSuchDeviceIndex));
    check("m5.large", |class| interfaces(class, &[(1, 0, false)]), Some(Incompatibility::NoSuchNetworkCard));
    check(
        "m5.large",
        |class| interfaces(class, &[(0, 1, true)]),
        Some(Incompatibility::TooManyEfaInterfaces),
    );
    check(
        "t2.micro",
        |class| interfaces(class, &[(0, 0, false)]),
        Some(Incompatibility::NoElasticNetworkAdapter),
    );
}

#[test]
fn efa_only_interfaces_reduce_pod_addresses() {
    let c5n = resolve_with("c5n.18xlarge", |_| {});
    assert_eq!((c5n.capacity.get(PODS), c5n.capacity.get(AWS_EFA)), (15 * 49 + 2, 1));
    let with = |efa_only| {
        resolve_with("c5n.18xlarge", |class| {
            class.network_interfaces =
                Some(vec![NetworkInterface { network_card_index: 0, device_index: 1, efa_only }]);
        })
    };
    assert_eq!((with(true).capacity.get(PODS), with(true).capacity.get(AWS_EFA)), (14 * 49 + 2, 1));
    assert_eq!((with(false).capacity.get(PODS), with(false).capacity.lookup(AWS_EFA)), (15 * 49 + 2, None));
}

#[test]
fn every_type_is_complete() {
    let always = [
        core::INSTANCE_TYPE,
        core::ARCH,
        core::OS,
        core::ZONE,
        core::REGION,
        core::CAPACITY_TYPE,
        core::WINDOWS_BUILD,
    ];
    let account_only = [labels::PLACEMENT_GROUP_ID, labels::PLACEMENT_GROUP_PARTITION, labels::ZONE_ID];
    let keys: BTreeSet<&str> =
        labels::WELL_KNOWN.into_iter().filter(|key| !account_only.contains(key)).chain(always).collect();
    for resolved in catalog().resolve(&AwsNodeClass::default()) {
        let name = &resolved.name;
        let defined: BTreeSet<&str> = resolved.requirements.keys().map(|key| &**key).collect();
        assert_eq!(defined, keys, "{name}");
        assert!(matches!(label(&resolved, core::ARCH).as_deref(), Some("amd64" | "arm64")), "{name}");
        let allocatable = resolved.allocatable();
        for resource in [CPU, MEMORY, EPHEMERAL_STORAGE] {
            assert!(allocatable.get(resource) > 0, "{name} {resource}");
            assert!(allocatable.get(resource) < resolved.capacity.get(resource), "{name} {resource}");
        }
        assert!(allocatable.get(PODS) >= 4, "{name}");
        assert!(!resolved.offerings.is_empty(), "{name}");
        for offering in &resolved.offerings {
            assert!(!offering.available || offering.price_per_hour > 0.0, "{name}");
            assert!(offering.is_launchable() == offering.available, "{name}");
        }
        // The labels of every offering are compatible with the labels of its instance type.
        for offering in &resolved.offerings {
            let capacity_type = offering.capacity_type().expect("defined");
            assert!(
                resolved.requirements.get(core::CAPACITY_TYPE).is_some_and(|all| all.has(capacity_type)),
                "{name}"
            );
        }
    }
}

/// The listed families have no us-east-1 price, because they are offered only in other regions or are newer than the
/// price table. If the test finds another family, the sources are inconsistent.
#[test]
fn types_without_price_are_listed() {
    let unpriced: BTreeSet<&str> = catalog()
        .types()
        .iter()
        .filter(|info| catalog().on_demand_price(DEFAULT_REGION, &info.name).is_none())
        .map(|info| info.family())
        .collect();
    let expected = [
        "dl2q", "g7", "hpc6a", "hpc6id", "hpc7a", "hpc8a", "p5e", "r9g", "r9gd", "t8i", "trn2", "trn2u",
        "x8aedz",
    ];
    assert_eq!(unpriced, BTreeSet::from(expected));
}

#[test]
fn catalog_lists_sources_types_and_regions() {
    assert_eq!(catalog().types().len(), 1386);
    let named: Vec<(&str, &str)> = sources().iter().map(|source| (source.name, source.version)).collect();
    let expected = [
        ("moto", "5.2.5"),
        ("github.com/aws/karpenter-provider-aws", "v1.14.1"),
        ("github.com/aws/amazon-vpc-resource-controller-k8s", "v1.8.2"),
    ];
    assert_eq!(named, expected);
    assert_eq!(catalog().zones("us-east-1").len(), 6);
    assert_eq!(catalog().zones("us-east-1")[0].id.as_deref(), Some("use1-az6"));
    assert!(catalog().find("m5.large").is_some_and(|info| info.vcpus == 2 && info.network_cards.len() == 1));
    assert!(catalog().find("mac2.metal").is_none() && catalog().find("").is_none());
}

#[test]
fn ami_families_round_trip() {
    for family in AmiFamily::ALL {
        assert_eq!(AmiFamily::parse(family.as_str()), Some(family));
    }
    assert_eq!(AmiFamily::parse("al2023"), None);
}

#[test]
fn corrupt_files_give_errors() {
    let decode = |data: Vec<u8>| decode::decode(Vec::leak(data));
    assert_eq!(decode(DATA.to_vec()).as_ref(), Ok(catalog()));
    // Every truncated file is an error.
    for length in (0..DATA.len()).step_by(977).chain([DATA.len() - 1]) {
        assert!(decode(DATA[..length].to_vec()).is_err(), "truncated at {length}");
    }
    let longer = [DATA, &[0]].concat();
    assert!(matches!(decode(longer), Err(crate::CatalogError::Damaged { at, .. }) if at == DATA.len()));
    // Every changed byte must give an error or a different catalog, never a panic.
    for position in (0..DATA.len()).step_by(311) {
        let mut changed = DATA.to_vec();
        changed[position] ^= 0x81;
        assert_ne!(decode(changed).as_ref(), Ok(catalog()), "changed at {position}");
    }
}
