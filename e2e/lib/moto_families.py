"""AMI aliases, reservations, prices and zonal shifts, from the responses of AWS to a running node. There is a NodePool each for
Amazon Linux 2023, Bottlerocket and Windows, whose AMI ids come from SSM, and one that launches into a reservation. The
launch templates are read from EC2, and their user data is parsed and checked."""

import base64
import email
import json
import tomllib

import yaml

import stand_in
import wire_model
from moto_stage import CLUSTER, NO_FAULTS, requirement
from wire_cases import reservation

AWS = "karpenter.k8s.aws/"
ENDPOINT, CA_BUNDLE, SERVICES = "https://cluster.example", "Y2VydGlmaWNhdGU=", "10.100.0.0/16"
RESERVED_TYPE = "m5.4xlarge"
SHIFTED_ZONE, SHIFTED_ZONE_ID = "us-west-2a", "usw2-az2"
# Class, AMI alias, operating system.
FAMILIES = [("linux", "al2023", "linux"), ("bottle", "bottlerocket", "linux"), ("windows", "windows2022", "windows")]


def pool(name, capacity, types, system="linux"):
    requirements = {"karpenter.sh/capacity-type": capacity, "node.kubernetes.io/instance-type": types,
                    "kubernetes.io/os": [system]}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "template": {"metadata": {"labels": {"pool": name}}, "spec": {
            "requirements": [requirement(key, *values) for key, values in requirements.items()],
            "taints": [{"key": "pool", "value": name, "effect": "NoSchedule"}],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}}},
        # moto's instances do not have the security groups of their launch template.
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never",
                       "budgets": [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}]}}}


def pods(name, count):
    """Creates pods that need separate nodes and are counted like those of inflate."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "inflate"}}, "topologyKey": "kubernetes.io/hostname"}]}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "replicas": count, "selector": {"matchLabels": {"pool": name}}, "template": {
            "metadata": {"labels": {"app": "inflate", "pool": name}}, "spec": {
                "nodeSelector": {"pool": name}, "tolerations": [{"key": "pool", "operator": "Exists"}], "affinity": apart,
                "containers": [{"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "1"}}}]}}}}


def template_data(stage, name):
    """The data of a NodePool's launch templates, as returned by EC2."""
    found = stage.ec2.describe_launch_templates(Filters=[{"Name": "tag:karpenter.sh/nodepool", "Values": [name]}])
    read = [stage.ec2.describe_launch_template_versions(LaunchTemplateName=one["LaunchTemplateName"])
            for one in found["LaunchTemplates"]]
    return [one["LaunchTemplateVersions"][0]["LaunchTemplateData"] for one in read]


def check_linux(text):
    parts = email.message_from_string(text).get_payload()
    config = next(yaml.safe_load(part.get_payload()) for part in parts if "node.eks.aws" in part.get_content_type())
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig"), config
    cluster = config["spec"]["cluster"]
    assert cluster == {"name": CLUSTER, "apiServerEndpoint": ENDPOINT, "certificateAuthority": CA_BUNDLE,
                       "cidr": SERVICES}, cluster
    kubelet = config["spec"]["kubelet"]
    taints = {(one["key"], one.get("value", ""), one["effect"]) for one in kubelet["config"]["registerWithTaints"]}
    assert taints == {("pool", "linux", "NoSchedule"), ("karpenter.sh/unregistered", "", "NoExecute")}, taints
    labels = next(flag for flag in kubelet["flags"] if flag.startswith("--node-labels"))
    assert "pool=linux" in labels and "karpenter.sh/nodepool=linux" in labels, labels
    assert kubelet["config"]["maxPods"] > 0 and kubelet["config"]["clusterDNS"] == ["10.100.0.10"], kubelet


def check_bottle(text):
    settings = tomllib.loads(text)["settings"]["kubernetes"]
    assert (settings["cluster-name"], settings["api-server"], settings["cluster-certificate"]) == (
        CLUSTER, ENDPOINT, CA_BUNDLE), settings
    assert settings["cluster-dns-ip"] == "10.100.0.10" and settings["node-labels"]["pool"] == "bottle", settings
    assert settings["node-taints"] == {"pool": ["bottle:NoSchedule"],
                                       "karpenter.sh/unregistered": [":NoExecute"]}, settings["node-taints"]


def check_windows(text):
    assert text.startswith("<powershell>") and text.rstrip().endswith("</powershell>"), text
    for words in (f"-EKSClusterName '{CLUSTER}'", f"-APIServerEndpoint '{ENDPOINT}'", f"-Base64ClusterCA '{CA_BUNDLE}'",
                  "pool=windows:NoSchedule", "karpenter.sh/unregistered:NoExecute"):
        assert words in text, f"{words} is not in {text}"


def operations(stage):
    read = [wire_model.read(json.loads(line)) for line in stage.captured.read_text().splitlines()]
    return [(operation, parameters) for operation, parameters, _ in read]


def check_prices(stage):
    """Offerings have the price of the product for Linux with shared tenancy; other products of a type cost 1,000 $ more."""
    info = stand_in.load_resource("ec2/resources/instance_types.json")[RESERVED_TYPE]
    wanted = stand_in.price(info)

    def prices():
        return {float(line.rsplit(" ", 1)[1]) for line in stage.metrics() if "offering_price_estimate{" in line
                and f'"{RESERVED_TYPE}"' in line and '"on-demand"' in line}

    stage.until("prices are in the metrics", 120, prices)
    found = prices()
    assert found == {wanted}, f"{RESERVED_TYPE} costs {found}, {wanted} is listed"
    pages = sum("NextToken" in parameters for operation, parameters in operations(stage) if operation == "GetProducts")
    assert pages > 5, f"only {pages} further pages of prices were asked for"
    print(f"{RESERVED_TYPE} costs {wanted} $/h, as listed; {pages} further pages of prices")


def families(stage, leave_nothing):
    stage.start_account(1, *NO_FAULTS)
    held = reservation(1, RESERVED_TYPE, AvailableInstanceCount=2, TotalInstanceCount=2)
    others = [reservation(number, "c5.4xlarge", State="active") for number in (2, 3, 4)]
    stage.stand_in(CapacityReservations=[*others, held], Cluster={
        "name": CLUSTER, "arn": f"arn:aws:eks:us-west-2:123456789012:cluster/{CLUSTER}", "endpoint": ENDPOINT,
        "version": "1.34", "kubernetesNetworkConfig": {"serviceIpv4Cidr": SERVICES}},
        ZonalShifts=[{"appliedStatus": "APPLIED", "awayFrom": SHIFTED_ZONE_ID, "comment": "", "zonalShiftId": "1" * 36,
                      "resourceIdentifier": f"arn:aws:eks:us-west-2:123456789012:cluster/{CLUSTER}",
                      "startTime": "2026-01-01T00:00:00Z", "expiryTime": "2036-01-01T00:00:00Z"}])
    stage.start_cluster()
    stage.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system"},
                 "spec": {"clusterIP": "10.100.0.10", "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}})
    stage.start_controller("--enable-zonal-shift", "--offering-metrics", DISABLE_LEADER_ELECTION="true",
                           CLUSTER_CA_BUNDLE=CA_BUNDLE)
    terms = {"capacityReservationSelectorTerms": [{"tags": {"case": "*"}}]}
    classes = [stage.node_class(name, amiSelectorTerms=[{"alias": f"{family}@latest"}]) for name, family, _ in FAMILIES]
    for one in classes:
        del one["spec"]["amiFamily"], one["spec"]["userData"]
    stage.apply(*classes, stage.node_class("reserved", **terms),
                *[pool(name, ["on-demand"], ["m5.large"], system) for name, _, system in FAMILIES],
                pool("reserved", ["reserved", "on-demand"], [RESERVED_TYPE]),
                *[pods(name, 1) for name, _, _ in FAMILIES], pods("reserved", 3))
    stage.until("six pods run", 180, lambda: stage.running_pods() == 6)

    checks = {"linux": check_linux, "bottle": check_bottle, "windows": check_windows}
    for name, check in checks.items():
        for data in template_data(stage, name):
            check(base64.b64decode(data["UserData"]).decode())
        images = stage.kubectl("get", "ec2nodeclass", name, "-o", "jsonpath={.status.amis[*].id}").stdout.split()
        used = {data["ImageId"] for data in template_data(stage, name)}
        assert used and used <= set(images), (used, images)
        print(f"{name}: user data read back, image {used} of {len(images)} in the class")

    labels = [claim["metadata"]["labels"] for claim in stage.items("nodeclaims")]
    kinds = [one["karpenter.sh/capacity-type"] for one in labels if one["pool"] == "reserved"]
    assert sorted(kinds) == ["on-demand", "reserved", "reserved"], kinds
    ids = {one[AWS + "capacity-reservation-id"] for one in labels if one["karpenter.sh/capacity-type"] == "reserved"}
    assert ids == {held["CapacityReservationId"]}, ids
    further = sum("NextToken" in asked for operation, asked in operations(stage)
                  if operation == "DescribeCapacityReservations")
    assert further, "reservations were not asked for page by page"
    zones = {one["topology.kubernetes.io/zone"] for one in labels}
    asked = {override["AvailabilityZone"] for operation, fleet in operations(stage) if operation == "CreateFleet"
             and not fleet.get("DryRun") for config in fleet["LaunchTemplateConfigs"] for override in config["Overrides"]}
    assert zones <= asked and SHIFTED_ZONE not in asked, f"the shifted zone is offered: {asked}"
    print(f"two of two places of the reservation and one on demand; zones {sorted(zones)}, without {SHIFTED_ZONE}")
    check_prices(stage)
    for name in [*checks, "reserved"]:
        stage.kubectl("delete", "deployment", name)
        stage.kubectl("delete", "nodepool", name, "--wait=false")
        stage.kubectl("delete", "ec2nodeclass", name, "--wait=false")
    leave_nothing()
    assert "panicked" not in stage.logs("karpenter")
