"""The environment of e2e/moto: an AWS account in moto, a cluster, instances that join it, and a controller that can
be killed. Nothing is checked here."""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import boto3

REGION = "us-west-2"
CLUSTER = "moto"
IMAGE_ARCH = "x86_64"
HERE = pathlib.Path(__file__).parent
# API paths of the kinds.
PATHS = {"pods": "/api/v1/pods", "nodes": "/api/v1/nodes", "events": "/api/v1/events", "nodeclaims":
         "/apis/karpenter.sh/v1/nodeclaims", "ec2nodeclasses": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"}
JOINS_AT_ONCE = 16
# Arguments of the fault proxy for a proxy without faults.
NO_FAULTS = [part for fault in ("throttle", "error", "lost-request", "lost-answer", "slow") for part in (f"--{fault}", "0")]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def requirement(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


class Stage:
    def __init__(self, binary, is_real=False):
        self.binary, self.is_real = binary, is_real
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="karpenter-moto-"))
        self.kubeconfig = self.folder / "kubeconfig"
        self.started = []
        self.control_plane = None
        self.api_at = None
        self.account = {}
        self.endpoint = None
        self.faults_at = None
        self.controller = None
        self.controllers = 0
        self.queue = CLUSTER
        self.replicas = 0
        # The environment of every controller, besides the account.
        self.environment = {}
        # The file to which the proxy writes every request.
        self.captured = self.folder / "requests.jsonl"

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, name, arguments, **environment):
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, **environment})
        self.started.append((name, process))
        return process

    def stop_all(self):
        for _, process in reversed(self.started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for _, process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        if self.control_plane:
            subprocess.run([HERE.parent / "down", "--folder", self.control_plane], check=False)

    def logs(self, name):
        """The logs of all processes of a name."""
        found = sorted(self.folder.glob(f"{name}*.log"))
        return "\n".join(log.read_text() for log in found)

    def until(self, what, seconds, check, is_printed=True, is_joining=True):
        """Waits until check() returns a true value; in the meantime instances join the cluster, unless disabled."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if is_joining:
                self.boot()
            answer = check()
            if answer:
                if is_printed:
                    print(f"ok: {what} ({time.monotonic() - began:.1f} s)", flush=True)
                return answer
            time.sleep(0.5)
        for name, process in self.started[-6:]:
            text = (self.folder / f"{name}.log").read_text().splitlines()
            print(f"--- {name}, exit {process.poll()}", *text[-25:], sep="\n", file=sys.stderr)
        raise SystemExit(f"e2e/moto: failed: {what} (logs are in {self.folder})")

    # --- the account -------------------------------------------------------------------------------------------------

    def start_account(self, faults_seed=None, *fault_arguments):
        """Starts moto; with a seed, also the fault proxy between the controller and moto."""
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        self.endpoint = endpoint
        moto = pathlib.Path(sys.executable).parent / "moto_server"
        self.start("moto", [str(moto), "-H", "127.0.0.1", "-p", str(port)])
        self.account = {
            "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
        }
        session = boto3.Session("test", "test", region_name=REGION)
        services = ("ec2", "iam", "sqs")
        self.ec2, self.iam, self.sqs = (session.client(name, endpoint_url=endpoint) for name in services)

        def answers():
            try:
                return self.ec2.describe_subnets()["Subnets"]
            except Exception:  # noqa: BLE001: whatever it is, it is not there yet
                return None

        self.until("moto answers", 60, answers)
        if faults_seed is not None:
            port = free_port()
            self.faults_at = f"http://127.0.0.1:{port}"
            self.start("faults", [sys.executable, str(HERE / "fault_proxy.py"), "--upstream", endpoint,
                                  "--port", str(port), "--seed", str(faults_seed), "--capture", str(self.captured),
                                  *fault_arguments])
            self.account["AWS_ENDPOINT_URL"] = self.faults_at
            self.until("the proxy answers", 60, self.is_proxy_there, is_printed=False)
        self.image = next(
            image["ImageId"] for image in self.ec2.describe_images(Owners=["amazon"])["Images"]
            if image["Architecture"] == IMAGE_ARCH
        )
        tag = [{"Key": "karpenter.sh/discovery", "Value": CLUSTER}]
        subnets = [subnet["SubnetId"] for subnet in self.ec2.describe_subnets()["Subnets"]]
        groups = [group["GroupId"] for group in self.ec2.describe_security_groups()["SecurityGroups"]]
        self.ec2.create_tags(Resources=subnets + groups[:1], Tags=tag)
        self.iam.create_role(RoleName=f"KarpenterNodeRole-{CLUSTER}", AssumeRolePolicyDocument="{}")
        self.queue_url = self.sqs.create_queue(QueueName=CLUSTER)["QueueUrl"]

    def is_proxy_there(self):
        try:
            return self.faults() is not None
        except OSError:
            return False

    def faults(self, what="faults"):
        with urllib.request.urlopen(f"{self.faults_at}/{what}", timeout=30) as answer:
            return json.load(answer)

    def refuse(self, **actions):
        """The calls that the proxy rejects from now on: `ec2_DescribeSubnets="UnauthorizedOperation"`."""
        refused = json.dumps({name.replace("_", ":", 1): code for name, code in actions.items()}).encode()
        request = urllib.request.Request(f"{self.faults_at}/refused", data=refused, method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def stand_in(self, **parts):
        """Sets the state of stand_in.py, by its names."""
        request = urllib.request.Request(f"{self.faults_at}/stand-in", data=json.dumps(parts).encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def all_instances(self, **arguments):
        """All instances, including terminated ones."""
        pages = self.ec2.get_paginator("describe_instances").paginate(**arguments)
        return [one for page in pages for reservation in page["Reservations"] for one in reservation["Instances"]]

    def machines(self):
        return self.all_instances(Filters=[
            {"Name": "tag:eks:eks-cluster-name", "Values": [CLUSTER]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ])

    # --- the cluster -------------------------------------------------------------------------------------------------

    def start_cluster(self):
        if self.is_real:
            folder = str(self.folder / "control-plane")
            made = subprocess.run([HERE.parent / "up", "--folder", folder], capture_output=True, text=True, check=True)
            self.control_plane = folder
            self.kubeconfig = pathlib.Path(made.stdout.strip())
        else:
            self.start("cluster", [self.binary, "up", "--without-karpenter", "--port", "0",
                                   "--kubeconfig", str(self.kubeconfig)])
        self.until("the cluster answers", 60, lambda: self.kubeconfig.exists()
                   and self.kubectl("get", "nodes").returncode == 0)
        port = free_port()
        # Faster than a process per request.
        self.api_at = f"http://127.0.0.1:{port}"
        self.start("api", ["kubectl", "--kubeconfig", str(self.kubeconfig), "proxy", "--port", str(port)])
        self.until("the API server's proxy answers", 30, lambda: self.api("GET", PATHS["nodes"]) is not None, is_printed=False,
                   is_joining=False)
        definitions = subprocess.run([self.binary, "crds"], capture_output=True, text=True, check=True).stdout
        self.until("the kinds are defined", 60, lambda: self.kubectl(
            "apply", "--server-side", "--validate=false", "-f", "-", stdin=definitions).returncode == 0)

    def kubectl(self, *arguments, stdin=None):
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True)

    def api(self, method, path, body=None):
        """The response of the API server; None if it is an error or the server cannot be reached."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(self.api_at + path, json.dumps(body).encode() if body else None,
                                         {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    def items(self, kind):
        """The items of a list; empty if the API server did not respond."""
        return (self.api("GET", PATHS[kind]) or {"items": []})["items"]

    def has_none(self, kind):
        """Whether the API server returned an empty list."""
        answer = self.api("GET", PATHS[kind])
        return answer is not None and not answer["items"]

    def apply(self, *objects):
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        arguments = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"]
        said = []

        def are_taken():
            answer = self.kubectl(*arguments, stdin=whole)
            said.append(answer.stderr)
            return answer.returncode == 0

        try:
            self.until("objects are taken", 20, are_taken, is_printed=False, is_joining=False)
        except SystemExit:
            print(said[-1], file=sys.stderr)
            raise

    def boot(self):
        """Registers Nodes for running instances, as their user data would."""
        if not self.api_at:
            return
        claims = [claim for claim in self.items("nodeclaims") if claim.get("status", {}).get("providerID")
                  and "deletionTimestamp" not in claim["metadata"]]
        if not claims:
            return
        joined = {node["spec"].get("providerID") for node in self.items("nodes")}
        new = [claim["status"] for claim in claims if claim["status"]["providerID"] not in joined]
        with concurrent.futures.ThreadPoolExecutor(JOINS_AT_ONCE) as pool:
            list(pool.map(self.join, new))

    def join(self, status):
        """Creates the Node of a claim with this status."""
        name = "ip-" + status["providerID"].rsplit("/", 1)[1]
        resources = {"capacity": status.get("capacity"), "allocatable": status.get("allocatable")}
        self.api("POST", PATHS["nodes"], {
            "apiVersion": "v1", "kind": "Node", "status": resources,
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                         "labels": {"kubernetes.io/hostname": name, "kwok-partition": "a"}},
            "spec": {"providerID": status["providerID"],
                     "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        })
        self.api("PATCH", f"{PATHS['nodes']}/{name}/status", {"status": resources})

    def running_pods(self):
        pods = [pod for pod in self.items("pods") if pod["metadata"].get("labels", {}).get("app") == "inflate"]
        return sum(
            pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in pods
        )

    def node_class(self, name, **spec):
        discovery = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
        return {
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
            "spec": {
                "amiFamily": "Custom", "amiSelectorTerms": [{"id": self.image}],
                "role": f"KarpenterNodeRole-{CLUSTER}", "subnetSelectorTerms": discovery,
                "securityGroupSelectorTerms": discovery, "userData": "#!/bin/sh\n", **spec,
            },
        }

    def condition(self, name, kind):
        """Status and reason of a class's condition, and its message."""
        answer = self.kubectl("get", "ec2nodeclass", name, "-o", "json")
        found = json.loads(answer.stdout).get("status", {}).get("conditions", []) if answer.returncode == 0 else []
        said = next((one for one in found if one["type"] == kind), {})
        return f"{said.get('status')} {said.get('reason')}", said.get("message", "")

    def apply_class_and_pool(self):
        node_class = self.node_class("default")
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
                    # moto's instances do not have the security groups of their launch template.
                    "budgets": [{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "100%"}],
                },
            },
        }
        self.apply(node_class, pool)

    def is_class_ready(self):
        found = self.items("ec2nodeclasses")
        conditions = [one for each in found for one in each.get("status", {}).get("conditions", [])]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def inflate(self, replicas, is_apart=False):
        """Creates this number of pods; with `is_apart`, each needs its own node."""
        spec = {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "inflate", "image": "pause", "resources": {"requests": {"cpu": "1"}}},
        ]}
        if is_apart:
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "inflate"}}, "topologyKey": "kubernetes.io/hostname"}]}}
        self.apply({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "inflate", "namespace": "default"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "inflate"}},
                "template": {"metadata": {"labels": {"app": "inflate"}}, "spec": spec},
            },
        })

    # --- the controller ----------------------------------------------------------------------------------------------

    def start_controller(self, *arguments, **environment):
        self.controllers += 1
        self.controller = self.start(
            f"karpenter-{self.controllers:03d}",
            [self.binary, "controller", "--provider", "aws", "--kubeconfig", str(self.kubeconfig), "--cluster-name",
             CLUSTER, "--cluster-endpoint", "https://cluster.example", "--interruption-queue", self.queue,
             "--metrics-port", "0", "--health-probe-port", "0", "--log-level", "debug", *arguments],
            **{**self.environment, **self.account, **environment},
        )

    def start_upstream(self, program, **environment):
        """Starts upstream's controller instead of ours."""
        self.controller = self.start("upstream", [program], **{
            **self.account, "KUBECONFIG": str(self.kubeconfig), "CLUSTER_NAME": CLUSTER, "LOG_LEVEL": "debug",
            "CLUSTER_ENDPOINT": "https://cluster.example", "INTERRUPTION_QUEUE": self.queue, "METRICS_PORT":
            str(free_port()), "HEALTH_PROBE_PORT": str(free_port()), "SYSTEM_NAMESPACE": "kube-system", **environment})

    def metrics(self):
        """The lines of the controller's /metrics."""
        started = [json.loads(line) for line in self.logs(f"karpenter-{self.controllers:03d}").splitlines()
                   if '"starting karpenter"' in line]
        with urllib.request.urlopen(f"http://127.0.0.1:{started[-1]['metrics-port']}/metrics", timeout=30) as answer:
            return answer.read().decode().splitlines()

    def kill_controller(self):
        """Kills the controller with SIGKILL."""
        self.controller.kill()
        self.controller.wait()
