use super::*;
use std::sync::Arc;

use jiff::Timestamp;
use karpenter_api::conditions::ec2_node_class_conditions;
use karpenter_api::labels;
use karpenter_api::types::{AmiStatus, Condition, EC2NodeClassStatus, NodePool, SubnetStatus};
use karpenter_model::instance_type::InstanceType;
use karpenter_model::requirements::{Requirement, Requirements};
use serde_json::{Value, json};

use super::dry_run::{Call, CheckResult, evaluate};
use crate::api::Tags;
use crate::node_class::conditions::record;

fn class(spec: Value) -> EC2NodeClass {
    serde_json::from_value(json!({"metadata": {"name": "default", "generation": 1}, "spec": spec}))
        .expect("a class")
}

/// The status and reason of a result, as text for tables.
fn shown(result: &ConditionResult) -> String {
    match &result.new_status {
        NewStatus::True => "True".to_owned(),
        NewStatus::False { reason, .. } => format!("False {reason}"),
        NewStatus::Unknown { reason, .. } => format!("Unknown {reason}"),
        NewStatus::NotChecked { reason, .. } => format!("NotChecked {reason}"),
        NewStatus::Unchanged => "Unchanged".to_owned(),
    }
}

fn message(result: &ConditionResult) -> &str {
    match &result.new_status {
        NewStatus::False { message, .. }
        | NewStatus::Unknown { message, .. }
        | NewStatus::NotChecked { message, .. } => message,
        NewStatus::True | NewStatus::Unchanged => "",
    }
}

#[test]
fn dry_run_needs_all_dependencies() {
    let (t, f, u) = (ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown);
    // Columns: whether the conditions of AMIs, instance profile, security groups, subnets and placement group are true;
    // expected result.
    let table = [
        ([t, t, t, t, t], None),
        ([t, t, t, t, f], None),
        ([f, t, t, t, t], Some("False DependenciesNotReady")),
        ([t, f, t, t, t], Some("False DependenciesNotReady")),
        ([t, t, f, t, t], Some("False DependenciesNotReady")),
        ([t, t, t, f, t], Some("False DependenciesNotReady")),
        ([u, t, t, t, t], Some("Unknown DependenciesNotReady")),
        ([t, u, t, t, t], Some("Unknown DependenciesNotReady")),
        ([u, t, f, t, t], Some("False DependenciesNotReady")),
    ];
    let kinds =
        [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY, "PlacementGroupReady"];
    let metadata = class(json!({})).metadata;
    for (statuses, expected) in table {
        let mut conditions: Vec<Condition> = Vec::new();
        let types = ec2_node_class_conditions(false);
        let mut set = ConditionSet::open(types, &metadata, &mut conditions, Timestamp::UNIX_EPOCH);
        for (condition, status) in kinds.into_iter().zip(statuses) {
            let new_status = match status {
                ConditionStatus::True => NewStatus::True,
                ConditionStatus::False => NewStatus::False { reason: "No", message: String::new() },
                ConditionStatus::Unknown => continue,
            };
            record(
                &mut set,
                &ConditionResult { condition, new_status, recheck: Recheck::OnChange, failure: None },
            );
        }
        let result = of_dependencies(&set);
        assert_eq!(result.as_ref().map(shown).as_deref(), expected, "{statuses:?}");
        if let Some(result) = result {
            assert_eq!(result.recheck, Recheck::After(PERIOD));
            assert_eq!(message(&result), AWAITING);
        }
    }
}

#[test]
fn spec_is_validated_before_aws_calls() {
    let kubelet = |reason| KubeletProblem { reason, message: "why".to_owned() };
    let cidr = |code: &str| of_cluster_cidr(&AwsError::new(code, "no"));
    let disks = of_block_devices(&class(json!({"blockDeviceMappings": [{"rootVolume": true}]})));
    let tags = RestrictedTags { keys: vec!["karpenter.sh/nodepool".to_owned()] };
    let table = [
        (
            "no range",
            cidr("AccessDeniedException"),
            "False ClusterCIDRResolutionFailed",
            "Failed to detect the cluster CIDR",
        ),
        (
            "no cluster",
            cidr("ResourceNotFoundException"),
            "False ClusterCIDRResolutionFailed",
            "Failed to detect the cluster CIDR",
        ),
        ("EKS is down", cidr("InternalError"), "Unchanged", ""),
        ("EKS is busy", cidr("ThrottlingException"), "Unchanged", ""),
        (
            "kubelet",
            of_kubelet(kubelet("InvalidKubeletConfiguration")),
            "False InvalidKubeletConfiguration",
            "why",
        ),
        (
            "disks",
            disks.expect("a result"),
            "False InvalidBlockDeviceMappings",
            "spec.blockDeviceMappings[0].deviceName is missing; spec.blockDeviceMappings[0].ebs is missing",
        ),
        (
            "tags",
            of_tags(&tags),
            "False TagValidationFailed",
            "tags failed validation requirements (tags=\"karpenter.sh/nodepool\")",
        ),
        (
            "unreadable",
            unreadable("bad size"),
            "False InvalidSpecification",
            "spec cannot be parsed: bad size",
        ),
    ];
    for (case, result, expected, words) in table {
        assert_eq!(shown(&result), expected, "{case}");
        assert_eq!(message(&result), words, "{case}");
        assert_eq!(result.condition, VALIDATION_SUCCEEDED);
        let is_told = result.new_status != NewStatus::Unchanged;
        assert_eq!(result.failure.is_some_and(|failure| !failure.remedy.is_empty()), is_told, "{case}");
    }
    assert_eq!(of_block_devices(&class(json!({}))), None);
    let expressions = [
        (Ok(None), None),
        (
            Ok(Some(kubelet("KubeletExpressionEvaluationFailed"))),
            Some("False KubeletExpressionEvaluationFailed"),
        ),
        (Err(TypesNotDiscovered), Some("Unchanged")),
    ];
    for (answer, expected) in expressions {
        assert_eq!(of_expressions(answer).as_ref().map(shown).as_deref(), expected);
    }
}

#[test]
fn only_al2023_needs_the_service_cidr() {
    let table = [
        (json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}), true),
        (json!({"amiSelectorTerms": [{"alias": "al2@latest"}]}), false),
        (json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}), false),
        (json!({"amiSelectorTerms": [{"alias": "al2023@latest"}], "amiFamily": "Custom"}), false),
        (json!({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2023"}), true),
    ];
    for (spec, expected) in table {
        assert_eq!(needs_cluster_cidr(&class(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn dry_run_results_have_upstream_reasons_and_messages() {
    let denied =
        |detail: &str| AwsError::new("UnauthorizedOperation", format!("You are not authorized {detail}"));
    let not_found = AwsError::new(
        "InvalidParameterValue",
        "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
    );
    let too_large = AwsError::new("InvalidUserData.Malformed", "User data is limited to 16384 bytes");
    let (template, fleet, run) = (Call::CreateLaunchTemplate, Call::CreateFleet, Call::RunInstances);
    let no_policy =
        "User is not authorized to perform this operation because no identity-based policy allows it";
    let role = json!({"role": "r"});
    let profile = json!({"instanceProfile": "p"});
    // Columns: EC2 call, node class, error, whether the outcome is cached, expected result, message.
    let table = [
        (fleet, &role, Some(AwsError::new("DryRunOperation", "would have succeeded")), true, "allowed", String::new()),
        (run, &role, None, true, "allowed", String::new()),
        (
            template,
            &role,
            Some(denied("")),
            true,
            "False CreateLaunchTemplateAuthCheckFailed",
            format!("Controller isn't authorized to call ec2:CreateLaunchTemplate: {no_policy}"),
        ),
        (
            fleet,
            &role,
            Some(denied("")),
            true,
            "False CreateFleetAuthCheckFailed",
            format!("Controller isn't authorized to call ec2:CreateFleet: {no_policy}"),
        ),
        (
            run,
            &role,
            Some(denied("with an explicit deny in a permissions boundary")),
            true,
            "False RunInstancesAuthCheckFailed",
            "Controller isn't authorized to call ec2:RunInstances: User is not authorized to perform this operation \
             due to a permission boundary"
                .to_owned(),
        ),
        (
            run,
            &role,
            Some(denied("with an explicit deny in a service control policy")),
            true,
            "False RunInstancesAuthCheckFailed",
            "Controller isn't authorized to call ec2:RunInstances: User is not authorized to perform this operation \
             due to a service control policy"
                .to_owned(),
        ),
        (
            run,
            &role,
            Some(AwsError::new("AuthFailure", "Not authorized for images: [ami-1]")),
            true,
            "False RunInstancesAuthCheckFailed",
            "Controller isn't authorized to call ec2:RunInstances: User is not authorized for AMI used in instance launch"
                .to_owned(),
        ),
        (
            template,
            &role,
            Some(too_large),
            true,
            "False UserDataSizeLimitExceeded",
            "ec2:CreateLaunchTemplate rejected the rendered user data as too large: Rendered user data exceeds the EC2 \
             user data size limit"
                .to_owned(),
        ),
        (run, &role, Some(not_found.clone()), false, "Unchanged", String::new()),
        (
            run,
            &profile,
            Some(not_found),
            false,
            "False InstanceProfileNotFound",
            "Instance profile \"p\" not found".to_owned(),
        ),
        (fleet, &role, Some(AwsError::new("RequestLimitExceeded", "")), false, "Unchanged", String::new()),
        (template, &role, Some(AwsError::with_status("Odd", "", 503)), false, "Unchanged", String::new()),
        (run, &role, Some(AwsError::unreachable("no route")), false, "Unchanged", String::new()),
        (
            run,
            &role,
            Some(AwsError::new("InvalidParameter", "belong to different networks")),
            false,
            "NotChecked DryRunFailed",
            "ec2:RunInstances: InvalidParameter: belong to different networks".to_owned(),
        ),
        (
            fleet,
            &role,
            Some(AwsError::new("ExpiredToken", "too old")),
            false,
            "NotChecked DryRunFailed",
            "ec2:CreateFleet: ExpiredToken: too old".to_owned(),
        ),
    ];
    for (call, spec, error, is_remembered, expected, words) in table {
        let case = format!("{call:?} {error:?}");
        let (remembered, found) = match evaluate(call, &class(spec.clone()), error.as_ref()) {
            CheckResult::Allowed => (true, None),
            CheckResult::Refused(outcome, result) => {
                assert_eq!(outcome.result(result.failure.clone()), result, "{case}");
                (true, Some(result))
            }
            CheckResult::Inconclusive(result) => (false, Some(result)),
        };
        assert_eq!(remembered, is_remembered, "{case}");
        assert_eq!(found.as_ref().map_or("allowed".to_owned(), shown), expected, "{case}");
        assert_eq!(found.as_ref().map_or("", message), words, "{case}");
        let next = found.map(|result| result.recheck);
        let expected_next = if is_remembered { Recheck::After(PERIOD) } else { Recheck::BackOff };
        assert!(next.is_none_or(|next| next == expected_next), "{case}: {next:?}");
    }
}

fn of_type(name: &str, arch: &str, gpus: Option<&str>) -> InstanceType {
    let gpu = labels::AWS_INSTANCE_GPU_COUNT;
    let gpus = gpus.map_or(Requirement::does_not_exist(gpu), |count| Requirement::in_values(gpu, [count]));
    let requirements = [
        Requirement::in_values("kubernetes.io/arch", [arch]),
        Requirement::in_values("node.kubernetes.io/instance-type", [name]),
        Requirement::does_not_exist(labels::AWS_INSTANCE_ACCELERATOR_COUNT),
        gpus,
    ];
    InstanceType {
        name: name.into(),
        requirements: Requirements::from_iter(requirements),
        offerings: Vec::new(),
        capacity: Default::default(),
        overhead: Default::default(),
        volume_attachment_limits: Default::default(),
    }
}

fn pool(requirements: Value, of_labels: Value) -> Arc<NodePool> {
    let template = json!({"metadata": {"labels": of_labels}, "spec": {"requirements": requirements}});
    Arc::new(serde_json::from_value(json!({"spec": {"template": template}})).expect("a pool"))
}

fn images() -> Vec<AmiStatus> {
    let arch = |value: &str| json!({"key": "kubernetes.io/arch", "operator": "In", "values": [value]});
    let gpu = |operator: &str| json!({"key": labels::AWS_INSTANCE_GPU_COUNT, "operator": operator});
    serde_json::from_value(json!([
        {"id": "ami-gpu", "requirements": [arch("amd64"), gpu("Exists")]},
        {"id": "ami-arm", "requirements": [arch("arm64"), gpu("DoesNotExist")]},
        {"id": "ami-x86", "requirements": [arch("amd64"), gpu("DoesNotExist")]},
    ]))
    .expect("images")
}

#[test]
fn dry_run_uses_instance_type_that_nodepools_allow() {
    let types = [
        of_type("g5.xlarge", "amd64", Some("1")),
        of_type("c5.large", "amd64", None),
        of_type("m6g.large", "arm64", None),
        of_type("m5.large", "amd64", None),
    ];
    let key = |key: &str, values: Value| json!([{"key": key, "operator": "In", "values": values}]);
    let arch = |values: Value| key("kubernetes.io/arch", values);
    let only = |name: &str| key("node.kubernetes.io/instance-type", json!([name]));
    let linux = || json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]});
    let windows = json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]});
    let table = [
        ("no pools: a small one", linux(), vec![], Some(("m6g.large", "ami-arm"))),
        (
            "any: plain images in their order",
            linux(),
            vec![pool(json!([]), json!({}))],
            Some(("m6g.large", "ami-arm")),
        ),
        (
            "by architecture",
            linux(),
            vec![pool(arch(json!(["amd64"])), json!({}))],
            Some(("c5.large", "ami-x86")),
        ),
        (
            "by label",
            linux(),
            vec![pool(json!([]), json!({"kubernetes.io/arch": "amd64"}))],
            Some(("c5.large", "ami-x86")),
        ),
        (
            "only machines with gpus",
            linux(),
            vec![pool(only("g5.xlarge"), json!({}))],
            Some(("g5.xlarge", "ami-gpu")),
        ),
        (
            "one of two pools",
            linux(),
            vec![pool(only("g5.xlarge"), json!({})), pool(only("m5.large"), json!({}))],
            Some(("m5.large", "ami-x86")),
        ),
        (
            "nothing fits: a small one",
            linux(),
            vec![pool(only("x9.huge"), json!({}))],
            Some(("m6g.large", "ami-arm")),
        ),
        (
            "windows: a small one",
            windows,
            vec![pool(only("c5.large"), json!({}))],
            Some(("m6g.large", "ami-arm")),
        ),
    ];
    for (case, spec, pools, expected) in table {
        let images = images();
        let choice = instance_type::choose(&types, &pools, &class(spec), &images);
        let found = choice.as_ref().map(|choice| (&*choice.instance_type.name, choice.image_id));
        assert_eq!(found, expected, "{case}");
    }
    let images = images();
    let x86 = &images[2..];
    let found = |types: &[InstanceType], images: &[AmiStatus]| {
        instance_type::choose(types, &[], &class(linux()), images)
            .map(|choice| choice.instance_type.name.to_string())
    };
    assert_eq!(found(&types, x86).as_deref(), Some("m5.large"), "the small one that boots");
    assert_eq!(found(&types[..2], x86).as_deref(), Some("c5.large"), "no small one: anything");
    assert_eq!(found(&types[2..3], x86), None);
    assert_eq!(found(&[], &images), None);
    assert_eq!(found(&types, &[]), None);
}

#[test]
fn dry_run_uses_dedicated_tenancy_if_a_nodepool_allows_it() {
    let tenancy = |operator: &str, values: Value| {
        pool(
            json!([{"key": labels::AWS_INSTANCE_TENANCY, "operator": operator, "values": values}]),
            json!({}),
        )
    };
    let table = [
        (vec![], "default"),
        (vec![pool(json!([]), json!({}))], "default"),
        (vec![tenancy("In", json!(["default"]))], "default"),
        (vec![tenancy("In", json!(["dedicated"]))], "dedicated"),
        (vec![tenancy("In", json!(["default", "dedicated"]))], "dedicated"),
        (vec![tenancy("NotIn", json!(["default"]))], "dedicated"),
        (vec![tenancy("In", json!(["default"])), tenancy("Exists", json!([]))], "dedicated"),
    ];
    for (pools, expected) in table {
        assert_eq!(instance_type::tenancy(&pools), expected, "{pools:?}");
    }
}

#[test]
fn dry_run_requests_one_instance() {
    let tags = Tags::from([("team".to_owned(), "a".to_owned())]);
    let subnet = |id: &str| SubnetStatus { id: id.to_owned(), ..SubnetStatus::default() };
    let subnets = [subnet("s1"), subnet("s2")];
    let fleet = dry_run::fleet("lt", "m5.large", &subnets, &tags);
    assert!(fleet.is_dry_run);
    assert_eq!(fleet.total_target_capacity, 1);
    let asked: Vec<Option<&str>> = fleet.launch_template_configs[0]
        .overrides
        .iter()
        .map(|one| one.subnet_id.as_deref().filter(|_| one.instance_type == "m5.large"))
        .collect();
    assert_eq!(asked, [Some("s1"), Some("s2")]);
    let kinds = |list: &[crate::api::ec2::TagSpecification]| -> Vec<String> {
        list.iter().filter(|one| one.tags == tags).map(|one| one.resource_type.clone()).collect()
    };
    assert_eq!(kinds(&fleet.tag_specifications), ["instance", "volume", "fleet"]);
    let plain = dry_run::instances("lt", "m5.large", &class(json!({})), &subnets[0], &tags);
    assert_eq!(plain.subnet_id.as_deref(), Some("s1"));
    assert_eq!(plain.network_interfaces.len(), 1);
    assert_eq!(plain.network_interfaces[0].device_index, 0);
    assert_eq!(kinds(&plain.tag_specifications), ["instance", "volume", "network-interface"]);
    let with_cards = class(json!({"networkInterfaces": [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]}));
    let wired = dry_run::instances("lt", "p5.48xlarge", &with_cards, &subnets[0], &tags);
    let cards: Vec<(Option<i32>, i32, Option<&str>)> = wired
        .network_interfaces
        .iter()
        .map(|one| (one.network_card_index, one.device_index, one.interface_type.as_deref()))
        .collect();
    assert_eq!(cards, [(Some(0), 0, Some("interface")), (Some(1), 1, Some("efa-only"))]);
}

#[test]
fn outcome_is_cached_until_its_inputs_change() {
    let subnet = |id: &str| SubnetStatus { id: id.to_owned(), ..SubnetStatus::default() };
    let base_class = class(json!({"role": "r", "kubelet": {"maxPods": 5}}));
    let status = EC2NodeClassStatus {
        subnets: vec![subnet("s1"), subnet("s2")],
        amis: images(),
        instance_profile: Some("p".to_owned()),
        ..EC2NodeClassStatus::default()
    };
    let tags = Tags::from([("team".to_owned(), "a".to_owned())]);
    let base = cache::key(&base_class, &status, &tags);
    type Change = fn(&mut EC2NodeClass, &mut EC2NodeClassStatus, &mut Tags);
    let table: [(&str, Change, bool); 12] = [
        ("nothing", |_, _, _| {}, true),
        ("subnets in another order", |_, status, _| status.subnets.reverse(), true),
        ("images in another order", |_, status, _| status.amis.reverse(), true),
        ("conditions", |_, status, _| status.conditions.push(Condition::default()), true),
        (
            "the hash",
            |class, _, _| {
                let key = labels::AWS_ANNOTATION_NODE_CLASS_HASH.to_owned();
                class.metadata.annotations.get_or_insert_default().insert(key, "1".to_owned());
            },
            true,
        ),
        (
            "another annotation",
            |class, _, _| {
                class.metadata.annotations.get_or_insert_default().insert("again".to_owned(), "1".to_owned());
            },
            false,
        ),
        ("a subnet less", |_, status, _| status.subnets.truncate(1), false),
        ("an image less", |_, status, _| status.amis.truncate(1), false),
        ("another profile", |_, status, _| status.instance_profile = Some("q".to_owned()), false),
        ("another role", |class, _, _| class.spec.role = Some("q".to_owned()), false),
        (
            "kubelet",
            |class, _, _| {
                class.spec.kubelet.get_or_insert_default().insert("maxPods".to_owned(), json!(6));
            },
            false,
        ),
        (
            "tags",
            |_, _, tags| {
                tags.insert("team".to_owned(), "b".to_owned());
            },
            false,
        ),
    ];
    for (case, change, is_same) in table {
        let (mut class, mut status, mut tags) = (base_class.clone(), status.clone(), tags.clone());
        change(&mut class, &mut status, &mut tags);
        assert_eq!(cache::key(&class, &status, &tags) == base, is_same, "{case}");
    }
}
