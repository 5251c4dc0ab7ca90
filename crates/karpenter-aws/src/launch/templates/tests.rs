use jiff::Timestamp;
use tokio::time::advance;

use super::*;
use crate::fake::{Call, FakeAws};

fn tags(class: &str) -> Tags {
    let pairs = [(CLUSTER_TAG, "cluster"), (labels::AWS_NODE_CLASS, class)];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect()
}

fn data(image: &str) -> LaunchTemplateData {
    LaunchTemplateData { image_id: image.to_owned(), ..LaunchTemplateData::default() }
}

fn world() -> (Arc<FakeAws>, LaunchTemplates) {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let cloud = FakeAws::new(clock, "us-west-2");
    let templates = LaunchTemplates::new(Arc::clone(&cloud) as _, clock, "cluster");
    (cloud, templates)
}

fn names(cloud: &FakeAws) -> Vec<String> {
    cloud.world(|world| world.launch_templates.keys().cloned().collect())
}

const SECONDS_59: Duration = Duration::from_secs(59);

#[test]
fn template_name_is_hash_of_content() {
    let name = template_name(&data("ami-1"), &tags("default"));
    assert_eq!(name, template_name(&data("ami-1"), &tags("default")));
    assert_ne!(name, template_name(&data("ami-2"), &tags("default")));
    assert_ne!(name, template_name(&data("ami-1"), &tags("other")));
    let number = name.strip_prefix("karpenter.k8s.aws/").expect("the prefix");
    assert!(number.parse::<u64>().is_ok(), "{name}");
}

#[tokio::test(start_paused = true)]
async fn template_is_created_once_and_cached() {
    let (cloud, templates) = world();
    let one = templates.ensure(data("ami-1"), &tags("default")).await.unwrap();
    let two = templates.ensure(data("ami-1"), &tags("default")).await.unwrap();
    assert_eq!(one, two);
    assert_eq!(cloud.calls(), [Call::DescribeLaunchTemplates, Call::CreateLaunchTemplate]);
    assert_eq!(one.tags, tags("default"));
}

#[tokio::test(start_paused = true)]
async fn concurrent_launches_create_template_once_without_blocking_others() {
    let (cloud, templates) = world();
    cloud.set_latency(Duration::from_secs(1));
    let started = tokio::time::Instant::now();
    let asked = (0..50).map(|number| templates.ensure(data(&format!("ami-{}", number % 2)), &TAGS));
    let made = futures::future::try_join_all(asked).await.unwrap();
    assert_eq!(made.len(), 50);
    assert_eq!(cloud.count(Call::CreateLaunchTemplate), 2);
    assert_eq!(
        started.elapsed(),
        Duration::from_secs(2),
        "lookup and creation, concurrently for all templates"
    );
}

static TAGS: Tags = Tags::new();

#[tokio::test(start_paused = true)]
async fn existing_template_is_reused() {
    let (cloud, templates) = world();
    let request = CreateLaunchTemplate {
        name: template_name(&data("ami-1"), &TAGS),
        data: data("ami-1"),
        tags: Tags::new(),
    };
    let made = cloud.create_launch_template(&request).await.unwrap();
    assert_eq!(templates.ensure(data("ami-1"), &TAGS).await.unwrap(), made);
    assert_eq!(cloud.count(Call::CreateLaunchTemplate), 1);
}

#[tokio::test(start_paused = true)]
async fn template_created_by_another_process_is_used() {
    let (cloud, templates) = world();
    let request = CreateLaunchTemplate {
        name: template_name(&data("ami-1"), &TAGS),
        data: data("ami-1"),
        tags: Tags::new(),
    };
    let made = cloud.create_launch_template(&request).await.unwrap();
    let unseen = AwsError::new("InvalidLaunchTemplateName.NotFoundException", "not seen yet");
    cloud.fail_next(Call::DescribeLaunchTemplates, [unseen]);
    assert_eq!(templates.ensure(data("ami-1"), &TAGS).await.unwrap(), made);
}

#[tokio::test(start_paused = true)]
async fn failed_creation_is_not_cached() {
    let (cloud, templates) = world();
    cloud.fail_next(Call::DescribeLaunchTemplates, [AwsError::new("RequestLimitExceeded", "")]);
    assert!(templates.ensure(data("ami-1"), &TAGS).await.unwrap_err().is_throttled());
    cloud.fail_next(Call::CreateLaunchTemplate, [AwsError::new("UnauthorizedOperation", "")]);
    assert!(templates.ensure(data("ami-1"), &TAGS).await.unwrap_err().is_unauthorized());
    assert!(templates.ensure(data("ami-1"), &TAGS).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn template_unused_for_a_minute_is_deleted() {
    let (cloud, templates) = world();
    templates.ensure(data("ami-1"), &TAGS).await.unwrap();
    templates.ensure(data("ami-2"), &TAGS).await.unwrap();
    advance(SECONDS_59).await;
    assert_eq!(templates.sweep().await, 0);
    templates.ensure(data("ami-2"), &TAGS).await.unwrap();
    advance(SECONDS_59).await;
    assert_eq!(templates.sweep().await, 1);
    assert_eq!(names(&cloud), [template_name(&data("ami-2"), &TAGS)]);
    let again = templates.ensure(data("ami-1"), &TAGS).await.unwrap();
    assert!(names(&cloud).contains(&again.name), "created again on the next use");
}

#[tokio::test(start_paused = true)]
async fn failed_deletion_is_retried_and_missing_template_ignored() {
    let (cloud, templates) = world();
    templates.ensure(data("ami-1"), &TAGS).await.unwrap();
    advance(Duration::from_secs(60)).await;
    cloud.fail_next(Call::DeleteLaunchTemplate, [AwsError::new("RequestLimitExceeded", "")]);
    assert_eq!(templates.sweep().await, 0);
    assert_eq!(templates.sweep().await, 1);
    assert!(names(&cloud).is_empty());
    templates.ensure(data("ami-1"), &TAGS).await.unwrap();
    cloud.world(|world| world.launch_templates.clear());
    advance(Duration::from_secs(60)).await;
    assert_eq!(templates.sweep().await, 1);
    assert_eq!(templates.sweep().await, 0);
}

#[tokio::test(start_paused = true)]
async fn hydrated_templates_expire() {
    let (cloud, templates) = world();
    for (name, cluster) in [("ours", "cluster"), ("theirs", "other")] {
        let tags = Tags::from([(CLUSTER_TAG.to_owned(), cluster.to_owned())]);
        let request = CreateLaunchTemplate { name: name.to_owned(), data: data("ami-1"), tags };
        cloud.create_launch_template(&request).await.unwrap();
    }
    assert_eq!(templates.hydrate().await.unwrap(), 1);
    advance(Duration::from_secs(60)).await;
    assert_eq!(templates.sweep().await, 1);
    assert_eq!(names(&cloud), ["theirs"]);
}

#[tokio::test(start_paused = true)]
async fn deleted_class_deletes_its_templates() {
    let (cloud, templates) = world();
    templates.ensure(data("ami-1"), &tags("gone")).await.unwrap();
    templates.ensure(data("ami-2"), &tags("gone")).await.unwrap();
    let stays = templates.ensure(data("ami-1"), &tags("stays")).await.unwrap();
    templates.delete_all("gone").await.unwrap();
    assert_eq!(names(&cloud), [stays.name]);
    cloud.fail_next(Call::DeleteLaunchTemplate, [AwsError::new("UnauthorizedOperation", "")]);
    assert!(templates.delete_all("stays").await.unwrap_err().is_unauthorized());
}

#[tokio::test(start_paused = true)]
async fn forgotten_template_is_looked_up_again() {
    let (cloud, templates) = world();
    let made = templates.ensure(data("ami-1"), &TAGS).await.unwrap();
    cloud.world(|world| world.launch_templates.clear());
    assert_eq!(templates.ensure(data("ami-1"), &TAGS).await.unwrap(), made, "believed in");
    templates.forget(&made.name);
    assert_ne!(templates.ensure(data("ami-1"), &TAGS).await.unwrap().id, made.id);
}
