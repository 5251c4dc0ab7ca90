"""Checks requests on the wire: every request of a scenario against the service models, and for every case of
wire_cases.py the requests that launch are compared with those that upstream's controller sends.

wire_expected.json holds upstream's. `--wire-record PROGRAM` writes it: the program is upstream's controller, built from
its module, and runs on the same cluster and the same AWS in place of ours.
"""

import collections
import json
import pathlib

import wire_compare
import wire_model
from moto_stage import CLUSTER, NO_FAULTS, Stage, requirement
from wire_cases import CLUSTERS, PLACEMENT_GROUPS, RESERVATIONS

EXPECTED = pathlib.Path(__file__).parent / "wire_expected.json"
CA_BUNDLE = "Y2VydGlmaWNhdGU="


def requests(stage):
    """The captured requests, with their errors."""
    lines = stage.captured.read_text().splitlines() if stage.captured.exists() else []
    return [(json.loads(line)["service"], *wire_model.read(json.loads(line))) for line in lines]


def check_requests(stage):
    """Checks that every request of the controllers is valid for its service."""
    seen, wrong = collections.Counter(), collections.Counter()
    for service, operation, _, faults in requests(stage):
        seen[f"{service}:{operation}"] += 1
        wrong.update(f"{service}: {fault}" for fault in faults)
    assert seen, "no request was captured"
    assert not wrong, "requests that break the service model:\n" + "\n".join(
        f"{count} times {fault}" for fault, count in wrong.most_common(40))
    print(f"{sum(seen.values())} requests, {len(seen)} operations: all as the service models have them")


def pool(name, one):
    own, labels = one["pool"], {"case": name, **one["pool"].get("labels", {})}
    requirements = {"karpenter.sh/capacity-type": [one["capacity"]], "node.kubernetes.io/instance-type": one["types"],
                    "kubernetes.io/os": ["linux"], "kubernetes.io/arch": ["amd64", "arm64"], **one["requirements"]}
    spec = {"requirements": [requirement(key, *values) for key, values in requirements.items()],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name},
            **{key: own[key] for key in ("taints", "startupTaints") if key in own}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "template": {"metadata": {"labels": labels}, "spec": spec},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}}}


def pod(name, one):
    resources = {"requests": {"cpu": "100m", **one["requests"]}, "limits": one["requests"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "nodeSelector": {"case": name}, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "pause", "image": "pause", "resources": resources}]}}


def node_class(stage, name, one):
    made = stage.node_class(name, **one["spec"])
    made["spec"] = {key: value for key, value in made["spec"].items() if value is not None}
    return made


def start(stage, given, dns, network, gates):
    stage.start_account(1, *NO_FAULTS)
    stage.iam.create_instance_profile(InstanceProfileName="own-profile")
    stage.stand_in(CapacityReservations=RESERVATIONS, PlacementGroups=PLACEMENT_GROUPS, Cluster={
        "name": CLUSTER, "arn": f"arn:aws:eks:us-west-2:123456789012:cluster/{CLUSTER}", "status": "ACTIVE",
        "kubernetesNetworkConfig": network, "endpoint": "https://cluster.example", "version": "1.34"})
    stage.start_cluster()
    stage.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system"},
                 "spec": {"clusterIP": dns, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}})
    environment = {"DISABLE_LEADER_ELECTION": "true", "FEATURE_GATES": gates, "CLUSTER_CA_BUNDLE": CA_BUNDLE}
    if given.wire_record:
        stage.start_upstream(given.wire_record, **environment)
    else:
        stage.start_controller(**environment)
    # Fleets contain prices as priorities; until prices are read, both controllers use their built-in ones.
    stage.until("all prices are read", 120, lambda: has_prices(stage), is_printed=False)


def has_prices(stage):
    """On-demand prices come in two lists: shared tenancy and bare metal."""
    ended = stage.faults()
    return ended.get("GetProducts last page", 0) >= 2 and ended.get("DescribeSpotPriceHistory last page", 0) >= 1


def names_of(stage):
    """Placeholders for the ids that moto generates."""
    subnets = {one["SubnetId"]: f"subnet of {one['AvailabilityZone']}" for one in stage.ec2.describe_subnets()["Subnets"]}
    groups = {one["GroupId"]: f"group {one['GroupName']}" for one in stage.ec2.describe_security_groups()["SecurityGroups"]}
    return {**subnets, **groups}


def run_cluster(given, dns, network, gates, cases):
    """The launch of each case, as comparable values."""
    stage = Stage(given.binary)
    try:
        start(stage, given, dns, network, gates)
        # A prefix, so that a name does not match other text.
        named = {f"case-{name}": one for name, one in cases.items()}
        stage.apply(*[node_class(stage, name, one) for name, one in named.items()],
                    *[pool(name, one) for name, one in named.items()],
                    *[pod(name, one) for name, one in named.items()])

        def missing():
            read = [(operation, parameters) for _, operation, parameters, _ in requests(stage)]
            return sorted(named.keys() - wire_compare.launches(read).keys())

        try:
            stage.until(f"{len(cases)} cases are launched", 240, lambda: not missing(), is_joining=False)
        except SystemExit:
            print(f"never launched: {missing()}")
            if not given.wire_record:
                raise
        if not given.wire_record:
            check_requests(stage)
        read, names = [(operation, parameters) for _, operation, parameters, _ in requests(stage)], names_of(stage)
        launched, asked = wire_compare.launches(read), wire_compare.dry_runs(read)
        return {name: wire_compare.normal({"launch": launched.get(f"case-{name}"), "dry runs": asked.get(f"case-{name}")}, names)
                for name in cases}
    finally:
        stage.stop_all()


def wire(given):
    found = {}
    for name, dns, network, gates, cases in CLUSTERS:
        print(f"cluster {name}: {len(cases)} cases", flush=True)
        found.update(run_cluster(given, dns, network, gates, cases))
    if given.wire_record:
        EXPECTED.write_text(json.dumps(wire_compare.compact(found), indent=1, sort_keys=True) + "\n")
        print(f"{len(found)} cases are recorded in {EXPECTED.name}")
        return
    expected = wire_compare.expanded(json.loads(EXPECTED.read_text()))
    leaves = {name: wire_compare.leaves(wire_compare.without_name(one, name)) for name, one in found.items()}
    faults = [f"{name}: nothing is recorded of upstream" for name in leaves.keys() - expected.keys()]
    for name, values in expected.items():
        faults += [f"{name}: {line}" for line in wire_compare.differences(values, leaves.get(name, {}))]
    assert not faults, f"{len(faults)} differences from upstream's requests:\n" + "\n".join(faults)
    print(f"{len(found)} cases, {sum(map(len, leaves.values()))} values: all as upstream sends them")
