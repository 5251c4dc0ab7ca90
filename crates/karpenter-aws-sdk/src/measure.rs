//! Measures each call and its attempts: duration and status. [`CallMetrics`] has the metrics.

use std::time::Instant;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
    FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};
use karpenter_aws::call_metrics::{CallMetrics, CallRecord};

/// Observes every call of a client without changing it.
#[derive(Debug, Clone)]
pub(crate) struct Measure(pub(crate) CallMetrics);

/// A call in flight.
#[derive(Debug, Clone)]
struct InFlight {
    since: Instant,
    attempts: u32,
    attempt_since: Option<Instant>,
}

impl Storable for InFlight {
    type Storer = StoreReplace<Self>;
}

/// 0 without a response.
fn status(context: &FinalizerInterceptorContextRef<'_>) -> u16 {
    context.response().map_or(0, |response| response.status().as_u16())
}

fn with_call<T>(cfg: &ConfigBag, tell: impl FnOnce(&str, &str) -> T) -> T {
    match cfg.load::<Metadata>() {
        Some(call) => tell(call.service(), call.name()),
        None => tell("", ""),
    }
}

impl Intercept for Measure {
    fn name(&self) -> &'static str {
        "measure"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let begun = InFlight { since: Instant::now(), attempts: 0, attempt_since: None };
        cfg.interceptor_state().store_put(begun);
        Ok(())
    }

    fn read_before_attempt(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(call) = cfg.get_mut_from_interceptor_state::<InFlight>() {
            call.attempts = call.attempts.saturating_add(1);
            call.attempt_since = Some(Instant::now());
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(since) = cfg.load::<InFlight>().and_then(|call| call.attempt_since) {
            let (status, took) = (status(context), since.elapsed());
            with_call(cfg, |service, action| {
                self.0.record_attempt(CallRecord { service, action, status, took })
            });
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(call) = cfg.load::<InFlight>() {
            let (status, took, attempts) = (status(context), call.since.elapsed(), call.attempts);
            with_call(cfg, |service, action| {
                self.0.record_call(CallRecord { service, action, status, took }, attempts)
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aws_config::{BehaviorVersion, Region};
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::SharedCredentialsProvider;
    use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
    use aws_smithy_http_client::{Builder, tls};
    use aws_smithy_types::retry::RetryConfig;
    use karpenter_aws::api::ec2::SubnetQuery;
    use karpenter_aws::call_metrics::CallMetrics;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const BUSY: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit exceeded.\
        </Message></Error></Errors><RequestID>r</RequestID></Response>";
    const SUBNETS: &str = "<DescribeSubnetsResponse><subnetSet/></DescribeSubnetsResponse>";

    /// Serves these responses, one per connection, in order.
    async fn answer(listener: TcpListener, answers: Vec<(&'static str, &'static str)>) {
        for (status, body) in answers {
            let (mut connection, _) = listener.accept().await.expect("a call");
            let mut asked = Vec::new();
            while !String::from_utf8_lossy(&asked).contains("Action=DescribeSubnets") {
                let mut part = [0; 4096];
                let count = connection.read(&mut part).await.expect("a request");
                assert!(count > 0, "half a request");
                asked.extend_from_slice(&part[..count]);
            }
            let length = body.len();
            let whole = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/xml\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            connection.write_all(whole.as_bytes()).await.expect("an answer");
        }
    }

    #[tokio::test]
    async fn retried_call_is_one_request_and_several_attempts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let cloud = tokio::spawn(answer(listener, vec![("503 Busy", BUSY), ("200 OK", SUBNETS)]));
        let http = Builder::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
        let credentials = Credentials::new("key", "secret", None, None, "test");
        let config = aws_config::SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-west-2"))
            .endpoint_url(endpoint)
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(http)
            .sleep_impl(aws_smithy_async::rt::sleep::default_async_sleep().expect("tokio's"))
            .time_source(aws_smithy_async::time::SharedTimeSource::default())
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .build();
        let calls = CallMetrics::new();
        let apis = crate::apis(&config, "us-west-2", &calls);
        let query = SubnetQuery { ids: vec!["subnet-1".to_owned()], ..SubnetQuery::default() };
        let found = apis.ec2.describe_subnets(&query).await.expect("an answer in the end");
        assert!(found.is_empty());
        cloud.await.expect("both were asked for");

        // The test server has been shut down.
        let error = apis.ec2.describe_subnets(&query).await.expect_err("no server");
        assert!(error.is_transient(), "{error}");
        let counts = |code: &str| calls.counts("EC2", "DescribeSubnets", code);
        // Calls and attempts; three attempts have no response.
        assert_eq!([counts("200"), counts("503"), counts("0")], [(1, 1), (0, 1), (1, 3)]);
    }
}
