"""The story of e2e/moto: who starts what, plays the machines, and checks what becomes of it."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import boto3

BINARY = sys.argv[1]
REGION = "us-west-2"
CLUSTER = "moto"
IMAGE_ARCH = "x86_64"
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="karpenter-moto-"))
STARTED = []


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(name, arguments, **environment):
    log = open(FOLDER / f"{name}.log", "w")
    process = subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, **environment})
    STARTED.append((name, process))
    return process


def stop_all():
    for name, process in reversed(STARTED):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for name, process in STARTED:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def until(what, seconds, check):
    """Waits until check() answers something true, playing the machines meanwhile."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        boot()
        answer = check()
        if answer:
            print(f"ok: {what} ({time.monotonic() - began:.1f} s)")
            return answer
        time.sleep(0.5)
    for name, process in STARTED:
        text = (FOLDER / f"{name}.log").read_text().splitlines()
        print(f"--- {name}, exit {process.poll()}", *text[-25:], sep="\n", file=sys.stderr)
    raise SystemExit(f"e2e/moto: failed: {what} (logs are in {FOLDER})")


def kubectl(*arguments, stdin=None):
    command = ["kubectl", "--kubeconfig", str(FOLDER / "kubeconfig"), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


def items(kind):
    answer = kubectl("get", kind, "-A", "-o", "json")
    return json.loads(answer.stdout)["items"] if answer.returncode == 0 else []


def apply(*objects):
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    arguments = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"]
    until("objects are taken", 60, lambda: kubectl(*arguments, stdin=whole).returncode == 0)


def boot():
    """Machines that run join the cluster, as their user data would have them do."""
    if not (FOLDER / "kubeconfig").exists():
        return
    joined = {node["spec"].get("providerID") for node in items("nodes")}
    for claim in items("nodeclaims"):
        status = claim.get("status", {})
        provider_id = status.get("providerID")
        if not provider_id or provider_id in joined:
            continue
        name = "ip-" + provider_id.rsplit("/", 1)[1]
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {"kubernetes.io/hostname": name},
            },
            "spec": {
                "providerID": provider_id,
                "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
            },
            "status": {"capacity": status.get("capacity"), "allocatable": status.get("allocatable")},
        }
        kubectl("create", "-f", "-", stdin=json.dumps(node))
        kubectl("patch", "node", name, "--subresource=status", "--type=merge",
                "-p", json.dumps({"status": node["status"]}))


def machines():
    answer = EC2.describe_instances(Filters=[
        {"Name": "tag:eks:eks-cluster-name", "Values": [CLUSTER]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ])
    return [machine for reservation in answer["Reservations"] for machine in reservation["Instances"]]


def running_pods():
    pods = [pod for pod in items("pods") if pod["metadata"].get("labels", {}).get("app") == "inflate"]
    return sum(
        pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods
    )


def class_and_pool(image):
    discovery = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
    requirement = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "Custom", "amiSelectorTerms": [{"id": image}], "role": f"KarpenterNodeRole-{CLUSTER}",
            "subnetSelectorTerms": discovery, "securityGroupSelectorTerms": discovery, "userData": "#!/bin/sh\n",
        },
    }
    pool = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "requirements": [
                    requirement("kubernetes.io/arch", "amd64"), requirement("kubernetes.io/os", "linux"),
                    requirement("karpenter.sh/capacity-type", "on-demand"),
                    requirement("karpenter.k8s.aws/instance-category", "c", "m", "r"),
                ],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s",
                # moto's machines have other security groups than their launch template asks for.
                "budgets": [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}],
            },
        },
    }
    return node_class, pool


def inflate(replicas):
    apply({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "inflate"}},
            "template": {
                "metadata": {"labels": {"app": "inflate"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [
                    {"name": "inflate", "image": "pause", "resources": {"requests": {"cpu": "1"}}},
                ]},
            },
        },
    })


def prepare_account():
    image = next(
        image["ImageId"] for image in EC2.describe_images(Owners=["amazon"])["Images"]
        if image["Architecture"] == IMAGE_ARCH
    )
    tag = [{"Key": "karpenter.sh/discovery", "Value": CLUSTER}]
    subnets = [subnet["SubnetId"] for subnet in EC2.describe_subnets()["Subnets"]]
    groups = [group["GroupId"] for group in EC2.describe_security_groups()["SecurityGroups"]]
    EC2.create_tags(Resources=subnets + groups[:1], Tags=tag)
    IAM.create_role(RoleName=f"KarpenterNodeRole-{CLUSTER}", AssumeRolePolicyDocument="{}")
    return image, SQS.create_queue(QueueName=CLUSTER)["QueueUrl"]


def main():
    global EC2, IAM, SQS
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    moto = pathlib.Path(sys.executable).parent / "moto_server"
    start("moto", [str(moto), "-H", "127.0.0.1", "-p", str(port)])
    account = {
        "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
    }
    session = boto3.Session("test", "test", region_name=REGION)
    EC2, IAM, SQS = (session.client(name, endpoint_url=endpoint) for name in ("ec2", "iam", "sqs"))

    def answers():
        try:
            return EC2.describe_subnets()["Subnets"]
        except Exception:  # noqa: BLE001: whatever it is, it is not there yet
            return None

    until("moto answers", 60, answers)
    image, queue_url = prepare_account()
    kubeconfig = FOLDER / "kubeconfig"
    start("cluster", [BINARY, "up", "--without-karpenter", "--port", "0", "--kubeconfig", str(kubeconfig)])
    until("the cluster answers", 60, lambda: kubeconfig.exists() and kubectl("get", "nodes").returncode == 0)
    definitions = subprocess.run([BINARY, "crds"], capture_output=True, text=True, check=True).stdout
    until("the kinds are defined", 60, lambda: kubectl(
        "apply", "--server-side", "--validate=false", "-f", "-", stdin=definitions).returncode == 0)
    start(
        "karpenter",
        [BINARY, "controller", "--provider", "aws", "--kubeconfig", str(kubeconfig), "--cluster-name", CLUSTER,
         "--cluster-endpoint", "https://cluster.example", "--interruption-queue", CLUSTER, "--metrics-port", "0",
         "--health-probe-port", "0", "--log-level", "debug"],
        **account,
    )
    apply(*class_and_pool(image))

    def is_ready():
        conditions = [one for found in items("ec2nodeclasses") for one in found.get("status", {}).get("conditions", [])]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    until("the class is ready", 120, is_ready)
    inflate(10)
    until("ten pods run", 120, lambda: running_pods() == 10)
    bought = machines()
    for machine in bought:
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        assert tags["karpenter.sh/nodepool"] == "default", tags
    until("machines carry the names of their nodes", 60, lambda: all(
        any(tag["Key"] == "karpenter.sh/nodeclaim" for tag in machine["Tags"]) for machine in machines()))

    lost = bought[0]["InstanceId"]
    SQS.send_message(QueueUrl=queue_url, MessageBody="not JSON")
    SQS.send_message(QueueUrl=queue_url, MessageBody=json.dumps({
        "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-01T00:00:00Z", "detail": {"instance-id": lost, "instance-action": "terminate"},
    }))
    until("the interrupted machine is gone and ten pods run", 120, lambda: running_pods() == 10 and lost not in [
        machine["InstanceId"] for machine in machines()])
    until("the queue is empty", 60, lambda: all(
        count == "0" for count in SQS.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[
            "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"])["Attributes"].values()))

    inflate(0)
    until("no machines are left", 180, lambda: not machines() and not items("nodeclaims"))
    kubectl("delete", "nodepool", "default")
    kubectl("delete", "ec2nodeclass", "default", "--wait=false")
    until("the class is gone, with its profile and templates", 60, lambda: not items("ec2nodeclasses")
          and not IAM.list_instance_profiles()["InstanceProfiles"]
          and not EC2.describe_launch_templates()["LaunchTemplates"])
    print("e2e/moto: all well")


try:
    main()
finally:
    stop_all()
