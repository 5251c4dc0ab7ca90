"""EC2's request throttling at scale: the nodes of the NodePools are launched and then removed while every action of EC2 has a
token bucket (buckets.py). No NodeClaim is lost, no instance is leaked, and every pod runs. Calls and throttled calls are
counted by action; with --upstream the same load runs with upstream's controller, and one table shows both counts."""

import collections
import time

import boto3
import botocore.config
import botocore.exceptions

import buckets
from moto_stage import NO_FAULTS, REGION, Stage, requirement

POOLS = 20
# One pod fills one instance of these instance types.
INSTANCE_TYPES = ("m5.large", "m5a.large", "m6i.large")
POD_CPU = "1500m"
# Page sizes as in EC2: the proxy's small pages would increase the number of calls.
PAGE_SIZE = 1000
# Time between the last running pod and the removal, so that polling is part of the counts.
REST_SECONDS = 60
LAUNCH_SECONDS_MAX = 1800
REMOVAL_SECONDS_MAX = 1800


def pool(number):
    name = f"pool-{number:02d}"
    spec = {"requirements": [requirement("node.kubernetes.io/instance-type", *INSTANCE_TYPES),
                             requirement("karpenter.sh/capacity-type", "on-demand")],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "template": {"metadata": {"labels": {"pool": name}}, "spec": spec},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s",
                       # moto's instances do not have the security groups of their launch template.
                       "budgets": [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}]}}}


def deployment(number, replicas):
    name = f"pool-{number:02d}"
    labels = {"app": "inflate", "pool": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 0, "nodeSelector": {"pool": name}, "containers": [
                {"name": "inflate", "image": "pause", "resources": {"requests": {"cpu": POD_CPU}}}]}}}}


def replicas_of(number, nodes):
    """The nodes, distributed evenly over the NodePools."""
    return nodes // POOLS + (number < nodes % POOLS)


def check_buckets(stage, share):
    """Checks that more calls than a bucket holds are throttled; otherwise a run without throttled calls would prove nothing."""
    once = botocore.config.Config(retries={"total_max_attempts": 1})
    ec2 = boto3.client("ec2", endpoint_url=stage.faults_at, region_name=REGION, aws_access_key_id="t",
                       aws_secret_access_key="t", config=once)
    subnet = stage.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    size, rate = (documented * share / 100 for documented in buckets.CHANGING)
    began, taken = time.monotonic(), 0
    try:
        while taken < 10 * size + 10:
            ec2.delete_tags(Resources=[subnet], Tags=[{"Key": "none"}])
            taken += 1
    except botocore.exceptions.ClientError as error:
        assert error.response["Error"]["Code"] == "RequestLimitExceeded", error
    # At most the tokens in the bucket plus those added in the meantime.
    assert int(size) <= taken <= size + rate * (time.monotonic() - began) + 1, f"{taken} calls were taken"


def counts(stage):
    """Calls by action, and the number of throttled ones."""
    calls, refused = collections.Counter(), collections.Counter()
    for action, count in stage.faults("actions").items():
        service, name = action.split(":", 1)
        calls[f"{service}:DescribeCluster" if name.startswith("GET /clusters/") else f"{service}:{name}"] += count
    for what, count in stage.faults().items():
        if what.endswith(" out of tokens"):
            refused[what.removesuffix(" out of tokens").replace(" ", ":")] += count
    return calls, refused


def run_load(stage, nodes, share, start):
    """Launches and removes the nodes; returns the seconds of each phase, calls by action and throttled calls by action."""
    stage.start_account(1, *NO_FAULTS, "--buckets", str(share), "--page-size", str(PAGE_SIZE))
    check_buckets(stage, share)
    before_load = counts(stage)
    stage.start_cluster()
    start(stage)
    stage.apply(stage.node_class("default"), *[pool(number) for number in range(POOLS)])
    stage.until("the class is ready", 120, stage.is_class_ready)
    before = time.monotonic()
    stage.apply(*[deployment(number, replicas_of(number, nodes)) for number in range(POOLS)])
    stage.until(f"{nodes} pods run", LAUNCH_SECONDS_MAX, lambda: stage.running_pods() == nodes)
    launched = time.monotonic()
    check_claims(stage, nodes)
    stage.until("time to rest", REST_SECONDS + 30, lambda: time.monotonic() - launched > REST_SECONDS, is_printed=False)
    check_claims(stage, nodes)
    removal = time.monotonic()
    stage.apply(*[deployment(number, 0) for number in range(POOLS)])
    stage.until("no instance and no claim is left", REMOVAL_SECONDS_MAX,
                lambda: stage.has_none("nodeclaims") and not stage.machines())
    removed = time.monotonic()
    calls, refused = (after - known for after, known in zip(counts(stage), before_load))
    seconds = {"launch": launched - before, "removal": removed - removal}
    return seconds, calls, refused


def check_claims(stage, nodes):
    """Checks that each instance had exactly one NodeClaim and that there were no other instances."""
    claims = stage.items("nodeclaims")
    claimed = sorted(one.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for one in claims)
    running = sorted(one["InstanceId"] for one in stage.machines())
    assert claimed == running, f"{len(claimed)} claims, {len(running)} instances: {set(claimed) ^ set(running)}"
    launched = len(stage.all_instances())
    assert launched == nodes, f"{launched} instances were launched for {nodes} pods"


def check_controller(stage, nodes):
    """Checks that no NodeClaim was deleted and replaced."""
    created = sum(float(line.rsplit(" ", 1)[1]) for line in stage.metrics()
                  if line.startswith("karpenter_nodeclaims_created_total{"))
    assert created == nodes, f"{created:g} claims were created for {nodes} pods"
    assert "panicked" not in stage.logs("karpenter")


def print_table(results):
    names = list(results)
    actions = sorted({action for _, calls, _ in results.values() for action in calls},
                     key=lambda action: (-max(calls[action] for _, calls, _ in results.values()), action))
    print("| action | " + " | ".join(f"{name}: calls | refused" for name in names) + " |")
    print("|---|" + "---|---|" * len(names))
    for action in actions:
        print(f"| `{action}` | " + " | ".join(f"{calls[action]} | {refused[action]}"
                                             for _, calls, refused in results.values()) + " |")
    print("| all | " + " | ".join(f"{sum(calls.values())} | {sum(refused.values())}"
                                 for _, calls, refused in results.values()) + " |")
    for name, (seconds, _, _) in results.items():
        print(f"{name}: all pods ran after {seconds['launch']:.0f} s, all instances were terminated after "
              f"{seconds['removal']:.0f} s")


def throttling(given):
    alone = {"DISABLE_LEADER_ELECTION": "true"}
    starts = {"ours": lambda stage: stage.start_controller(**alone)}
    if given.upstream:
        starts["upstream"] = lambda stage: stage.start_upstream(given.upstream, **alone)
    results = {}
    for name, start in starts.items():
        print(f"{name}: {given.throttling} nodes in {POOLS} pools, {given.share:g} % of EC2's token buckets", flush=True)
        stage = Stage(given.binary, given.real)
        try:
            results[name] = run_load(stage, given.throttling, given.share, start)
            if name == "ours":
                check_controller(stage, given.throttling)
        finally:
            stage.stop_all()
        print_table({name: results[name]})
    if len(results) > 1:
        print_table(results)
    assert given.share == 100 or sum(results["ours"][2].values()), "no call was refused"
