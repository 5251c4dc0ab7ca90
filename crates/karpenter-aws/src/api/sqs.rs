//! SQS: the interruption queue.

use jiff::Timestamp;

use super::AwsFuture;

/// The SQS calls in use.
pub trait Sqs: Send + Sync {
    /// `sqs:GetQueueUrl`.
    fn get_queue_url<'a>(&'a self, queue_name: &'a str) -> AwsFuture<'a, String>;

    /// `sqs:ReceiveMessage`. While the queue is empty, the call waits for up to `wait_secs` (long polling).
    fn receive_messages<'a>(&'a self, request: &'a ReceiveMessages) -> AwsFuture<'a, Vec<Message>>;

    /// `sqs:DeleteMessage` for up to ten messages. Returns the messages that could not be deleted, with the reason.
    fn delete_messages<'a>(
        &'a self,
        queue_url: &'a str,
        receipt_handles: &'a [String],
    ) -> AwsFuture<'a, Vec<DeleteFailure>>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveMessages {
    pub queue_url: String,
    /// At most ten.
    pub messages_max: u32,
    pub visibility_timeout_secs: u32,
    pub wait_secs: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub receipt_handle: String,
    pub body: String,
    /// When the message was sent to the queue.
    pub sent_at: Option<Timestamp>,
    /// How often the message was received, including this time.
    pub receive_count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteFailure {
    pub receipt_handle: String,
    pub code: String,
    pub message: String,
}
