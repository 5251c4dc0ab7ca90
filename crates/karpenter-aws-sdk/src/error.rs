//! Converts errors of the SDK: AWS's code and message, or the reason why there was no response.
//!
//! Messages of AWS and of the HTTP client are included; requests, headers and credentials never are.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use karpenter_aws::api::AwsError;

/// The maximum length of a message, in characters.
const MESSAGE_MAX: usize = 2_000;
/// The text after this marker is an encoded message for `sts:DecodeAuthorizationMessage` with thousands of characters;
/// it is cut off.
const ENCODED: &str = "Encoded authorization failure message:";

pub(crate) fn aws_error<E>(error: SdkError<E, HttpResponse>) -> AwsError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match &error {
        SdkError::ServiceError(answer) => {
            let refusal = answer.err();
            let code = refusal.code().unwrap_or_default();
            let message = refusal.message().map_or_else(|| chain(refusal), str::to_owned);
            AwsError::with_status(code, shortened(&message), answer.raw().status().as_u16())
        }
        SdkError::TimeoutError(_) => AwsError::unreachable("AWS did not answer in time"),
        SdkError::ResponseError(answer) => {
            let status = answer.raw().status().as_u16();
            AwsError::with_status(
                "",
                format!("AWS returned an invalid response with status {status}"),
                status,
            )
        }
        SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) => {
            let message = shortened(&chain(&error));
            match is_about_credentials(&error) {
                true => AwsError::no_credentials(format!("no usable credentials: {message}")),
                false => AwsError::unreachable(format!("AWS cannot be reached: {message}")),
            }
        }
        _ => AwsError::unreachable(shortened(&chain(&error))),
    }
}

fn is_about_credentials(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<CredentialsError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// The messages of an error and its causes, outermost first, without duplicates.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !texts.iter().any(|earlier| earlier.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

fn shortened(message: &str) -> String {
    let message = message.split(ENCODED).next().unwrap_or_default().trim();
    message.chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_authorization_messages_are_omitted() {
        let message =
            format!("You are not authorized to perform this operation. {ENCODED} {}", "x".repeat(9_000));
        assert_eq!(shortened(&message), "You are not authorized to perform this operation.");
        assert_eq!(shortened(&"é".repeat(9_000)).chars().count(), MESSAGE_MAX);
    }

    #[test]
    fn error_chain_has_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: inner")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(chain(&error), "outer: inner");
        let error = Outer(std::io::Error::other("deeper"));
        assert_eq!(chain(&error), "outer: inner: deeper");
    }
}
