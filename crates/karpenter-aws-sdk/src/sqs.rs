//! Implements the SQS calls.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, MessageSystemAttributeName};
use jiff::Timestamp;
use karpenter_aws::api::sqs::{DeleteFailure, Message, ReceiveMessages, Sqs};
use karpenter_aws::api::{AwsError, AwsFuture};

use crate::error::aws_error;

/// SQS's maximum number of messages per delete.
const BATCH_MAX: usize = 10;

pub(crate) struct SdkSqs(pub(crate) Client);

impl Sqs for SdkSqs {
    fn get_queue_url<'a>(&'a self, queue_name: &'a str) -> AwsFuture<'a, String> {
        Box::pin(async move {
            let answer = self.0.get_queue_url().queue_name(queue_name).send().await.map_err(aws_error)?;
            answer.queue_url.ok_or_else(|| AwsError::new("QueueDoesNotExist", "SQS returned no queue URL"))
        })
    }

    fn receive_messages<'a>(&'a self, request: &'a ReceiveMessages) -> AwsFuture<'a, Vec<Message>> {
        Box::pin(async move {
            let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
            let call = self
                .0
                .receive_message()
                .queue_url(&request.queue_url)
                .max_number_of_messages(number(request.messages_max))
                .visibility_timeout(number(request.visibility_timeout_secs))
                .wait_time_seconds(number(request.wait_secs))
                .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
                .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
            let answer = call.send().await.map_err(aws_error)?;
            Ok(answer.messages.unwrap_or_default().into_iter().map(message).collect())
        })
    }

    fn delete_messages<'a>(
        &'a self,
        queue_url: &'a str,
        receipt_handles: &'a [String],
    ) -> AwsFuture<'a, Vec<DeleteFailure>> {
        Box::pin(async move {
            let mut failures = Vec::new();
            for batch in receipt_handles.chunks(BATCH_MAX) {
                failures.extend(self.delete_batch(queue_url, batch).await?);
            }
            Ok(failures)
        })
    }
}

impl SdkSqs {
    async fn delete_batch(&self, queue_url: &str, batch: &[String]) -> Result<Vec<DeleteFailure>, AwsError> {
        let entries: Result<Vec<_>, _> = batch
            .iter()
            .enumerate()
            .map(|(place, handle)| {
                let entry = DeleteMessageBatchRequestEntry::builder();
                entry.id(place.to_string()).receipt_handle(handle).build()
            })
            .collect();
        let entries = entries.map_err(|error| AwsError::new("", error.to_string()))?;
        let call = self.0.delete_message_batch().queue_url(queue_url).set_entries(Some(entries));
        let answer = call.send().await.map_err(aws_error)?;
        let failure = |failed: aws_sdk_sqs::types::BatchResultErrorEntry| {
            let receipt_handle = failed.id.parse().ok().and_then(|place: usize| batch.get(place))?.clone();
            Some(DeleteFailure {
                receipt_handle,
                code: failed.code,
                message: failed.message.unwrap_or_default(),
            })
        };
        Ok(answer.failed.into_iter().filter_map(failure).collect())
    }
}

fn message(message: aws_sdk_sqs::types::Message) -> Message {
    let attributes = message.attributes.unwrap_or_default();
    let number = |name| attributes.get(&name).and_then(|value: &String| value.parse::<i64>().ok());
    let sent_at = number(MessageSystemAttributeName::SentTimestamp)
        .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok());
    let receive_count = number(MessageSystemAttributeName::ApproximateReceiveCount);
    Message {
        id: message.message_id.unwrap_or_default(),
        receipt_handle: message.receipt_handle.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
        sent_at,
        receive_count: receive_count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1),
    }
}
