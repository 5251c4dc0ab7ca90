//! Implements the traits of `karpenter_aws::api` with the AWS SDK.
//!
//! The only crate that depends on the SDK; its types do not appear in the public API. Signing, retries, pagination
//! and timeouts are configured here. No decisions are made: responses are returned unchanged, and errors are
//! classified by code.

mod configured;
mod convert;
mod ec2;
mod eks;
mod error;
mod http;
mod iam;
mod measure;
mod pricing;
mod sqs;
mod ssm;
mod zonal_shift;

use std::sync::Arc;
use std::time::Duration;

use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_smithy_types::timeout::TimeoutConfig;
use karpenter_aws::api::AwsApis;
use karpenter_aws::call_metrics::CallMetrics;
use karpenter_aws::pricing::price_list::endpoint_region;
use karpenter_runtime::proxy::ProxyRules;

use crate::measure::Measure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of one attempt; longer than the longest long poll of SQS.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a call with all its attempts.
const CALL_TIMEOUT: Duration = Duration::from_secs(4 * 60);

/// Configuration of the clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Empty: AWS_REGION, the profile's region, or the region of the instance metadata.
    pub region: String,
    /// Part of the user agent, as `karpenter.sh-<version>`.
    pub version: String,
}

/// The AWS clients of a region.
#[derive(Clone)]
pub struct Connected {
    pub apis: AwsApis,
    pub region: String,
    /// Metrics of the calls.
    pub calls: CallMetrics,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "no region: set --region or AWS_REGION; without access to the EC2 metadata service the region \
         cannot be detected"
    )]
    NoRegion,
    #[error("{place}: {value:?} is not a number of attempts; valid: a whole number, 0 for no limit")]
    MaxAttempts { place: String, value: String },
    #[error("{place}: {value:?} is not a retry mode; valid: standard, adaptive")]
    RetryMode { place: String, value: String },
    #[error("{place}: {path:?} cannot be used: {reason}; valid: a file with certificates in PEM")]
    CaBundle { place: String, path: String, reason: String },
    #[error(
        "HTTPS_PROXY, HTTP_PROXY: proxy scheme {scheme:?} is not supported for AWS calls; valid: http, https"
    )]
    ProxyScheme { scheme: String },
    #[error("TLS cannot be set up: {reason}")]
    Tls { reason: String },
}

impl ConnectError {
    fn tls(error: impl std::error::Error) -> Self {
        Self::Tls { reason: error.to_string() }
    }
}

/// Loads region and credentials with the SDK's default chain: environment, web identity, profiles (with SSO, assumed
/// roles and processes), container, instance. Credentials are fetched with the first call and renewed before they
/// expire. Proxies, CA certificates and retries follow the environment.
pub async fn connect(settings: &Settings) -> Result<Connected, ConnectError> {
    let configured = configured::read().await?;
    let proxies = ProxyRules::from_environment();
    for variable in proxies.ignored_variables() {
        tracing::warn!(variable, "ignoring proxy, the value is neither a URL nor a host with a port");
    }
    let http = http::client(&proxies, configured.ca_bundle)?;
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .retry_config(configured.retry)
        .timeout_config(timeouts);
    if let Ok(name) = AppName::new(format!("karpenter.sh-{}", settings.version)) {
        loader = loader.app_name(name);
    }
    if !settings.region.is_empty() {
        loader = loader.region(Region::new(settings.region.clone()));
    }
    let config = loader.load().await;
    let region = config.region().map(|region| region.as_ref().to_owned()).ok_or(ConnectError::NoRegion)?;
    tracing::debug!(region, "discovered region");
    let calls = CallMetrics::new();
    Ok(Connected { apis: apis(&config, &region, &calls), region, calls })
}

/// The clients of all services, with metrics for each call.
fn apis(config: &SdkConfig, region: &str, calls: &CallMetrics) -> AwsApis {
    let measure = Measure(calls.clone());
    macro_rules! client {
        ($service:ident) => {
            $service::Client::from_conf(
                $service::config::Builder::from(config).interceptor(measure.clone()).build(),
            )
        };
    }
    let of_prices = aws_sdk_pricing::config::Builder::from(config)
        .region(Region::new(endpoint_region(region)))
        .interceptor(measure.clone())
        .build();
    AwsApis {
        ec2: Arc::new(ec2::SdkEc2(client!(aws_sdk_ec2))),
        iam: Arc::new(iam::SdkIam(client!(aws_sdk_iam))),
        ssm: Arc::new(ssm::SdkSsm(client!(aws_sdk_ssm))),
        sqs: Arc::new(sqs::SdkSqs(client!(aws_sdk_sqs))),
        pricing: Arc::new(pricing::SdkPricing(aws_sdk_pricing::Client::from_conf(of_prices))),
        eks: Arc::new(eks::SdkEks(client!(aws_sdk_eks))),
        zonal_shift: Arc::new(zonal_shift::SdkZonalShift(client!(aws_sdk_arczonalshift))),
    }
}
