//! Conversions shared by all services.

use aws_smithy_async::future::pagination_stream::PaginationStream;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::DateTime;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use jiff::Timestamp;
use karpenter_aws::api::AwsError;

use crate::error::aws_error;

pub(crate) fn timestamp(time: Option<DateTime>) -> Option<Timestamp> {
    let time = time?;
    Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}

/// Parses a time that EC2 returns as text.
pub(crate) fn parsed_timestamp(text: Option<String>) -> Option<Timestamp> {
    text?.parse().ok()
}

pub(crate) fn date_time(time: Timestamp) -> DateTime {
    DateTime::from_secs_and_nanos(
        time.as_second(),
        u32::try_from(time.subsec_nanosecond()).unwrap_or_default(),
    )
}

/// Counts are never negative, although the type in the response allows it.
pub(crate) fn count(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

pub(crate) fn size(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}

/// Collects the items of all pages.
pub(crate) async fn all_pages<P, E, T>(
    mut pages: PaginationStream<Result<P, SdkError<E, HttpResponse>>>,
    items: impl Fn(P) -> Vec<T>,
) -> Result<Vec<T>, AwsError>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        found.extend(items(page.map_err(aws_error)?));
    }
    Ok(found)
}
