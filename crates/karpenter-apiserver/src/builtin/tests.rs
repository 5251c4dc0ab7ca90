use serde_json::json;

use super::*;

#[test]
fn pods_have_expected_discovery() {
    let pods = kind("", "v1", "Pod").unwrap();
    assert_eq!((pods.plural, pods.singular, pods.namespaced), ("pods", "pod", true));
    assert_eq!(pods.short_names, ["po"]);
    assert_eq!(pods.categories, ["all"]);
    let eviction = pods.subresources.iter().find(|sub| sub.name == "eviction").unwrap();
    assert_eq!((eviction.group, eviction.version, eviction.kind), ("policy", "v1", "Eviction"));
}

#[test]
fn only_stable_versions_are_served() {
    assert!(groups().iter().all(|(_, versions)| versions.iter().all(|version| !version.contains("beta"))));
    let autoscaling = groups().iter().find(|(group, _)| *group == "autoscaling").unwrap();
    assert_eq!(autoscaling.1, ["v2", "v1"]);
    assert!(kind("resource.k8s.io", "v1", "ResourceClaim").is_some());
}

#[test]
fn every_kind_has_a_struct_with_metadata_or_is_a_review_or_list() {
    for known in kinds() {
        let info = known.type_id.info();
        assert_eq!(info.form, TypeForm::Struct, "{}", known.kind);
        assert!(info.field("metadata").is_some(), "{}", known.kind);
        for sub in &known.subresources {
            let options = sub.kind.ends_with("Options");
            assert!(options || type_of(sub.group, sub.version, sub.kind).is_some(), "{}", sub.kind);
        }
    }
}

#[test]
fn shape_has_list_keys_and_key_defaults() {
    let Some(Shape::Struct(pod)) = shape("", "v1", "Pod") else { panic!("a pod is a struct") };
    let Shape::Struct(spec) = &pod.field("spec").unwrap().shape else { panic!("a pod's spec is a struct") };
    let containers = spec.field("containers").unwrap();
    assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
    let Shape::Keyed(containers) = &containers.shape else { panic!("containers have keys") };
    let Shape::Struct(container) = &containers.element else { panic!("a container is a struct") };
    let ports = container.field("ports").unwrap();
    assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
    let Shape::Keyed(ports) = &ports.shape else { panic!("ports have keys") };
    assert_eq!(ports.keys, ["containerPort", "protocol"]);
    assert!(ports.key_defaults.contains(&("protocol".to_string(), json!("TCP"))));
    assert_eq!(spec.field("nodeSelector").unwrap().shape, Shape::Atomic);
    assert_eq!(spec.field("tolerations").unwrap().shape, Shape::Atomic);
    assert!(spec.field("volumes").unwrap().patch_retains_keys);
}

#[test]
fn quantities_become_canonical() {
    for (text, expected) in [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1024", "1024"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1000", "1k"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1e1", "10"),
        ("0", "0"),
        ("0Gi", "0"),
        ("-1", "-1"),
        ("+2", "2"),
        ("0.1n", "1n"),
        ("100M", "100M"),
        ("1000000k", "1G"),
        ("0.001", "1m"),
    ] {
        assert_eq!(canonical_quantity(text).as_deref(), Some(expected), "{text}");
    }
    for text in ["", "Gi", "1.2.3", "1Kib", "abc", "1e", "--1"] {
        assert_eq!(canonical_quantity(text), None, "{text}");
    }
}
