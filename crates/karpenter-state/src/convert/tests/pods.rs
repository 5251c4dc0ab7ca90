use karpenter_model::pod::PodSpec;
use karpenter_model::reason::Reason;
use karpenter_model::taints::{Effect, TolerationOperator};

use crate::testing::{pod, pod_with, pod_yaml};

fn requests(container: &str, spec_lines: &str) -> Vec<(String, i64)> {
    let text = pod_yaml("p", spec_lines).replace("image: i", container);
    pod(&text).requests.iter().map(|(name, amount)| (name.to_string(), amount)).collect()
}

fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

#[test]
fn requests_are_rounded_up_and_include_the_pod_itself() {
    type Amounts = &'static [(&'static str, i64)];
    let cases: [(&str, &str, Amounts); 6] = [
        ("image: i", "", &[("pods", 1)]),
        (
            "resources: {requests: {cpu: 100.1m, memory: 1500m, nvidia.com/gpu: 1}}",
            "",
            &[("cpu", 101), ("memory", 2), ("nvidia.com/gpu", 1), ("pods", 1)],
        ),
        // An API server sets missing requests to the limits.
        ("resources: {limits: {cpu: 2}}", "", &[("cpu", 2000), ("pods", 1)]),
        (
            "resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 5}}",
            "",
            &[("cpu", 1000), ("memory", 5), ("pods", 1)],
        ),
        ("resources: {requests: {cpu: 1}}", "overhead: {cpu: 250m}", &[("cpu", 1250), ("pods", 1)]),
        (
            "resources: {requests: {cpu: 1}}",
            "resources: {limits: {cpu: 4, memory: 8}}\ninitContainers: [{name: i, resources: {requests: {cpu: 3}}}]",
            &[("cpu", 3000), ("memory", 8), ("pods", 1)],
        ),
    ];
    for (container, spec_lines, expected) in cases {
        assert_eq!(requests(container, spec_lines), pairs(expected), "{container} {spec_lines}");
    }
}

#[test]
fn node_selectors_and_terms_use_stable_keys() {
    let spec = pod_with(
        "nodeSelector: {beta.kubernetes.io/arch: arm64}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [b, a]}]
      - matchExpressions: [{key: custom, operator: Exists}, {key: size, operator: Gt, values: ['4']}]
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 1, preference: {matchExpressions: [{key: light, operator: Exists}]}}
    - {weight: 9, preference: {matchExpressions: [{key: heavy, operator: DoesNotExist}]}}
",
    );
    assert_eq!(spec.node_selector.to_string(), "kubernetes.io/arch In [arm64]");
    let terms: Vec<String> = spec.required_terms.iter().map(ToString::to_string).collect();
    assert_eq!(terms, ["topology.kubernetes.io/zone In [a b]", "custom Exists, size Exists >=5"]);
    let preferred: Vec<_> =
        spec.preferred_terms.iter().map(|(weight, term)| (*weight, term.to_string())).collect();
    assert_eq!(preferred, [(9, "heavy DoesNotExist".to_owned()), (1, "light Exists".to_owned())]);
    assert_eq!(spec.refusal, None);
}

fn required(expression: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{expression}]}}}}}}"
    )
}

#[test]
fn ignored_pods_have_a_refusal() {
    let expression = |text: &str| required(&format!("{{matchExpressions: [{text}]}}"));
    let cases = [
        (expression("{key: karpenter.sh/nodepool, operator: DoesNotExist}"), "exclude nodes of nodepools"),
        (
            required("{matchFields: [{key: metadata.name, operator: In, values: [a]}]}"),
            "matchFields are not supported",
        ),
        (expression("{key: a, operator: Near, values: [b]}"), "operator \"Near\" is not supported"),
        (expression("{key: a, operator: In}"), "needs at least one value"),
        (expression("{key: a, operator: Gt, values: [x]}"), "exactly one non-negative integer"),
        (expression("{key: a, operator: Gt, values: ['1', '2']}"), "exactly one non-negative integer"),
        (expression("{key: a, operator: In, values: ['b c']}"), "is not a label value"),
        (expression("{key: 'a b', operator: Exists}"), "is not a label key"),
        (expression("{key: karpenter.sh/capacity-type, operator: In, values: [cheap]}"), "none of [cheap]"),
        ("nodeSelector: {kubernetes.io/hostname: n1}".to_owned(), "kubernetes.io/hostname is restricted"),
        ("nodeSelector: {karpenter.sh/initialized: 'true'}".to_owned(), "is restricted"),
        ("nodeSelector: {team.karpenter.sh/a: b}".to_owned(), "is restricted"),
        (
            "resourceClaims: [{name: gpu, resourceClaimName: g}]".to_owned(),
            "Dynamic Resource Allocation requirements",
        ),
    ];
    for (spec_lines, expected) in cases {
        let spec = pod_with(&spec_lines);
        let reason = spec.refusal.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(reason.contains(expected), "{spec_lines}: {reason:?}");
    }
}

#[test]
fn ordinary_pods_have_no_refusal() {
    let expression = |text: &str| required(&format!("{{matchExpressions: [{text}]}}"));
    for spec_lines in [
        String::new(),
        "nodeSelector: {karpenter.sh/nodepool: general}".to_owned(),
        "nodeSelector: {karpenter.kwok.sh/instance-family: c}".to_owned(),
        "nodeSelector: {fookarpenter.sh/x: z}".to_owned(),
        expression("{key: karpenter.sh/capacity-type, operator: In, values: [spot, cheap]}"),
        expression("{key: karpenter.sh/nodepool, operator: Exists}"),
        // Only the first term decides whether the pod opts out of Karpenter; the second term is used if the pod cannot
        // be scheduled with the first.
        required(
            "{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: karpenter.sh/nodepool, operator: DoesNotExist}]}",
        ),
    ] {
        assert_eq!(pod_with(&spec_lines).refusal, None, "{spec_lines}");
    }
}

#[test]
fn tolerations_keep_their_operator_and_effect() {
    let spec = pod_with(
        "tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute}, {key: n, operator: Gt, value: '3'}]"
            .replace("key: n,", "key: number,")
            .as_str(),
    );
    let found: Vec<_> = spec.tolerations.iter().map(|t| (&*t.key, t.operator.clone(), t.effect)).collect();
    assert_eq!(
        found,
        [
            ("", TolerationOperator::Exists, None),
            ("a", TolerationOperator::Equal("b".into()), Some(Effect::NoExecute)),
            ("number", TolerationOperator::Gt(3), None),
        ]
    );
}

#[test]
fn spread_constraints_take_defaults_and_fold_in_label_keys() {
    let spec = pod_with(
        "topologySpreadConstraints:
- {maxSkew: 2, topologyKey: failure-domain.beta.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3, labelSelector: {matchLabels: {tier: front}}, matchLabelKeys: [app, missing]}
- {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor, nodeAffinityPolicy: Ignore}
",
    );
    let first = &spec.spread[0];
    assert_eq!((&*first.key, first.max_skew, first.min_domains), ("topology.kubernetes.io/zone", 2, Some(3)));
    assert_eq!((first.hard, first.honor_affinity, first.honor_taints), (true, true, false));
    assert_eq!(first.selector.as_ref().map(ToString::to_string).as_deref(), Some("app=web,tier=front"));
    let second = &spec.spread[1];
    assert_eq!((second.hard, second.honor_affinity, second.honor_taints), (false, false, true));
    assert_eq!(second.selector, None);
}

fn affinity_namespaces(term: &str) -> Vec<String> {
    let text = format!(
        "{}---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: blue, labels: {{team: b}}}}}}\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: red, labels: {{team: r}}}}}}\n",
        pod_yaml(
            "p",
            &format!(
                "affinity: {{podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: z, labelSelector: {{}}, {term}}}]}}}}"
            )
        )
    );
    pod(&text).affinity[0].namespaces.iter().map(ToString::to_string).collect()
}

#[test]
fn affinity_namespaces_are_named_selected_or_the_pods_own() {
    for (term, expected) in [
        ("namespaces: []", vec!["default"]),
        ("namespaces: [a, b]", vec!["a", "b"]),
        ("namespaceSelector: {matchLabels: {team: b}}", vec!["blue"]),
        ("namespaces: [a], namespaceSelector: {matchLabels: {team: b}}", vec!["a", "blue"]),
        ("namespaceSelector: {}", vec!["blue", "default", "red"]),
        // A namespace without an object has only its name label.
        ("namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}", vec!["default"]),
        ("namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}", vec!["default"]),
        ("namespaceSelector: {matchLabels: {team: none}}", vec![]),
    ] {
        assert_eq!(affinity_namespaces(term), expected, "{term}");
    }
}

#[test]
fn affinity_terms_are_sorted_and_label_keys_folded_in() {
    let spec = pod_with(
        "affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - {topologyKey: host, labelSelector: {matchLabels: {a: b}}, mismatchLabelKeys: [app]}
    - {topologyKey: host}
    preferredDuringSchedulingIgnoredDuringExecution:
    - {weight: 5, podAffinityTerm: {topologyKey: light, labelSelector: {}}}
    - {weight: 50, podAffinityTerm: {topologyKey: heavy, labelSelector: {}}}
",
    );
    assert_eq!(spec.anti_affinity[0].selector.as_ref().unwrap().to_string(), "a=b,app notin (web)");
    assert_eq!(spec.anti_affinity[1].selector, None);
    let keys: Vec<_> =
        spec.preferred_anti_affinity.iter().map(|(weight, term)| (*weight, &*term.key)).collect();
    assert_eq!(keys, [(50, "heavy"), (5, "light")]);
}

fn ports(spec: &PodSpec) -> Vec<(String, u16, String)> {
    spec.host_ports
        .iter()
        .map(|port| (port.address.to_string(), port.port, port.protocol.to_string()))
        .collect()
}

#[test]
fn host_ports_come_from_containers_and_sidecars_and_the_host_network() {
    let with_ports = |list: &str, spec_lines: &str| {
        pod(&pod_yaml("p", spec_lines).replace("image: i", &format!("ports: [{list}]")))
    };
    let plain = with_ports(
        "{containerPort: 80}, {containerPort: 81, hostPort: 8081, hostIP: 10.0.0.1, protocol: UDP}",
        "",
    );
    assert_eq!(ports(&plain), [("10.0.0.1".to_owned(), 8081, "UDP".to_owned())]);
    let on_host = with_ports("{containerPort: 80}", "hostNetwork: true");
    assert_eq!(ports(&on_host), [(String::new(), 80, "TCP".to_owned())]);
    let sidecar = with_ports(
        "{containerPort: 80}",
        "initContainers: [{name: s, restartPolicy: Always, ports: [{containerPort: 9, hostPort: 9}]}, {name: t, ports: [{containerPort: 7, hostPort: 7}]}]",
    );
    assert_eq!(ports(&sidecar), [(String::new(), 9, "TCP".to_owned())]);
}

#[test]
fn priority_is_the_pods_own_its_class_or_the_default() {
    let classes = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}\n---\n{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: base}, value: 7, globalDefault: true}\n";
    for (spec_lines, expected) in [
        ("priority: 3", 3),
        ("priorityClassName: high", 1000),
        ("priorityClassName: system-node-critical", 2_000_001_000),
        ("priorityClassName: unheard-of", 7),
        ("", 7),
    ] {
        let spec = pod(&format!("{}---\n{classes}", pod_yaml("p", spec_lines)));
        assert_eq!(spec.priority, expected, "{spec_lines}");
    }
}

#[test]
fn refused_pod_keeps_its_spec() {
    let spec = pod_with("resourceClaims: [{name: gpu, resourceClaimName: g}]\nnodeSelector: {a: b}");
    assert_eq!(spec.refusal, Some(Reason::DynamicResources));
    assert_eq!(spec.node_selector.to_string(), "a In [b]");
}
