"""Checks the objects that the chart karpenter renders for each of its values files."""

import json
import pathlib
import re

import yaml

NEVER_ON_ITS_OWN_NODES = {"karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}


def container(rendered):
    return rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]


def variables(rendered):
    """Variables of the controller with a plain value."""
    env = container(rendered)["env"]
    names = [each["name"] for each in env]
    rendered.equal("duplicate variables", sorted({name for name in names if names.count(name) > 1}), [])
    return {each["name"]: each["value"] for each in env if "value" in each}


def permissions(roles):
    """Permissions of roles as (group, resource, verb, name)."""
    return {
        (group, resource, verb, name)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [None])
    }


def check_hardening(rendered):
    pod = rendered.one("Deployment")["spec"]["template"]["spec"]
    security = container(rendered)["securityContext"]
    for key, value in {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
    }.items():
        rendered.equal(f"securityContext.{key}", security.get(key), value)
    rendered.equal("capabilities", security["capabilities"], {"drop": ["ALL"]})
    rendered.equal("seccomp", pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})


def check_wiring(rendered):
    """References between objects use existing names."""
    deployment = rendered.one("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in [
        deployment["spec"]["selector"]["matchLabels"],
        rendered.one("Service")["spec"]["selector"],
        rendered.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]:
        rendered.true(f"{selector} does not select the pods", selector.items() <= labels.items())
    ports = {port["name"]: port["containerPort"] for port in container(rendered)["ports"]}
    env = variables(rendered)
    rendered.equal("metrics port", env["METRICS_PORT"], str(ports["http-metrics"]))
    rendered.equal("probe port", env["HEALTH_PROBE_PORT"], str(ports["http"]))
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    for binding in rendered.all("ClusterRoleBinding") + rendered.all("RoleBinding"):
        role = binding["roleRef"]
        rendered.true(f"{binding['metadata']['name']} binds {role['name']}, which does not exist",
                      role["name"] in rendered.names(role["kind"]))
        rendered.equal("subjects", binding["subjects"],
                       [{"kind": "ServiceAccount", "name": account, "namespace": "karpenter"}])
    for account_object in rendered.all("ServiceAccount"):
        rendered.equal("service account", account_object["metadata"]["name"], account)


def check_permissions(rendered, root, provider, extra):
    """Exactly the permissions of deploy/rbac.yaml, which scenarios on a real API server use."""
    shipped = {
        (each["kind"], each["metadata"]["name"]): each
        for each in yaml.safe_load_all((root / "deploy/rbac.yaml").read_text())
        if "rules" in each
    }
    wanted = [shipped["ClusterRole", "karpenter"]]
    wanted.append(shipped["ClusterRole", f"karpenter-{provider}"])
    bound = {each["roleRef"]["name"] for each in rendered.all("ClusterRoleBinding")}
    found = permissions(each for each in rendered.all("ClusterRole") if each["metadata"]["name"] in bound)
    expected = permissions(wanted) | extra
    if provider == "kwok" and not LEGACY <= extra:
        # Permissions for EC2NodeClasses are needed only with the v1alpha5 API.
        expected -= {("karpenter.k8s.aws", "ec2nodeclasses", "get", None), ("karpenter.k8s.aws", "ec2nodeclasses/status", "patch", None)}
    if extra and provider == "kwok":
        expected |= permissions([shipped["ClusterRole", "karpenter-features"]])
    rendered.equal("unexpected permissions", sorted(found - expected, key=str), [])
    rendered.equal("missing permissions", sorted(expected - found, key=str), [])
    lease = [each for each in rendered.all("Role") if each["metadata"]["namespace"] == "karpenter"]
    own = [shipped["Role", "karpenter"]] + ([shipped["Role", "karpenter-legacy"]] if LEGACY <= extra else [])
    rendered.equal("permissions in its own namespace", permissions(lease), permissions(own))
    names = [each for each in rendered.all("Role") if each["metadata"]["namespace"] == "kube-system"]
    rendered.equal("permissions in kube-system", permissions(names),
                   permissions([shipped["Role", "karpenter-aws"]] if provider == "aws" else []))


LEGACY = (
    {(group, kind, verb, None) for group, kind in [("karpenter.sh", "provisioners"), ("karpenter.k8s.aws", "awsnodetemplates")]
     for verb in ["list", "watch"]}
    | {("karpenter.sh", "provisioners/status", "patch", None), ("karpenter.k8s.aws", "awsnodetemplates/status", "patch", None)}
    | {("karpenter.sh", "nodepools", verb, None) for verb in ["create", "delete"]}
    | {("karpenter.k8s.aws", "ec2nodeclasses", verb, None) for verb in ["list", "watch", "create", "patch", "delete"]}
)
FINALIZERS = {("karpenter.sh", f"{kind}/finalizers", "update", None) for kind in ["nodepools", "nodeclaims"]}


def check_variables(cases, help_text):
    """The program has a flag for every variable. A build without AWS or the v1alpha5 API knows only the others."""
    known = set(re.findall(r"\[env:\s+([A-Z0-9_]+)", help_text)) | {"SYSTEM_NAMESPACE", "KUBERNETES_MIN_VERSION"}
    of_aws = set(variables(cases["production"])) - set(variables(cases["kwok"]))
    for case in cases.values():
        given = {each["name"] for each in container(case)["env"]} - {"AWS_REGION"}
        if "CLUSTER_NAME" not in known:
            given -= of_aws
        if "LEGACY_API" not in known:
            given -= {"LEGACY_API", "LEGACY_DEFAULT_INSTANCE_PROFILE", "LEGACY_DRIFT_ENABLED"}
        case.equal("unknown variables", sorted(given - known), [])


def check(cases, root):
    for rendered in cases.values():
        check_hardening(rendered)
        check_wiring(rendered)

    case = cases["defaults"]
    env = variables(case)
    for name, value in {
        "CLUSTER_NAME": "demo", "BATCH_MAX_DURATION": "10s", "BATCH_IDLE_DURATION": "1s", "LOG_LEVEL": "info",
        "RESERVED_ENIS": "0", "VM_MEMORY_OVERHEAD_PERCENT": "0.075", "ISOLATED_VPC": "false",
        "PREFERENCE_POLICY": "Respect", "MIN_VALUES_POLICY": "Strict", "IGNORE_DRA_REQUESTS": "true",
        "AMI_REFRESH_INTERVAL": "1m", "KARPENTER_SERVICE": "release-karpenter", "AWS_FEATURE_GATES": "NodeClassCEL=false",
    }.items():
        case.equal(name, env.get(name), value)
    case.equal("FEATURE_GATES", set(env["FEATURE_GATES"].split(",")), {
        "NodeRepair=false", "NodeOverlay=false", "ReservedCapacity=true", "SpotToSpotConsolidation=false",
        "StaticCapacity=false", "CapacityBuffer=false", "PodDeletionCostManagement=false"})
    case.equal("unset variables", sorted({"INTERRUPTION_QUEUE", "CLUSTER_ENDPOINT", "LEGACY_API", "LEGACY_DEFAULT_INSTANCE_PROFILE"}
                                                   & set(env)), [])
    case.equal("arguments", container(case)["args"], ["controller", "--provider", "aws"])
    pod = case.one("Deployment")["spec"]["template"]["spec"]
    term, = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    case.equal("affinity against its own nodes", {each["key"] for each in term["matchExpressions"] if each["operator"] == "DoesNotExist"},
               NEVER_ON_ITS_OWN_NODES)
    labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "release"}
    anti, = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    spread, = pod["topologySpreadConstraints"]
    for where in [anti, spread]:
        case.equal("selector", where["labelSelector"], {"matchLabels": labels})
    case.equal("spread", (spread["topologyKey"], spread["whenUnsatisfiable"]), ("topology.kubernetes.io/zone", "DoNotSchedule"))
    case.equal("budget", case.one("PodDisruptionBudget")["spec"]["maxUnavailable"], 1)
    case.equal("replicas", case.one("Deployment")["spec"]["replicas"], 2)
    case.equal("monitors", case.names("ServiceMonitor"), [])
    case.equal("namespace of dns", case.one("Role", "release-karpenter-dns")["metadata"]["namespace"], "kube-system")
    check_permissions(case, root, "aws", set())

    case = cases["kwok"]
    case.equal("arguments", container(case)["args"], ["controller", "--provider", "kwok"])
    case.equal("variables of another provider", sorted({"CLUSTER_NAME", "INTERRUPTION_QUEUE"} & set(variables(case))), [])
    check_permissions(case, root, "kwok", set())

    case = cases["features"]
    check_permissions(case, root, "kwok", LEGACY | FINALIZERS)
    case.true("SCHEDULER_CONFIG differs from the value", yaml.safe_load(variables(case)["SCHEDULER_CONFIG"])
              ["podTopologySpread"]["defaultConstraints"][0]["maxSkew"] == 1)

    case = cases["strings"]
    env = variables(case)
    deployment = case.one("Deployment")
    case.equal("numbers", [deployment["spec"]["replicas"], deployment["spec"]["revisionHistoryLimit"],
                           deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]], [3, 5, 45])
    case.equal("ports", [each["containerPort"] for each in container(case)["ports"]] + [case.one("Service")["spec"]["ports"][0]["port"]],
               [9090, 9091, 9090])
    case.equal("sampleLimit", case.one("ServiceMonitor")["spec"]["sampleLimit"], 100)
    case.equal("accounts", case.names("ServiceAccount"), ["release-karpenter"])
    case.true("hostNetwork is off", "hostNetwork" not in deployment["spec"]["template"]["spec"])
    case.true("gates", {"NodeRepair=true", "NodeOverlay=false", "CapacityBuffer=True", "SpotToSpotConsolidation=1"}
              <= set(env["FEATURE_GATES"].split(",")))
    for name, value in {"METRICS_PORT": "9090", "HEALTH_PROBE_PORT": "9091", "AWS_FEATURE_GATES": "NodeClassCEL=true",
                        "ENABLE_DECISION_JOURNAL": "false", "ENABLE_PROFILING": "true", "OFFERING_METRICS": "true",
                        "HOSTNAME_SPREAD_SHARE": "25", "KUBE_CLIENT_QPS": "50", "KUBE_CLIENT_BURST": "100", "LEGACY_API": None}.items():
        case.equal(name, env.get(name), value)
    rules = [rule for role in case.objects if role["kind"] == "ClusterRole" for rule in role["rules"]]
    granted = {resource for rule in rules for resource in rule["resources"]}
    case.equal("permissions of gates", sorted({"capacitybuffers", "nodeoverlays", "pods/status", "provisioners"} & granted),
               ["capacitybuffers"])

    case = cases["production"]
    env = variables(case)
    for name, value in {"CLUSTER_ENDPOINT": "https://demo.example", "INTERRUPTION_QUEUE": "demo", "ISOLATED_VPC": "true",
                        "EKS_CONTROL_PLANE": "true", "ENABLE_ZONAL_SHIFT": "true", "RESERVED_ENIS": "1", "LOG_LEVEL": "debug",
                        "VM_MEMORY_OVERHEAD_PERCENT": "0.05"}.items():
        case.equal(name, env.get(name), value)
    case.true("gates", {"SpotToSpotConsolidation=true", "NodeRepair=true"} <= set(env["FEATURE_GATES"].split(",")))
    case.equal("role", case.one("ServiceAccount")["metadata"]["annotations"]["eks.amazonaws.com/role-arn"],
               "arn:aws:iam::111122223333:role/demo-karpenter")
    case.equal("resources", container(case)["resources"]["limits"], {"cpu": 1, "memory": "1Gi"})

    case = cases["monitoring"]
    monitor = case.one("ServiceMonitor")
    endpoint, = monitor["spec"]["endpoints"]
    case.equal("endpoint", (endpoint["port"], endpoint["path"], endpoint["interval"]), ("http-metrics", "/metrics", "15s"))
    case.equal("sampleLimit", monitor["spec"]["sampleLimit"], 0)
    case.equal("label", monitor["metadata"]["labels"]["release"], "prometheus")
    case.equal("service", case.one("Service")["spec"]["ports"][0]["port"], 9090)
    dashboards = [each for each in case.objects if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    files = [name for each in dashboards for name in each["data"]]
    case.equal("dashboards", sorted(files), [f"karpenter-{name}.json" for name in ("capacity", "controllers", "disruption", "performance")])
    for each in dashboards:
        (text,) = each["data"].values()
        case.true("dashboard", json.loads(text)["uid"].startswith("karpenter-"))
        case.equal("folder", each["metadata"]["annotations"]["grafana_folder"], "Karpenter")

    case = cases["placement"]
    pod = case.one("Deployment")["spec"]["template"]["spec"]
    preferred, = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    case.equal("selector", preferred["podAffinityTerm"]["labelSelector"], {"matchLabels": labels})
    anti, = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    case.equal("selector from values", anti["labelSelector"], {"matchLabels": {"app": "other"}})

    case = cases["names"]
    case.equal("name", case.one("Deployment")["metadata"]["name"], "node-launcher")
    case.equal("image", container(case)["image"], "registry.example/karpenter/controller:9.9.9@sha256:" + "0123456789abcdef" * 4)
    case.equal("cluster name from a template", variables(case)["CLUSTER_NAME"], "release-platform")
    case.equal("account", case.one("Deployment")["spec"]["template"]["spec"]["serviceAccountName"], "existing")
    case.equal("accounts", case.names("ServiceAccount"), [])
    case.equal("pod label", case.one("Deployment")["spec"]["template"]["metadata"]["labels"]["karpenter"], "controller")
    for each in case.objects:
        case.true(f"{each['kind']}: additional label and annotation",
                  each["metadata"]["labels"]["team"] == each["metadata"]["annotations"]["owner"] == "platform")

    case = cases["extras"]
    pod = case.one("Deployment")["spec"]["template"]["spec"]
    case.equal("containers", [each["name"] for each in pod["initContainers"] + pod["containers"]], ["wait", "controller", "helper"])
    case.equal("mounts", [len(each["volumeMounts"]) for each in pod["containers"]], [1, 2])
    case.equal("variable", variables(case)["AWS_REGION"], "eu-west-1")

    for name, expected in {
        "chart-0.27": {"CLUSTER_NAME": "demo", "CLUSTER_ENDPOINT": "https://demo.example", "INTERRUPTION_QUEUE": "demo-queue",
                      "LEGACY_API": "true", "LEGACY_DEFAULT_INSTANCE_PROFILE": "KarpenterNodeInstanceProfile-demo",
                      "LEGACY_DRIFT_ENABLED": "true", "VM_MEMORY_OVERHEAD_PERCENT": "0.1",
                      "LOG_LEVEL": "debug", "LOG_FORMAT": "console", "LOG_OUTPUT_PATHS": "stdout,/var/log/karpenter"},
        "chart-0.37": {"CLUSTER_NAME": "demo", "INTERRUPTION_QUEUE": "demo-queue", "LOG_LEVEL": "warn", "LOG_FORMAT": "console",
                      "LOG_OUTPUT_PATHS": "stdout"},
        "chart-0.18": {"CLUSTER_NAME": "demo", "CLUSTER_ENDPOINT": "https://demo.example", "BATCH_MAX_DURATION": "20s", "LOG_LEVEL": "fatal",
                      # Not valid without the v1alpha5 API.
                      "LEGACY_DEFAULT_INSTANCE_PROFILE": None},
    }.items():
        env = variables(cases[name])
        for key, value in expected.items():
            cases[name].equal(key, env.get(key), value)
        cases[name].true("removed gates are passed to the process", "rift" not in env["FEATURE_GATES"])
    # Settings without a flag are in the ConfigMap of global settings.
    case = cases["chart-0.27"]
    data = case.one("ConfigMap", "karpenter-global-settings")["data"]
    case.equal("global settings", data | {"aws.tags": json.loads(data["aws.tags"])}, {
        "aws.tags": {"team": "platform", "cost-center": "1000000"}, "aws.enableENILimitedPodDensity": "false"})
    case = cases["chart-0.18"]
    case.equal("no global settings by default", case.names("ConfigMap"), ["release-karpenter-extra"])
    case.equal("image", container(case)["image"].split(":")[0], "registry.example/karpenter/controller")
    case.equal("extra object", case.one("ConfigMap", "release-karpenter-extra")["data"], {"cluster": "demo"})


def check_notes(notes):
    """Notes for values of earlier charts: each value is listed with its effect, and three commands follow."""
    for case, expected in {
        "chart-0.27": ["settings.aws.clusterName: accepted", "settings.aws.interruptionQueueName: accepted",
                      "settings.aws.enablePodENI: has no effect;", "settings.aws.tags: accepted for Provisioners",
                      "settings.aws.enableENILimitedPodDensity: accepted for Provisioners", "webhook: has no effect",
                      "settings.featureGates.driftEnabled: accepted for Provisioners", "logEncoding: accepted",
                      "controller.outputPaths: accepted"],
        "chart-0.18": ["clusterName: accepted", "aws.defaultInstanceProfile: accepted", "controller.image: accepted",
                      "extraObjects: rendered", "set legacyApi.enabled=true",
                      "settings.aws.tags: has no effect without legacyApi.enabled",
                      "The affinity lets Karpenter run on nodes that it manages"],
        "chart-0.37": ["logConfig.logLevel.controller: accepted", "settings.assumeRoleARN: has no effect",
                      "settings.featureGates.drift: has no effect without legacyApi.enabled", "webhook: has no effect"],
        "defaults": ["No image is set"],
    }.items():
        text = pathlib.Path(notes, f"{case}.txt").read_text()
        for line in expected:
            yield case, line, line in text
        yield case, "a warning about the affinity only for chart-0.18", ("The affinity lets" in text) == (case == "chart-0.18")
        yield case, "three commands", len(text.split("Next:\n")[1].strip().splitlines()) == 3
