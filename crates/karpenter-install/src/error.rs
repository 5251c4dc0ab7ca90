//! Why a command ended early. Every message says what to do.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The choices of the caller do not fit together; nothing was asked of anybody.
    #[error("{}", .0.join("; "))]
    Wrong(Vec<String>),
    /// Something stands against it on this cluster; nothing was written.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    /// The API server said no.
    #[error("{what}: {}", short(.error))]
    Api { what: String, error: Box<kube::Error> },
    /// Time ran out; what was done stays done.
    #[error("{0}")]
    TimedOut(String),
    /// The files this program was built with make no sense; a bug.
    #[error("built-in manifests: {0}")]
    BuiltIn(String),
}

impl Error {
    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |error| Self::Api { what, error: Box::new(error) }
    }
}

/// What a failed request says, in one line and without the client's own words around it.
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
