//! A simple implementation of a node class's other inputs: AMIs and instance types come from a list, and launch
//! templates are created in EC2 without a cache.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use karpenter_api::types::{AmiStatus, CapacityReservationStatus, EC2NodeClass};
use karpenter_aws::api::ec2::{
    CreateLaunchTemplate, LaunchTemplateData, LaunchTemplateQuery, PlacementGroup, PlacementGroupQuery,
    ReservationQuery,
};
use karpenter_aws::api::{AwsApis, AwsFuture, TagFilter};
use karpenter_aws::node_class::{ImagesError, KubeletProblem, Sources, TemplateRequest, TypesNotDiscovered};
use karpenter_cloud::CloudError;
use karpenter_model::instance_type::InstanceType;
use karpenter_model::requirements::{Requirement, Requirements};
use serde_json::json;

pub(crate) struct Plain {
    apis: AwsApis,
    images: Mutex<Result<Vec<AmiStatus>, ImagesError>>,
    kubelet: Mutex<Option<KubeletProblem>>,
}

impl Plain {
    pub(crate) fn new(apis: AwsApis) -> Self {
        let plain = Self { apis, images: Mutex::new(Ok(Vec::new())), kubelet: Mutex::default() };
        plain.find_image();
        plain
    }

    /// The only AMI.
    pub(crate) fn find_image(&self) {
        let requirements = json!([{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        let image = json!([{"id": "ami-1", "name": "image", "requirements": requirements}]);
        self.set_images(Ok(serde_json::from_value(image).expect("an image")));
    }

    pub(crate) fn set_images(&self, images: Result<Vec<AmiStatus>, ImagesError>) {
        *self.images.lock().unwrap_or_else(PoisonError::into_inner) = images;
    }

    pub(crate) fn set_kubelet_problem(&self, problem: Option<KubeletProblem>) {
        *self.kubelet.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

impl Sources for Plain {
    fn images<'a>(&'a self, _: &'a EC2NodeClass) -> BoxFuture<'a, Result<Vec<AmiStatus>, ImagesError>> {
        std::future::ready(self.images.lock().unwrap_or_else(PoisonError::into_inner).clone()).boxed()
    }

    fn reservations<'a>(&'a self, _: &'a EC2NodeClass) -> AwsFuture<'a, Vec<CapacityReservationStatus>> {
        async move {
            self.apis
                .ec2
                .describe_capacity_reservations(&ReservationQuery::default())
                .await
                .map(|_| Vec::new())
        }
        .boxed()
    }

    fn placement_group<'a>(&'a self, class: &'a EC2NodeClass) -> AwsFuture<'a, Option<PlacementGroup>> {
        async move {
            let name =
                class.spec.placement_group_selector.as_ref().and_then(|selector| selector.name.clone());
            let Some(name) = name else { return Ok(None) };
            let found = self.apis.ec2.describe_placement_groups(&PlacementGroupQuery::Name(name)).await?;
            Ok(found.into_iter().next())
        }
        .boxed()
    }

    fn cluster_cidr(&self) -> AwsFuture<'_, String> {
        async move {
            let cluster = self.apis.eks.describe_cluster("cluster").await?;
            Ok(cluster.service_ipv4_cidr.unwrap_or_default())
        }
        .boxed()
    }

    fn kubelet_problem(&self, _: &EC2NodeClass) -> Option<KubeletProblem> {
        self.kubelet.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn expression_problem<'a>(
        &'a self,
        _: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Option<KubeletProblem>, TypesNotDiscovered>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn instance_types<'a>(
        &'a self,
        _: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<InstanceType>>, CloudError>> {
        let one = InstanceType {
            name: "m5.large".into(),
            requirements: Requirements::from_iter([Requirement::in_values("kubernetes.io/arch", ["amd64"])]),
            offerings: Vec::new(),
            capacity: Default::default(),
            overhead: Default::default(),
            volume_attachment_limits: Default::default(),
        };
        std::future::ready(Ok(Arc::new(vec![one]))).boxed()
    }

    fn ensure_template<'a>(&'a self, request: TemplateRequest<'a>) -> AwsFuture<'a, String> {
        async move {
            let status = request.class.status.as_ref();
            let profile = status.and_then(|status| status.instance_profile.clone());
            let name = format!("template-of-{}", profile.as_deref().unwrap_or_default());
            let query = LaunchTemplateQuery { names: vec![name.clone()], tags: Vec::new() };
            if self.apis.ec2.describe_launch_templates(&query).await.is_ok() {
                return Ok(name);
            }
            let data = LaunchTemplateData {
                image_id: request.image_id.to_owned(),
                instance_profile_name: profile,
                ..LaunchTemplateData::default()
            };
            let template = CreateLaunchTemplate { name: name.clone(), data, tags: request.tags.clone() };
            self.apis.ec2.create_launch_template(&template).await?;
            Ok(name)
        }
        .boxed()
    }

    fn delete_templates<'a>(&'a self, class_name: &'a str) -> AwsFuture<'a, ()> {
        async move {
            let tags = vec![TagFilter::is("karpenter.k8s.aws/ec2nodeclass", class_name)];
            let query = LaunchTemplateQuery { names: Vec::new(), tags };
            for template in self.apis.ec2.describe_launch_templates(&query).await? {
                self.apis.ec2.delete_launch_template(&template.id).await?;
            }
            Ok(())
        }
        .boxed()
    }
}
