//! The steps of `ValidationSucceeded`, in order, with the calls between them.

use std::sync::Arc;

use karpenter_api::conditions::ConditionSet;
use karpenter_api::types::{EC2NodeClass, NodePool};
use karpenter_cloud::CloudError;
use karpenter_cluster::controllers::context::name_of;

use super::NodeClassStatus;
use crate::api::Tags;
use crate::node_class::classes::refers_to;
use crate::node_class::conditions::{Finding, VALIDATION_SUCCEEDED};
use crate::node_class::sources::TemplateRequest;
use crate::node_class::tags::launch_tags;
use crate::node_class::validation::dry_run::{self, Call, Shown, judge};
use crate::node_class::validation::{self, Outcome, instance_type, remembered};

impl NodeClassStatus {
    /// `class` has its new status, except for conditions, which are in `set`.
    pub(super) async fn validate(&self, class: &EC2NodeClass, set: &ConditionSet<'_>) -> Finding {
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
        if let Some(finding) = early {
            return finding;
        }
        if let Some(finding) = validation::of_expressions(sources.expression_problem(class).await) {
            return finding;
        }
        let tags = match launch_tags(class, "", &self.settings.cluster_name) {
            Ok(tags) => tags,
            Err(error) => return validation::of_tags(&error),
        };
        let status = class.status.clone().unwrap_or_default();
        let key = remembered::key(class, &status, &tags);
        if let Some(outcome) = self.remembered.get(&key) {
            return outcome.finding(None);
        }
        let shown =
            if self.settings.is_dry_run_disabled { Shown::Allowed } else { self.try_out(class, &tags).await };
        let (outcome, finding) = match shown {
            Shown::Allowed => (Outcome::Passed, Outcome::Passed.finding(None)),
            Shown::Refused(outcome, finding) => (outcome, finding),
            Shown::Undecided(finding) => return finding,
        };
        self.remembered.insert(key, outcome);
        finding
    }

    async fn try_out(&self, class: &EC2NodeClass, tags: &Tags) -> Shown {
        let status = class.status.clone().unwrap_or_default();
        let pools = self.pools_of(name_of(class));
        let types = match self.parts.sources.instance_types(class).await {
            Ok(types) => types,
            Err(error) => return Shown::Undecided(without_types(&error)),
        };
        let Some(choice) = instance_type::choose(&types, &pools, class, &status.amis) else {
            let message = "no instance type can boot any of the class's images";
            return Shown::Undecided(dry_run::nothing_to_launch(message));
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
            Err(error) => return judge(Call::CreateLaunchTemplate, class, Some(&error)),
        };
        let name = &choice.instance_type.name;
        let fleet = dry_run::fleet(&template, name, &status.subnets, tags);
        let shown = judge(Call::CreateFleet, class, self.parts.ec2.create_fleet(&fleet).await.err().as_ref());
        if shown != Shown::Allowed {
            return shown;
        }
        // Policies know no subnets, so any of them will do, and the first one's error speaks for all.
        let mut first = None;
        for subnet in &status.subnets {
            let request = dry_run::instances(&template, name, class, subnet, tags);
            let error = self.parts.ec2.dry_run_instances(&request).await.err();
            let shown = judge(Call::RunInstances, class, error.as_ref());
            if shown == Shown::Allowed {
                return shown;
            }
            first.get_or_insert(shown);
        }
        first.unwrap_or(Shown::Allowed)
    }

    fn pools_of(&self, class_name: &str) -> Vec<Arc<NodePool>> {
        let mut pools = self.context.mirrors.node_pools.list();
        pools.retain(|pool| refers_to(&pool.spec.template.spec.node_class_ref, class_name));
        pools
    }
}

fn without_types(error: &CloudError) -> Finding {
    match error {
        CloudError::NotEvaluated { .. } | CloudError::Throttled { .. } | CloudError::Transient { .. } => {
            Finding::not_yet(VALIDATION_SUCCEEDED)
        }
        other => dry_run::nothing_to_launch(&format!("instance types cannot be told: {other}")),
    }
}
