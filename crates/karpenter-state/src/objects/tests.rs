use crate::objects::Severity;
use crate::testing::{POOL, objects, pod_yaml, read};

/// The errors and warnings without their location.
fn findings(text: &str) -> Vec<(Severity, String)> {
    let describe = |error: &super::ObjectError| {
        let valid = error.valid.as_ref().map(|valid| format!(" (valid: {valid})")).unwrap_or_default();
        (error.severity, format!("{}: {}: {}{valid}", error.object, error.path, error.message))
    };
    read(text).errors.iter().map(describe).collect()
}

#[track_caller]
fn check_error(text: &str, expected: &[&str]) {
    let found = findings(text);
    let errors: Vec<&str> = found
        .iter()
        .filter(|(severity, _)| *severity == Severity::Error)
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(errors, expected, "{text}");
}

#[test]
fn known_kinds_are_read_and_others_counted() {
    let text = format!(
        "{POOL}---
{}---
{{apiVersion: v1, kind: Namespace, metadata: {{name: a}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: a}}}}
---
{{apiVersion: v1, kind: Secret, metadata: {{name: b}}}}
---
{{apiVersion: example.com/v1, kind: Job, metadata: {{name: b}}, spec: {{}}}}
---
{{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {{name: default}}}}
",
        pod_yaml("p", "")
    );
    let reading = read(&text);
    assert_eq!(reading.errors, []);
    let objects = reading.objects;
    assert_eq!((objects.node_pools.len(), objects.pods.len(), objects.namespaces.len()), (1, 1, 1));
    assert_eq!(objects.kwok_node_classes.len(), 1);
    let ignored: Vec<_> = reading.ignored.into_iter().collect();
    assert_eq!(ignored, [("Job".to_owned(), 1), ("Secret".to_owned(), 2)]);
}

#[test]
fn numbers_are_accepted_as_quantities() {
    let text = pod_yaml("p", "")
        .replace("image: i", "image: i, resources: {requests: {cpu: 2, memory: 1.5, x/y: 1e3}}");
    let pods = objects(&text).pods;
    let container = &pods[0].spec.containers[0];
    let requests = container.resources.as_ref().unwrap().requests.as_ref().unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("2", "1.5"));
}

#[test]
fn type_errors_name_the_field() {
    let text = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: many, selector: {}, template: {}}}";
    check_error(
        text,
        &["Deployment default/web: spec.replicas: invalid type: string \"many\" (valid: a 32-bit integer)"],
    );
}

#[test]
fn invalid_values_name_the_field_and_valid_values() {
    let with = |text: &str| pod_yaml("p", text);
    let resources = |text: &str| pod_yaml("p", "").replace("image: i", &format!("image: i, {text}"));
    let cases = [
        (
            resources("resources: {requests: {cpu: '-1'}}"),
            "Pod default/p: spec.containers[0].resources.requests.cpu: \"-1\" is negative (valid: 0 or more)",
        ),
        (
            resources("ports: [{containerPort: 80, hostPort: 70000}]"),
            "Pod default/p: spec.containers[0].ports[0].hostPort: 70000 is not a port (valid: 0 to 65535)",
        ),
        (
            with("tolerations: [{key: a, operator: Maybe}]"),
            "Pod default/p: spec.tolerations[0].operator: \"Maybe\" is not an operator (valid: Exists, Equal, Gt or Lt)",
        ),
        (
            with("tolerations: [{operator: Exists, effect: Never}]"),
            "Pod default/p: spec.tolerations[0].effect: \"Never\" is not an effect (valid: NoSchedule, PreferNoSchedule or NoExecute)",
        ),
        (
            with("topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]"),
            "Pod default/p: spec.topologySpreadConstraints[0].maxSkew: 0 is too small (valid: 1 or more)",
        ),
        (
            with("topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Perhaps}]"),
            "Pod default/p: spec.topologySpreadConstraints[0].whenUnsatisfiable: \"Perhaps\" is not supported (valid: DoNotSchedule or ScheduleAnyway)",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: -3, selector: {}, template: {spec: {containers: [{name: c}]}}}}".to_owned(),
            "Deployment default/web: spec.replicas: -3 is negative (valid: 0 or more)",
        ),
        (
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {}, template: {}}}".to_owned(),
            "Deployment default/web: spec.template.spec: is missing",
        ),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {taints: [{key: a, effect: Go}]}}".to_owned(),
            "Node n1: spec.taints[0].effect: \"Go\" is not an effect (valid: NoSchedule, PreferNoSchedule or NoExecute)",
        ),
        (
            "{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: web}}".to_owned(),
            "Deployment web: apiVersion: kind Deployment of extensions/v1beta1 is not supported (valid: apps/v1)",
        ),
        ("{kind: Pod}".to_owned(), "object: apiVersion: is missing (valid: a non-empty text, as in every manifest)"),
    ];
    for (text, expected) in cases {
        check_error(&text, &[expected]);
    }
    let found = findings(&resources("resources: {requests: {memory: 1GiB}}"));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.starts_with("Pod default/p: spec.containers[0].resources.requests.memory: "),
        "{found:?}"
    );
    assert!(found[0].1.contains("1GiB"), "{found:?}");
}

#[test]
fn all_errors_are_collected_and_good_objects_are_kept() {
    let text = format!(
        "{}---\n{}---\n{}",
        pod_yaml("good", ""),
        pod_yaml("bad", "tolerations: [{operator: Equal}, {operator: Exists, effect: X}]"),
        pod_yaml("also-good", "")
    );
    let reading = read(&text);
    assert_eq!(reading.objects.pods.len(), 2);
    assert_eq!(reading.errors.len(), 2);
    assert!(
        reading.errors.iter().all(|error| error.origin.document == 2 && &*error.origin.source == "in.yaml")
    );
    assert!(reading.errors[0].to_string().starts_with("in.yaml: document 2, line "), "{}", reading.errors[0]);
}

#[test]
fn unknown_fields_are_warnings_and_the_object_is_used() {
    let text = pod_yaml("p", "colour: blue\n").replace("image: i", "image: i, imagePullPolcy: Always");
    let found = findings(&text);
    let expected = [
        "Pod default/p: spec.colour: unknown field, ignored",
        "Pod default/p: spec.containers[0].imagePullPolcy: unknown field, ignored",
    ];
    let mut texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, expected);
    assert!(found.iter().all(|(severity, _)| *severity == Severity::Warning));
    assert_eq!(read(&text).objects.pods.len(), 1);
}

#[test]
fn unknown_fields_of_our_own_kinds_are_warnings_too() {
    let text = POOL.replace("requirements: []", "requirements: []\n      colour: blue");
    let reading = read(&text);
    assert_eq!(reading.errors.len(), 1, "{:?}", reading.errors);
    assert_eq!(reading.errors[0].severity, Severity::Warning);
    assert_eq!(reading.errors[0].path, "spec.template.spec.colour");
    assert_eq!(reading.objects.node_pools.len(), 1);
}

#[test]
fn invalid_nodepool_is_rejected_with_its_field() {
    let text = POOL.replace("requirements: []", "requirements: [{key: a, operator: Near, values: [b]}]");
    let reading = read(&text);
    assert_eq!(reading.objects.node_pools.len(), 0);
    assert!(
        reading.errors.iter().any(|error| error.path == "spec.template.spec.requirements[0].operator"),
        "{:?}",
        reading.errors
    );
    let old = read("{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: a}}");
    assert_eq!(old.errors.len(), 1);
    assert_eq!(old.errors[0].severity, Severity::Error);
}

#[test]
fn duplicate_name_is_an_error() {
    let text = format!("{}---\n{}", pod_yaml("p", ""), pod_yaml("p", "nodeName: n1"));
    let reading = read(&text);
    assert_eq!(reading.objects.pods.len(), 1);
    assert_eq!(reading.errors.len(), 1);
    assert_eq!(reading.errors[0].message, "is already used in in.yaml: document 1, line 1");
    let elsewhere = pod_yaml("p", "").replace("name: p,", "name: p, namespace: other,");
    assert_eq!(read(&format!("{}---\n{elsewhere}", pod_yaml("p", ""))).errors, []);
}

#[test]
fn malformed_documents_are_reported_without_panic() {
    for text in [
        "{apiVersion: v1, kind: Pod}",
        "{apiVersion: v1, kind: Pod, metadata: 3}",
        "{apiVersion: v1, kind: Pod, metadata: {name: 3}, spec: {containers: [{name: c}]}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: []}",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: {}}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [null]}}",
        "{apiVersion: v1, kind: 7}",
        "{apiVersion: batch/v1, kind: CronJob, metadata: {name: p}, spec: {schedule: x, jobTemplate: {}}}",
        "{apiVersion: v1, kind: ReplicationController, metadata: {name: p}, spec: 1}",
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: p}, spec: 1}",
        "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: [], spec: {}}",
    ] {
        let reading = read(text);
        assert!(reading.errors.iter().any(|error| error.severity == Severity::Error), "{text}");
    }
}

#[test]
fn values_that_no_server_stores_are_rejected_by_field() {
    let pod = |metadata: &str, spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{{metadata}}}, spec: {{containers: [{{name: c, image: i}}]{spec}}}}}"
        )
    };
    let long = "x".repeat(4 << 20);
    let terms = |terms: &str| {
        format!(
            ", affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: {terms}}}}}}}"
        )
    };
    for (text, path) in [
        (pod("name: A_b", ""), "metadata.name"),
        (pod("namespace: a", ""), "metadata.name"),
        (pod("name: a, labels: {app: 'a b'}", ""), "metadata.labels[app]"),
        (pod("name: a", ", nodeSelector: {a: \"b\\nc\"}"), "spec.nodeSelector[a]"),
        (pod("name: a", ", nodeSelector: {a b: c}"), "spec.nodeSelector"),
        (pod("name: a", ", tolerations: [{key: 'a b', operator: Exists}]"), "spec.tolerations[0].key"),
        (
            pod("name: a", &terms("[]")),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        ),
        (
            pod("name: a", &terms("[{}, {matchExpressions: []}]")),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        ),
        (pod("name: a", &format!(", hostname: {long}")), ""),
    ] {
        let reading = read(&text);
        let paths: Vec<&str> = reading.errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, [path], "{:.300}", text);
        assert!(reading.errors.iter().all(|error| error.valid.is_some()), "{:?}", reading.errors);
        assert!(reading.objects.pods.is_empty());
        let message = reading.errors[0].to_string();
        assert!(message.len() < 1_000 && !message.contains('\n'), "{message:.300}");
    }
    let one_of_two = pod("name: a", &terms("[{}, {matchExpressions: [{key: a, operator: Exists}]}]"));
    let reading = read(&one_of_two);
    assert_eq!(reading.errors, []);
}
