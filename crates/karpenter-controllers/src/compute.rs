//! Where heavy computing happens.

/// Work that would hold up everything else goes to another thread, except on a runtime that has only one: there it
/// runs in place, so that a simulated run is the same every time.
pub(crate) async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let handle = tokio::runtime::Handle::current();
    match handle.runtime_flavor() {
        tokio::runtime::RuntimeFlavor::CurrentThread => work(),
        _ => match tokio::task::spawn_blocking(work).await {
            Ok(answer) => answer,
            // The blocking pool is only gone when the runtime is, and then nobody waits for this any more.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => std::future::pending().await,
        },
    }
}
