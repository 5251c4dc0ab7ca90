"""Checks the objects that the chart karpenter-config renders for each of its values files."""

import email
import tomllib

import yaml

# EC2's limit is 16 KiB; Karpenter adds less than 4 KiB (certificate, endpoint, kubelet settings).
USER_DATA_BYTES_MAX = 12 * 1024
DEFAULTS_OF_OLD = [("kubernetes.io/os", "In", ["linux"]), ("kubernetes.io/arch", "In", ["amd64"]),
                   ("karpenter.sh/capacity-type", "In", ["on-demand"])]


def requirements(spec):
    return [(each["key"], each["operator"], each.get("values")) for each in spec["requirements"]]


def pool(case, name):
    return case.one("NodePool", name)["spec"]


def disruption(case, name):
    found = pool(case, name)["disruption"]
    return found["consolidationPolicy"], found["consolidateAfter"]


def parts(user_data):
    """(type, text) of every part of user data; a plain script is one part."""
    if not user_data.startswith("MIME-Version"):
        return [("text/x-shellscript", user_data)]
    message = email.message_from_string(user_data)
    return [(each.get_content_type(), each.get_payload().strip() + "\n") for each in message.get_payload()]


def check_every(case):
    """Checks for all values."""
    is_old = bool(case.all("Provisioner"))
    # NodeClass is the kind of EKS Auto Mode, in which every node expires.
    is_auto_mode = bool(case.all("NodeClass"))
    classes = case.names("AWSNodeTemplate" if is_old else "NodeClass" if is_auto_mode else "EC2NodeClass")
    for each in case.all("Provisioner"):
        case.true(f"{each['metadata']['name']}: references an existing template", each["spec"]["providerRef"]["name"] in classes)
    for each in case.all("NodePool"):
        spec = each["spec"]["template"]["spec"]
        case.true(f"{each['metadata']['name']}: references an existing class", spec["nodeClassRef"]["name"] in classes)
        keys = {key for key, _, _ in requirements(spec)} | set(each["spec"]["template"].get("metadata", {}).get("labels", {}))
        case.true(f"{each['metadata']['name']}: requires os, arch and capacity type", {key for key, _, _ in DEFAULTS_OF_OLD} <= keys)
        case.true(f"{each['metadata']['name']}: has expireAfter", is_auto_mode or "expireAfter" in spec)
    for each in case.all("NodePool") + case.all("Provisioner"):
        spec = each["spec"]["template"]["spec"] if each["kind"] == "NodePool" else each["spec"]
        for key, operator, values in requirements(spec):
            case.true(f"{each['metadata']['name']}: {key} {operator} {values}", values and all(isinstance(v, str) for v in values))
    for each in case.all("EC2NodeClass") + case.all("AWSNodeTemplate"):
        spec = each["spec"]
        case.true(f"{each['metadata']['name']}: tags are strings", all(isinstance(value, str) for value in spec["tags"].values()))
        case.true(f"{each['metadata']['name']}: user data too large",
                  len(spec.get("userData", "").encode()) <= USER_DATA_BYTES_MAX)


def check_january_2024(cases, root):
    """The chart of January 2024: the v1 form by a table, the v1alpha5 form by its templates."""
    case = cases["january-2024"]
    expected = list(yaml.safe_load_all((root / "e2e/lib/charts/january-2024-v1.yaml").read_text()))
    wanted = next(each for each in expected if each["kind"] == "EC2NodeClass")["spec"]
    for name in ["default", "gpu-default", "inferentia-default"]:
        case.equal(f"class {name}", case.one("EC2NodeClass", name)["spec"], wanted)
    for each in expected:
        if each["kind"] == "NodePool":
            case.equal(f"pool {each['metadata']['name']}", pool(case, each["metadata"]["name"]), each["spec"])
    case.equal("pools", len(case.all("NodePool")), 4)

    case = cases["old-january-2024"]
    case.equal("templates", case.names("AWSNodeTemplate"), ["default", "gpu-default", "inferentia-default"])
    case.equal("template", case.one("AWSNodeTemplate", "default")["spec"], {
        "instanceProfile": "demo-profile",
        "subnetSelector": {"kubernetes.io/cluster/demo": "shared", "subnet": "private"},
        "securityGroupSelector": {"karpenter.sh/discovery": "demo"},
        "tags": {"karpenter.sh/discovery": "demo"},
        "amiFamily": "AL2",
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {
            "volumeSize": "100Gi", "volumeType": "gp3", "deleteOnTermination": True}}],
    })
    gpu = case.one("Provisioner", "gpu-provisioner")["spec"]
    case.equal("gpu", {key: gpu.get(key) for key in ["weight", "consolidation", "ttlSecondsAfterEmpty", "taints", "providerRef"]}, {
        "weight": 10, "consolidation": {"enabled": True}, "ttlSecondsAfterEmpty": None,
        "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}], "providerRef": {"name": "gpu-default"}})
    neuron = case.one("Provisioner", "inferentia-provisioner")["spec"]
    case.equal("inferentia", (neuron.get("consolidation"), neuron["ttlSecondsAfterEmpty"], neuron["taints"][0]["key"]),
               (None, 300, "aws.amazon.com/neuron"))
    control = case.one("Provisioner", "control-plane-provisioner")["spec"]
    case.equal("control plane", (control.get("weight"), control["labels"], control["taints"]), (
        None, {"class.truefoundry.io/component": "control-plane"},
        [{"key": "class.truefoundry.io/control-plane", "effect": "NoSchedule"}]))
    case.equal("order of requirements", [key for key, _, _ in requirements(control)], [
        "karpenter.sh/capacity-type", "topology.kubernetes.io/zone", "kubernetes.io/arch", "kubernetes.io/os",
        "karpenter.k8s.aws/instance-family", "karpenter.k8s.aws/instance-size"])


def check_parameters(case, root):
    """Every parameter of the chart of January 2024 exists with the same default."""
    values = yaml.safe_load((root / "charts/karpenter-config/values.yaml").read_text())
    for line in (root / "e2e/lib/charts/january-2024-parameters").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, _, default = line.partition(" ")
        at, missing = values, False
        for part in name.split("."):
            missing = missing or part not in at
            at = None if missing else at[part]
        expected = yaml.safe_load(default) if default else None
        # Different on purpose: there are no new AMIs of AL2; taints are a list.
        expected = {"karpenter.controlPlaneProvisioner.taints": []}.get(name, "" if name.endswith("amiFamily") else expected)
        case.equal(f"parameter {name}", (missing and default != "", at), (False, expected))


def check_soci(cases):
    case = cases["soci-al2"]
    for name, runtime in {"default": "runc", "gpu-default": "nvidia"}.items():
        (kind, script), = parts(case.one("EC2NodeClass", name)["spec"]["userData"])
        case.true(f"{name}: {runtime}", f"runtime='{runtime}'" in script and script.startswith("#!/bin/bash"))
    for name in ["inferentia-default"]:
        case.true(f"{name} has none", "userData" not in case.one("EC2NodeClass", name)["spec"])

    case = cases["soci-al2-parallel"]
    for name, own in {"default": "echo hello", "gpu-default": "echo in an envelope already"}.items():
        spec = case.one("AWSNodeTemplate", name)["spec"]
        found = parts(spec["userData"])
        case.equal(f"{name}: parts", [kind for kind, _ in found], ["text/x-shellscript"] * 2)
        case.true(f"{name}: ours first", "snapshotter_config" in found[0][1] and own in found[1][1])
        case.equal("volume", (spec["blockDeviceMappings"][0]["ebs"]["throughput"], spec["blockDeviceMappings"][0]["ebs"]["iops"]),
                   (600, 3000))
        case.true("keychain", "cri_keychain" not in spec["userData"])

    case = cases["soci-al2023"]
    found = parts(case.one("EC2NodeClass", "default")["spec"]["userData"])
    case.equal("parts", [kind for kind, _ in found],
               ["application/node.eks.aws", "text/x-shellscript", "application/node.eks.aws"])
    config = yaml.safe_load(found[0][1])["spec"]
    containerd = tomllib.loads(config["containerd"]["config"])
    case.equal("snapshotter", containerd["plugins"]["io.containerd.grpc.v1.cri"]["containerd"],
               {"snapshotter": "soci", "disable_snapshot_annotations": False})
    case.equal("exports", containerd["proxy_plugins"]["soci"]["exports"], {"root": "/var/lib/soci-snapshotter-grpc"})
    case.equal("kubelet", config["kubelet"]["config"]["imageServiceEndpoint"],
               "unix://" + containerd["proxy_plugins"]["soci"]["address"])
    case.equal("the user's part", yaml.safe_load(found[2][1])["spec"]["kubelet"]["config"], {"maxPods": 20})

    case = cases["soci-al2023-parallel"]
    for name in ["default", "inferentia-default"]:
        spec = case.one("EC2NodeClass", name)["spec"]
        case.equal(name, yaml.safe_load(spec["userData"])["spec"], {"featureGates": {"FastImagePull": True}})
        case.equal("volume", spec["blockDeviceMappings"][0]["ebs"]["throughput"], 600)
    spec = case.one("EC2NodeClass", "gpu-default")["spec"]
    case.true("one that leaves it out", "userData" not in spec and "throughput" not in spec["blockDeviceMappings"][0]["ebs"])

    case = cases["soci-bottlerocket"]
    settings = tomllib.loads(case.one("EC2NodeClass", "default")["spec"]["userData"])["settings"]
    case.equal("merged", (settings["kubernetes"]["max-pods"], settings["container-runtime"]["snapshotter"],
                          settings["container-runtime-plugins"]["soci-snapshotter"]["pull-mode"]),
               (20, "soci", "parallel-pull-unpack"))
    plugin = settings["container-runtime-plugins"]["soci-snapshotter"]["parallel-pull-unpack"]
    case.equal("parallel", (plugin["max-concurrent-downloads-per-image"], type(plugin["max-concurrent-downloads-per-image"])), (10, int))


def check(cases, root):
    for case in cases.values():
        check_every(case)
    check_parameters(cases["january-2024"], root)
    check_january_2024(cases, root)
    check_soci(cases)
    check_auto_mode(cases["auto-mode"])

    case = cases["defaults"]
    case.equal("pools", case.names("NodePool"), ["default"])
    case.equal("classes", case.names("EC2NodeClass"), ["default", "gpu-default", "inferentia-default"])
    spec = case.one("EC2NodeClass", "default")["spec"]
    case.equal("image", spec["amiSelectorTerms"], [{"alias": "al2023@latest"}])
    case.equal("role", (spec["role"], spec.get("instanceProfile")), ("KarpenterNodeRole-demo", None))

    case = cases["gpu"]
    case.equal("pools", case.names("NodePool"), ["default", "gpu-provisioner"])
    case.equal("consolidation takes precedence over the TTL", disruption(case, "gpu-provisioner"), ("WhenEmptyOrUnderutilized", "0s"))
    case.equal("labels", pool(case, "gpu-provisioner")["template"]["metadata"]["labels"], {"team": "ml"})

    case = cases["inferentia"]
    case.equal("TTL", disruption(case, "inferentia-provisioner"), ("WhenEmpty", "5m"))
    keys = [key for key, _, _ in requirements(pool(case, "inferentia-provisioner")["template"]["spec"])]
    case.true("an empty list of zones is omitted", "topology.kubernetes.io/zone" not in keys)

    case = cases["control-plane"]
    spec = pool(case, "control-plane-provisioner")
    case.equal("taints keep their value", spec["template"]["spec"]["taints"], [
        {"key": "karpenter-config/control-plane", "effect": "NoSchedule"},
        {"key": "team", "value": "platform", "effect": "NoSchedule"}])
    case.equal("labels", spec["template"]["metadata"]["labels"],
               {"karpenter-config/component": "control-plane", "team": "platform", "tier": "1"})
    found = requirements(spec["template"]["spec"])
    case.true("only allowed families", ("karpenter.k8s.aws/instance-family", "In", ["m6i", "m7i"]) in found)
    case.true("no empty list", not any(operator == "NotIn" for _, operator, _ in found))
    case.equal("class", spec["template"]["spec"]["nodeClassRef"]["name"], "controlplane-node-template")
    case.equal("volume", case.one("EC2NodeClass", "controlplane-node-template")["spec"]["blockDeviceMappings"][0]["ebs"]["volumeSize"], "50Gi")

    case = cases["without-consolidation"]
    for name, expected in {"default": "Never", "gpu-provisioner": "5m", "inferentia-provisioner": "90s",
                           "control-plane-provisioner": "30s"}.items():
        case.equal(name, disruption(case, name), ("WhenEmpty", expected))

    case = cases["bottlerocket"]
    for name in ["default", "gpu-default"]:
        spec = case.one("EC2NodeClass", name)["spec"]
        case.equal(name, (spec["amiSelectorTerms"], spec["blockDeviceMappings"][0]["deviceName"], spec.get("userData")),
                   ([{"alias": "bottlerocket@latest"}], "/dev/xvdb", None))

    case = cases["tags"]
    spec = case.one("EC2NodeClass", "default")["spec"]
    case.equal("tags", spec["tags"], {"cost-center": "1000000", "share": "0.5", "shared": "true", "team": "platform",
                                      "karpenter.sh/discovery": "other"})
    case.equal("subnets", spec["subnetSelectorTerms"][0]["tags"]["tier"], "2")
    case.equal("metadata", spec["metadataOptions"]["httpPutResponseHopLimit"], 1)
    case.equal("others", (spec["detailedMonitoring"], spec["blockDeviceMappings"][0]["ebs"]["encrypted"], spec["userData"]),
               (True, False, "#!/bin/bash\necho hello\n"))

    case = cases["raw-spec"]
    spec = pool(case, "default")
    machine = spec["template"]["spec"]
    case.equal("requirements", requirements(machine), [
        ("kubernetes.io/arch", "In", ["arm64"]), ("kubernetes.io/os", "In", ["linux"]),
        ("karpenter.sh/capacity-type", "In", ["on-demand"]),
        ("karpenter.k8s.aws/instance-category", "In", ["c", "m", "r"]), ("karpenter.k8s.aws/instance-generation", "Gt", ["2"])])
    case.equal("metadata", spec["template"]["metadata"], {
        "labels": {"role": "ops", "topology.kubernetes.io/zone": "eu-west-1a"}, "annotations": {"owner": "platform"}})
    case.equal("machine", (machine["expireAfter"], machine["taints"][0]["value"], machine["startupTaints"]),
               ("720h", "ops", [{"key": "cni", "effect": "NoExecute"}]))
    case.equal("pool", (spec["weight"], spec["limits"], disruption(case, "default")),
               (50, {"cpu": 100, "memory": "400Gi"}, ("WhenEmpty", "30s")))
    case.equal("kubelet settings create a separate class", machine["nodeClassRef"]["name"], "default-default")
    case.equal("kubelet", case.one("EC2NodeClass", "default-default")["spec"]["kubelet"],
               {"maxPods": 20, "systemReserved": {"cpu": "100m"}})
    case.true("the shared class keeps its own", "kubelet" not in case.one("EC2NodeClass", "default")["spec"])

    spec = cases["old-raw-spec"].one("Provisioner", "default")["spec"]
    cases["old-raw-spec"].equal("copied completely", (spec["futureField"], spec["kubeletConfiguration"]["maxPods"],
                                                         spec["ttlSecondsAfterEmpty"]), ({"kept": True}, 20, 30))

    case = cases["todays-names"]
    case.equal("pools", case.names("NodePool"), ["control-plane-nodepool", "critical-nodepool", "default-nodepool", "gpus"])
    case.equal("classes", case.names("EC2NodeClass"),
               ["controlplane-node-template", "critical-node-template", "default", "gpu-default"])
    spec = pool(case, "default-nodepool")
    found = requirements(spec["template"]["spec"])
    case.true("generation", ("karpenter.k8s.aws/instance-generation", "Gt", ["4"]) in found)
    case.true("added", ("karpenter.k8s.aws/instance-cpu", "Gt", ["3"]) in found)
    case.equal("default", (spec["weight"], spec["limits"], disruption(case, "default-nodepool"), len(spec["disruption"]["budgets"])),
               (10, {"cpu": 1000}, ("WhenEmptyOrUnderutilized", "15m"), 2))
    case.equal("expiration where v1beta1 had it", (spec["template"]["spec"]["expireAfter"], "expireAfter" in spec["disruption"]), ("240h", False))
    labels = pool(case, "gpus")["template"]["metadata"]["labels"]
    case.equal("labels for the GPU operator on Bottlerocket", labels["nvidia.com/gpu.deploy.driver"], "pre-installed")
    case.true("user data `default` is none", "userData" not in case.one("EC2NodeClass", "gpu-default")["spec"])
    case.equal("control plane", pool(case, "control-plane-nodepool")["template"]["spec"]["taints"][0]["value"], "control-plane")
    case.equal("critical", (pool(case, "critical-nodepool")["weight"], disruption(case, "critical-nodepool")[1],
                            case.one("EC2NodeClass", "critical-node-template")["spec"]["instanceProfile"]),
               (100, "1h", "critical-profile"))
    case.equal("extra object", case.names("ConfigMap"), ["release-extra"])

    case = cases["todays-file"]
    of_pool = {name: requirements(pool(case, name)["template"]["spec"]) for name in case.names("NodePool")}
    case.equal("categories", {name: [values for key, _, values in found if key.endswith("/instance-category")] for name, found in of_pool.items()},
               {"default-nodepool": [], "gpu-nodepool": [], "control-plane-nodepool": [], "critical-nodepool": [["c", "m"]]})
    case.true("families", ("karpenter.k8s.aws/instance-family", "NotIn", ["t3", "m5a"]) in of_pool["default-nodepool"])
    case.equal("expiration", {pool(case, name)["template"]["spec"]["expireAfter"] for name in of_pool}, {"720h"})


def check_auto_mode(case):
    case.equal("EC2NodeClasses", case.names("EC2NodeClass"), [])
    case.equal("class", case.one("NodeClass", "ours"), {
        "apiVersion": "eks.amazonaws.com/v1", "kind": "NodeClass", "metadata": {"name": "ours"}, "spec": {
            "role": "nodes",
            "subnetSelectorTerms": [{"tags": {"kubernetes.io/cluster/demo": "shared", "subnet": "private"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "tags": {"karpenter.sh/discovery": "demo"},
            "ephemeralStorage": {"size": "200Gi", "kmsKeyID": "key"},
        }})
    found = {name: dict(((key, operator), values) for key, operator, values in requirements(pool(case, name)["template"]["spec"]))
             for name in case.names("NodePool")}
    for name, each in found.items():
        case.true(f"{name}: labels of karpenter.k8s.aws", not any(key.startswith("karpenter.k8s.aws/") for key, _ in each))
        reference = pool(case, name)["template"]["spec"]["nodeClassRef"]
        case.equal(f"{name}: reference", (reference["group"], reference["kind"]), ("eks.amazonaws.com", "NodeClass"))
    case.true("families", "m5a" in found["default-nodepool"]["eks.amazonaws.com/instance-family", "NotIn"])
    case.equal("added", found["default-nodepool"]["eks.amazonaws.com/instance-cpu", "Gt"], ["3"])
    case.equal("categories", found["gpu-nodepool"]["eks.amazonaws.com/instance-category", "In"], ["g", "p"])
    case.true("instead of families", ("eks.amazonaws.com/instance-family", "In") not in found["gpu-nodepool"])
    case.true("an empty list of categories", ("eks.amazonaws.com/instance-family", "NotIn") not in found["control-plane-nodepool"])
