//! Decides when a batch of triggers is complete. Pure functions: the caller passes the current time.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Collects triggers in windows. A window opens with its first trigger and closes when no new trigger arrived for
/// `idle`, or `max` after it opened.
#[derive(Debug)]
pub struct Batcher {
    idle: Duration,
    max: Duration,
    window: Option<Window>,
}

#[derive(Debug)]
struct Window {
    opened: Timestamp,
    newest: Timestamp,
    seen: BTreeSet<String>,
}

impl Batcher {
    pub fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, window: None }
    }

    /// Adds a trigger. Returns `false` if the open window contains this trigger already; a repeated trigger does not
    /// keep the window open for longer.
    pub fn trigger(&mut self, element: &str, now: Timestamp) -> bool {
        let window =
            self.window.get_or_insert_with(|| Window { opened: now, newest: now, seen: BTreeSet::new() });
        if window.seen.contains(element) {
            return false;
        }
        window.seen.insert(element.to_owned());
        window.newest = now;
        true
    }

    /// When the open window closes if no further trigger arrives.
    pub fn closes_at(&self) -> Option<Timestamp> {
        let window = self.window.as_ref()?;
        Some(later(window.newest, self.idle).min(later(window.opened, self.max)))
    }

    /// Closes the window; the next trigger opens a new one.
    pub fn close(&mut self) {
        self.window = None;
    }
}

fn later(time: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|duration| time.checked_add(duration).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Triggers<'a> = &'a [(i64, &'a str)];

    /// The second at which the window closes. Each trigger consists of a second and an element.
    fn closes(triggers: Triggers<'_>) -> Option<i64> {
        let mut batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        for (second, element) in triggers {
            batcher.trigger(element, Timestamp::from_second(*second).expect("a time"));
        }
        batcher.closes_at().map(Timestamp::as_second)
    }

    #[test]
    fn windows_close_after_idle_or_maximum_duration() {
        let steady: Vec<(i64, String)> = (0..20).map(|second| (second, second.to_string())).collect();
        let steady: Vec<(i64, &str)> =
            steady.iter().map(|(second, element)| (*second, element.as_str())).collect();
        let cases: [(Triggers<'_>, Option<i64>); 5] = [
            (&[], None),
            (&[(5, "a")], Some(6)),
            (&[(5, "a"), (6, "b")], Some(7)),
            (&[(5, "a"), (6, "a"), (7, "a")], Some(6)),
            (&steady, Some(10)),
        ];
        for (triggers, expected) in cases {
            assert_eq!(closes(triggers), expected, "{triggers:?}");
        }
    }

    #[test]
    fn closed_window_accepts_the_same_trigger_again() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        assert!(batcher.trigger("a", at(0)));
        assert!(!batcher.trigger("a", at(0)));
        batcher.close();
        assert_eq!(batcher.closes_at(), None);
        assert!(batcher.trigger("a", at(3)));
        assert_eq!(batcher.closes_at(), Some(at(4)));
    }
}
