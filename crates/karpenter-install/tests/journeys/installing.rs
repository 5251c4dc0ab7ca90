//! Tests which objects `install` writes and which it does not, and that all objects are validated before the first one
//! is written.

use crate::world::World;
use karpenter_install::Error;
use karpenter_install::install::Choices;
use karpenter_install::settings::{Scope, Settings};
use serde_json::{Value, json};
use std::time::Duration;

fn waiting() -> Choices {
    Choices { wait: Some(Duration::from_secs(120)), ..Choices::default() }
}

fn refusal(answer: Result<(), Error>) -> String {
    match answer {
        Err(Error::Refused(lines)) => lines.join("\n"),
        other => panic!("the installation did not fail: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn second_install_changes_nothing() {
    let world = World::start().await;
    world.install(&World::settings(), &waiting()).await.expect("installed");
    assert!(
        world.reported("created Deployment karpenter/karpenter") && world.reported("ready: 2 of 2 replicas")
    );
    world.forget();
    world.install(&World::settings(), &waiting()).await.expect("installed again");
    assert!(world.reported("unchanged Deployment karpenter/karpenter"));
    let lines = world.lines.lock().expect("not poisoned").clone();
    let is_idle = |line: &String| line.starts_with("unchanged ") || line.starts_with("ready: ");
    assert!(lines.iter().all(is_idle), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_no_longer_needed_are_deleted() {
    let world = World::start().await;
    let legacy = Settings { serves_legacy: true, ..World::settings() };
    world.install(&legacy, &Choices::default()).await.expect("installed");
    assert!(world.reported("created ClusterRoleBinding karpenter-legacy"));
    let elsewhere = Settings { namespace: "infra".to_owned(), ..World::settings() };
    world.install(&elsewhere, &Choices::default()).await.expect("moved");
    for gone in [
        "deleted Deployment karpenter/karpenter",
        "deleted ClusterRole karpenter-legacy",
        "deleted Role karpenter/",
    ] {
        assert!(world.reported(gone), "{gone}: {:?}", world.lines);
    }
    assert!(world.get("apps", "Deployment", "infra", "karpenter").await.is_some());
    let definitions = world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await;
    assert!(
        definitions.iter().any(|each| each["metadata"]["name"] == "provisioners.karpenter.sh"),
        "definitions stay"
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_object_prevents_all_writes() {
    let world = World::start().await;
    let mut settings = Settings { namespace: "kube-system".to_owned(), ..World::settings() };
    settings.account_annotations.insert("not a key".to_owned(), "x".to_owned());
    let reported = refusal(world.install(&settings, &Choices::default()).await);
    assert!(reported.contains("ServiceAccount kube-system/karpenter would be rejected"), "{reported}");
    assert!(world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await.is_empty());
    let wrong = Settings { image: None, ..World::settings() };
    assert!(matches!(world.install(&wrong, &Choices::default()).await, Err(Error::Wrong(_))));
}

#[tokio::test(start_paused = true)]
async fn dry_run_reports_objects_and_writes_nothing() {
    let world = World::start().await;
    let dry = Choices { is_dry_run: true, ..waiting() };
    world.install(&World::settings(), &dry).await.expect("reported");
    assert!(world.reported("would create Deployment karpenter/karpenter"));
    assert!(world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await.is_empty());
    let namespaces = world.list("", "v1", "Namespace").await;
    assert!(!namespaces.iter().any(|each| each["metadata"]["name"] == "karpenter"));
}

#[tokio::test(start_paused = true)]
async fn definitions_can_be_installed_alone() {
    let world = World::start().await;
    let only = Settings { scope: Scope::OnlyDefinitions, image: None, ..World::settings() };
    world.install(&only, &Choices::default()).await.expect("installed");
    assert!(!world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await.is_empty());
    assert!(world.list("rbac.authorization.k8s.io", "v1", "ClusterRole").await.is_empty());
}

/// A cluster in which Helm installed upstream's Karpenter.
pub(crate) async fn foreign(world: &World) -> Value {
    let labels = json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "karpenter"});
    let annotations =
        json!({"meta.helm.sh/release-name": "upstream", "meta.helm.sh/release-namespace": "karpenter"});
    world.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}})).await;
    let container = json!({"name": "controller", "image": "public.ecr.aws/karpenter/controller:1.8.1"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": "karpenter", "labels": labels, "annotations": annotations},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "upstream"}}, "template":
            {"metadata": {"labels": {"app": "upstream"}}, "spec": {"containers": [container],
                "tolerations": [{"operator": "Exists"}]}}}});
    world.apply(deployment.clone()).await;
    deployment
}

#[tokio::test(start_paused = true)]
async fn karpenter_of_helm_is_not_overwritten_without_take_over() {
    let world = World::start().await;
    foreign(&world).await;
    let reported = refusal(world.install(&World::settings(), &Choices::default()).await);
    assert!(
        reported.contains("Helm release upstream in karpenter") && reported.contains("--take-over"),
        "{reported}"
    );
    let beside =
        Settings { name: "karpenter-rs".to_owned(), namespace: "infra".to_owned(), ..World::settings() };
    let reported = refusal(world.install(&beside, &Choices::default()).await);
    assert!(reported.contains("two controllers must not be active"), "{reported}");
    let over = Choices { takes_over: true, ..Choices::default() };
    let reported = refusal(world.install(&World::settings(), &over).await);
    assert!(reported.contains("--name karpenter-rs"), "{reported}");
    assert!(world.list("apiextensions.k8s.io", "v1", "CustomResourceDefinition").await.is_empty());

    let own_name = Settings { name: "karpenter-rs".to_owned(), ..World::settings() };
    world.install(&own_name, &Choices { wait: waiting().wait, ..over }).await.expect("taken over");
    let theirs = world.get("apps", "Deployment", "karpenter", "karpenter").await.expect("kept");
    assert_eq!(theirs["spec"]["replicas"], 0);
    assert_eq!(theirs["metadata"]["annotations"]["install.karpenter.sh/replicas-before"], "2");
}
