"""AWS by its real host names: TLS with a certificate authority of the test, the endpoints of a region, FIPS, dual stack, China
and GovCloud, a CONNECT proxy, and credentials that expire.

The controller runs in a network namespace whose hosts file maps the names of AWS to a local TLS terminator. The expected
endpoints are those that botocore resolves."""

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
from moto_stage import CLUSTER, NO_FAULTS, REGION
from stand_in import key_until

SERVICES = ("ec2", "iam", "sts", "ssm", "sqs", "eks", "arc-zonal-shift", "pricing")
# Name, region, region of the price list (none: not called), environment.
PLACES = [
    ("a region", REGION, "us-east-1", {}),
    ("FIPS", REGION, "us-east-1", {"AWS_USE_FIPS_ENDPOINT": "true"}),
    ("dual stack", REGION, "us-east-1", {"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    ("China", "cn-north-1", "cn-northwest-1", {}),
    ("GovCloud", "us-gov-west-1", None, {}),
    ("another region", "ap-south-1", "ap-south-1", {}),
]
# These host names are not in the hosts file: they are reachable only through the proxy.
PROXIED = ("a proxy", "eu-west-1", "eu-central-1", {})
# How long temporary credentials are valid.
CREDENTIAL_SECONDS = 30
# How long the Pod Identity agent does not respond; all its credentials expire in this time.
AGENT_AWAY_SECONDS = CREDENTIAL_SECONDS + 5
ROLE_ARN = "arn:aws:iam::123456789012:role/KarpenterController"
POD_TOKEN = "pod-identity-token"


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


class ConnectProxy(socketserver.BaseRequestHandler):
    """CONNECT to any host opens a tunnel to the TLS terminator."""

    targets = []

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
        self.targets.append(target)
        with socket.create_connection(("127.0.0.1", 443)) as server:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                self.copy(server)
            except ConnectionError:
                # The controller was killed.
                pass

    def copy(self, server):
        """In both directions, until one side closes."""
        while True:
            for one in select.select([self.request, server], [], [])[0]:
                part = one.recv(65536)
                if not part:
                    return
                (server if one is self.request else self.request).sendall(part)


class PodIdentityAgent(http.server.BaseHTTPRequestHandler):
    """Serves temporary credentials for the token of the pod."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        is_allowed = self.headers.get("Authorization") == POD_TOKEN
        ends = time.time() + CREDENTIAL_SECONDS
        expiration = datetime.datetime.fromtimestamp(ends, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = json.dumps({"AccessKeyId": key_until(ends), "SecretAccessKey": "secret", "Token": "session",
                           "AccountId": "123456789012", "Expiration": expiration} if is_allowed else {}).encode()
        self.send_response(200 if is_allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def captured(stage, begin=0):
    """The requests from this index on."""
    lines = stage.captured.read_text().splitlines() if stage.captured.exists() else []
    return [json.loads(line) for line in lines[begin:]]


def called_hosts(stage, begin):
    """The called hosts by service."""
    found = {}
    for one in captured(stage, begin):
        # The exchange of a web identity token is not signed.
        service = "sts" if one["service"] == "unsigned" else one["service"]
        found.setdefault(service, set()).add(one["host"].removesuffix(":443"))
    return found


def signing_keys(stage, begin):
    """The access keys of signed calls to EC2."""
    return {one["key"] for one in captured(stage, begin) if one["service"] == "ec2"}


def kill_controller(stage):
    """Returns once the proxy has captured the last request of the controller."""
    stage.kill_controller()
    counts = [-1]

    def is_quiet():
        counts.append(len(captured(stage)))
        return counts[-1] == counts[-2]

    stage.until("the last call was captured", 30, is_quiet, is_printed=False, is_joining=False)


def run_place(stage, place, token, **environment):
    """Runs a controller until it has called every service; returns the called hosts by service."""
    what, region, _, own = place
    begin, expected = len(captured(stage)), endpoints(place)
    stage.account = {"AWS_REGION": region, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE_ARN,
                     "AWS_EC2_METADATA_DISABLED": "true", **own, **environment}
    stage.start_controller("--enable-zonal-shift", DISABLE_LEADER_ELECTION="true")
    # An alias is resolved by SSM.
    stage.apply(stage.node_class(f"class-{stage.controllers}", amiFamily="AL2023",
                                 amiSelectorTerms=[{"alias": "al2023@latest"}], userData=""))
    stage.until(f"{what}: every service is called", 60, lambda: expected.keys() <= called_hosts(stage, begin).keys(),
                is_joining=False)
    kill_controller(stage)
    called = called_hosts(stage, begin)
    wrong = [f"{what}: {service} at {found}, botocore calls {expected.get(service)}"
             for service, found in called.items() if found != {expected.get(service)}]
    assert not wrong, "\n".join(wrong)
    return called


def check_proxy(stage, token):
    """HTTPS_PROXY is used for every service."""
    proxy = serve(socketserver.ThreadingTCPServer(("127.0.0.1", 0), ConnectProxy))
    address = f"http://127.0.0.1:{proxy.server_address[1]}"
    called = run_place(stage, PROXIED, token, HTTPS_PROXY=address, NO_PROXY="127.0.0.1,localhost")
    tunnels = {target.removesuffix(":443") for target in ConnectProxy.targets}
    reached = {host for found in called.values() for host in found}
    assert reached == tunnels, f"called: {reached}, tunnels: {tunnels}"
    print(f"{len(ConnectProxy.targets)} tunnels of the proxy to {len(tunnels)} hosts")


def check_token_rotation(stage, token):
    """Web identity credentials expire and are renewed, also after the token file was rotated."""
    begin = len(captured(stage))
    stage.stand_in(Identity={"token": token.read_text(), "seconds": CREDENTIAL_SECONDS})
    stage.account = {"AWS_REGION": REGION, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE_ARN,
                     "AWS_EC2_METADATA_DISABLED": "true"}
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    launch(stage, "web identity", lambda: len(signing_keys(stage, begin)) >= 2)
    # From now on STS rejects the old token.
    token.write_text("eyJ.rotated-token.")
    stage.stand_in(Identity={"token": token.read_text(), "seconds": CREDENTIAL_SECONDS})
    known = signing_keys(stage, begin)
    launch(stage, "rotated token", lambda: len(signing_keys(stage, begin) - known) >= 2)
    kill_controller(stage)
    print(f"web identity: {len(signing_keys(stage, begin))} sets of credentials of {CREDENTIAL_SECONDS} s")


def check_agent(stage):
    """The Pod Identity agent does not respond until all credentials have expired."""
    begin = len(captured(stage))
    token = stage.folder / "pod-identity-token"
    token.write_text(POD_TOKEN)
    stage.account = {"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
                     "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{namespace.POD_IDENTITY}/v1/credentials",
                     "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
    agent = serve(http.server.ThreadingHTTPServer((namespace.POD_IDENTITY, 80), PodIdentityAgent))
    stage.start_controller(DISABLE_LEADER_ELECTION="true")
    launch(stage, "Pod Identity", lambda: signing_keys(stage, begin))
    agent.shutdown()
    agent.server_close()
    stopped, known = time.monotonic(), signing_keys(stage, begin)
    stage.until("the Pod Identity agent did not answer", 2 * AGENT_AWAY_SECONDS,
                lambda: time.monotonic() - stopped > AGENT_AWAY_SECONDS)
    assert stage.controller.poll() is None, "the controller ended"
    assert signing_keys(stage, begin) == known, "credentials without an agent"
    serve(http.server.ThreadingHTTPServer((namespace.POD_IDENTITY, 80), PodIdentityAgent))
    launch(stage, "Pod Identity agent answers again", lambda: signing_keys(stage, begin) - known)
    kill_controller(stage)
    print(f"Pod Identity: {len(signing_keys(stage, begin))} sets of credentials of {CREDENTIAL_SECONDS} s")


def launch(stage, name, is_done):
    """Waits until one more pod runs on its own instance and `is_done` holds."""
    stage.apply_class_and_pool()
    stage.replicas += 1
    stage.inflate(stage.replicas, is_apart=True)
    stage.until(f"{name}: {stage.replicas} pods run", 180, lambda: stage.running_pods() == stage.replicas and is_done())


def endpoint_story(stage, _):
    namespace.enter(hosts())
    ca, certificate = namespace.certificates(stage.folder, [*hosts(), *endpoints(PROXIED).values()])
    # moto has no offerings in China, so one region of moto answers for all.
    stage.start_account(1, *NO_FAULTS, "--tls", "443", str(certificate), "--moto-region", REGION)
    stage.environment = {"AWS_CA_BUNDLE": str(ca), "AWS_CONFIG_FILE": "/dev/null",
                         "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    stage.stand_in(Cluster={"name": CLUSTER, "arn": f"arn:aws:eks:{REGION}:123456789012:cluster/{CLUSTER}",
                            "endpoint": "https://cluster.example", "version": "1.34",
                            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}})
    stage.start_cluster()
    token = stage.folder / "web-identity-token"
    token.write_text("eyJ.token.")
    for place in PLACES:
        run_place(stage, place, token)
    check_token_rotation(stage, token)
    check_agent(stage)
    check_proxy(stage, token)
    expired = stage.faults().get("signed with expired credentials", 0)
    assert not expired, f"{expired} calls were signed with expired credentials"
