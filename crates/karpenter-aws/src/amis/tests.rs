//! Tests of AMI resolution against the fake: which AMIs are found, how many AWS calls are made, and what happens on AWS
//! errors.

use jiff::{SignedDuration, Timestamp};
use karpenter_catalog::aws::{AmiFamily, AwsNodeClass, catalog};
use serde_json::{Value, json};

use super::*;
use crate::fake::{Call, FakeAws, World};
use crate::node_class::image_of_type;

const MINUTE: Duration = Duration::from_secs(60);

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn kubernetes() -> Version {
    Version { major: 1, minor: 34 }
}

/// The Kubernetes version for an alias; for AL2, the last minor version that has AL2 AMIs.
fn kubernetes_of(alias: &str) -> Version {
    if alias.starts_with("al2@") { Version { major: 1, minor: 32 } } else { kubernetes() }
}

struct Bench {
    aws: Arc<FakeAws>,
    amis: Amis,
}

impl Bench {
    /// The clock starts at 2026-01-01.
    fn new(build: impl FnOnce(&mut World)) -> Self {
        let clock = Clock::starting_at(at("2026-01-01T00:00:00Z"));
        let mut world = World::new("us-east-1");
        world.images.clear();
        world.parameters.clear();
        build(&mut world);
        let aws = FakeAws::with_world(clock, world);
        let apis = aws.apis();
        let amis = Amis::new(apis.ec2, apis.ssm, clock, MINUTE);
        Self { aws, amis }
    }

    async fn list_as(&self, uid: &str, generation: i64, terms: &Value) -> Result<Vec<String>, AmiError> {
        let terms: Vec<AmiSelectorTerm> = serde_json::from_value(terms.clone()).expect("terms");
        let request = AmiRequest {
            class_uid: uid,
            class_generation: generation,
            terms: &terms,
            kubernetes: kubernetes(),
        };
        Ok(self.amis.list(request).await?.iter().map(|ami| ami.id.clone()).collect())
    }

    async fn list(&self, terms: &Value) -> Result<Vec<String>, AmiError> {
        self.list_as("uid", 1, terms).await
    }

    async fn statuses(&self, terms: &Value) -> Vec<AmiStatus> {
        let terms: Vec<AmiSelectorTerm> = serde_json::from_value(terms.clone()).expect("terms");
        let kubernetes = kubernetes_of(terms[0].alias.as_deref().unwrap_or_default());
        let request = AmiRequest { class_uid: "status", class_generation: 1, terms: &terms, kubernetes };
        self.amis.statuses(request).await.expect("images")
    }

    fn counts(&self) -> (usize, usize) {
        (self.aws.count(Call::GetParameter), self.aws.count(Call::DescribeImages))
    }
}

/// The columns are id, name, architecture, creation date and deprecation date.
fn image(
    world: &mut World,
    (id, name, architecture, created, deprecated): (&str, &str, &str, &str, Option<&str>),
) {
    world.add_image(id, name, architecture, at(created));
    if let Some(image) = world.images.get_mut(id) {
        image.deprecated_at = deprecated.map(at);
    }
}

fn publish(world: &mut World, alias: &str) {
    let parameters = Alias::parse(alias).expect(alias).parameters(kubernetes_of(alias)).expect(alias);
    for (position, parameter) in parameters.iter().enumerate() {
        let id = format!("ami-{position}");
        let architecture = if parameter.name.contains("arm64") { "arm64" } else { "x86_64" };
        world.add_image(&id, &format!("image-{position}"), architecture, at("2025-06-01T00:00:00Z"));
        world.parameters.insert(parameter.name.clone(), id);
    }
}

#[tokio::test(start_paused = true)]
async fn best_ami_per_set_of_requirements_is_selected() {
    const OLD: &str = "2025-01-01T00:00:00Z";
    const NEW: &str = "2025-02-01T00:00:00Z";
    const PAST: Option<&str> = Some("2025-12-31T23:59:59Z");
    const NOW: Option<&str> = Some("2026-01-01T00:00:00Z");
    const FUTURE: Option<&str> = Some("2026-01-01T00:00:01Z");
    type Listed<'a> = &'a [(&'a str, &'a str, &'a str, &'a str, Option<&'a str>)];
    let table: [(&str, Listed<'_>, &[&str]); 11] = [
        ("one", &[("ami-a", "x", "x86_64", OLD, None)], &["ami-a"]),
        ("newer", &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "x86_64", NEW, None)], &["ami-b"]),
        (
            "newer is listed first",
            &[("ami-b", "x", "x86_64", NEW, None), ("ami-c", "x", "x86_64", OLD, None)],
            &["ami-b"],
        ),
        (
            "deprecated loses",
            &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "x86_64", NEW, PAST)],
            &["ami-a"],
        ),
        (
            "deprecated just now",
            &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "x86_64", NEW, NOW)],
            &["ami-a"],
        ),
        (
            "not yet deprecated",
            &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "x86_64", NEW, FUTURE)],
            &["ami-b"],
        ),
        (
            "all deprecated",
            &[("ami-a", "x", "x86_64", OLD, PAST), ("ami-b", "x", "x86_64", NEW, PAST)],
            &["ami-b"],
        ),
        (
            "greater name",
            &[("ami-a", "x-1", "x86_64", OLD, None), ("ami-b", "x-2", "x86_64", OLD, None)],
            &["ami-b"],
        ),
        (
            "equal in all",
            &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "x86_64", OLD, None)],
            &["ami-a"],
        ),
        (
            "two architectures",
            &[("ami-a", "x", "x86_64", OLD, None), ("ami-b", "x", "arm64", NEW, None)],
            &["ami-b", "ami-a"],
        ),
        (
            "other architectures",
            &[("ami-a", "x", "i386", NEW, None), ("ami-b", "x", "x86_64_mac", NEW, None)],
            &[],
        ),
    ];
    for (case, images, expected) in table {
        let bench = Bench::new(|world| images.iter().for_each(|one| image(world, *one)));
        assert_eq!(
            bench.list(&json!([{ "name": "x*" }])).await,
            Ok(expected.iter().map(|id| id.to_string()).collect()),
            "{case}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn selector_terms_select_matching_amis() {
    let bench = Bench::new(|world| {
        image(world, ("ami-1", "mine-1", "x86_64", "2025-01-01T00:00:00Z", None));
        image(world, ("ami-2", "mine-2", "arm64", "2025-02-01T00:00:00Z", None));
        image(world, ("ami-3", "strange", "x86_64", "2025-03-01T00:00:00Z", None));
        for (id, owner, alias) in [("ami-1", "123456789012", None), ("ami-3", "999999999999", None::<&str>)] {
            let image = world.images.get_mut(id).expect(id);
            (image.owner_id, image.owner_alias) = (owner.to_owned(), alias.map(str::to_owned));
        }
        world.images.get_mut("ami-1").expect("ami-1").tags.insert("team".to_owned(), "a".to_owned());
        world.images.get_mut("ami-2").expect("ami-2").tags.insert("team".to_owned(), "b".to_owned());
        image(world, ("ami-4", "mine-4", "x86_64", "2025-04-01T00:00:00Z", None));
        world.images.get_mut("ami-4").expect("ami-4").state = "pending".to_owned();
        world.parameters.insert("/my/image".to_owned(), "ami-3".to_owned());
        world.parameters.insert("/my/nonsense".to_owned(), "not an image".to_owned());
    });
    for (terms, expected) in [
        (json!([{ "id": "ami-3" }]), vec!["ami-3"]),
        (json!([{ "id": "ami-1" }, { "id": "ami-2" }]), vec!["ami-2", "ami-1"]),
        (json!([{ "id": "ami-1" }, { "id": "ami-3" }]), vec!["ami-3"]),
        (json!([{ "id": "ami-9" }]), vec![]),
        (json!([{ "id": "ami-4" }]), vec![]),
        (json!([{ "name": "mine-*" }]), vec!["ami-2", "ami-1"]),
        (json!([{ "name": "strange" }]), vec![]),
        (json!([{ "name": "strange", "owner": "999999999999" }]), vec!["ami-3"]),
        (json!([{ "tags": { "team": "*" } }]), vec!["ami-2", "ami-1"]),
        (json!([{ "tags": { "team": "b" } }]), vec!["ami-2"]),
        (json!([{ "tags": { "team": "*" }, "owner": "self" }]), vec!["ami-1"]),
        (json!([{ "name": "mine-1", "tags": { "team": "b" } }]), vec![]),
        (json!([{ "ssmParameter": "/my/image" }]), vec!["ami-3"]),
        (json!([{ "ssmParameter": "arn:aws:ssm:us-east-1:123456789012:parameter/my/image" }]), vec!["ami-3"]),
        (json!([{ "ssmParameter": "/my/nonsense" }, { "id": "ami-2" }]), vec!["ami-2"]),
        (json!([{ "ssmParameter": "/not/there" }, { "id": "ami-2" }]), vec!["ami-2"]),
        (json!([{ "ssmParameter": "/not/there" }]), vec![]),
        (json!([]), vec![]),
    ] {
        let found = bench.list_as(&terms.to_string(), 1, &terms).await;
        assert_eq!(found, Ok(expected.iter().map(|id| id.to_string()).collect()), "{terms}");
    }
}

/// With each alias, every instance type of the catalog boots the AMI for its kind.
#[tokio::test(start_paused = true)]
async fn every_instance_type_boots_ami_of_matching_variant() {
    for (alias, standard, arm, nvidia, nvidia_arm, neuron) in [
        ("al2023@latest", "ami-0", "ami-3", "ami-1", Some("ami-4"), "ami-2"),
        ("bottlerocket@latest", "ami-0", "ami-1", "ami-2", Some("ami-3"), "ami-0"),
        // In this test, one AMI serves GPU and Neuron instance types, and there is no GPU AMI for arm64.
        ("al2@latest", "ami-0", "ami-1", "ami-2", None, "ami-2"),
    ] {
        let bench = Bench::new(|world| publish(world, alias));
        let statuses = bench.statuses(&json!([{ "alias": alias }])).await;
        let class = AwsNodeClass::default();
        let mut seen = BTreeMap::new();
        for info in catalog().types() {
            let of_type = catalog().resolve_one(&info.name, &class).expect("a type");
            let booted = image_of_type(&of_type.requirements, &statuses).map(|ami| ami.id.as_str());
            let is_arm = &*info.architectures[0] == "arm64";
            let has_gpu = info.gpus.len() == 1;
            let has_accelerator = info.neuron_devices.len() == 1
                || info.neuron_devices.is_empty() && info.inference_accelerators.len() == 1;
            let expected = match (has_gpu, has_accelerator, is_arm) {
                (true, _, false) => Some(nvidia),
                (true, _, true) => nvidia_arm,
                (false, true, _) => Some(neuron),
                (false, false, false) => Some(standard),
                (false, false, true) => Some(arm),
            };
            assert_eq!(booted, expected, "{alias} {}", info.name);
            *seen.entry((expected, is_arm)).or_insert(0) += 1;
        }
        assert!(seen.len() >= 4, "{seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn windows_amis_require_windows_build_label() {
    let bench = Bench::new(|world| publish(world, "windows2022@latest"));
    let statuses = bench.statuses(&json!([{ "alias": "windows2022@latest" }])).await;
    for (family, name, expected) in [
        (AmiFamily::Windows2022, "m5.large", true),
        (AmiFamily::Windows2019, "m5.large", false),
        (AmiFamily::Al2023, "m5.large", false),
        (AmiFamily::Windows2022, "m7g.large", false),
    ] {
        let class = AwsNodeClass { ami_family: family, ..AwsNodeClass::default() };
        let of_type = catalog().resolve_one(name, &class).expect(name);
        assert_eq!(image_of_type(&of_type.requirements, &statuses).is_some(), expected, "{family:?} {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_sorts_requirement_keys_by_length() {
    let bench = Bench::new(|world| {
        publish(world, "bottlerocket@latest");
        world.images.get_mut("ami-1").expect("ami-1").deprecated_at = Some(at("2025-07-01T00:00:00Z"));
    });
    let statuses = serde_json::to_value(bench.statuses(&json!([{ "alias": "bottlerocket@latest" }])).await);
    let arch = |value: &str| json!({ "key": "kubernetes.io/arch", "operator": "In", "values": [value] });
    let gpu = |operator: &str| json!({ "key": "karpenter.k8s.aws/instance-gpu-count", "operator": operator });
    let accelerator = |operator: &str| json!({ "key": "karpenter.k8s.aws/instance-accelerator-count", "operator": operator });
    assert_eq!(
        statuses.expect("JSON"),
        json!([
            { "id": "ami-0", "name": "image-0", "requirements": [arch("amd64"), gpu("DoesNotExist"), accelerator("DoesNotExist")] },
            { "id": "ami-0", "name": "image-0", "requirements": [arch("amd64"), accelerator("Exists")] },
            { "id": "ami-1", "name": "image-1", "deprecated": true, "requirements": [arch("arm64"), gpu("DoesNotExist"), accelerator("DoesNotExist")] },
            { "id": "ami-2", "name": "image-2", "requirements": [arch("amd64"), gpu("Exists")] },
            { "id": "ami-3", "name": "image-3", "requirements": [arch("arm64"), gpu("Exists")] },
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn unpublished_variant_is_skipped() {
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    assert_eq!(bench.list(&json!([{ "alias": "al2023@latest" }])).await.map(|found| found.len()), Ok(4));
}

#[tokio::test(start_paused = true)]
async fn alias_without_published_amis_is_an_error() {
    let bench = Bench::new(|_| ());
    for (alias, expected) in [
        (
            "al2023@v19990101",
            "getting AMI queries, failed to discover any AMIs for alias (alias=al2023@v19990101)",
        ),
        (
            "windows2022@latest",
            "getting AMI queries, failed to discover any AMIs for alias (alias=windows2022@latest)",
        ),
        ("al2@latest", "getting AMI queries, AL2 aliases are no longer supported on EKS 1.33+"),
        (
            "windows2025@latest",
            "getting AMI queries, Windows Server 2025 requires EKS version 1.35 or higher, current version: 1.34",
        ),
        (
            "ubuntu@latest",
            "getting AMI queries, \"ubuntu@latest\" is not a valid alias; valid: family@version",
        ),
    ] {
        let error = bench.list_as(alias, 1, &json!([{ "alias": alias }])).await.expect_err(alias);
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.aws_error(), None);
    }
    assert_eq!(bench.counts().1, 0, "without an id no image is asked for");
}

#[tokio::test(start_paused = true)]
async fn amis_are_cached_per_generation_and_parameters_for_a_day() {
    let terms = json!([{ "alias": "al2023@latest" }]);
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    bench.list(&terms).await.expect("images");
    bench.list(&terms).await.expect("images");
    assert_eq!(bench.counts(), (5, 1));
    bench.list_as("uid", 2, &terms).await.expect("images");
    assert_eq!(bench.counts(), (6, 2), "what was not found is asked for again, what was found is known");
    tokio::time::advance(MINUTE).await;
    bench.list(&terms).await.expect("images");
    assert_eq!(bench.counts(), (7, 3));
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    bench.list(&terms).await.expect("images");
    assert_eq!(bench.counts(), (12, 4));
}

#[tokio::test(start_paused = true)]
async fn custom_parameter_is_cached_for_five_minutes() {
    let terms = json!([{ "ssmParameter": "/my/image" }]);
    let bench = Bench::new(|world| {
        for id in ["ami-1", "ami-2"] {
            image(world, (id, id, "x86_64", "2025-01-01T00:00:00Z", None));
        }
        world.parameters.insert("/my/image".to_owned(), "ami-1".to_owned());
    });
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-1".to_owned()]));
    bench.aws.world(|world| world.parameters.insert("/my/image".to_owned(), "ami-2".to_owned()));
    tokio::time::advance(4 * MINUTE).await;
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-1".to_owned()]));
    tokio::time::advance(MINUTE).await;
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-2".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn concurrent_resolutions_share_one_call() {
    let terms = json!([{ "alias": "al2023@latest" }]);
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    bench.aws.set_latency(Duration::from_millis(100));
    let one = bench.list(&terms);
    let (first, second, other) = tokio::join!(one, bench.list(&terms), bench.list_as("another", 1, &terms));
    assert_eq!(first, second);
    assert_eq!(first, other);
    assert_eq!(bench.counts(), (5, 2), "classes share parameters, not images");
}

/// A VPC endpoint policy or a service control policy may allow only some SSM paths.
#[tokio::test(start_paused = true)]
async fn denied_or_missing_variant_is_skipped_and_the_others_are_used() {
    let parameter = |arch: &str, variant: &str| {
        format!("/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{arch}/{variant}/recommended/image_id")
    };
    let bench = Bench::new(|world| {
        publish(world, "al2023@latest");
        world.denied_parameters.insert(parameter("x86_64", "nvidia"));
        world.parameters.remove(&parameter("arm64", "nvidia"));
    });
    let terms = json!([{ "alias": "al2023@latest" }]);
    let found = bench.list(&terms).await.expect("three of five variants");
    assert_eq!(found, ["ami-0", "ami-2", "ami-3"]);

    // After access was allowed, the next refresh finds the variant, and it is used.
    bench.aws.world(|world| world.denied_parameters.clear());
    tokio::time::advance(MINUTE).await;
    let found = bench.list(&terms).await.expect("four variants");
    assert_eq!(found, ["ami-0", "ami-1", "ami-2", "ami-3"]);

    // If no variant of an alias can be read, the result is an error with the reason.
    let names = ["standard", "nvidia", "neuron"].map(|variant| parameter("x86_64", variant));
    let names = names.into_iter().chain(["standard", "nvidia"].map(|variant| parameter("arm64", variant)));
    let bench = Bench::new(|world| world.denied_parameters.extend(names));
    let error = bench.list(&terms).await.expect_err("no variant");
    assert!(error.aws_error().is_some_and(AwsError::is_unauthorized), "{error}");
}

/// If the AMI were removed after an error other than "not found", nodes would drift.
#[tokio::test(start_paused = true)]
async fn throttled_variant_is_an_error_and_not_skipped() {
    let bench = Bench::new(|world| publish(world, "al2023@latest"));
    bench.aws.fail_next(Call::GetParameter, [AwsError::new("ThrottlingException", "slow down")]);
    let terms = json!([{ "alias": "al2023@latest" }]);
    assert!(bench.list(&terms).await.is_err());
    assert_eq!(bench.list(&terms).await.map(|found| found.len()), Ok(5));
}

/// If AMIs were removed after an error other than "not found", nodes would drift.
#[tokio::test(start_paused = true)]
async fn unreadable_parameter_keeps_last_value() {
    let terms = json!([{ "alias": "al2023@latest" }]);
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    let before = bench.list(&terms).await.expect("images");
    tokio::time::advance(Duration::from_secs(25 * 60 * 60)).await;
    for error in [
        AwsError::new("ThrottlingException", "slow down"),
        AwsError::new("ExpiredTokenException", "old"),
        AwsError::unreachable("no route"),
    ] {
        bench.aws.fail_always(Call::GetParameter, Some(error));
        tokio::time::advance(MINUTE).await;
        // A variant that was never read has no last value, so the result is an error; the other variants must still be
        // used.
        let error = bench.list(&terms).await.expect_err("arm64/nvidia was never read");
        assert!(error.aws_error().is_some(), "{error}");
    }
    bench.aws.fail_always(Call::GetParameter, Some(AwsError::new("AccessDeniedException", "no")));
    tokio::time::advance(MINUTE).await;
    assert_eq!(bench.list(&terms).await.as_ref(), Ok(&before));
    let arm_nvidia =
        "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id";
    bench.aws.fail_always(Call::GetParameter, None);
    bench.aws.world(|world| world.parameters.insert(arm_nvidia.to_owned(), "ami-arm64standard".to_owned()));
    tokio::time::advance(MINUTE).await;
    let all = bench.list(&terms).await.expect("images");
    assert_eq!(all.len(), before.len() + 1);
    tokio::time::advance(Duration::from_secs(25 * 60 * 60)).await;
    bench.aws.fail_always(Call::GetParameter, Some(AwsError::new("ThrottlingException", "slow down")));
    assert_eq!(bench.list(&terms).await, Ok(all));
}

#[tokio::test(start_paused = true)]
async fn failed_first_resolution_is_an_error_and_not_cached() {
    let terms = json!([{ "alias": "al2023@latest" }]);
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    bench.aws.fail_always(Call::GetParameter, Some(AwsError::new("AccessDeniedException", "no")));
    let error = bench.list(&terms).await.expect_err("no parameter");
    assert!(error.aws_error().is_some_and(AwsError::is_unauthorized), "{error}");
    bench.aws.fail_always(Call::GetParameter, None);
    bench.aws.fail_next(Call::DescribeImages, [AwsError::new("RequestLimitExceeded", "slow down")]);
    let error = bench.list(&terms).await.expect_err("no images");
    assert_eq!(error.to_string(), "describing images, RequestLimitExceeded: slow down");
    assert_eq!(bench.list(&terms).await.map(|found| found.len()), Ok(4));
}

#[tokio::test(start_paused = true)]
async fn deleted_parameter_removes_its_ami() {
    let terms = json!([{ "alias": "al2023@latest" }]);
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    bench.list(&terms).await.expect("images");
    bench.aws.world(|world| world.parameters.retain(|name, _| !name.contains("neuron")));
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(bench.list(&terms).await.map(|found| found.len()), Ok(3));
}

#[tokio::test(start_paused = true)]
async fn deprecated_latest_ami_expires_cached_parameter() {
    let terms = json!([{ "alias": "windows2022@latest" }]);
    let name = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id";
    let bench = Bench::new(|world| {
        publish(world, "windows2022@latest");
        image(world, ("ami-new", "image-new", "x86_64", "2025-12-01T00:00:00Z", None));
    });
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-0".to_owned()]));
    bench.aws.world(|world| world.parameters.insert(name.to_owned(), "ami-new".to_owned()));
    assert_eq!(bench.amis.expire_outdated().await, Ok(0), "nothing is deprecated yet");
    tokio::time::advance(MINUTE).await;
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-0".to_owned()]));
    let deprecated_at = at("2026-01-01T00:00:30Z") + SignedDuration::ZERO;
    bench
        .aws
        .world(|world| world.images.get_mut("ami-0").expect("ami-0").deprecated_at = Some(deprecated_at));
    assert_eq!(bench.amis.expire_outdated().await, Ok(1));
    tokio::time::advance(MINUTE).await;
    assert_eq!(bench.list(&terms).await, Ok(vec!["ami-new".to_owned()]));
    assert_eq!(bench.amis.expire_outdated().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn pinned_versions_and_custom_parameters_are_not_invalidated() {
    let bench = Bench::new(|world| {
        publish(world, "bottlerocket@v1.40.0");
        for image in world.images.values_mut() {
            image.deprecated_at = Some(at("2025-07-01T00:00:00Z"));
        }
        world.parameters.insert("/my/image".to_owned(), "ami-0".to_owned());
    });
    let found = bench.list(&json!([{ "alias": "bottlerocket@v1.40.0" }])).await;
    assert_eq!(found.map(|found| found.len()), Ok(5), "deprecated images are still used");
    bench.list_as("own", 1, &json!([{ "ssmParameter": "/my/image" }])).await.expect("images");
    bench.aws.forget_calls();
    assert_eq!(bench.amis.expire_outdated().await, Ok(0));
    assert_eq!(bench.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_invalidation_expires_nothing() {
    let bench = Bench::new(|world| world.add_al2023_images("1.34"));
    assert_eq!(bench.amis.expire_outdated().await, Ok(0), "nothing has been read yet");
    bench.list(&json!([{ "alias": "al2023@latest" }])).await.expect("images");
    bench.aws.fail_next(Call::DescribeImages, [AwsError::unreachable("no route")]);
    assert!(bench.amis.expire_outdated().await.is_err());
    assert_eq!(bench.amis.expire_outdated().await, Ok(0));
}
