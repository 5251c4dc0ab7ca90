//! Checks the condition `ValidationSucceeded`: makes the steps of [`validation`] in order, including their AWS calls.

use std::sync::Arc;

use karpenter_api::conditions::ConditionSet;
use karpenter_api::types::{EC2NodeClass, NodePool};
use karpenter_cloud::CloudError;
use karpenter_runtime::object::name_of;

use super::NodeClassStatus;
use crate::api::Tags;
use crate::node_class::classes::refers_to;
use crate::node_class::conditions::{ConditionResult, VALIDATION_SUCCEEDED};
use crate::node_class::sources::TemplateRequest;
use crate::node_class::tags::launch_tags;
use crate::node_class::validation::dry_run::{self, Call, CheckResult, evaluate};
use crate::node_class::validation::{self, Outcome, cache, instance_type};

impl NodeClassStatus {
    /// `class` already has its new status, except for the new conditions, which are in `set`.
    pub(super) async fn validate(&self, class: &EC2NodeClass, set: &ConditionSet<'_>) -> ConditionResult {
        let sources = &self.parts.sources;
        if validation::needs_cluster_cidr(class)
            && let Err(error) = sources.cluster_cidr().await
        {
            return validation::of_cluster_cidr(&error);
        }
        if let Some(problem) = sources.kubelet_problem(class) {
            return validation::of_kubelet(problem);
        }
        let early = validation::of_block_devices(class).or_else(|| validation::of_dependencies(set));
        if let Some(result) = early {
            return result;
        }
        if let Some(result) = validation::of_expressions(sources.expression_problem(class).await) {
            return result;
        }
        let tags = match launch_tags(class, "", &self.settings.cluster_name) {
            Ok(tags) => tags,
            Err(error) => return validation::of_tags(&error),
        };
        let status = class.status.clone().unwrap_or_default();
        let key = cache::key(class, &status, &tags);
        if let Some(outcome) = self.validation_cache.get(&key) {
            return outcome.result(None);
        }
        let checked = if self.settings.is_dry_run_disabled {
            CheckResult::Allowed
        } else {
            self.dry_run(class, &tags).await
        };
        let (outcome, result) = match checked {
            CheckResult::Allowed => (Outcome::Passed, Outcome::Passed.result(None)),
            CheckResult::Refused(outcome, result) => (outcome, result),
            CheckResult::Inconclusive(result) => return result,
        };
        self.validation_cache.insert(key, outcome);
        result
    }

    async fn dry_run(&self, class: &EC2NodeClass, tags: &Tags) -> CheckResult {
        let status = class.status.clone().unwrap_or_default();
        let pools = self.pools_of(name_of(class));
        let types = match self.parts.sources.instance_types(class).await {
            Ok(types) => types,
            Err(error) => return CheckResult::Inconclusive(types_unavailable(&error)),
        };
        let Some(choice) = instance_type::choose(&types, &pools, class, &status.amis) else {
            let message = "no instance type is compatible with the AMIs of the nodeclass";
            return CheckResult::Inconclusive(dry_run::nothing_to_launch(message));
        };
        let request = TemplateRequest {
            class,
            instance_type: choice.instance_type,
            image_id: choice.image_id,
            tenancy: instance_type::tenancy(&pools),
            tags,
        };
        let template = match self.parts.sources.ensure_template(request).await {
            Ok(template) => template,
            Err(error) => return evaluate(Call::CreateLaunchTemplate, class, Some(&error)),
        };
        let name = &choice.instance_type.name;
        let fleet = dry_run::fleet(&template, name, &status.subnets, tags);
        let checked =
            evaluate(Call::CreateFleet, class, self.parts.ec2.create_fleet(&fleet).await.err().as_ref());
        if checked != CheckResult::Allowed {
            return checked;
        }
        // IAM policies do not depend on the subnet, so success in one subnet is enough. If the dry run fails in all
        // subnets, the first error is reported.
        let mut first = None;
        for subnet in &status.subnets {
            let request = dry_run::instances(&template, name, class, subnet, tags);
            let error = self.parts.ec2.dry_run_instances(&request).await.err();
            let checked = evaluate(Call::RunInstances, class, error.as_ref());
            if checked == CheckResult::Allowed {
                return checked;
            }
            first.get_or_insert(checked);
        }
        first.unwrap_or(CheckResult::Allowed)
    }

    fn pools_of(&self, class_name: &str) -> Vec<Arc<NodePool>> {
        let mut pools = self.context.stores.node_pools.list();
        pools.retain(|pool| refers_to(&pool.spec.template.spec.node_class_ref, class_name));
        pools
    }
}

fn types_unavailable(error: &CloudError) -> ConditionResult {
    match error {
        CloudError::NotEvaluated { .. } | CloudError::Throttled { .. } | CloudError::Transient { .. } => {
            ConditionResult::pending(VALIDATION_SUCCEEDED)
        }
        other => dry_run::nothing_to_launch(&format!("cannot list instance types: {other}")),
    }
}
