//! The doctor's checks of AWS: credentials, region, cluster, queue, and what each EC2NodeClass selects.
//!
//! [`gather`] calls AWS through the traits of `karpenter-aws` and changes nothing; [`findings`] evaluates the
//! responses. Conditions of EC2NodeClasses, which the controller sets, are evaluated in `objects`.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use karpenter_api::labels::CAPACITY_TYPE;
use karpenter_api::types::EC2NodeClass;
use karpenter_aws::api::ec2::{SecurityGroup, Subnet};
use karpenter_aws::api::eks::Cluster;
use karpenter_aws::api::iam::InstanceProfile;
use karpenter_aws::api::{AwsApis, AwsError};
use karpenter_aws::{security_groups, subnets};
use serde_json::Value;

pub use judge::findings;

/// The settings of the controller that the checks need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsOptions {
    pub region: String,
    pub cluster_name: String,
    pub queue: String,
}

#[derive(Debug, Clone)]
pub struct AwsFacts {
    pub options: AwsOptions,
    pub access: Result<(), AwsError>,
    /// The EKS cluster; `None` if the name of the cluster is unknown.
    pub cluster: Option<Result<Cluster, AwsError>>,
    pub queue: Option<Result<String, AwsError>>,
    pub classes: Vec<ClassFacts>,
    /// Whether some NodePool allows spot capacity.
    pub wants_spot: bool,
}

#[derive(Debug, Clone)]
pub struct ClassFacts {
    pub name: String,
    pub subnets: Result<Vec<Subnet>, AwsError>,
    pub security_groups: Result<Vec<SecurityGroup>, AwsError>,
    pub role: Option<String>,
    /// The instance profile that the class names in its spec or status.
    pub profile: Option<Result<InstanceProfile, AwsError>>,
}

/// Makes all AWS calls. If EC2 denies the first call, no further calls are made.
pub async fn gather(apis: &AwsApis, options: &AwsOptions, classes: &[Value], pools: &[Value]) -> AwsFacts {
    let access = apis.ec2.check_access().await;
    let mut facts = AwsFacts {
        options: options.clone(),
        access,
        cluster: None,
        queue: None,
        classes: Vec::new(),
        wants_spot: pools.iter().any(wants_spot),
    };
    if facts.access.is_err() {
        return facts;
    }
    if !options.cluster_name.is_empty() {
        facts.cluster = Some(apis.eks.describe_cluster(&options.cluster_name).await);
    }
    if !options.queue.is_empty() {
        facts.queue = Some(apis.sqs.get_queue_url(&options.queue).await);
    }
    for class in classes {
        // A node class that cannot be parsed is skipped here: the API server rejects it, or the controller reports the
        // error in a condition.
        let Ok(class) = serde_json::from_value::<EC2NodeClass>(class.clone()) else { continue };
        facts.classes.push(class_facts(apis, &class).await);
    }
    facts
}

async fn class_facts(apis: &AwsApis, class: &EC2NodeClass) -> ClassFacts {
    let status = class.status.as_ref();
    let named = class.spec.instance_profile.clone();
    let profile =
        named.or(status.and_then(|status| status.instance_profile.clone())).filter(|name| !name.is_empty());
    ClassFacts {
        name: class.metadata.name.clone().unwrap_or_default(),
        subnets: subnets_of(apis, class).await,
        security_groups: groups_of(apis, class).await,
        role: class.spec.role.clone(),
        profile: match profile {
            Some(name) => Some(apis.iam.get_instance_profile(&name).await),
            None => None,
        },
    }
}

async fn subnets_of(apis: &AwsApis, class: &EC2NodeClass) -> Result<Vec<Subnet>, AwsError> {
    let mut found = BTreeMap::new();
    for query in subnets::queries_of(class) {
        for subnet in apis.ec2.describe_subnets(&query).await? {
            found.insert(subnet.id.clone(), subnet);
        }
    }
    Ok(found.into_values().collect())
}

async fn groups_of(apis: &AwsApis, class: &EC2NodeClass) -> Result<Vec<SecurityGroup>, AwsError> {
    let mut found = BTreeMap::new();
    for query in security_groups::queries_of(class) {
        for group in apis.ec2.describe_security_groups(&query).await? {
            found.insert(group.id.clone(), group);
        }
    }
    Ok(found.into_values().collect())
}

/// Whether the requirements of the NodePool allow spot capacity.
fn wants_spot(pool: &Value) -> bool {
    let requirements = pool.pointer("/spec/template/spec/requirements").and_then(Value::as_array);
    let on_capacity = requirements.into_iter().flatten().filter(|each| each["key"] == CAPACITY_TYPE);
    let mut is_open = true;
    for requirement in on_capacity {
        let has_spot =
            requirement["values"].as_array().is_some_and(|values| values.iter().any(|value| value == "spot"));
        is_open &= match requirement["operator"].as_str() {
            Some("In") => has_spot,
            Some("NotIn") => !has_spot,
            _ => true,
        };
    }
    is_open
}
