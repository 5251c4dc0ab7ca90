//! Implements the SSM calls.

use aws_sdk_ssm::Client;
use karpenter_aws::api::ssm::Ssm;
use karpenter_aws::api::{AwsError, AwsFuture};

use crate::error::aws_error;

pub(crate) struct SdkSsm(pub(crate) Client);

impl Ssm for SdkSsm {
    fn get_parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        Box::pin(async move {
            let answer = self.0.get_parameter().name(name).send().await.map_err(aws_error)?;
            let value = answer.parameter.and_then(|parameter| parameter.value);
            value.ok_or_else(|| AwsError::new("ParameterNotFound", format!("parameter {name} has no value")))
        })
    }
}
