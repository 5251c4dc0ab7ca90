"""Compares both forms of karpenter-config for random values: `karpenter convert` of the v1alpha5 form must equal the v1 form, except
for encrypted volumes. convert.py HELM KARPENTER [CASES]; the seed is fixed, so that cases are reproducible."""

import pathlib
import random
import subprocess
import sys
import tempfile

import yaml

import kit

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAMILIES = ["m5", "c6i", "r6g", "t3", "g5", "p4d", "inf2"]
SIZES = ["nano", "large", "xlarge", "48xlarge", "metal"]
ZONES = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]


# Characters that templates, shells and YAML interpret.
USER_DATA = ("#!/bin/bash\nset -ex\nVERSION=\"$(containerd --version)\"\ncat > /etc/containerd/config.toml << EOF\n"
             "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\tpath = 'C:\\\\x' # {{ .Values.x }} ${X} `date`\nEOF\n  spaces  \n\n")


def some(rng, values, least=0):
    return rng.sample(values, rng.randint(least, len(values)))


def maybe(rng, target, key, value):
    if rng.random() < 0.5:
        target[key] = value


def taints(rng):
    keys = some(rng, ["role", "team", "example.com/a"])
    return [{"key": key, "effect": rng.choice(["NoSchedule", "NoExecute"])} | ({"value": "x"} if rng.random() < 0.5 else {})
            for key in keys]


def pool(rng, lists):
    result = {"enabled": rng.random() < 0.7, "consolidation": {"enabled": rng.random() < 0.5},
              "ttlSecondsAfterEmpty": rng.choice([0, 30, 60, 90, 3600, 86400]),
              "capacityTypes": some(rng, ["spot", "on-demand"], 1), "zones": some(rng, ZONES),
              "labels": dict.fromkeys(some(rng, ["team", "tier", "example.com/b"]), "x")}
    if lists:
        result |= {"instanceFamilies": some(rng, FAMILIES, 1), "instanceSizes": {"notAllowed": some(rng, SIZES)}}
    else:
        result |= {key: {"allowed": some(rng, values), "notAllowed": some(rng, values)}
                   for key, values in {"instanceFamilies": FAMILIES, "instanceSizes": SIZES}.items()}
        result["taints"] = taints(rng)
    return result


def raw_spec(rng):
    """A Provisioner's spec. Helm merges it with the chart's default, so unset fields are null."""
    keys = {"karpenter.sh/capacity-type": ["spot", "on-demand"], "beta.kubernetes.io/arch": ["amd64", "arm64"],
            "topology.kubernetes.io/zone": ZONES, "karpenter.k8s.aws/instance-family": FAMILIES,
            "karpenter.k8s.aws/instance-category": ["c", "m", "r"], "node.kubernetes.io/instance-type": ["m5.large", "c6i.xlarge"],
            "karpenter.k8s.aws/instance.size": SIZES, "karpenter.k8s.aws/instance-pods": ["29"], "example.com/own": ["a", "b"]}
    result = {"requirements": [{"key": key, "operator": rng.choice(["In", "NotIn"]), "values": some(rng, keys[key], 1)}
                               for key in some(rng, sorted(keys))]}
    ending = rng.choice(["consolidation", "ttl", "neither"])
    result["consolidation"] = {"enabled": ending == "consolidation"}
    if ending == "ttl":
        result["ttlSecondsAfterEmpty"] = rng.choice([0, 30, 300])
    maybe(rng, result, "ttlSecondsUntilExpired", rng.choice([3600, 5400, 2592000, 90]))
    maybe(rng, result, "weight", rng.randint(1, 100))
    maybe(rng, result, "limits", {"resources": {"cpu": "100", "memory": "400Gi"}})
    maybe(rng, result, "labels", {"team": "x", "failure-domain.beta.kubernetes.io/region": "eu-west-1"} | rng.choice([
        {}, {"karpenter.k8s.aws/instance.family": "m5"}, {"karpenter.k8s.aws/instance-ami-id": "ami-1"}]))
    maybe(rng, result, "annotations", rng.choice([
        {"owner": "platform"}, {"karpenter.sh/do-not-consolidate": "true"}, {"karpenter.sh/do-not-consolidate": "false"}]))
    maybe(rng, result, "taints", [{"key": "a", "value": rng.choice(["b", ""]), "effect": "NoSchedule"}])
    maybe(rng, result, "startupTaints", [{"key": "cni", "effect": "NoExecute"}])
    maybe(rng, result, "kubeletConfiguration", {"maxPods": 20, "containerRuntime": "containerd",
                                                "systemReserved": {"cpu": rng.choice(["100m", 1])},
                                                "clusterDNS": [rng.choice(["10.100.0.10", "fd00::a"])]})
    return result


def template(rng):
    result = {"amiFamily": rng.choice(["AL2", "Bottlerocket"]), "rootVolumeSize": rng.choice(["20Gi", "100Gi", "1Ti"]),
              "extraTags": dict.fromkeys(some(rng, ["team", "env", "kubernetes.io/cluster/demo"]), rng.choice(["x", 7, True, 1000000]))}
    if result["amiFamily"] == "AL2":
        maybe(rng, result, "userData", USER_DATA)
    maybe(rng, result, "detailedMonitoring", True)
    maybe(rng, result, "metadataOptions", {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                                           "httpPutResponseHopLimit": 1, "httpTokens": "required"})
    return result


def values(rng):
    templates = ["defaultNodeTemplate", "gpuDefaultNodeTemplate", "inferentiaDefaultNodeTemplate", "controlPlaneNodeTemplate"]
    karpenter = {name: template(rng) for name in templates}
    karpenter["controlPlaneNodeTemplate"]["enabled"] = rng.random() < 0.5
    karpenter |= {"instanceProfile": "demo-profile", "defaultProvisionerSpec": raw_spec(rng),
                  "gpuProvisionerSpec": pool(rng, True), "inferentiaProvisionerSpec": pool(rng, True),
                  "controlPlaneProvisioner": pool(rng, False)}
    return {"cluster": {"name": "demo"}, "karpenter": karpenter}


def objects(text):
    found = {}
    for each in yaml.safe_load_all(text):
        if each:
            for mapping in each["spec"].get("blockDeviceMappings", []):
                mapping["ebs"].pop("encrypted", None)
            found[each["kind"], each["metadata"]["name"]] = each
    return found


def main():
    helm, binary = sys.argv[1:3]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 25
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            path = pathlib.Path(scratch, "values.yaml")
            given = values(random.Random(number))
            path.write_text(yaml.safe_dump(given))
            rendered = {}
            for form in ["v1", "v1alpha5"]:
                rendered[form] = subprocess.run(
                    [helm, "template", "release", ROOT / "charts/karpenter-config", "--values", path, "--set", f"apiVersion={form}"],
                    check=True, capture_output=True, text=True).stdout
            result = subprocess.run([binary, "convert", "--filename", "-"], input=rendered["v1alpha5"], capture_output=True, text=True)
            if result.returncode != 0:
                kit.findings.append(f"case {number}: convert: {result.stderr}")
                continue
            ours, converted = objects(rendered["v1"]), objects(result.stdout)
            found = ours["EC2NodeClass", "default"]["spec"].get("userData")
            if found != given["karpenter"]["defaultNodeTemplate"].get("userData"):
                kit.findings.append(f"case {number}: user data changed: {found!r}")
            for key in sorted(ours.keys() | converted.keys()):
                if ours.get(key) != converted.get(key):
                    kit.findings.append(f"case {number}: {key}\n  chart   {ours.get(key)}\n  convert {converted.get(key)}")
    for each in kit.findings:
        print(f"error: {each}", file=sys.stderr)
    print(f"both forms: {count} cases, {len(kit.findings)} findings")
    sys.exit(1 if kit.findings else 0)


if __name__ == "__main__":
    main()
