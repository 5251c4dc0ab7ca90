//! Receives messages from the interruption queue, handles them, and deletes them when they are handled.
//!
//! One receiver polls all the time. When it receives a full batch, up to [`RECEIVERS`] receivers run until the queue is
//! nearly empty. So an idle queue causes only one long poll at a time, and a burst is handled in parallel. A message
//! that could not be handled stays in the queue and is received again. A malformed or irrelevant message is counted and
//! deleted.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use karpenter_runtime::clock::since;
use karpenter_runtime::object::ObjectKey;
use karpenter_runtime::queue::Queue;
use karpenter_runtime::worker::{Reconcile, Requeue, Shutdown};

use super::Handler;
use super::message::{self, Kind};
use super::metrics::MALFORMED;
use crate::api::sqs::{Message, ReceiveMessages};
use crate::api::{AwsError, ErrorKind, Sqs};

/// The maximum number of receivers at the same time, including the one that always polls.
pub const RECEIVERS: usize = 8;
/// The maximum number of messages that SQS returns per receive call.
const MESSAGES_MAX: u32 = 10;
/// How long SQS hides a received message from other receivers.
const VISIBILITY_TIMEOUT_SECS: u32 = 20;
/// The duration of a long poll of the receiver that always polls: SQS's maximum.
const WAIT_SECS: u32 = 20;
/// The duration of a long poll of the other receivers, which stop when the queue is empty.
const HELPER_WAIT_SECS: u32 = 1;
const BACK_OFF_FIRST: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// How many messages a receive call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    /// [`MESSAGES_MAX`] messages were received, so there may be more.
    Full,
    Some,
    Nothing,
}

/// Decides whether a receiver continues, and whether the other receivers are started. Receiver 0 always continues.
fn next(receiver: usize, received: Received) -> (Requeue, bool) {
    let again = Requeue::After(Duration::ZERO);
    match received {
        Received::Full => (again, true),
        Received::Some | Received::Nothing if receiver == 0 => (again, false),
        Received::Some | Received::Nothing => (Requeue::No, false),
    }
}

fn back_off(failures: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACK_OFF_MAX)
}

/// How to fix an error, for the log.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "create the queue, or correct --interruption-queue",
        ErrorKind::Unauthorized => {
            "allow sqs:GetQueueUrl, sqs:ReceiveMessage and sqs:DeleteMessage on the queue; `karpenter bootstrap aws` \
             prints the policy"
        }
        ErrorKind::BadCredentials => "check the credentials of this process",
        _ => "none: the call is retried",
    }
}

#[derive(Debug, Default)]
struct QueueFailure {
    failures: u32,
    logged: String,
}

/// The receivers of one queue.
pub struct InterruptionQueue {
    handler: Handler,
    sqs: Arc<dyn Sqs>,
    queue_name: String,
    shutdown: Shutdown,
    url: Mutex<Option<String>>,
    failure: Mutex<QueueFailure>,
    receivers: OnceLock<Queue>,
}

impl InterruptionQueue {
    pub fn new(handler: Handler, sqs: Arc<dyn Sqs>, queue_name: &str, shutdown: Shutdown) -> Self {
        Self {
            handler,
            sqs,
            queue_name: queue_name.to_owned(),
            shutdown,
            url: Mutex::default(),
            failure: Mutex::default(),
            receivers: OnceLock::new(),
        }
    }

    pub fn watch(&self, queue: &Queue) {
        let receivers = self.receivers.get_or_init(|| queue.clone());
        receivers.add(key(0));
    }

    async fn url(&self) -> Result<String, AwsError> {
        if let Some(url) = self.url.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(url);
        }
        let url = self.sqs.get_queue_url(&self.queue_name).await?;
        tracing::debug!(queue = self.queue_name, "watching interruption queue");
        *self.url.lock().unwrap_or_else(PoisonError::into_inner) = Some(url.clone());
        Ok(url)
    }

    async fn receive(&self, receiver: usize) -> Result<Received, AwsError> {
        let queue_url = self.url().await?;
        let request = ReceiveMessages {
            queue_url: queue_url.clone(),
            messages_max: MESSAGES_MAX,
            visibility_timeout_secs: VISIBILITY_TIMEOUT_SECS,
            wait_secs: if receiver == 0 { WAIT_SECS } else { HELPER_WAIT_SECS },
        };
        let messages = tokio::select! {
            biased;
            // Messages of a cancelled receive call become visible again after the visibility timeout.
            () = self.shutdown.requested() => return Ok(Received::Nothing),
            messages = self.sqs.receive_messages(&request) => messages?,
        };
        let is_handled = join_all(messages.iter().map(|message| self.handle(message))).await;
        let handled: Vec<String> = messages
            .iter()
            .zip(is_handled)
            .filter(|(_, is_handled)| *is_handled)
            .map(|(message, _)| message.receipt_handle.clone())
            .collect();
        self.delete(&queue_url, &handled).await?;
        Ok(match u32::try_from(messages.len()) {
            Ok(0) => Received::Nothing,
            Ok(count) if count < MESSAGES_MAX => Received::Some,
            _ => Received::Full,
        })
    }

    /// Handles a message; returns whether the message can be deleted.
    async fn handle(&self, raw: &Message) -> bool {
        let metrics = self.handler.metrics();
        let message = match message::parse(&raw.body) {
            Ok(message) => message,
            Err(error) => {
                metrics.received.with_label_values(&[MALFORMED]).inc();
                tracing::error!(message_id = raw.id, %error, "failed parsing interruption message");
                return true;
            }
        };
        metrics.received.with_label_values(&[message.kind.name()]).inc();
        if message.kind == Kind::NoOp {
            return true;
        }
        let mut is_handled = true;
        for instance_id in &message.instance_ids {
            if let Err(error) = self.handler.handle(message.kind, instance_id, Some(&self.queue_name)).await {
                tracing::error!(
                    instance_id, %error, messageKind = message.kind.name(),
                    "failed to handle interruption message, it will be received again"
                );
                // If one instance of the message cannot be handled, the others still are.
                is_handled = false;
            }
        }
        if !is_handled {
            return false;
        }
        if let Some(time) = message.time {
            let age = since(self.handler.context().clock.now(), time);
            metrics.queue_duration.observe(age.as_secs_f64());
        }
        true
    }

    /// Deletes messages. A message that cannot be deleted is received again, and handling it twice has no effect.
    async fn delete(&self, queue_url: &str, receipt_handles: &[String]) -> Result<(), AwsError> {
        if receipt_handles.is_empty() {
            return Ok(());
        }
        let failed = self.sqs.delete_messages(queue_url, receipt_handles).await?;
        for failure in &failed {
            tracing::debug!(
                code = failure.code,
                "failed to delete interruption message: {}",
                failure.message
            );
        }
        let deleted = receipt_handles.len().saturating_sub(failed.len());
        self.handler.metrics().deleted.inc_by(u64::try_from(deleted).unwrap_or_default());
        Ok(())
    }

    fn failed(&self, error: &AwsError) -> Requeue {
        if error.is_not_found() {
            // If the queue is deleted and created again, its URL may differ.
            *self.url.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.failures = failure.failures.saturating_add(1);
        let text = error.to_string();
        if failure.logged != text {
            tracing::error!(
                queue = self.queue_name,
                error = text,
                advice = advice(error.kind),
                "failed to read interruption queue"
            );
            failure.logged = text;
        }
        Requeue::After(back_off(failure.failures))
    }
}

impl Reconcile for InterruptionQueue {
    async fn reconcile(&self, key: &ObjectKey) -> kube::Result<Requeue> {
        let receiver = key.name.parse().unwrap_or_default();
        let received = match self.receive(receiver).await {
            Ok(received) => received,
            // Only receiver 0 retries.
            Err(_) if receiver > 0 => return Ok(Requeue::No),
            Err(error) => return Ok(self.failed(&error)),
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = QueueFailure::default();
        if self.shutdown.is_requested() {
            return Ok(Requeue::No);
        }
        let (after, needs_help) = next(receiver, received);
        if needs_help && let Some(receivers) = self.receivers.get() {
            (1..RECEIVERS)
                .filter(|other| *other != receiver)
                .for_each(|other| receivers.add(self::key(other)));
        }
        Ok(after)
    }
}

fn key(receiver: usize) -> ObjectKey {
    ObjectKey::new("", receiver.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_batch_starts_all_receivers_and_only_the_first_stays() {
        let again = Requeue::After(Duration::ZERO);
        let table = [
            (0, Received::Nothing, (again, false)),
            (0, Received::Some, (again, false)),
            (0, Received::Full, (again, true)),
            (3, Received::Nothing, (Requeue::No, false)),
            (3, Received::Some, (Requeue::No, false)),
            (3, Received::Full, (again, true)),
        ];
        for (receiver, received, expected) in table {
            assert_eq!(next(receiver, received), expected, "{receiver} {received:?}");
        }
    }

    #[test]
    fn failures_back_off_exponentially() {
        assert_eq!([1, 2, 4, 7, 99].map(|failures| back_off(failures).as_secs()), [1, 2, 8, 60, 60]);
    }
}
