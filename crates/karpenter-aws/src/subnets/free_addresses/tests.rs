use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
}

fn subnet(id: &str, zone: &str) -> SubnetStatus {
    SubnetStatus { id: id.to_owned(), zone: zone.to_owned(), zone_id: Some(format!("{zone}-id")) }
}

fn free(counts: &[(&str, i64)]) -> FreeAddresses {
    let mut free = FreeAddresses::new(Duration::from_secs(300));
    for (id, count) in counts {
        free.learn(id, *count, at(0));
    }
    free
}

fn names(chosen: &BTreeMap<String, LaunchSubnet>) -> Vec<(&str, &str)> {
    chosen.iter().map(|(zone, subnet)| (zone.as_str(), subnet.id.as_str())).collect()
}

#[test]
fn subnet_with_most_free_addresses_is_chosen_per_zone() {
    let subnets = [subnet("s1", "a"), subnet("s2", "a"), subnet("s3", "b"), subnet("s4", "a")];
    // Columns: number of free addresses of each subnet, expected subnet in zone a.
    let table: [(&[(&str, i64)], &str); 7] = [
        (&[("s1", 10), ("s2", 20), ("s4", 15)], "s2"),
        (&[("s1", 20), ("s2", 20)], "s1"),
        (&[("s1", 0), ("s2", 0), ("s4", 1)], "s4"),
        (&[("s2", 1)], "s2"),
        (&[], "s1"),
        (&[("s1", -5), ("s2", -4)], "s4"),
        (&[("s1", i64::MAX), ("s4", i64::MAX)], "s1"),
    ];
    for (counts, expected) in table {
        let chosen = free(counts).choose(&subnets, |_| 0, at(1));
        assert_eq!(names(&chosen), [("a", expected), ("b", "s3")], "{counts:?}");
        assert_eq!(chosen["b"].zone_id.as_deref(), Some("b-id"));
    }
}

#[test]
fn launches_in_flight_reduce_free_addresses() {
    let subnets = [subnet("s1", "a"), subnet("s2", "a")];
    let mut free = free(&[("s1", 100), ("s2", 60)]);
    let order: Vec<String> = (0..5).map(|_| free.choose(&subnets, |_| 30, at(1))["a"].id.clone()).collect();
    // 100 → 70 → 40, then 60 → 30, then 40 → 10.
    assert_eq!(order, ["s1", "s1", "s2", "s1", "s2"]);
    assert_eq!((free.left("s1", at(1)), free.left("s2", at(1))), (10, 0));
}

#[test]
fn unused_addresses_are_released_unless_ec2_reported_since() {
    let subnets = [subnet("s1", "a"), subnet("s2", "b")];
    // Columns: subnets that the launch used, counts that EC2 returned in the meantime, expected counts of s1 and s2.
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, i64)], (i64, i64));
    let table: [Row; 5] = [
        (&["s1"], &[], (90, 100)),
        (&["s1", "s2"], &[], (90, 90)),
        (&[], &[], (100, 100)),
        (&["s1"], &[("s2", 97)], (90, 97)),
        (&[], &[("s1", 42), ("s2", 100)], (42, 100)),
    ];
    for (used, heard, expected) in table {
        let mut free = free(&[("s1", 100), ("s2", 100)]);
        let chosen = free.choose(&subnets, |_| 10, at(1));
        for (id, count) in heard {
            free.learn(id, *count, at(2));
        }
        free.settle(chosen.values(), &used.iter().copied().collect(), at(3));
        assert_eq!((free.left("s1", at(3)), free.left("s2", at(3))), expected, "{used:?} {heard:?}");
    }
}

#[test]
fn full_subnet_is_avoided_until_next_count() {
    let subnets = [subnet("s1", "a"), subnet("s2", "a")];
    let mut free = free(&[("s1", 100), ("s2", 50)]);
    free.choose(&subnets, |_| 10, at(1));
    free.exhausted("s1", at(2));
    assert_eq!(free.left("s1", at(2)), 0);
    assert_eq!(free.choose(&subnets, |_| 0, at(2))["a"].id, "s2");
    free.learn("s1", 200, at(3));
    assert_eq!(free.choose(&subnets, |_| 0, at(3))["a"].id, "s1");
}

#[test]
fn outdated_count_is_ignored() {
    let free = free(&[("s1", 100)]);
    assert_eq!(free.left("s1", at(299)), 100);
    assert_eq!(free.left("s1", at(300)), 0);
}

#[test]
fn needed_addresses_differ_per_zone() {
    let subnets = [subnet("s1", "a"), subnet("s2", "b")];
    let mut free = free(&[("s1", 100), ("s2", 100)]);
    free.choose(&subnets, |zone| if zone == "a" { 29 } else { 58 }, at(1));
    assert_eq!((free.left("s1", at(1)), free.left("s2", at(1))), (71, 42));
}
