//! Retries AWS calls at start. Throttled calls and calls that did not reach AWS are retried for a while; other errors
//! are returned at once.

use std::fmt::Display;
use std::time::Duration;

use karpenter_runtime::clock::Clock;

use crate::api::{AwsError, ErrorKind};
use crate::types::TypesError;
use crate::version::VersionError;

/// The delays between attempts. Their sum limits how long AWS can delay the start.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
    Duration::from_secs(30),
];

pub(super) trait Retryable: Display {
    /// Whether repeating the call may succeed.
    fn is_retryable(&self) -> bool;
}

impl Retryable for AwsError {
    fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Transient)
    }
}

impl Retryable for TypesError {
    fn is_retryable(&self) -> bool {
        matches!(self, Self::Aws { error, .. } if error.is_retryable())
    }
}

impl Retryable for VersionError {
    fn is_retryable(&self) -> bool {
        matches!(self, Self::Eks { error, .. } if error.is_retryable())
    }
}

/// Makes a call with retries; `what` states the purpose of the call in the log.
pub(super) async fn with_retries<T, E: Retryable, F: Future<Output = Result<T, E>>>(
    clock: Clock,
    what: &str,
    ask: impl Fn() -> F,
) -> Result<T, E> {
    for pause in PAUSES {
        match ask().await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, pause_seconds = pause.as_secs(), "{what}: retrying");
                clock.sleep(pause).await;
            }
            answer => return answer,
        }
    }
    ask().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use jiff::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_transient_errors_are_retried() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let last = PAUSES.len() + 1;
        // Columns: error, number of failures before the call succeeds, expected number of calls, whether the result is
        // expected to be a success.
        let table = [
            ("RequestLimitExceeded", 0, 1, true),
            ("RequestLimitExceeded", 3, 4, true),
            ("InternalError", last - 1, last, true),
            ("InternalError", 99, last, false),
            ("UnauthorizedOperation", 99, 1, false),
            ("ExpiredToken", 99, 1, false),
        ];
        for (code, errors, expected, ends_well) in table {
            let asked = Cell::new(0);
            let answer = with_retries(clock, "a question", || {
                asked.set(asked.get() + 1);
                let is_answered = asked.get() > errors;
                std::future::ready(if is_answered { Ok(()) } else { Err(AwsError::new(code, "words")) })
            })
            .await;
            assert_eq!((asked.get(), answer.is_ok()), (expected, ends_well), "{code} {errors}");
        }
    }
}
