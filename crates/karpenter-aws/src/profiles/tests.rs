use super::*;
use serde_json::json;

fn class(name: &str, uid: &str) -> EC2NodeClass {
    let metadata = json!({"name": name, "uid": uid});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"tags": {"team": "a", "Name": "x"}}}))
        .expect("a class")
}

fn profile(roles: &[&str]) -> InstanceProfile {
    InstanceProfile {
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..InstanceProfile::default()
    }
}

#[test]
fn role_is_compared_without_path() {
    let table =
        [("node-role", "node-role"), ("/team/node-role", "node-role"), ("a/b/c", "c"), ("/", ""), ("", "")];
    for (role, expected) in table {
        assert_eq!(role_name(role), expected, "{role}");
    }
}

#[test]
fn profile_steps_lead_to_role() {
    let table = [
        ("nothing is there", None, "r", Step::Create),
        ("no role yet", Some(profile(&[])), "r", Step::AddRole),
        ("the role", Some(profile(&["r"])), "r", Step::Done),
        ("the role, asked for with its path", Some(profile(&["r"])), "/a/b/r", Step::Done),
        ("another role", Some(profile(&["old"])), "r", Step::RemoveRole("old".to_owned())),
        ("a role that ends alike", Some(profile(&["xr"])), "r", Step::RemoveRole("xr".to_owned())),
    ];
    for (case, present, role, expected) in table {
        assert_eq!(next_step(present.as_ref(), role), expected, "{case}");
    }
}

#[test]
fn profile_name_is_derived_from_class_and_role() {
    let one = |class: &EC2NodeClass, role| profile_name("shop", "us-west-2", class, role);
    let this = class("default", "uid-1");
    let name = one(&this, "r");
    assert!(name.strip_prefix("shop_").is_some_and(|hash| hash.parse::<u64>().is_ok()), "{name}");
    assert_eq!(name, one(&class("default", "uid-1"), "/path/r"), "the same for ever, whatever the path");
    let others = [
        one(&this, "r2"),
        one(&class("default", "uid-2"), "r"),
        one(&class("other", "uid-1"), "r"),
        profile_name("shop", "us-east-1", &this, "r"),
        profile_name("shop2", "us-west-2", &this, "r"),
    ];
    assert_eq!(others.iter().collect::<BTreeSet<_>>().len(), others.len());
    assert!(!others.contains(&name));
}

/// The expected numbers come from the Go library with which upstream computed these names.
#[test]
fn legacy_profile_name_equals_upstream() {
    let table = [
        ("shop", "us-west-2", "default", Some("shop_4067990795380418201")),
        ("shop", "us-east-1", "a", Some("shop_10446809543141660108")),
        ("s.h+o=p,@-_1", "eu-central-1", "my.class", Some("s.h+o=p,@-_1_11078343237556576301")),
        ("with space", "us-west-2", "default", None),
        ("bücher", "us-west-2", "default", None),
    ];
    for (cluster, region, class, expected) in table {
        assert_eq!(legacy_profile_name(cluster, region, class).as_deref(), expected, "{cluster}");
    }
    let long = |length: usize| legacy_profile_name(&"c".repeat(length), "us-west-2", "default");
    assert!(long(128 - "_4067990795380418201".len()).is_some());
    assert!(long(129 - "_4067990795380418201".len()).is_none());
}

#[test]
fn profile_has_tags_of_class_and_owner() {
    let tags = profile_tags(&class("default", "u"), "shop", "us-west-2");
    let expected = [
        ("Name", "x"),
        ("eks:eks-cluster-name", "shop"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("kubernetes.io/cluster/shop", "owned"),
        ("team", "a"),
        ("topology.kubernetes.io/region", "us-west-2"),
    ];
    let found: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
    assert_eq!(class_path("us-west-2", "shop", "u"), "/karpenter/us-west-2/shop/u/");
}

#[test]
fn missing_role_is_distinguished_from_missing_profile() {
    let table = [
        ("NoSuchEntity", "The role with name node-role cannot be found.", true),
        ("NoSuchEntity", "Instance Profile shop_1 cannot be found.", false),
        ("NoSuchEntity", "Instance Profile my-role-shop_1 cannot be found.", false),
        ("AccessDenied", "not allowed to pass role x", false),
    ];
    for (code, message, expected) in table {
        assert_eq!(is_role_not_found(&AwsError::new(code, message)), expected, "{message}");
    }
}
