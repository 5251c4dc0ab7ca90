//! Implements [`Sources`] with the other modules of the provider.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass};
use karpenter_catalog::aws::AmiFamily;
use karpenter_cloud::CloudError;
use karpenter_model::instance_type::InstanceType;

use super::sources::{ImagesError, KubeletProblem, Sources, TemplateRequest, TypesNotDiscovered};
use crate::amis::{AmiError, AmiRequest, Amis};
use crate::api::AwsFuture;
use crate::api::ec2::PlacementGroup;
use crate::cluster_facts::ClusterCidr;
use crate::kubelet::{ClassExpressions, ParsedKubelet, Refusal};
use crate::launch::Launcher;
use crate::provider::cloud_error;
use crate::types::{InstanceTypes, TypesError};
use crate::version::KubernetesVersion;

/// The modules of the provider from which the status of a node class is computed.
#[derive(Clone)]
pub struct LiveSources {
    pub amis: Amis,
    pub kubernetes: KubernetesVersion,
    pub types: InstanceTypes,
    pub launcher: Launcher,
    pub cluster_cidr: ClusterCidr,
    pub kubelet: ClassExpressions,
}

impl Sources for LiveSources {
    fn images<'a>(&'a self, class: &'a EC2NodeClass) -> BoxFuture<'a, Result<Vec<AmiStatus>, ImagesError>> {
        async move {
            let request = AmiRequest {
                class_uid: class.metadata.uid.as_deref().unwrap_or_default(),
                class_generation: class.metadata.generation.unwrap_or_default(),
                terms: &class.spec.ami_selector_terms,
                kubernetes: self.kubernetes.get(),
            };
            self.amis.statuses(request).await.map_err(images_error)
        }
        .boxed()
    }

    fn reservations<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Vec<CapacityReservationStatus>> {
        self.types.reservations().status(&class.spec.capacity_reservation_selector_terms).boxed()
    }

    fn placement_group<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Option<PlacementGroup>> {
        async move {
            match &class.spec.placement_group_selector {
                Some(selector) => self.types.placement_groups().find(selector).await,
                None => Ok(None),
            }
        }
        .boxed()
    }

    fn cluster_cidr(&self) -> AwsFuture<'_, String> {
        self.cluster_cidr.resolve().boxed()
    }

    fn kubelet_problem(&self, class: &EC2NodeClass) -> Option<KubeletProblem> {
        let family = AmiFamily::parse(class.spec.resolved_ami_family()).unwrap_or(AmiFamily::Custom);
        class.spec.kubelet.as_ref().and_then(|values| self.kubelet.problem(values, family)).map(problem)
    }

    fn expression_problem<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Option<KubeletProblem>, TypesNotDiscovered>> {
        async move {
            let Some(values) = &class.spec.kubelet else { return Ok(None) };
            if !ParsedKubelet::parse(values).is_ok_and(|parsed| parsed.has_expressions()) {
                return Ok(None);
            }
            let discovered = self.types.discovered();
            if discovered.types().is_empty() {
                return Err(TypesNotDiscovered);
            }
            let view = self.types.view(class).await;
            let infos = discovered.types().iter().map(|known| &known.info);
            Ok(self.kubelet.problem_on_types(values, &view.facts, infos).map(problem))
        }
        .boxed()
    }

    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<InstanceType>>, CloudError>> {
        async move {
            let types = self.types.list(class).await.map_err(|error| types_error(class, error))?;
            let view = self.types.view(class).await;
            let fits = |one: &&InstanceType| self.types.incompatibility(&view.facts, &one.name).is_none();
            Ok(Arc::new(types.iter().filter(fits).cloned().collect()))
        }
        .boxed()
    }

    fn ensure_template<'a>(&'a self, request: TemplateRequest<'a>) -> AwsFuture<'a, String> {
        self.launcher.ensure_for_dry_run(request).boxed()
    }

    fn delete_templates<'a>(&'a self, class_name: &'a str) -> AwsFuture<'a, ()> {
        async move {
            self.launcher.forget_class(class_name).await?;
            self.types.forget(class_name);
            Ok(())
        }
        .boxed()
    }
}

fn problem(refusal: Refusal) -> KubeletProblem {
    KubeletProblem { reason: refusal.reason, message: refusal.message }
}

fn images_error(error: AmiError) -> ImagesError {
    let message = error.to_string();
    match error {
        AmiError::UnsupportedAlias(_) => ImagesError::UnsupportedAlias(message),
        AmiError::NoAmiForAlias { .. } | AmiError::BadAlias { .. } => ImagesError::NoAmiForAlias(message),
        AmiError::Parameter { error, .. } => ImagesError::Aws { action: "ssm:GetParameter", error },
        AmiError::Images { error } => ImagesError::Aws { action: "ec2:DescribeImages", error },
    }
}

fn types_error(class: &EC2NodeClass, error: TypesError) -> CloudError {
    match error {
        TypesError::NoTypes | TypesError::NoOfferings => {
            CloudError::NotEvaluated { pool: class.metadata.name.clone().unwrap_or_default() }
        }
        TypesError::NoSubnets => CloudError::Transient { message: error.to_string() },
        TypesError::Aws { error, .. } => cloud_error(error),
    }
}
