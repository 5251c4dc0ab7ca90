//! A launch that is only tried out: what is asked, and what the answers mean.

use karpenter_api::types::{EC2NodeClass, SubnetStatus};

use super::Outcome;
use crate::api::ec2::{
    CreateFleet, DryRunInstances, FleetLaunchTemplate, FleetOverride, NetworkInterfaceSpec,
    OnDemandAllocationStrategy, TagSpecification, TargetCapacityType,
};
use crate::api::{AwsError, ErrorKind, Tags};
use crate::launch::refusals::reason_and_message;
use crate::node_class::conditions::{Finding, Next, VALIDATION_SUCCEEDED, Verdict};
use crate::node_class::remedy::trouble;

pub const CREATE_LAUNCH_TEMPLATE_AUTH_FAILED: &str = "CreateLaunchTemplateAuthCheckFailed";
pub const CREATE_FLEET_AUTH_FAILED: &str = "CreateFleetAuthCheckFailed";
pub const RUN_INSTANCES_AUTH_FAILED: &str = "RunInstancesAuthCheckFailed";
pub const USER_DATA_TOO_LARGE: &str = "UserDataSizeLimitExceeded";
pub const INSTANCE_PROFILE_NOT_FOUND: &str = "InstanceProfileNotFound";
pub const DRY_RUN_FAILED: &str = "DryRunFailed";

/// Which call of the try-out.
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

/// What a call showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Allowed,
    /// Worth remembering.
    Refused(Outcome, Finding),
    /// Not worth remembering: the next try may show something else.
    Undecided(Finding),
}

/// What the error of a call means for the class; `None` is no error.
pub fn judge(call: Call, class: &EC2NodeClass, error: Option<&AwsError>) -> Shown {
    let Some(error) = error.filter(|error| error.kind != ErrorKind::DryRunOk) else { return Shown::Allowed };
    if call == Call::RunInstances && error.is_instance_profile_not_found() {
        return Shown::Undecided(profile_not_found(class, error));
    }
    if error.is_throttled() || error.is_transient() {
        return Shown::Undecided(Finding::not_yet(VALIDATION_SUCCEEDED));
    }
    let told = trouble(call.action(), error);
    let refused = |reason, what: String| {
        let message = format!("{what}: {}", reason_and_message(&error.to_string()).1);
        let outcome = Outcome::Refused { reason, message };
        let finding = outcome.finding(Some(told.clone()));
        Shown::Refused(outcome, finding)
    };
    if call == Call::CreateLaunchTemplate && error.is_user_data_too_large() {
        let what = format!("{} rejected the rendered user data as too large", call.action());
        return refused(USER_DATA_TOO_LARGE, what);
    }
    if error.kind == ErrorKind::Unauthorized {
        return refused(call.auth_failed(), format!("Controller isn't authorized to call {}", call.action()));
    }
    Shown::Undecided(Finding::unseen(VALIDATION_SUCCEEDED, DRY_RUN_FAILED, told))
}

/// Nothing can be tried out, because nothing could be launched.
pub fn nothing_to_launch(message: &str) -> Finding {
    let remedy = "check that nodepools of the class allow types whose architecture its images have";
    let error = message.to_owned();
    let trouble = crate::node_class::conditions::Trouble { error, remedy: remedy.to_owned() };
    Finding {
        next: Next::After(super::PERIOD),
        ..Finding::unseen(VALIDATION_SUCCEEDED, DRY_RUN_FAILED, trouble)
    }
}

/// A profile that we made shows up by itself; one that the class names may not be there at all.
fn profile_not_found(class: &EC2NodeClass, error: &AwsError) -> Finding {
    let Some(name) = &class.spec.instance_profile else { return Finding::not_yet(VALIDATION_SUCCEEDED) };
    let message = format!("Instance profile {name:?} not found");
    let verdict = Verdict::False { reason: INSTANCE_PROFILE_NOT_FOUND, message };
    let mut trouble = trouble(Call::RunInstances.action(), error);
    trouble.remedy = "create the instance profile, or correct spec.instanceProfile".to_owned();
    Finding { condition: VALIDATION_SUCCEEDED, verdict, next: Next::BackOff, trouble: Some(trouble) }
}

/// One on-demand machine of the type, in any of the class's subnets.
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

/// The same machine in one subnet, as the template says.
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
