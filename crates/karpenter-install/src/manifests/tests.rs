use super::*;
use crate::kinds::title;

fn settings(provider: Provider) -> Settings {
    let mut settings = Settings { image: Some("registry.example/k:1".to_owned()), ..Settings::new(provider) };
    settings.variables.insert("CLUSTER_NAME".to_owned(), "demo".to_owned());
    settings
}

fn titles(settings: &Settings) -> Vec<String> {
    build(settings).expect("built").iter().map(title).collect()
}

fn deployment(settings: &Settings) -> Value {
    let mut objects = build(settings).expect("built");
    objects.pop().filter(|object| object["kind"] == "Deployment").expect("the Deployment is last")
}

#[test]
fn objects_are_ordered_for_apply() {
    let kwok = Settings { namespace: "karpenter".to_owned(), ..settings(Provider::Kwok) };
    let found = titles(&kwok);
    assert_eq!(
        found.iter().filter(|title| title.starts_with("CustomResourceDefinition")).count(),
        crds::all().len()
    );
    assert_eq!(
        found[crds::all().len()..],
        [
            "Namespace karpenter",
            "ServiceAccount karpenter/karpenter",
            "ClusterRole karpenter",
            "ClusterRoleBinding karpenter",
            "ClusterRole karpenter-kwok",
            "ClusterRoleBinding karpenter-kwok",
            "Role karpenter/karpenter",
            "RoleBinding karpenter/karpenter",
            "PodDisruptionBudget karpenter/karpenter",
            "Service karpenter/karpenter",
            "Deployment karpenter/karpenter",
        ]
    );
}

#[test]
fn roles_depend_on_provider_and_features() {
    let mut aws = Settings { name: "k".to_owned(), with_definitions: false, ..settings(Provider::Aws) };
    let found = titles(&aws);
    assert!(found.contains(&"ClusterRole k-aws".to_owned()), "{found:?}");
    assert!(found.contains(&"RoleBinding kube-system/k-aws".to_owned()), "{found:?}");
    assert!(
        !found
            .iter()
            .any(|title| title.contains("kwok") || title.contains("legacy") || title.contains("Namespace"))
    );
    aws.serves_legacy = true;
    aws.variables.insert("FEATURE_GATES".to_owned(), "CapacityBuffer=true".to_owned());
    let found = titles(&aws);
    assert!(found.contains(&"ClusterRoleBinding k-legacy".to_owned()), "{found:?}");
    assert!(found.contains(&"RoleBinding kube-system/k-legacy".to_owned()), "{found:?}");
    assert!(found.contains(&"ClusterRoleBinding k-features".to_owned()), "{found:?}");
}

#[test]
fn scope_limits_objects() {
    let scope = |scope| Settings { scope, image: None, ..settings(Provider::Kwok) };
    let definitions = titles(&scope(Scope::OnlyDefinitions));
    assert!(definitions.iter().all(|title| title.starts_with("CustomResourceDefinition")), "{definitions:?}");
    let outside = titles(&scope(Scope::WithoutController));
    assert!(outside.contains(&"Role kube-system/karpenter".to_owned()));
    assert!(!outside.iter().any(|title| title.starts_with("Deployment") || title.starts_with("Service ")));
    let legacy = titles(&Settings { serves_legacy: true, ..scope(Scope::OnlyDefinitions) });
    assert_eq!(legacy.len(), definitions.len() + crds::legacy().len());
}

#[test]
fn names_and_namespaces_follow_settings() {
    let mut aws = Settings { name: "k".to_owned(), namespace: "infra".to_owned(), ..settings(Provider::Aws) };
    aws.serves_legacy = true;
    aws.variables.insert("KARPENTER_SERVICE".to_owned(), "mine".to_owned());
    let objects = build(&aws).expect("built");
    let selected = json!({"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "k"});
    let deployment = deployment(&aws);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], selected);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], selected);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "k");
    assert_eq!(pod["containers"][0]["args"], json!(["controller", "--provider", "aws"]));
    assert_eq!(pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"], selected);
    let env = pod["containers"][0]["env"].as_array().expect("a list");
    let values: BTreeMap<&str, &str> =
        env.iter().map(|each| (text(each, "/name"), text(each, "/value"))).collect();
    assert_eq!(values.len(), env.len(), "no variable twice");
    assert_eq!((values["CLUSTER_NAME"], values["KARPENTER_SERVICE"]), ("demo", "mine"));
    for object in &objects {
        if ["Service", "PodDisruptionBudget"].contains(&text(object, "/kind")) {
            let selector =
                object.pointer("/spec/selector/matchLabels").unwrap_or(&object["spec"]["selector"]);
            assert_eq!(*selector, selected, "{}", title(object));
        }
        if text(object, "/kind") == "Role" {
            let is_dns = kinds::name(object) == "k-aws";
            assert_eq!(text(object, "/metadata/namespace"), if is_dns { "kube-system" } else { "infra" });
        }
        if text(object, "/kind").ends_with("Binding") {
            assert_eq!(object["subjects"][0]["name"], "k");
            assert_eq!(object["subjects"][0]["namespace"], "infra");
            let role = text(object, "/roleRef/name");
            let is_role = |other: &&Value| kinds::name(other) == role && other.get("rules").is_some();
            assert!(objects.iter().any(|other| is_role(&other)), "{role} is bound and does not exist");
        }
    }
}

#[test]
fn invalid_settings_are_an_error() {
    let wrong = Settings { image: None, name: "X".to_owned(), ..settings(Provider::Kwok) };
    match build(&wrong) {
        Err(Error::Wrong(lines)) => assert_eq!(lines.len(), 2, "{lines:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn needed_permissions_equal_the_applied_rules() {
    let needed = needed_permissions(&settings(Provider::Kwok)).expect("read");
    let texts: Vec<String> = needed.iter().map(ToString::to_string).collect();
    for wanted in [
        "create pods/eviction",
        "patch nodeclaims/status.karpenter.sh",
        "create nodes",
        "update leases.coordination.k8s.io karpenter-leader-election in kube-system",
    ] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
    // If EC2 is simulated, the kwok provider may set the status of EC2NodeClasses, but must not change their spec.
    for unwanted in ["watch ec2nodeclasses.karpenter.k8s.aws", "patch ec2nodeclasses.karpenter.k8s.aws"] {
        assert!(!texts.iter().any(|text| text == unwanted), "{unwanted}: {texts:?}");
    }
    let of_aws = needed_permissions(&settings(Provider::Aws)).expect("read");
    assert!(of_aws.iter().any(|one| one.to_string() == "patch ec2nodeclasses.karpenter.k8s.aws"));
}
