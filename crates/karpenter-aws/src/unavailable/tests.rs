use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn unavailable() -> Unavailable {
    Unavailable::new(Clock::starting_at(Timestamp::UNIX_EPOCH))
}

fn pool(instance_type: &str, zone: &str, capacity_type: &str, scope: Scope) -> UnavailableOffering {
    UnavailableOffering {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        capacity_type: capacity_type.to_owned(),
        scope,
    }
}

fn wish<'a>(instance_type: &'a str, zone: &'a str, capacity_type: &'a str) -> OfferingQuery<'a> {
    OfferingQuery { instance_type, zone, capacity_type, subnet_ids: &[], group_id: None, partition: None }
}

#[tokio::test(start_paused = true)]
async fn unavailable_offering_applies_to_its_scope() {
    // Columns: the unavailable offering; the queried offering as (instance type, zone, capacity type, placement group,
    // partition); whether it is unavailable.
    type Asked = (&'static str, &'static str, &'static str, Option<&'static str>, Option<u32>);
    let general = || Scope::AnyLaunch;
    let group = || Scope::Group("pg-1".to_owned());
    let partition = || Scope::Partition("pg-1".to_owned(), 2);
    let table: [(Scope, Asked, bool); 14] = [
        (general(), ("m5.large", "a", "spot", None, None), true),
        (general(), ("m5.xlarge", "a", "spot", None, None), false),
        (general(), ("m5.large", "b", "spot", None, None), false),
        (general(), ("m5.large", "a", "on-demand", None, None), false),
        (general(), ("m5.large", "a", "spot", Some("pg-1"), None), true),
        (general(), ("m5.large", "a", "spot", Some("pg-1"), Some(2)), true),
        (group(), ("m5.large", "a", "spot", None, None), false),
        (group(), ("m5.large", "a", "spot", Some("pg-2"), None), false),
        (group(), ("m5.large", "a", "spot", Some("pg-1"), None), true),
        (group(), ("m5.large", "a", "spot", Some("pg-1"), Some(1)), true),
        (partition(), ("m5.large", "a", "spot", Some("pg-1"), Some(2)), true),
        (partition(), ("m5.large", "a", "spot", Some("pg-1"), Some(1)), false),
        (partition(), ("m5.large", "a", "spot", Some("pg-1"), None), false),
        (partition(), ("m5.large", "a", "spot", None, None), false),
    ];
    for (scope, (instance_type, zone, capacity_type, group_id, number), expected) in table {
        let unavailable = unavailable();
        unavailable.mark_pool(pool("m5.large", "a", "spot", scope.clone()), "InsufficientInstanceCapacity");
        let asked = OfferingQuery { group_id, partition: number, ..wish(instance_type, zone, capacity_type) };
        assert_eq!(unavailable.current().is_unavailable(&asked), expected, "{scope:?} {asked:?}");
    }
}

#[test]
fn scope_of_launch_is_the_narrowest() {
    assert_eq!(Scope::of(None, None), Scope::AnyLaunch);
    assert_eq!(Scope::of(None, Some(1)), Scope::AnyLaunch);
    assert_eq!(Scope::of(Some("pg-1"), None), Scope::Group("pg-1".to_owned()));
    assert_eq!(Scope::of(Some("pg-1"), Some(3)), Scope::Partition("pg-1".to_owned(), 3));
}

#[tokio::test(start_paused = true)]
async fn unavailability_expires_after_three_minutes_and_is_extended() {
    let unavailable = unavailable();
    let is_unavailable = || unavailable.current().is_unavailable(&wish("m5.large", "a", "spot"));
    let mark =
        || unavailable.mark_pool(pool("m5.large", "a", "spot", Scope::AnyLaunch), "UnfulfillableCapacity");
    mark();
    tokio::time::advance(2 * MINUTE).await;
    mark();
    tokio::time::advance(2 * MINUTE).await;
    assert!(is_unavailable());
    tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
    assert!(is_unavailable());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!is_unavailable());
}

#[tokio::test(start_paused = true)]
async fn capacity_type_can_be_unavailable() {
    let unavailable = unavailable();
    unavailable.mark_capacity_type("spot");
    assert!(unavailable.current().is_unavailable(&wish("m5.large", "a", "spot")));
    assert!(unavailable.current().is_unavailable(&wish("c5.large", "b", "spot")));
    assert!(!unavailable.current().is_unavailable(&wish("m5.large", "a", "on-demand")));
    tokio::time::advance(UNAVAILABLE_FOR).await;
    assert!(!unavailable.current().is_unavailable(&wish("m5.large", "a", "spot")));
}

#[tokio::test(start_paused = true)]
async fn zone_is_unavailable_if_all_subnets_are() {
    let unavailable = unavailable();
    let asked = |ids: &[&str]| {
        let subnet_ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        unavailable
            .current()
            .is_unavailable(&OfferingQuery { subnet_ids: &subnet_ids, ..wish("m5.large", "a", "spot") })
    };
    unavailable.mark_subnet("subnet-1");
    assert!(asked(&["subnet-1"]));
    assert!(!asked(&["subnet-1", "subnet-2"]));
    assert!(!asked(&[]));
    unavailable.mark_subnet("subnet-2");
    assert!(asked(&["subnet-1", "subnet-2"]));
    assert!(!asked(&["subnet-3"]));
    assert!(unavailable.current().is_subnet_unavailable("subnet-2"));
    tokio::time::advance(UNAVAILABLE_FOR).await;
    assert!(!asked(&["subnet-1"]));
    assert!(!unavailable.current().is_subnet_unavailable("subnet-2"));
}

#[tokio::test(start_paused = true)]
async fn changes_list_affected_instance_types() {
    let unavailable = unavailable();
    let types = |names: &[&str]| Changed::Types(names.iter().map(|name| (*name).to_owned()).collect());
    let start = unavailable.current().version();
    unavailable.mark_pool(pool("m5.large", "a", "spot", Scope::AnyLaunch), "x");
    let first = unavailable.current().version();
    tokio::time::advance(MINUTE).await;
    unavailable.mark_pool(pool("c5.large", "a", "spot", Scope::AnyLaunch), "x");
    let second = unavailable.current().version();
    assert_eq!(unavailable.current().changed_since(start), types(&["c5.large", "m5.large"]));
    assert_eq!(unavailable.current().changed_since(first), types(&["c5.large"]));
    assert_eq!(unavailable.current().changed_since(second), types(&[]));

    // Marking an offering that is already marked does not count as a change.
    unavailable.mark_pool(pool("c5.large", "a", "spot", Scope::AnyLaunch), "x");
    assert_eq!(unavailable.current().changed_since(second), types(&[]));

    // When an entry expires, only its instance type counts as changed.
    tokio::time::advance(2 * MINUTE).await;
    assert_eq!(unavailable.current().changed_since(second), types(&["m5.large"]));
    let third = unavailable.current().version();
    unavailable.mark_subnet("subnet-1");
    assert_eq!(unavailable.current().changed_since(third), Changed::All);
    let fourth = unavailable.current().version();
    tokio::time::advance(UNAVAILABLE_FOR).await;
    assert_eq!(unavailable.current().changed_since(fourth), Changed::All);
}

#[tokio::test(start_paused = true)]
async fn readers_track_changes_independently() {
    let unavailable = unavailable();
    let (one, other) = (unavailable.current().version(), unavailable.current().version());
    unavailable.mark_pool(pool("m5.large", "a", "spot", Scope::AnyLaunch), "x");
    let expected = Changed::Types(BTreeSet::from(["m5.large".to_owned()]));
    assert_eq!(unavailable.current().changed_since(one), expected);
    assert_eq!(unavailable.clone().current().changed_since(other), expected);
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_immutable() {
    let unavailable = unavailable();
    let before = unavailable.current();
    unavailable.mark_capacity_type("spot");
    assert!(!before.is_unavailable(&wish("m5.large", "a", "spot")));
}
