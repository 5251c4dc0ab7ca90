//! How often to ask for something that may not be permitted: at once as long as nobody refused, then ever more seldom.

use jiff::{SignedDuration, Timestamp};

const WAIT_FIRST: SignedDuration = SignedDuration::from_secs(5);
const WAIT_LONGEST: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Refusal {
    in_a_row: u32,
    not_before: Option<Timestamp>,
    was_told: bool,
}

impl Refusal {
    /// Whether to ask now. Whoever is told so after a refusal asks for all: the others wait for the answer.
    pub(super) fn may_ask(&mut self, now: Timestamp) -> bool {
        let Some(until) = self.not_before else { return true };
        if now < until {
            return false;
        }
        self.wait(now);
        true
    }

    /// `true` the first time of all.
    pub(super) fn refused(&mut self, now: Timestamp) -> bool {
        if self.not_before.is_none() {
            self.wait(now);
        }
        !std::mem::replace(&mut self.was_told, true)
    }

    /// The next refusal starts from the beginning.
    pub(super) fn allowed(&mut self) {
        self.in_a_row = 0;
        self.not_before = None;
    }

    fn wait(&mut self, now: Timestamp) {
        let doublings = self.in_a_row.min(16);
        let wait = WAIT_FIRST.saturating_mul(1 << doublings).min(WAIT_LONGEST);
        self.not_before = Some(now.checked_add(wait).unwrap_or(Timestamp::MAX));
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// The seconds of the first hour at which somebody asks who would like to every second, and is always refused.
    fn asked_at() -> Vec<i64> {
        let mut refusal = Refusal::default();
        let mut asked = Vec::new();
        for second in 0..3600 {
            if refusal.may_ask(at(second)) {
                asked.push(second);
                refusal.refused(at(second));
            }
        }
        asked
    }

    #[test]
    fn waits_double_up_to_ten_minutes() {
        let asked = asked_at();
        let waits: Vec<i64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600]);
    }

    #[test]
    fn many_refusals_at_once_count_once_and_are_told_once() {
        let mut refusal = Refusal::default();
        let told: Vec<bool> = (0..3).map(|_| refusal.refused(at(0))).collect();
        assert_eq!(told, [true, false, false]);
        assert!(!refusal.may_ask(at(4)));
        assert!(refusal.may_ask(at(5)));
        assert!(!refusal.may_ask(at(5)), "one asks for all");
        refusal.allowed();
        assert!(refusal.may_ask(at(5)) && refusal.may_ask(at(5)));
        assert!(!refusal.refused(at(6)), "it was told before");
        assert!(refusal.may_ask(at(11)));
    }
}
