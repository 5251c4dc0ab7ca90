//! Errors that end a command. Every message states a fix.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options are invalid. No request was made.
    #[error("{}", .0.join("; "))]
    Wrong(Vec<String>),
    /// The command cannot run in the cluster's present state. Nothing was written.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// The API server returned an error for a request.
    #[error("{what}: {}", short(.error))]
    Api { what: String, error: Box<kube::Error> },
    /// The command timed out. The steps that were completed are not undone.
    #[error("{0}")]
    TimedOut(String),
    /// The manifests in this binary are invalid, which is a fault of the program.
    #[error("built-in manifests: {0}")]
    BuiltIn(String),
}

impl Error {
    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |error| Self::Api { what, error: Box::new(error) }
    }
}

/// The message of a failed request in one line, without what the client library adds.
pub(crate) fn short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(next) = cause {
                let next_text = next.to_string();
                if !text.contains(&next_text) {
                    text = format!("{text}: {next_text}");
                }
                cause = next.source();
            }
            text
        }
    }
}
