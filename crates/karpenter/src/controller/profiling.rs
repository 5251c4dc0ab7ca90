//! Profiles of the process in pprof format under `/debug/pprof/` on the metrics port; requires `--enable-profiling`.

use std::sync::Arc;
use std::time::Duration;

use karpenter_controllers::operator::http::{Page, Pages};

/// The default duration of a CPU profile, as in Go's handler.
const SECONDS_DEFAULT: u64 = 30;
const SECONDS_MAX: u64 = 300;

const INDEX: &str = "\
/debug/pprof/profile?seconds=N  CPU profile over N seconds (default 30)
/debug/pprof/heap               what memory is in use, and which calls allocated it
/debug/pprof/allocs             heap profile with all allocations since the start as default view
/debug/pprof/cmdline            the command line
";

/// The index page and the profiles.
pub(super) fn pages(others: Pages) -> Pages {
    Arc::new(move |path, query| match path.strip_prefix("/debug/pprof") {
        Some("" | "/") => Page::text(200, INDEX),
        Some("/cmdline") => Page::text(200, std::env::args().collect::<Vec<_>>().join("\0")),
        Some(profile) => taken(profile, query).unwrap_or_else(|| {
            let name = profile.trim_start_matches('/');
            Page::text(404, format!("there is no profile {name}; this process has:\n{INDEX}"))
        }),
        None => others(path, query),
    })
}

#[cfg(target_os = "linux")]
fn taken(profile: &str, query: &str) -> Option<Page> {
    use karpenter_memory::cpu;
    use karpenter_memory::profile::{HeapView, of_cpu, of_heap};
    match profile {
        "/heap" => Some(Page::binary(of_heap(HeapView::InUse))),
        "/allocs" => Some(Page::binary(of_heap(HeapView::Allocated))),
        "/profile" => Some(match seconds(query) {
            Ok(duration) => match cpu::profile(duration) {
                Ok(profile) => Page::binary(of_cpu(&profile)),
                Err(error) => Page::text(500, format!("{error}\n")),
            },
            Err(message) => Page::text(400, message),
        }),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn taken(_: &str, query: &str) -> Option<Page> {
    let _ = seconds(query);
    None
}

/// Duration of the CPU profile.
fn seconds(query: &str) -> Result<Duration, String> {
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let seconds = asked.and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
    match seconds.unwrap_or(SECONDS_DEFAULT) {
        seconds if seconds > SECONDS_MAX => Err(format!("seconds is {seconds}: at most {SECONDS_MAX}\n")),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_parsed_as_in_go() {
        for (query, expected) in
            [("", 30), ("seconds=5", 5), ("debug=1&seconds=7", 7), ("seconds=0", 30), ("seconds=x", 30)]
        {
            assert_eq!(seconds(query), Ok(Duration::from_secs(expected)), "{query}");
        }
        assert!(seconds("seconds=301").is_err());
    }

    #[test]
    fn unknown_profile_is_not_found_and_other_paths_are_not_handled() {
        let pages = pages(Arc::new(|path, _| Page::text(200, format!("other {path}"))));
        assert_eq!(pages("/metrics", "").body, b"other /metrics");
        assert_eq!(pages("/debug/pprof/", "").status, 200);
        let missing = pages("/debug/pprof/goroutine", "");
        let text = String::from_utf8_lossy(&missing.body).into_owned();
        assert!(
            missing.status == 404 && text.contains("no profile goroutine") && text.contains("/heap"),
            "{text}"
        );
    }
}
