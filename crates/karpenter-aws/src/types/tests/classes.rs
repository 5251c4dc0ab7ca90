//! Tests that every field of a node class that affects instance types changes the result; a test fails if the node
//! class view lacks the field.

use karpenter_api::types::{
    AmiSelectorTerm, AmiStatus, BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions,
    KubeletValues, NetworkInterface,
};
use karpenter_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use serde_json::json;

use super::*;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

fn kubelet(values: serde_json::Value) -> Option<KubeletValues> {
    serde_json::from_value(values).expect("an object")
}

fn device(name: &str, is_root: bool, size: Option<&str>) -> BlockDeviceMapping {
    let volume_size = size.map(|size| size.parse().expect("a quantity"));
    BlockDeviceMapping {
        device_name: Some(name.to_owned()),
        ebs: Some(BlockDevice { volume_size, ..BlockDevice::default() }),
        root_volume: is_root,
    }
}

fn interface(network_card_index: i32, device_index: i32, interface_type: &str) -> NetworkInterface {
    NetworkInterface { network_card_index, device_index, interface_type: interface_type.to_owned() }
}

/// Columns: a change of the node class, an instance type, and the value that changes.
type Case = (&'static str, fn(&mut EC2NodeClass), &'static str, fn(&InstanceType) -> i64, i64);

fn pods(one: &InstanceType) -> i64 {
    one.capacity.get(PODS)
}
fn storage(one: &InstanceType) -> i64 {
    one.capacity.get(EPHEMERAL_STORAGE)
}
fn efa(one: &InstanceType) -> i64 {
    one.capacity.get("vpc.amazonaws.com/efa")
}
fn memory_overhead(one: &InstanceType) -> i64 {
    one.overhead.get(MEMORY)
}
fn cpu_overhead(one: &InstanceType) -> i64 {
    one.overhead.get(CPU)
}
fn storage_overhead(one: &InstanceType) -> i64 {
    one.overhead.get(EPHEMERAL_STORAGE)
}
fn available_count(one: &InstanceType) -> i64 {
    available(one).len() as i64
}
fn private_addresses(one: &InstanceType) -> i64 {
    one.capacity.get("vpc.amazonaws.com/PrivateIPv4Address")
}

#[tokio::test(start_paused = true)]
async fn every_relevant_field_of_class_changes_instance_types() {
    // An m5.large has 8 GiB, and 3 interfaces with 10 addresses each. The kubelet reserves 255 MiB plus 11 MiB for each
    // of 29 pods, and the eviction threshold is 100 MiB.
    let table: [Case; 40] = [
        ("nothing", |_| {}, "m5.large", pods, 29),
        ("nothing", |_| {}, "m5.large", memory_overhead, (11 * 29 + 255 + 100) * MIB),
        ("nothing", |_| {}, "m5.large", cpu_overhead, 70),
        ("nothing", |_| {}, "m5.large", storage, 20 * GIB),
        ("nothing", |_| {}, "m5.large", storage_overhead, GIB + 2 * GIB),
        ("nothing", |_| {}, "c5n.18xlarge", efa, 1),
        ("maxPods", |class| class.spec.kubelet = kubelet(json!({"maxPods": 110})), "m5.large", pods, 110),
        ("maxPods 0", |class| class.spec.kubelet = kubelet(json!({"maxPods": 0})), "m5.large", pods, 0),
        (
            "maxPods, memory by interfaces",
            |class| class.spec.kubelet = kubelet(json!({"maxPods": 110})),
            "m5.large",
            memory_overhead,
            (11 * 29 + 255 + 100) * MIB,
        ),
        (
            "maxPods, memory by pods",
            |class| {
                class.spec.ami_family = Some("Bottlerocket".to_owned());
                class.spec.kubelet = kubelet(json!({"maxPods": 110}));
            },
            "m5.large",
            memory_overhead,
            (11 * 110 + 255 + 100) * MIB,
        ),
        ("podsPerCore", |class| class.spec.kubelet = kubelet(json!({"podsPerCore": 4})), "m5.large", pods, 8),
        (
            "podsPerCore 0",
            |class| class.spec.kubelet = kubelet(json!({"podsPerCore": 0})),
            "m5.large",
            pods,
            29,
        ),
        (
            "podsPerCore and maxPods",
            |class| class.spec.kubelet = kubelet(json!({"podsPerCore": 4, "maxPods": 5})),
            "m5.large",
            pods,
            5,
        ),
        (
            "podsPerCore of Bottlerocket",
            |class| {
                class.spec.ami_family = Some("Bottlerocket".to_owned());
                class.spec.kubelet = kubelet(json!({"podsPerCore": 4}));
            },
            "m5.large",
            pods,
            29,
        ),
        (
            "kubeReserved",
            |class| class.spec.kubelet = kubelet(json!({"kubeReserved": {"cpu": "1", "memory": "1Gi"}})),
            "m5.large",
            memory_overhead,
            1124 * MIB,
        ),
        (
            "kubeReserved",
            |class| class.spec.kubelet = kubelet(json!({"kubeReserved": {"cpu": "1"}})),
            "m5.large",
            cpu_overhead,
            1000,
        ),
        (
            "kubeReserved storage",
            |class| class.spec.kubelet = kubelet(json!({"kubeReserved": {"ephemeral-storage": "2Gi"}})),
            "m5.large",
            storage_overhead,
            4 * GIB,
        ),
        (
            "systemReserved",
            |class| {
                class.spec.kubelet = kubelet(json!({"systemReserved": {"cpu": "100m", "memory": "100Mi"}}))
            },
            "m5.large",
            cpu_overhead,
            170,
        ),
        (
            "evictionHard amount",
            |class| class.spec.kubelet = kubelet(json!({"evictionHard": {"memory.available": "300Mi"}})),
            "m5.large",
            memory_overhead,
            (574 + 300) * MIB,
        ),
        (
            "evictionHard share",
            |class| class.spec.kubelet = kubelet(json!({"evictionHard": {"memory.available": "10%"}})),
            "m5.large",
            memory_overhead,
            574 * MIB + (7577 * MIB + 9) / 10,
        ),
        (
            "evictionHard off",
            |class| class.spec.kubelet = kubelet(json!({"evictionHard": {"memory.available": "100%"}})),
            "m5.large",
            memory_overhead,
            574 * MIB,
        ),
        (
            "evictionHard nodefs",
            |class| class.spec.kubelet = kubelet(json!({"evictionHard": {"nodefs.available": "5Gi"}})),
            "m5.large",
            storage_overhead,
            6 * GIB,
        ),
        (
            "evictionSoft",
            |class| class.spec.kubelet = kubelet(json!({"evictionSoft": {"memory.available": "50%"}})),
            "m5.large",
            memory_overhead,
            674 * MIB,
        ),
        (
            "a broken setting counts as not given",
            |class| class.spec.kubelet = kubelet(json!({"maxPods": "many", "kubeReserved": {"cpu": "few"}})),
            "m5.large",
            cpu_overhead,
            70,
        ),
        (
            "root volume",
            |class| {
                class.spec.block_device_mappings = Some(vec![
                    device("/dev/sdz", true, Some("50Gi")),
                    device("/dev/xvda", false, Some("100Gi")),
                ])
            },
            "m5.large",
            storage,
            50 * GIB,
        ),
        (
            "the family's device",
            |class| class.spec.block_device_mappings = Some(vec![device("/dev/xvda", false, Some("100G"))]),
            "m5.large",
            storage,
            100_000_000_000,
        ),
        (
            "another device",
            |class| class.spec.block_device_mappings = Some(vec![device("/dev/xvdb", false, Some("100Gi"))]),
            "m5.large",
            storage,
            20 * GIB,
        ),
        (
            "without a size",
            |class| class.spec.block_device_mappings = Some(vec![device("/dev/xvda", true, None)]),
            "m5.large",
            storage,
            20 * GIB,
        ),
        (
            "a mapping without anything",
            |class| class.spec.block_device_mappings = Some(vec![BlockDeviceMapping::default()]),
            "m5.large",
            storage,
            20 * GIB,
        ),
        (
            "the last device of Custom",
            |class| {
                class.spec.ami_family = Some("Custom".to_owned());
                class.spec.block_device_mappings =
                    Some(vec![device("/a", false, Some("1Gi")), device("/b", false, Some("2Gi"))]);
            },
            "m5.large",
            storage,
            2 * GIB,
        ),
        (
            "Bottlerocket's second device",
            |class| {
                class.spec.ami_family = Some("Bottlerocket".to_owned());
                class.spec.block_device_mappings = Some(vec![
                    device("/dev/xvda", false, Some("1Gi")),
                    device("/dev/xvdb", false, Some("2Gi")),
                ]);
            },
            "m5.large",
            storage,
            2 * GIB,
        ),
        (
            "RAID0 with disks",
            |class| class.spec.instance_store_policy = Some("RAID0".to_owned()),
            "m5d.large",
            storage,
            75_000_000_000,
        ),
        (
            "RAID0 without disks",
            |class| class.spec.instance_store_policy = Some("RAID0".to_owned()),
            "m5.large",
            storage,
            20 * GIB,
        ),
        (
            "interfaces: EFA",
            |class| {
                class.spec.network_interfaces =
                    Some(vec![interface(0, 0, "interface"), interface(0, 1, "efa-only")])
            },
            "c5n.18xlarge",
            pods,
            14 * 49 + 2,
        ),
        (
            "interfaces: no EFA",
            |class| class.spec.network_interfaces = Some(vec![interface(0, 0, "interface")]),
            "c5n.18xlarge",
            efa,
            0,
        ),
        (
            "interfaces: too many",
            |class| {
                class.spec.network_interfaces =
                    Some(vec![interface(0, 0, "interface"), interface(0, 1, "efa-only")])
            },
            "m5.large",
            available_count,
            0,
        ),
        (
            "nested virtualization",
            |class| {
                class.spec.cpu_options =
                    Some(CpuOptions { nested_virtualization: Some("enabled".to_owned()) })
            },
            "m5.large",
            available_count,
            0,
        ),
        (
            "nested virtualization",
            |class| {
                class.spec.cpu_options =
                    Some(CpuOptions { nested_virtualization: Some("disabled".to_owned()) })
            },
            "m5.large",
            available_count,
            4,
        ),
        (
            "connection tracking",
            |class| class.spec.connection_tracking = Some(ConnectionTracking::default()),
            "m5.metal",
            available_count,
            0,
        ),
        (
            "the family of an alias",
            |class| {
                class.spec.ami_family = None;
                class.spec.ami_selector_terms = vec![AmiSelectorTerm {
                    alias: Some("windows2022@latest".to_owned()),
                    ..Default::default()
                }];
            },
            "m5.large",
            private_addresses,
            9,
        ),
    ];
    let scene = Scene::discovered().await;
    for (what, change, name, read, expected) in table {
        let mut changed = class();
        change(&mut changed);
        // The result for the node class is cached before the change, and the change must be detected nevertheless.
        scene.list(&class()).await;
        assert_eq!(read(&scene.one(&changed, name).await), expected, "{what}, {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn ami_family_determines_os_and_architecture() {
    let scene = Scene::discovered().await;
    let with = |family: &str| {
        let mut class = class();
        class.spec.ami_family = Some(family.to_owned());
        class
    };
    let text = |one: &InstanceType, key: &str| {
        one.requirements.get(key).and_then(|one| one.single_value()).map(|value| value.to_string())
    };
    // Columns: AMI family, operating system on x86 and on Arm, Windows build, pod capacity of an m5.large, whether the
    // type a1 is compatible.
    let table = [
        ("AL2", Some("linux"), Some("linux"), None, 29, true),
        ("AL2023", Some("linux"), Some("linux"), None, 29, false),
        ("Bottlerocket", Some("linux"), Some("linux"), None, 29, true),
        ("Custom", Some("linux"), Some("linux"), None, 29, true),
        ("Windows2019", Some("windows"), None, Some("10.0.17763"), 110, true),
        ("Windows2022", Some("windows"), None, Some("10.0.20348"), 110, true),
        ("Windows2025", Some("windows"), None, Some("10.0.26100"), 110, true),
    ];
    for (family, system, arm_system, build, pod_count, is_a1_usable) in table {
        let m5 = scene.one(&with(family), "m5.large").await;
        assert_eq!(text(&m5, core::OS).as_deref(), system, "{family}");
        assert_eq!(text(&m5, core::WINDOWS_BUILD).as_deref(), build, "{family}");
        assert_eq!(pods(&m5), pod_count, "{family}");
        let m7g = scene.one(&with(family), "m7g.large").await;
        assert_eq!(text(&m7g, core::OS).as_deref(), arm_system, "{family}");
        let a1 = scene.one(&with(family), "a1.large").await;
        assert_eq!(!available(&a1).is_empty(), is_a1_usable, "{family}");
    }
}

#[tokio::test(start_paused = true)]
async fn options_affect_instance_types() {
    let of = |change: fn(&mut TypeOptions)| async move {
        let scene = Scene::with(change);
        scene.types.discover().await.expect("an answer");
        scene.one(&class(), "m5.large").await
    };
    assert_eq!(pods(&of(|options| options.reserved_enis = 1).await), 2 * 9 + 2);
    // The memory reserved for the kubelet is computed for all interfaces, including those reserved by RESERVED_ENIS.
    assert_eq!(memory_overhead(&of(|options| options.reserved_enis = 1).await), 674 * MIB);
    assert_eq!(pods(&of(|options| options.reserved_enis = 9).await), 0);
    let memory = of(|options| options.vm_memory_overhead_percent = 0.0).await.capacity.get(MEMORY);
    assert_eq!(memory, 8192 * MIB);
    let region = of(|options| options.region = "eu-west-1".to_owned()).await;
    assert!(region.requirements.get(core::REGION).is_some_and(|one| one.has("eu-west-1")));
}

#[tokio::test(start_paused = true)]
async fn zones_come_from_subnets_and_zone_ids_if_known() {
    let scene = Scene::discovered().await;
    let mut class = class();
    let status = class.status.as_mut().expect("a status");
    status.subnets[1].zone_id = Some(String::new());
    let m5 = scene.one(&class, "m5.large").await;
    let values = |key: &str| -> Vec<String> {
        m5.requirements.get(key).expect("stated").values.iter().map(|value| value.to_string()).collect()
    };
    assert_eq!(values(core::ZONE), ["us-east-1a", "us-east-1b"]);
    assert_eq!(values(labels::ZONE_ID), ["use1-az6"]);

    // The name of a local zone does not contain the region.
    let status = class.status.as_mut().expect("a status");
    status.subnets[1].zone = "us-east-1-bos-1a".to_owned();
    let m5 = scene.one(&class, "m5.large").await;
    assert!(m5.requirements.get(core::REGION).is_some_and(|one| one.has("us-east-1")));
    assert_eq!(available(&m5), ["a on-demand", "a spot"]);
}

#[tokio::test(start_paused = true)]
async fn discovered_memory_belongs_to_amis() {
    let scene = Scene::discovered().await;
    let mut class = class();
    let image = |id: &str| AmiStatus { id: id.to_owned(), ..AmiStatus::default() };
    class.status.as_mut().expect("a status").amis = vec![image("ami-2"), image("ami-1")];
    let images = images_key(&[image("ami-1"), image("ami-2"), image("ami-1")]);
    assert!(scene.types.memory().record("m5.large", &images, 7_777_777_777));
    let memory = |one: InstanceType| one.capacity.get(MEMORY);
    assert_eq!(memory(scene.one(&class, "m5.large").await), 7_777_777_777);
    class.status.as_mut().expect("a status").amis = vec![image("ami-3")];
    assert_eq!(memory(scene.one(&class, "m5.large").await), 7577 * MIB);
}

/// Evaluates `maxPods: "vcpus * N"`.
struct TimesVcpus;

impl KubeletExpressions for TimesVcpus {
    fn has_any(&self, kubelet: &KubeletValues) -> bool {
        kubelet.get("maxPods").is_some_and(serde_json::Value::is_string)
    }

    fn evaluate(&self, kubelet: &KubeletValues, info: &TypeInfo, facts: &AwsNodeClass) -> AwsNodeClass {
        let text = kubelet.get("maxPods").and_then(|value| value.as_str()).unwrap_or_default();
        let factor = text.strip_prefix("vcpus * ").and_then(|number| number.parse::<u32>().ok());
        AwsNodeClass { max_pods: factor.map(|factor| factor * info.vcpus), ..facts.clone() }
    }
}

#[tokio::test(start_paused = true)]
async fn expressions_are_evaluated_per_instance_type_of_class() {
    let scene = Scene::with_expressions(|_| {}, Some(Arc::new(TimesVcpus)));
    scene.types.discover().await.expect("an answer");
    let mut class = class();
    for (text, m5_pods, c5n_pods) in [("vcpus * 3", 6, 216), ("vcpus * 5", 10, 360), ("odd", 29, 737)] {
        class.spec.kubelet = kubelet(json!({"maxPods": text}));
        assert_eq!(pods(&scene.one(&class, "m5.large").await), m5_pods, "{text}");
        assert_eq!(pods(&scene.one(&class, "c5n.18xlarge").await), c5n_pods, "{text}");
    }
    // A number is no expression, so it must be used without evaluation.
    class.spec.kubelet = kubelet(json!({"maxPods": 7}));
    assert_eq!(pods(&scene.one(&class, "m5.large").await), 7);
}

#[tokio::test(start_paused = true)]
async fn incompatibility_has_a_reason() {
    let scene = Scene::discovered().await;
    let mut class = class();
    class.spec.connection_tracking = Some(ConnectionTracking::default());
    let view = scene.types.view(&class).await;
    let why = |name: &str| scene.types.incompatibility(&view.facts, name);
    assert_eq!(why("m5.metal"), Some(Incompatibility::NoConnectionTracking));
    assert_eq!(why("a1.large"), Some(Incompatibility::ImageFamily));
    assert_eq!(why("m5.large"), None);
    assert_eq!(why("none.such"), None);
}
