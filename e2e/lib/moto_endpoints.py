"""How AWS is reached outside a simulator: TLS by a certificate authority of the cluster, the endpoints of a region, of
FIPS, of IPv6, of China and GovCloud, a proxy on the way, and credentials that run out.

Everything runs in a network namespace whose hosts file leads the names of AWS to a TLS terminator. Which endpoint is the
right one is what botocore resolves, not what is written here."""

import datetime
import http.server
import json
import select
import socket
import socketserver
import threading
import time

import boto3
import botocore.config

import namespace
import wire_model
from moto_stage import CLUSTER, NO_FAULTS, REGION
from stand_in import key_until

SERVICES = ("ec2", "iam", "sts", "ssm", "sqs", "eks", "arc-zonal-shift", "pricing")
# What it is called, region, region of the price list, environment.
PLACES = [
    ("a region", REGION, "us-east-1", {}),
    ("FIPS", REGION, "us-east-1", {"AWS_USE_FIPS_ENDPOINT": "true"}),
    ("dual stack", REGION, "us-east-1", {"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    ("China", "cn-north-1", "cn-northwest-1", {}),
    ("GovCloud", "us-gov-west-1", None, {}),
    ("another region", "ap-south-1", "ap-south-1", {}),
]
# Only the proxy leads there: the hosts file does not have it.
PROXIED = ("a proxy", "eu-west-1", "eu-central-1", {})
SECONDS = 30
ROLE_ARN = "arn:aws:iam::123456789012:role/KarpenterController"


def endpoint(service, region, environment):
    """The host that botocore calls."""
    options = botocore.config.Config(use_fips_endpoint="AWS_USE_FIPS_ENDPOINT" in environment,
                                     use_dualstack_endpoint="AWS_USE_DUALSTACK_ENDPOINT" in environment)
    client = boto3.client(service, region_name=region, config=options, aws_access_key_id="x", aws_secret_access_key="x")
    return client.meta.endpoint_url.removeprefix("https://")


def endpoints(place):
    _, region, price_region, environment = place
    return {service: endpoint(service, price_region if service == "pricing" else region, environment)
            for service in SERVICES if service != "pricing" or price_region}


def hosts():
    return sorted({host for place in PLACES for host in endpoints(place).values()})


class Connect(socketserver.BaseRequestHandler):
    """A proxy for TLS: CONNECT, to whatever host, ends at the terminator."""

    asked = []

    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.request.recv(4096)
            if not part:
                return
            head += part
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        if method != "CONNECT":
            return self.request.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        self.asked.append(target)
        with socket.create_connection(("127.0.0.1", 443)) as other:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            while True:
                for one in select.select([self.request, other], [], [])[0]:
                    part = one.recv(65536)
                    if not part:
                        return
                    (other if one is self.request else self.request).sendall(part)


class Agent(http.server.BaseHTTPRequestHandler):
    """The agent of pod identities: credentials that live for some seconds."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        ends = time.time() + SECONDS
        expiration = datetime.datetime.fromtimestamp(ends, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = json.dumps({"AccessKeyId": key_until(ends), "SecretAccessKey": "secret", "Token": "session",
                           "AccountId": "123456789012", "Expiration": expiration}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def captured(stage, begin):
    lines = stage.captured.read_text().splitlines() if stage.captured.exists() else []
    return [json.loads(line) for line in lines[begin:]]


def called_hosts(stage, begin):
    """By service, the hosts that were called."""
    found = {}
    for one in captured(stage, begin):
        found.setdefault("sts" if one["service"] == "unsigned" else one["service"], set()).add(one["host"].removesuffix(":443"))
    return found


def run_place(stage, place, token, **environment):
    """A controller in a region, until it has called what it calls there; answers by service which hosts."""
    what, region, _, own = place
    begin = len(captured(stage, 0))
    stage.account = {"AWS_REGION": region, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE_ARN,
                     "AWS_EC2_METADATA_DISABLED": "true", **own, **environment}
    stage.start_controller("--enable-zonal-shift", DISABLE_LEADER_ELECTION="true")
    wanted = {service for service in SERVICES if service in endpoints(place)}
    # A class with an alias, so that SSM is asked.
    stage.apply(stage.node_class(f"asks-{stage.controllers}", amiFamily="AL2023",
                                 amiSelectorTerms=[{"alias": "al2023@latest"}], userData=""))
    try:
        stage.until(f"{what}: every service is called", 60, lambda: wanted <= called_hosts(stage, begin).keys(),
                    is_joining=False)
    finally:
        stage.kill_controller()
        stage.until("the last calls are over", 30, lambda: is_quiet(stage), is_told=False, is_joining=False)
        print(f"{what}: {called_hosts(stage, begin)}")
    return called_hosts(stage, begin)


def is_quiet(stage, seen=[]):
    """Whether nothing was captured since it was asked last."""
    count = len(captured(stage, 0))
    seen.append(count)
    return seen[-2:] == [count, count]


def check_places(stage, token):
    wrong = []
    for place in PLACES:
        called, expected = run_place(stage, place, token), endpoints(place)
        wrong += [f"{place[0]}: {service} at {found}, botocore calls {expected.get(service)}"
                  for service, found in called.items() if found != {expected.get(service)}]
    assert not wrong, "\n".join(wrong)


def check_proxy(stage, token):
    """By HTTPS_PROXY, to names that nothing else leads to."""
    proxy = serve(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connect))
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    called = run_place(stage, PROXIED, token, HTTPS_PROXY=address, NO_PROXY="127.0.0.1,localhost")
    asked = {target.removesuffix(":443") for target in Connect.asked}
    reached = {host for found in called.values() for host in found}
    assert reached <= asked, f"called past the proxy: {reached - asked}"
    print(f"{len(Connect.asked)} connections by the proxy to {len(asked)} hosts")


def fresh_calls(stage, begin):
    """Keys that signed calls to EC2 since then."""
    return {one["key"] for one in captured(stage, begin) if one["service"] == "ec2"}


def check_token_rotation(stage, token):
    """Credentials of a web identity run out, and the token in the file is replaced."""
    begin = len(captured(stage, 0))
    stage.stand_in(Identity={"token": token.read_text(), "seconds": SECONDS})
    stage.account = {"AWS_REGION": REGION, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE_ARN,
                     "AWS_EC2_METADATA_DISABLED": "true"}
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    launch(stage, "web-identity", lambda: len(fresh_calls(stage, begin)) >= 2)
    token.write_text("eyJ.token-after-rotation.")
    stage.stand_in(Identity={"token": token.read_text(), "seconds": SECONDS})
    known = fresh_calls(stage, begin)
    launch(stage, "rotated-token", lambda: len(fresh_calls(stage, begin) - known) >= 2)
    stage.kill_controller()
    print(f"a role for the service account: {len(fresh_calls(stage, begin))} sets of credentials of {SECONDS} s")


def check_agent(stage):
    """The agent of pod identities is away for as long as its credentials live."""
    begin = len(captured(stage, 0))
    token = stage.folder / "pod-identity-token"
    token.write_text("pod-identity")
    stage.account = {"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
                     "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{namespace.POD_IDENTITY}/v1/credentials",
                     "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
    agent = serve(http.server.ThreadingHTTPServer((namespace.POD_IDENTITY, 80), Agent))
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    launch(stage, "pod-identity", lambda: fresh_calls(stage, begin))
    agent.shutdown()
    agent.server_close()
    away, known = time.monotonic(), fresh_calls(stage, begin)
    stage.until("the agent was away for 35 s", 60, lambda: time.monotonic() - away > SECONDS + 5)
    assert stage.controller.poll() is None, "the controller ended"
    serve(http.server.ThreadingHTTPServer((namespace.POD_IDENTITY, 80), Agent))
    launch(stage, "agent-is-back", lambda: fresh_calls(stage, begin) - known)
    stage.kill_controller()
    print(f"a pod identity: {len(fresh_calls(stage, begin))} sets of credentials, the agent away once")


def launch(stage, name, is_done):
    """One more pod runs, and whatever else is waited for."""
    stage.apply_class_and_pool()
    stage.replicas += 1
    stage.inflate(stage.replicas, is_apart=True)
    stage.until(f"{name}: {stage.replicas} pods run", 180, lambda: stage.running_pods() == stage.replicas and is_done())


def endpoint_story(stage, _):
    namespace.enter(hosts())
    ca, certificate = namespace.certificates(stage.folder, [*hosts(), *endpoints(PROXIED).values()])
    # moto sells nothing in China.
    stage.start_account(1, *NO_FAULTS, "--tls", "443", str(certificate), "--moto-region", REGION)
    stage.environment = {"AWS_CA_BUNDLE": str(ca), "SSL_CERT_FILE": str(ca), "AWS_CONFIG_FILE": "/dev/null",
                         "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    stage.stand_in(Cluster={"name": CLUSTER, "arn": f"arn:aws:eks:{REGION}:123456789012:cluster/{CLUSTER}",
                            "endpoint": "https://cluster.example", "version": "1.34",
                            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}})
    stage.start_cluster()
    token = stage.folder / "web-identity-token"
    token.write_text("eyJ.token.")
    check_places(stage, token)
    check_token_rotation(stage, token)
    check_agent(stage)
    check_proxy(stage, token)
    expired = stage.faults().get("signed with expired credentials", 0)
    assert not expired, f"{expired} calls were signed with expired credentials"
    assert all(not wire_model.read(one)[2] for one in captured(stage, 0)), "requests that break the service model"
