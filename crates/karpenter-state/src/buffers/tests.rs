use super::*;
use crate::testing::objects;

const WORLD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: &spec
  replicas: 7
  selector: {matchLabels: {app: web}}
  template: &template
    metadata: {labels: {app: web}}
    spec:
      nodeName: pinned
      containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 1Gi}}}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: d}}, {name: scratch, emptyDir: {}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 0
  serviceName: db
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: shape, generation: 3}
template:
  metadata: {labels: {app: web}}
  spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
";

fn buffer(spec: &str) -> CapacityBuffer {
    let text = format!(
        "{WORLD}---\napiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{name: spare}}\nspec: {{{spec}}}\n"
    );
    objects(&text).capacity_buffers.remove(0)
}

fn outcome(spec: &str) -> Result<i32, (&'static str, String)> {
    let objects = objects(WORLD);
    match resolve(&buffer(spec), &objects) {
        Ok(resolved) => Ok(resolved.replicas),
        Err(unresolved) => Err((unresolved.reason, unresolved.message)),
    }
}

#[test]
fn replicas_are_the_largest_setting_within_the_limits() {
    let of = |rest: &str| outcome(&format!("scalableRef: {{kind: Deployment, name: web}}{rest}"));
    let cases = [
        ("", 0),
        (", replicas: 3", 3),
        (", percentage: 30", 3),
        (", percentage: 1", 1),
        (", percentage: 0", 0),
        (", percentage: 200", 14),
        (", replicas: 2, percentage: 100", 7),
        (", replicas: 9, percentage: 100", 9),
        (", limits: {cpu: 1700m}", 3),
        (", limits: {cpu: 4, memory: 2Gi}", 2),
        (", replicas: 5, limits: {cpu: 1}", 2),
        (", replicas: 1, limits: {cpu: 100}", 1),
        // Limits of resources that the pods do not request have no effect.
        (", replicas: 5, limits: {example.com/gpu: 1}", 5),
        (", replicas: 5, limits: {cpu: 0}", 0),
    ];
    for (rest, expected) in cases {
        assert_eq!(of(rest), Ok(expected), "{rest}");
    }
    // A share of zero replicas counts as not set.
    assert_eq!(outcome("scalableRef: {kind: StatefulSet, name: db}, percentage: 50"), Ok(0));
    assert_eq!(outcome("podTemplateRef: {name: shape}, replicas: 2"), Ok(2));
}

#[test]
fn unresolved_references_are_reported() {
    let cases = [
        (
            "podTemplateRef: {name: other}, replicas: 1",
            "PodTemplateNotFound",
            "podtemplates \"other\" not found",
        ),
        (
            "scalableRef: {kind: Deployment, name: x}",
            "ScalableRefNotFound",
            "deployments.apps \"x\" not found",
        ),
        (
            "scalableRef: {apiGroup: apps, kind: StatefulSet, name: x}",
            "ScalableRefNotFound",
            "statefulsets.apps \"x\" not found",
        ),
        (
            "scalableRef: {kind: ReplicaSet, name: x}",
            "ScalableRefNotFound",
            "replicasets.apps \"x\" not found",
        ),
        ("scalableRef: {kind: Job, name: x}", "ResolutionFailed", "unsupported kind \"Job\""),
        (
            "scalableRef: {apiGroup: batch, kind: Job, name: x}",
            "ResolutionFailed",
            "unsupported scalableRef API group \"batch\"",
        ),
        ("replicas: 1", "ResolutionFailed", "Neither podTemplateRef nor scalableRef is set"),
    ];
    for (spec, reason, message) in cases {
        assert_eq!(outcome(spec), Err((reason, message.to_owned())), "{spec}");
    }
}

#[test]
fn virtual_pods_have_the_template_without_volume_claims() {
    let objects = objects(WORLD);
    let buffer = buffer("scalableRef: {kind: Deployment, name: web}, replicas: 2");
    let resolved = resolve(&buffer, &objects).expect("resolved");
    let pods = virtual_pods(&buffer, &resolved.template, 2);
    let names: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["capacity-buffer-spare-1", "capacity-buffer-spare-2"]);
    let spec = &pods[0].spec;
    assert_eq!((spec.node_name.as_deref(), spec.priority), (None, Some(i32::MIN)));
    let volumes: Vec<&str> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["scratch"]);
    assert_eq!(buffer_of(&pods[1]), Some(("default", "spare")));
    assert!(is_virtual(&pods[0]) && !is_virtual(&objects.pods.first().cloned().unwrap_or_default()));
    assert_eq!(pods, virtual_pods(&buffer, &resolved.template, 2));
}
