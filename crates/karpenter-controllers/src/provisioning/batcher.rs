//! When a batch of triggers is complete: a small machine without a clock of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Gathers triggers into windows. A window opens with its first element and closes when nothing new came for `idle`,
/// or `max` after it opened.
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

    /// Takes in an element; `false` if the open window has it already, which does not keep the window open.
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

    /// When the open window closes, as far as known now.
    pub fn closes_at(&self) -> Option<Timestamp> {
        let window = self.window.as_ref()?;
        Some(later(window.newest, self.idle).min(later(window.opened, self.max)))
    }

    /// Ends the window; the next trigger opens another.
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

    /// When a window closes that gets these (second, element) triggers.
    fn closes(triggers: Triggers<'_>) -> Option<i64> {
        let mut batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        for (second, element) in triggers {
            batcher.trigger(element, Timestamp::from_second(*second).expect("a time"));
        }
        batcher.closes_at().map(Timestamp::as_second)
    }

    #[test]
    fn windows_close_when_idle_or_full() {
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
    fn a_closed_window_has_seen_nothing() {
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
