//! Implements the IAM calls.

use aws_sdk_iam::Client;
use aws_sdk_iam::types::Tag;
use karpenter_aws::api::iam::{CreateInstanceProfile, Iam, InstanceProfile};
use karpenter_aws::api::{AwsError, AwsFuture};

use crate::convert::{all_pages, timestamp};
use crate::error::aws_error;

pub(crate) struct SdkIam(pub(crate) Client);

impl Iam for SdkIam {
    fn get_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, InstanceProfile> {
        Box::pin(async move {
            let call = self.0.get_instance_profile().instance_profile_name(name);
            let answer = call.send().await.map_err(aws_error)?;
            answer
                .instance_profile
                .map(profile)
                .ok_or_else(|| AwsError::new("NoSuchEntity", "IAM returned no instance profile"))
        })
    }

    fn create_instance_profile<'a>(
        &'a self,
        request: &'a CreateInstanceProfile,
    ) -> AwsFuture<'a, InstanceProfile> {
        Box::pin(async move {
            let tags: Result<Vec<Tag>, _> = request
                .tags
                .iter()
                .map(|(key, value)| Tag::builder().key(key).value(value).build())
                .collect();
            let tags = tags.map_err(|error| AwsError::new("", error.to_string()))?;
            let call = self
                .0
                .create_instance_profile()
                .instance_profile_name(&request.name)
                .path(&request.path)
                .set_tags(Some(tags));
            let answer = call.send().await.map_err(aws_error)?;
            answer
                .instance_profile
                .map(profile)
                .ok_or_else(|| AwsError::new("NoSuchEntity", "IAM returned no instance profile"))
        })
    }

    fn delete_instance_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call = self.0.delete_instance_profile().instance_profile_name(name);
            call.send().await.map(drop).map_err(aws_error)
        })
    }

    fn add_role_to_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call = self.0.add_role_to_instance_profile().instance_profile_name(profile).role_name(role);
            call.send().await.map(drop).map_err(aws_error)
        })
    }

    fn remove_role_from_instance_profile<'a>(&'a self, profile: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        Box::pin(async move {
            let call =
                self.0.remove_role_from_instance_profile().instance_profile_name(profile).role_name(role);
            call.send().await.map(drop).map_err(aws_error)
        })
    }

    fn list_instance_profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<InstanceProfile>> {
        Box::pin(async move {
            let pages = self.0.list_instance_profiles().path_prefix(path_prefix).into_paginator().send();
            all_pages(pages, |page| page.instance_profiles.into_iter().map(profile).collect()).await
        })
    }
}

fn profile(profile: aws_sdk_iam::types::InstanceProfile) -> InstanceProfile {
    InstanceProfile {
        name: profile.instance_profile_name,
        id: profile.instance_profile_id,
        arn: profile.arn,
        path: profile.path,
        created_at: timestamp(Some(profile.create_date)),
        roles: profile.roles.into_iter().map(|role| role.role_name).collect(),
        tags: profile.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
    }
}
