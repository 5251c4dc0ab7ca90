//! The scheduling queue: which pod is scheduled next, and when a failed pod is retried.
//!
//! A pod is in one of four states: active, backing off after a failure, unschedulable until an event, or held (by
//! scheduling gates, or while its preemption is in progress). The functions are pure: the time is an argument.
//!
//! Upstream: pkg/scheduler/backend/queue/scheduling_queue.go

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karpenter_runtime::object::ObjectKey;

use super::snapshot::PodKey;
use super::verdict::Plugin;

#[derive(Debug, Clone, Copy)]
pub(super) struct QueueSettings {
    pub(super) backoff_initial: Duration,
    pub(super) backoff_max: Duration,
    /// An unschedulable pod is retried after this time even if no event occurred that could help.
    pub(super) waiting_max: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Ready,
    /// The pod waits for the end of its back-off. After an unschedulable result, but not after an error, an idle
    /// scheduler may retry it earlier.
    BackingOff {
        until: Timestamp,
        after_error: bool,
    },
    Waiting,
    Gated,
    /// The pod's scheduling or binding is in progress.
    InProgress,
}

#[derive(Debug)]
struct Entry {
    state: QueueState,
    priority: i32,
    /// When the pod was added or last failed, and a sequence number that orders pods with equal times.
    since: (Timestamp, u64),
    refusals: u32,
    errors: u32,
    plugins: BTreeSet<Plugin>,
    held: bool,
    /// Whether an event that could help happened while the pod was held.
    was_activated: bool,
}

type QueueOrder = (Reverse<i32>, (Timestamp, u64), PodKey);

pub(super) struct Queue {
    settings: QueueSettings,
    entries: BTreeMap<PodKey, Entry>,
    ready: BTreeSet<QueueOrder>,
    backing_off: BTreeSet<(Timestamp, QueueOrder)>,
    backing_off_after_error: BTreeSet<(Timestamp, QueueOrder)>,
    waiting: BTreeSet<(Timestamp, PodKey)>,
    /// The number of unschedulable pods by rejecting plugin.
    waiting_for: BTreeMap<Plugin, usize>,
    counter: u64,
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

impl Entry {
    fn order(&self, key: &PodKey) -> QueueOrder {
        (Reverse(self.priority), self.since, key.clone())
    }
}

impl Queue {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            entries: BTreeMap::new(),
            ready: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            backing_off_after_error: BTreeSet::new(),
            waiting: BTreeSet::new(),
            waiting_for: BTreeMap::new(),
            counter: 0,
        }
    }

    /// Adds a new pod.
    pub(super) fn add(&mut self, key: &PodKey, priority: i32, gated: bool, now: Timestamp) {
        if self.entries.contains_key(&**key) {
            return;
        }
        self.counter += 1;
        let entry = Entry {
            state: QueueState::InProgress,
            priority,
            since: (now, self.counter),
            refusals: 0,
            errors: 0,
            plugins: BTreeSet::new(),
            held: false,
            was_activated: false,
        };
        self.entries.insert(key.clone(), entry);
        self.put(key, if gated { QueueState::Gated } else { QueueState::Ready });
    }

    pub(super) fn remove(&mut self, key: &PodKey) {
        self.put(key, QueueState::InProgress);
        self.entries.remove(&**key);
    }

    /// Records whether the pod has scheduling gates.
    pub(super) fn set_gated(&mut self, key: &PodKey, gated: bool) {
        match self.entries.get(&**key).map(|entry| entry.state) {
            Some(QueueState::Gated) if !gated => self.put(key, QueueState::Ready),
            Some(state) if gated && state != QueueState::InProgress => self.put(key, QueueState::Gated),
            _ => {}
        }
    }

    /// The next pod to schedule, if one is due. It is in progress until its result is reported.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<PodKey> {
        self.flush(now);
        let key = match self.ready.first() {
            Some((.., key)) => key.clone(),
            None => self.backing_off.first()?.1.2.clone(),
        };
        self.put(&key, QueueState::InProgress);
        Some(key)
    }

    /// The next time at which a pod becomes due without an event.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let error = self.backing_off_after_error.first().map(|(until, _)| *until);
        let held = |key: &PodKey| self.entries.get(&**key).is_some_and(|entry| entry.held);
        let waiting = self.waiting.iter().find(|(_, key)| !held(key));
        let waiting = waiting.map(|(since, _)| later(*since, self.settings.waiting_max));
        error.into_iter().chain(waiting).min()
    }

    /// Records that these plugins rejected the pod.
    pub(super) fn unschedulable(&mut self, key: &PodKey, plugins: BTreeSet<Plugin>, now: Timestamp) {
        self.put(key, QueueState::InProgress);
        self.counter += 1;
        let since = (now, self.counter);
        let Some(entry) = self.entries.get_mut(&**key) else { return };
        entry.refusals += 1;
        entry.errors = 0;
        entry.plugins = plugins;
        entry.since = since;
        self.put(key, QueueState::Waiting);
    }

    /// Records that the attempt failed with an error, or could not be made.
    pub(super) fn failed(&mut self, key: &PodKey, now: Timestamp) {
        self.put(key, QueueState::InProgress);
        self.counter += 1;
        let since = (now, self.counter);
        let Some(entry) = self.entries.get_mut(&**key) else { return };
        entry.errors += 1;
        entry.plugins.clear();
        entry.since = since;
        let until = later(now, self.settings.backoff(entry.errors));
        self.put(key, QueueState::BackingOff { until, after_error: true });
    }

    /// Holds a pod, so that it is not scheduled.
    pub(super) fn hold(&mut self, key: &PodKey) {
        if let Some(entry) = self.entries.get_mut(&**key) {
            (entry.held, entry.was_activated) = (true, false);
        }
    }

    /// Ends the hold of a pod. If `retry` is set, its preemption failed, and the pod is retried at once.
    pub(super) fn release(&mut self, key: &PodKey, retry: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&**key) else { return };
        entry.held = false;
        if entry.state == QueueState::Waiting && retry {
            self.put(key, QueueState::Ready);
        } else if entry.state == QueueState::Waiting && std::mem::take(&mut entry.was_activated) {
            self.activate(key, now);
        }
    }

    /// Handles an event that may affect these plugins: pods that it could help are retried after their back-off.
    pub(super) fn handle_event(
        &mut self,
        now: Timestamp,
        affected_plugins: &[Plugin],
        could_help: impl Fn(&ObjectKey, &BTreeSet<Plugin>) -> bool,
    ) {
        if !affected_plugins.iter().any(|plugin| self.waiting_for.contains_key(plugin)) {
            return;
        }
        let was_activated: Vec<PodKey> = self
            .waiting
            .iter()
            .filter(|(_, key)| self.entries.get(&**key).is_some_and(|entry| could_help(key, &entry.plugins)))
            .map(|(_, key)| key.clone())
            .collect();
        for key in was_activated {
            self.activate(&key, now);
        }
    }

    /// Moves one unschedulable pod to the active or back-off state.
    pub(super) fn activate(&mut self, key: &PodKey, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&**key).filter(|entry| entry.state == QueueState::Waiting)
        else {
            return;
        };
        if entry.held {
            entry.was_activated = true;
            return;
        }
        let until = later(entry.since.0, self.settings.backoff(entry.refusals));
        let state = if until > now {
            QueueState::BackingOff { until, after_error: false }
        } else {
            QueueState::Ready
        };
        self.put(key, state);
    }

    fn flush(&mut self, now: Timestamp) {
        while let Some((until, (.., key))) = self.backing_off.first().cloned() {
            if until > now {
                break;
            }
            self.put(&key, QueueState::Ready);
        }
        while let Some((until, (.., key))) = self.backing_off_after_error.first().cloned() {
            if until > now {
                break;
            }
            self.put(&key, QueueState::Ready);
        }
        let overdue: Vec<PodKey> = self
            .waiting
            .iter()
            .take_while(|(since, _)| later(*since, self.settings.waiting_max) <= now)
            .map(|(_, key)| key.clone())
            .collect();
        for key in overdue {
            self.activate(&key, now);
        }
    }

    fn put(&mut self, key: &PodKey, state: QueueState) {
        let Some(entry) = self.entries.get_mut(&**key) else { return };
        match entry.state {
            QueueState::Ready => {
                self.ready.remove(&entry.order(key));
            }
            QueueState::BackingOff { until, after_error } => {
                let set = if after_error { &mut self.backing_off_after_error } else { &mut self.backing_off };
                set.remove(&(until, entry.order(key)));
            }
            QueueState::Waiting => {
                self.waiting.remove(&(entry.since.0, key.clone()));
                for plugin in &entry.plugins {
                    if let Some(pods) = self.waiting_for.get_mut(plugin) {
                        *pods -= 1;
                        if *pods == 0 {
                            self.waiting_for.remove(plugin);
                        }
                    }
                }
            }
            QueueState::Gated | QueueState::InProgress => {}
        }
        entry.state = state;
        let turn = entry.order(key);
        match state {
            QueueState::Ready => {
                self.ready.insert(turn);
            }
            QueueState::BackingOff { until, after_error: true } => {
                self.backing_off_after_error.insert((until, turn));
            }
            QueueState::BackingOff { until, after_error: false } => {
                self.backing_off.insert((until, turn));
            }
            QueueState::Waiting => {
                self.waiting.insert((entry.since.0, key.clone()));
                for plugin in &entry.plugins {
                    *self.waiting_for.entry(*plugin).or_insert(0) += 1;
                }
            }
            QueueState::Gated | QueueState::InProgress => {}
        }
    }
}

impl QueueSettings {
    fn backoff(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.backoff_initial.saturating_mul(factor).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SETTINGS: QueueSettings = QueueSettings {
        backoff_initial: Duration::from_secs(1),
        backoff_max: Duration::from_secs(10),
        waiting_max: Duration::from_secs(300),
    };

    fn key(name: &str) -> PodKey {
        Arc::new(ObjectKey::new("default", name))
    }

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).expect("a time")
    }

    fn names(queue: &mut Queue, now: Timestamp) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now).map(|key| key.name.clone())).collect()
    }

    #[test]
    fn pods_are_ordered_by_priority_then_arrival() {
        let mut queue = Queue::new(SETTINGS);
        for (name, priority, time) in [("late", 0, 2), ("early", 0, 1), ("urgent", 5, 3), ("same", 0, 2)] {
            queue.add(&key(name), priority, false, at(time));
        }
        assert_eq!(names(&mut queue, at(3)), ["urgent", "early", "late", "same"]);
    }

    #[test]
    fn backoff_doubles_up_to_the_limit() {
        let mut queue = Queue::new(SETTINGS);
        queue.add(&key("p"), 0, false, at(0));
        let mut now = at(0);
        for seconds in [1, 2, 4, 8, 10, 10] {
            assert_eq!(queue.pop(now), Some(key("p")));
            queue.failed(&key("p"), now);
            let due = later(now, Duration::from_secs(seconds));
            assert_eq!(queue.next_due(), Some(due));
            assert_eq!(queue.pop(later(now, Duration::from_millis(seconds * 1000 - 1))), None);
            now = due;
        }
    }

    #[test]
    fn unschedulable_pods_wait_for_an_event_that_helps() {
        let mut queue = Queue::new(SETTINGS);
        queue.add(&key("p"), 0, false, at(0));
        queue.pop(at(0));
        queue.unschedulable(&key("p"), [Plugin::NodePorts].into(), at(0));
        queue.handle_event(at(10), &[Plugin::NodeAffinity], |_, _| true);
        queue.handle_event(at(10), &Plugin::ALL, |_, _| false);
        assert_eq!(queue.pop(at(20_000)), None);
        queue.handle_event(at(20_000), &Plugin::ALL, |_, plugins| plugins.contains(&Plugin::NodePorts));
        assert_eq!(queue.pop(at(20_000)), Some(key("p")));
    }

    #[test]
    fn unschedulable_pods_are_retried_after_five_minutes() {
        let mut queue = Queue::new(SETTINGS);
        queue.add(&key("p"), 0, false, at(0));
        queue.pop(at(0));
        queue.unschedulable(&key("p"), [Plugin::NodePorts].into(), at(0));
        assert_eq!(queue.next_due(), Some(at(300_000)));
        assert_eq!(queue.pop(at(299_999)), None);
        assert_eq!(queue.pop(at(300_000)), Some(key("p")));
    }

    #[test]
    fn idle_scheduler_retries_unschedulable_pods_in_backoff() {
        let mut queue = Queue::new(SETTINGS);
        for name in ["p", "q"] {
            queue.add(&key(name), 0, false, at(0));
        }
        queue.pop(at(0));
        queue.unschedulable(&key("p"), [Plugin::NodePorts].into(), at(0));
        queue.handle_event(at(1), &Plugin::ALL, |_, _| true);
        assert_eq!(names(&mut queue, at(2)), ["q", "p"]);
    }

    #[test]
    fn gated_and_held_pods_are_not_scheduled() {
        let mut queue = Queue::new(SETTINGS);
        queue.add(&key("gated"), 0, true, at(0));
        queue.add(&key("held"), 0, false, at(0));
        assert_eq!(names(&mut queue, at(0)), ["held"]);
        queue.unschedulable(&key("held"), [Plugin::NodePorts].into(), at(0));
        queue.hold(&key("held"));
        queue.handle_event(at(5_000), &Plugin::ALL, |_, _| true);
        assert_eq!(queue.pop(at(5_000)), None);
        queue.release(&key("held"), false, at(6_000));
        assert_eq!(queue.pop(at(6_000)), Some(key("held")));
        queue.set_gated(&key("gated"), false);
        assert_eq!(queue.pop(at(6_000)), Some(key("gated")));
    }
}
