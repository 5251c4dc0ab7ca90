use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";
const TYPES: ConditionTypes = ConditionTypes { root: "Ready", dependents: &["Launched", "Registered"] };

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn minute(minute: i64) -> Timestamp {
    Timestamp::from_second(time(CREATED).as_second() + 60 * minute).expect("in range")
}

/// An object whose conditions are kept from one pass to the next, as by the API server.
struct Subject {
    metadata: ObjectMeta,
    conditions: Vec<Condition>,
}

impl Subject {
    fn new() -> Self {
        let metadata = ObjectMeta {
            generation: Some(1),
            creation_timestamp: Some(Time(time(CREATED))),
            ..Default::default()
        };
        Self { metadata, conditions: Vec::new() }
    }

    fn open(&mut self, now: Timestamp) -> ConditionSet<'_> {
        ConditionSet::open(TYPES, &self.metadata, &mut self.conditions, now)
    }

    fn condition(&self, condition_type: &str) -> &Condition {
        let found = self.conditions.iter().find(|condition| condition.type_ == condition_type);
        found.unwrap_or_else(|| panic!("no condition {condition_type}"))
    }

    fn types(&self) -> Vec<&str> {
        self.conditions.iter().map(|condition| condition.type_.as_str()).collect()
    }

    fn root(&self) -> (ConditionStatus, &str, &str) {
        let root = self.condition("Ready");
        (root.status, &root.reason, &root.message)
    }
}

#[test]
fn opening_adds_unknown_root_and_dependents_with_creation_time() {
    let mut subject = Subject::new();
    subject.open(minute(5));
    assert_eq!(subject.types(), ["Launched", "Registered", "Ready"]);
    for condition in &subject.conditions {
        assert_eq!(condition.status, ConditionStatus::Unknown);
        assert_eq!(condition.reason, "AwaitingReconciliation");
        assert_eq!(condition.message, "object is awaiting reconciliation");
        assert_eq!(condition.observed_generation, Some(1));
    }
    for condition in &subject.conditions {
        assert_eq!(condition.last_transition_time, Some(Time(time(CREATED))), "{}", condition.type_);
    }
}

#[test]
fn new_dependent_makes_existing_root_unknown() {
    let mut subject = Subject::new();
    let mut conditions = subject.open(minute(1));
    conditions.set_true("Launched");
    conditions.set_true("Registered");
    subject.conditions.retain(|condition| condition.type_ != "Launched");
    subject.open(minute(2));
    assert_eq!(subject.root(), (ConditionStatus::Unknown, "ReconcilingDependents", "Launched=Unknown"));
}

#[test]
fn opening_again_changes_nothing() {
    let mut subject = Subject::new();
    subject.open(minute(5)).set_true("Launched");
    let before = subject.conditions.clone();
    subject.open(minute(9));
    assert_eq!(subject.conditions, before);
}

#[test]
fn other_conditions_have_current_transition_time() {
    let mut subject = Subject::new();
    subject.open(minute(5)).set_true("Consolidatable");
    assert_eq!(subject.condition("Consolidatable").last_transition_time, Some(Time(minute(5))));
}

#[test]
fn reason_of_true_condition_is_its_type() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_true("Launched");
    let condition = subject.condition("Launched");
    assert_eq!(
        (condition.status, condition.reason.as_str(), condition.message.as_str()),
        (ConditionStatus::True, "Launched", "")
    );
    subject.open(minute(1)).set_true_with_reason("Launched", "Adopted", "found it");
    let condition = subject.condition("Launched");
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Adopted", "found it"));
}

#[test]
fn transition_time_moves_only_with_the_status() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_false("Launched", "NoCapacity", "first");
    assert_eq!(subject.condition("Launched").last_transition_time, Some(Time(minute(1))));
    assert!(subject.open(minute(2)).set_false("Launched", "NoCapacity", "second"));
    assert_eq!(subject.condition("Launched").last_transition_time, Some(Time(minute(1))));
    assert_eq!(subject.condition("Launched").message, "second");
    subject.open(minute(3)).set_true("Launched");
    assert_eq!(subject.condition("Launched").last_transition_time, Some(Time(minute(3))));
}

#[test]
fn setting_equal_condition_reports_no_change() {
    let mut subject = Subject::new();
    assert!(subject.open(minute(1)).set_true("Launched"));
    assert!(!subject.open(minute(2)).set_true("Launched"));
    assert!(!subject.open(minute(2)).set_unknown("Registered"));
    assert!(subject.open(minute(2)).set_unknown_with_reason("Registered", "NodeNotFound", "not yet"));
}

#[test]
fn set_updates_observed_generation() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_true("Launched");
    subject.metadata.generation = Some(2);
    subject.open(minute(2)).set_true("Registered");
    assert_eq!(subject.condition("Launched").observed_generation, Some(1));
    assert_eq!(subject.condition("Registered").observed_generation, Some(2));
    assert!(subject.open(minute(3)).set_true("Launched"), "a new generation is a change");
    assert_eq!(subject.condition("Launched").observed_generation, Some(2));
    assert_eq!(subject.condition("Launched").last_transition_time, Some(Time(minute(1))));
}

#[test]
fn root_is_true_only_if_all_dependents_are_true_for_the_current_generation() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_true("Launched");
    assert_eq!(subject.root(), (ConditionStatus::Unknown, "ReconcilingDependents", "Registered=Unknown"));
    subject.open(minute(2)).set_true("Registered");
    assert_eq!(subject.root(), (ConditionStatus::True, "Ready", ""));
    assert_eq!(subject.condition("Ready").last_transition_time, Some(Time(minute(2))));
    // If a condition that the root depends on was observed for an older generation, the root condition is Unknown.
    subject.metadata.generation = Some(2);
    subject.open(minute(3)).set_true("Registered");
    assert_eq!(subject.root(), (ConditionStatus::Unknown, "ReconcilingDependents", "Launched=True"));
    assert!(!subject.open(minute(3)).is_true("Launched"));
    subject.open(minute(4)).set_true("Launched");
    assert_eq!(subject.root().0, ConditionStatus::True);
}

#[test]
fn root_is_false_if_a_dependent_is_false_for_the_current_generation() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_false("Registered", "Broken", "");
    assert_eq!(
        subject.root(),
        (ConditionStatus::False, "UnhealthyDependents", "Launched=Unknown, Registered=False")
    );
    // A failure that was observed for an older generation makes the root condition Unknown, not False.
    subject.metadata.generation = Some(2);
    subject.open(minute(2)).set_true("Launched");
    assert_eq!(subject.root(), (ConditionStatus::Unknown, "ReconcilingDependents", "Registered=False"));
}

#[test]
fn other_conditions_do_not_affect_the_root() {
    let mut subject = Subject::new();
    let mut conditions = subject.open(minute(1));
    conditions.set_true("Launched");
    conditions.set_true("Registered");
    conditions.set_false("Consolidatable", "Busy", "");
    assert_eq!(subject.root().0, ConditionStatus::True);
}

#[test]
fn set_on_terminating_object_updates_generation_of_all() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_true("Launched");
    subject.metadata.generation = Some(2);
    subject.metadata.deletion_timestamp = Some(Time(minute(2)));
    subject.open(minute(3)).set_true("InstanceTerminating");
    for condition in &subject.conditions {
        assert_eq!(condition.observed_generation, Some(2), "{}", condition.type_);
    }
}

#[test]
fn conditions_are_ordered_by_transition_with_the_root_last() {
    let mut subject = Subject::new();
    subject.open(minute(1)).set_true("Registered");
    subject.open(minute(2)).set_true("Drifted");
    subject.open(minute(3)).set_true("Launched");
    assert_eq!(subject.types(), ["Registered", "Drifted", "Launched", "Ready"]);
}

#[test]
fn clear_removes_other_conditions_only_and_sorts_by_name() {
    let mut subject = Subject::new();
    let mut conditions = subject.open(minute(1));
    conditions.set_true("Registered");
    conditions.set_true("Drifted");
    conditions.set_true("Empty");
    assert_eq!(conditions.clear("Drifted"), Ok(true));
    assert_eq!(conditions.clear("Drifted"), Ok(false));
    for kept in ["Launched", "Ready"] {
        let error = conditions.clear(kept).expect_err(kept);
        assert_eq!(error, ClearError { condition_type: kept.to_owned(), root: "Ready" });
    }
    assert_eq!(subject.types(), ["Empty", "Launched", "Ready", "Registered"]);
}

#[test]
fn times_are_truncated_to_seconds() {
    let mut subject = Subject::new();
    subject.open(time("2026-01-01T00:01:00.9Z")).set_true("Launched");
    assert_eq!(subject.condition("Launched").last_transition_time, Some(Time(minute(1))));
}

#[test]
fn reservation_condition_depends_on_feature_gate() {
    let [with, without] = [true, false].map(|gate| ec2_node_class_conditions(gate).dependents);
    assert!(with.contains(&"CapacityReservationsReady") && !without.contains(&"CapacityReservationsReady"));
    assert_eq!(with.len(), without.len() + 1);
}
