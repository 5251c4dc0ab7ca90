"""The modes of e2e/moto."""

import argparse
import json
import random
import signal
import subprocess
import sys
import time

import moto_interruptions
from moto_consistency import consistency_story
from moto_endpoints import endpoint_story
from moto_families import families
from moto_identity import identity
from moto_log_parser import find_program, log_parser_story
from moto_refusals import refusals
from moto_stage import CLUSTER, NO_FAULTS, REGION, Stage
from moto_throttling import throttling
from moto_wire import check_requests, wire

# Faults cost retries, and the worst of them a run of garbage collection.
PATIENCE_WITH_FAULTS = 3


def interruption(instance_id):
    return json.dumps({
        "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-01T00:00:00Z", "detail": {"instance-id": instance_id, "instance-action": "terminate"},
    })


def begin(stage, given):
    """Without a seed the proxy only captures requests, and caches responses that moto computes slowly."""
    if given.faults is None:
        stage.start_account(given.seed, *NO_FAULTS)
    else:
        stage.start_account(given.faults)
    stage.start_cluster()


def leave_nothing(stage, patience):
    stage.inflate(0)
    stage.until("no instances are left", 180 * patience, lambda: not stage.machines() and stage.has_none("nodeclaims"))
    stage.kubectl("delete", "nodepool", "default")
    stage.kubectl("delete", "ec2nodeclass", "default", "--wait=false")
    stage.until(
        "the class is gone, with its profile and templates", 60 * patience,
        lambda: stage.has_none("ec2nodeclasses") and not stage.iam.list_instance_profiles()["InstanceProfiles"]
        and not stage.ec2.describe_launch_templates()["LaunchTemplates"] and not stage.machines())


def granted(stage):
    """Every action that the policies of `bootstrap aws` allow."""
    printed = subprocess.run([stage.binary, "bootstrap", "aws", "--cluster", CLUSTER, "--region", REGION,
                           "--account", "123456789012", "-o", "json"], check=True,
                          capture_output=True, text=True).stdout

    def actions(value):
        if isinstance(value, dict):
            own = value.get("Action", []) if value.get("Effect") == "Allow" and "Resource" in value else []
            yield from [own] if isinstance(own, str) else own
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            yield from actions(part)

    return set(actions(json.loads(printed)))


def check_permissions(stage):
    """Every captured request must be allowed by the policies."""
    called = set()
    for call in stage.faults("actions"):
        service, action = call.split(":", 1)
        if (service, action) == ("eks", f"GET /clusters/{CLUSTER}"):
            action = "DescribeCluster"
        # DeleteMessageBatch needs the permission of DeleteMessage.
        called.add(f"{service}:{action.removesuffix('Batch')}")
    allowed = granted(stage)
    print(f"{len(called)} different calls, {len(allowed)} actions are granted")
    assert called, "nothing was called"
    assert called <= allowed, f"not granted: {called - allowed}"


def life(stage, given):
    """Ten pods get instances, one instance is interrupted, and all instances are terminated at the end."""
    patience = 1 if given.faults is None else PATIENCE_WITH_FAULTS
    begin(stage, given)
    stage.start_controller()
    stage.apply_class_and_pool()
    stage.until("the class is ready", 120 * patience, stage.is_class_ready)
    stage.inflate(10)
    stage.until("ten pods run", 120 * patience, lambda: stage.running_pods() == 10)
    bought = stage.machines()
    for machine in bought:
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        assert tags["karpenter.sh/nodepool"] == "default", tags
    stage.until("machines carry the names of their nodes", 60 * patience, lambda: all(
        any(tag["Key"] == "karpenter.sh/nodeclaim" for tag in machine["Tags"]) for machine in stage.machines()))

    page = stage.metrics()
    for series in ("request_total", "request_attempt_total", "request_retry_count_count", "request_duration_seconds_sum",
                   "request_attempt_duration_seconds_sum"):
        wanted = f'aws_sdk_go_{series}{{action="CreateFleet",code="200",service="EC2"}} '
        assert any(line.startswith(wanted) for line in page), wanted
    if given.faults is not None:
        throttled = [line for line in page if line.startswith("aws_sdk_go_request_attempt_total") and 'code="503"' in line]
        assert throttled, "no metric counts throttled attempts"

    claims = stage.items("nodeclaims")
    lost = claims[0]["status"]["providerID"].rsplit("/", 1)[1]
    stage.sqs.send_message(QueueUrl=stage.queue_url, MessageBody="not JSON")
    stage.sqs.send_message(QueueUrl=stage.queue_url, MessageBody=interruption(lost))
    stage.until("the interrupted machine is gone and ten pods run", 120 * patience, lambda: stage.running_pods() == 10
                and lost not in [machine["InstanceId"] for machine in stage.machines()])
    stage.until("the queue is empty", 90 * patience, lambda: all(
        count == "0" for count in stage.sqs.get_queue_attributes(QueueUrl=stage.queue_url, AttributeNames=[
            "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"])["Attributes"].values()))
    leave_nothing(stage, patience)
    if given.faults is not None:
        counts = stage.faults()
        kinds = {fault: sum(count for what, count in counts.items() if what.endswith(fault)) for fault in (
            "throttle", "error", "lost_request", "lost_answer", "slow", "cut into pages", "further page")}
        print(f"faults, seed {given.faults}: {kinds}")
        missing = [fault for fault, count in kinds.items() if not count]
        assert not missing, f"these never happened: {missing}"
        check_permissions(stage)
    assert "panicked" not in stage.logs("karpenter")


def interruptions(stage, given):
    moto_interruptions.interruptions(stage, lambda: begin(stage, given),
                                     lambda: leave_nothing(stage, 1))


def log_parser(stage, given):
    program = find_program(given.log_parser)
    begin(stage, given)
    log_parser_story(
        stage, program,
        lambda lost: stage.sqs.send_message(QueueUrl=stage.queue_url, MessageBody=interruption(lost)),
        lambda: leave_nothing(stage, 1))


def consistency(stage, _):
    consistency_story(stage, lambda: leave_nothing(stage, 1))


def family_story(stage, _):
    families(stage, lambda: leave_nothing(stage, 1))


def has_started(stage, environment):
    """Restarts a controller that exited because of AWS errors, as the kubelet would."""
    if stage.controller.poll() is not None:
        stage.start_controller(**environment)
    # With leader election, it starts work only after the lease of the previous process has expired.
    words = "acquired leader lease" if stage.is_real else "starting karpenter"
    return words in stage.logs(f"karpenter-{stage.controllers:03d}")


def crashes(stage, given):
    """The controller is killed at random times while instances are launched and terminated."""
    patience = 1 if given.faults is None else PATIENCE_WITH_FAULTS
    chance = random.Random(given.seed)
    begin(stage, given)
    alone = {} if stage.is_real else {"DISABLE_LEADER_ELECTION": "true"}
    stage.apply_class_and_pool()
    launched = set()

    def settled(replicas):
        machines, claims = stage.machines(), stage.items("nodeclaims")
        launched.update(machine["InstanceId"] for machine in machines)
        ids = sorted(machine["InstanceId"] for machine in machines)
        claimed = sorted(claim.get("status", {}).get("providerID", "").rsplit("/", 1)[-1] for claim in claims)
        return stage.running_pods() == replicas and ids == claimed

    for round_number in range(1, given.crashes + 1):
        stage.start_controller(**alone)
        replicas = 4 + chance.randrange(8) if round_number % 2 else chance.randrange(4)
        stage.inflate(replicas, is_apart=True)
        if round_number % 3 == 0:
            for claim in stage.items("nodeclaims")[:2]:
                stage.kubectl("delete", "nodeclaim", claim["metadata"]["name"], "--wait=false")
        # Every fifth is killed during its start, the others after some seconds of work.
        pause = chance.random() * 8
        if round_number % 5:
            stage.until("it has started", 180 * patience, lambda: has_started(stage, alone), is_printed=False)
        ends = time.monotonic() + pause
        while time.monotonic() < ends:
            stage.boot()
            time.sleep(0.2)
        launched.update(machine["InstanceId"] for machine in stage.machines())
        stage.kill_controller()
        print(f"round {round_number} of {given.crashes}: {replicas} pods, killed after {pause:.1f} s, "
              f"{len(stage.machines())} machines, {len(stage.items('nodeclaims'))} claims", flush=True)
        # Every fourth time the cluster must be stable before the next kill.
        if round_number % 4 == 0:
            stage.start_controller(**alone)
            stage.until("it has started", 180 * patience, lambda: has_started(stage, alone), is_printed=False)
            stage.until(f"{replicas} pods run, a claim for every machine", 300 * patience, lambda: settled(replicas))
            stage.kill_controller()
    stage.start_controller(**alone)
    stage.until("it has started", 180 * patience, lambda: has_started(stage, alone), is_printed=False)
    leave_nothing(stage, 2 * patience)
    assert "panicked" not in stage.logs("karpenter")
    print(f"{given.crashes} rounds, seed {given.seed}: {len(launched)} machines seen, none left")


def main():
    parser = argparse.ArgumentParser(prog="e2e/moto", description=__doc__)
    parser.add_argument("binary", help=argparse.SUPPRESS)
    parser.add_argument("--faults", type=int, metavar="SEED", nargs="?", const=1,
                        help="with throttling, failures, lost and slow answers and small pages between it and moto")
    parser.add_argument("--crashes", type=int, metavar="ROUNDS", help="kill the controller that often instead")
    parser.add_argument("--identity", action="store_true", help="every source of AWS credentials, instead")
    parser.add_argument("--interruptions", action="store_true", help="every kind of message, by EventBridge, instead")
    parser.add_argument("--refusals", action="store_true", help="what is missing, forbidden or wrong, instead")
    parser.add_argument("--families", action="store_true", help="images by alias, reservations, prices, zonal shift, instead")
    parser.add_argument("--consistency", action="store_true", help="new things are hidden, bad combinations refused, instead")
    parser.add_argument("--endpoints", action="store_true", help="TLS, regions, a proxy and credentials that run out, instead")
    parser.add_argument("--throttling", type=int, metavar="NODES", nargs="?", const=500,
                        help="launch and remove nodes of 20 pools while EC2 throttles as it documents, instead")
    parser.add_argument("--share", type=float, metavar="PERCENT", default=100,
                        help="of EC2's token buckets that other callers of the account leave, with --throttling")
    parser.add_argument("--upstream", metavar="PROGRAM", help="throttle upstream's controller as well and compare calls")
    parser.add_argument("--wire", action="store_true", help="compare what launches send with upstream's requests, instead")
    parser.add_argument("--wire-record", metavar="PROGRAM", help="record these from upstream's controller, instead")
    parser.add_argument("--log-parser", metavar="PROGRAM", nargs="?", const="build",
                        help="read the log with LogParserForKarpenter, built by Go unless it is given, instead")
    parser.add_argument("--seed", type=int, default=1, help="when to kill it")
    parser.add_argument("--real", action="store_true", help="on the control plane of e2e/up, not on the embedded one")
    given = parser.parse_args()
    # A terminated run stops the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.wire or given.wire_record:
        wire(given)
        return print("e2e/moto: all well")
    if given.throttling:
        throttling(given)
        return print("e2e/moto: all well")
    stage = Stage(given.binary, given.real)
    try:
        stories = {"identity": identity, "interruptions": interruptions, "refusals": refusals, "crashes": crashes,
                   "consistency": consistency, "log_parser": log_parser, "families": family_story, "endpoints": endpoint_story}
        chosen = next((story for name, story in stories.items() if getattr(given, name)), life)
        chosen(stage, given)
        check_requests(stage)
    finally:
        stage.stop_all()
    print("e2e/moto: all well")


main()
