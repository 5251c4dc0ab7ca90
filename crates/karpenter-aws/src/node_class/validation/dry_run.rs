//! The dry run of a launch: builds its requests and interprets the responses.

use karpenter_api::types::{EC2NodeClass, SubnetStatus};

use super::Outcome;
use crate::api::ec2::{
    CreateFleet, DryRunInstances, FleetLaunchTemplate, FleetOverride, NetworkInterfaceSpec,
    OnDemandAllocationStrategy, TagSpecification, TargetCapacityType,
};
use crate::api::{AwsError, ErrorKind, Tags};
use crate::launch::errors::reason_and_message;
use crate::node_class::conditions::{ConditionResult, NewStatus, Recheck, VALIDATION_SUCCEEDED};
use crate::node_class::remedy::failure;

pub const CREATE_LAUNCH_TEMPLATE_AUTH_FAILED: &str = "CreateLaunchTemplateAuthCheckFailed";
pub const CREATE_FLEET_AUTH_FAILED: &str = "CreateFleetAuthCheckFailed";
pub const RUN_INSTANCES_AUTH_FAILED: &str = "RunInstancesAuthCheckFailed";
pub const USER_DATA_TOO_LARGE: &str = "UserDataSizeLimitExceeded";
pub const INSTANCE_PROFILE_NOT_FOUND: &str = "InstanceProfileNotFound";
pub const DRY_RUN_FAILED: &str = "DryRunFailed";

/// One of the EC2 calls that make up the dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    CreateLaunchTemplate,
    CreateFleet,
    RunInstances,
}

impl Call {
    pub const fn action(self) -> &'static str {
        match self {
            Self::CreateLaunchTemplate => "ec2:CreateLaunchTemplate",
            Self::CreateFleet => "ec2:CreateFleet",
            Self::RunInstances => "ec2:RunInstances",
        }
    }

    const fn auth_failed(self) -> &'static str {
        match self {
            Self::CreateLaunchTemplate => CREATE_LAUNCH_TEMPLATE_AUTH_FAILED,
            Self::CreateFleet => CREATE_FLEET_AUTH_FAILED,
            Self::RunInstances => RUN_INSTANCES_AUTH_FAILED,
        }
    }
}

/// What the response to a call means for the node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    Allowed,
    /// EC2 rejects the launch. This outcome is cached.
    Refused(Outcome, ConditionResult),
    /// The next attempt may have another outcome, so this one is not cached.
    Inconclusive(ConditionResult),
}

/// Interprets the response to a call; `error` is `None` if the call succeeded.
pub fn evaluate(call: Call, class: &EC2NodeClass, error: Option<&AwsError>) -> CheckResult {
    let Some(error) = error.filter(|error| error.kind != ErrorKind::DryRunOk) else {
        return CheckResult::Allowed;
    };
    if call == Call::RunInstances && error.is_instance_profile_not_found() {
        return CheckResult::Inconclusive(profile_not_found(class, error));
    }
    if error.is_throttled() || error.is_transient() {
        return CheckResult::Inconclusive(ConditionResult::pending(VALIDATION_SUCCEEDED));
    }
    let failure = failure(call.action(), error);
    let refused = |reason, what: String| {
        let message = format!("{what}: {}", reason_and_message(&error.to_string()).1);
        let outcome = Outcome::Refused { reason, message };
        let result = outcome.result(Some(failure.clone()));
        CheckResult::Refused(outcome, result)
    };
    if call == Call::CreateLaunchTemplate && error.is_user_data_too_large() {
        let what = format!("{} rejected the rendered user data as too large", call.action());
        return refused(USER_DATA_TOO_LARGE, what);
    }
    if error.kind == ErrorKind::Unauthorized {
        return refused(call.auth_failed(), format!("Controller isn't authorized to call {}", call.action()));
    }
    CheckResult::Inconclusive(ConditionResult::not_checked(VALIDATION_SUCCEEDED, DRY_RUN_FAILED, failure))
}

/// The result if no dry run is possible, because no instance type can be launched.
pub fn nothing_to_launch(message: &str) -> ConditionResult {
    let remedy =
        "check that the nodepools of the nodeclass allow instance types of the architecture of its AMIs";
    let error = message.to_owned();
    let failure = crate::node_class::conditions::Failure { error, remedy: remedy.to_owned() };
    ConditionResult {
        recheck: Recheck::After(super::PERIOD),
        ..ConditionResult::not_checked(VALIDATION_SUCCEEDED, DRY_RUN_FAILED, failure)
    }
}

/// The result if EC2 does not know the instance profile. A profile that Karpenter created becomes visible only after a
/// while; a profile that the node class names may not exist.
fn profile_not_found(class: &EC2NodeClass, error: &AwsError) -> ConditionResult {
    let Some(name) = &class.spec.instance_profile else {
        return ConditionResult::pending(VALIDATION_SUCCEEDED);
    };
    let message = format!("Instance profile {name:?} not found");
    let new_status = NewStatus::False { reason: INSTANCE_PROFILE_NOT_FOUND, message };
    let mut failure = failure(Call::RunInstances.action(), error);
    failure.remedy = "create the instance profile, or correct spec.instanceProfile".to_owned();
    ConditionResult {
        condition: VALIDATION_SUCCEEDED,
        new_status,
        recheck: Recheck::BackOff,
        failure: Some(failure),
    }
}

/// The dry run of `CreateFleet`: one on-demand instance of the type, in any subnet of the node class.
pub fn fleet(template: &str, instance_type: &str, subnets: &[SubnetStatus], tags: &Tags) -> CreateFleet {
    let overrides = subnets.iter().map(|subnet| FleetOverride {
        instance_type: instance_type.to_owned(),
        subnet_id: Some(subnet.id.clone()),
        ..FleetOverride::default()
    });
    let overrides = overrides.collect();
    CreateFleet {
        launch_template_configs: vec![FleetLaunchTemplate {
            launch_template_name: template.to_owned(),
            overrides,
        }],
        target: TargetCapacityType::OnDemand,
        total_target_capacity: 1,
        spot_allocation_strategy: None,
        on_demand_allocation_strategy: Some(OnDemandAllocationStrategy::LowestPrice),
        reservation_types: Vec::new(),
        context: None,
        tag_specifications: tag_specifications(&["instance", "volume", "fleet"], tags),
        is_dry_run: true,
    }
}

/// The dry run of `RunInstances`: one instance of the launch template in one subnet.
pub fn instances(
    template: &str,
    instance_type: &str,
    class: &EC2NodeClass,
    subnet: &SubnetStatus,
    tags: &Tags,
) -> DryRunInstances {
    let wanted = class.spec.network_interfaces.as_deref().unwrap_or_default();
    let interfaces = wanted.iter().map(|interface| NetworkInterfaceSpec {
        network_card_index: Some(interface.network_card_index),
        device_index: interface.device_index,
        interface_type: Some(interface.interface_type.clone()),
        ..NetworkInterfaceSpec::default()
    });
    let mut interfaces: Vec<NetworkInterfaceSpec> = interfaces.collect();
    if interfaces.is_empty() {
        interfaces.push(NetworkInterfaceSpec::default());
    }
    DryRunInstances {
        launch_template_name: template.to_owned(),
        instance_type: instance_type.to_owned(),
        image_id: None,
        subnet_id: Some(subnet.id.clone()),
        network_interfaces: interfaces,
        tag_specifications: tag_specifications(&["instance", "volume", "network-interface"], tags),
    }
}

fn tag_specifications(kinds: &[&str], tags: &Tags) -> Vec<TagSpecification> {
    kinds
        .iter()
        .map(|kind| TagSpecification { resource_type: (*kind).to_owned(), tags: tags.clone() })
        .collect()
}
