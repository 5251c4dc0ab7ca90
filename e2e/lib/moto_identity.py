"""Every source of AWS credentials: checks the access key and region in the signatures of calls, and that the log contains no
secret."""

import datetime
import http.server
import json
import threading

from moto_stage import NO_FAULTS, REGION

ROLE_ARN = "arn:aws:iam::123456789012:role/KarpenterController"
# Secrets that must not occur in the output of the controllers.
SECRETS = {
    "static": "static/secret/WvJ1",
    "session": "session-token-of-the-environment-4fQz",
    "web identity": "eyJhbGciOiJub25lIn0.web-identity-token-9xKd.",
    "pod identity": "pod-identity-authorization-token-7bMt",
    "pod identity key": "pod/identity/secret/Xq2L",
    "pod identity session": "session-token-of-the-pod-2hVw",
    "metadata": "token-of-the-metadata-service-5nRc",
    "metadata key": "metadata/secret/Jk8P",
    "metadata session": "session-token-of-the-machine-3tYb",
}


def credentials(key_id, secret, session):
    ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=6)
    return {
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key_id, "SecretAccessKey": secret, "Token": session,
        "LastUpdated": "2026-01-01T00:00:00Z", "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


class Metadata(http.server.BaseHTTPRequestHandler):
    """Serves credentials like the EKS Pod Identity agent and the EC2 metadata service."""

    refused = []

    def log_message(self, *_):
        pass

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        # The service returns the lifetime of its token.
        self.send_header("x-aws-ec2-metadata-token-ttl-seconds", "21600")
        self.end_headers()
        self.wfile.write(body)

    def refuse(self):
        self.refused.append(self.path)
        self.answer(401, "")

    def do_PUT(self):
        if self.path == "/latest/api/token" and self.headers.get("x-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(200, SECRETS["metadata"])
        return self.answer(404, "")

    def do_GET(self):
        if self.path == "/v1/credentials":
            if self.headers.get("Authorization") != SECRETS["pod identity"]:
                return self.refuse()
            found = credentials("AKIDPODIDENTITY", SECRETS["pod identity key"], SECRETS["pod identity session"])
            return self.answer(200, json.dumps(found))
        if self.headers.get("x-aws-ec2-metadata-token") != SECRETS["metadata"]:
            return self.refuse()
        of_role = "/latest/meta-data/iam/security-credentials"
        found = credentials("AKIDMACHINE", SECRETS["metadata key"], SECRETS["metadata session"])
        answers = {
            "/latest/meta-data/placement/region": REGION, of_role: "node-role", of_role + "/": "node-role",
            of_role + "/node-role": json.dumps(found), of_role + "/node-role/": json.dumps(found),
        }
        return self.answer(200, answers[self.path]) if self.path in answers else self.answer(404, "")


def identity(stage, _):
    """Runs one controller per source until AWS was called with the expected key and region."""
    stage.start_account(1, *NO_FAULTS)
    stage.start_cluster()
    local = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=local.serve_forever, daemon=True).start()
    metadata = f"http://127.0.0.1:{local.server_port}"
    web_token, pod_token = stage.folder / "web-identity-token", stage.folder / "pod-identity-token"
    web_token.write_text(SECRETS["web identity"])
    pod_token.write_text(SECRETS["pod identity"])
    own = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")
    common = {name: value for name, value in stage.account.items() if name not in own}
    static = {"AWS_ACCESS_KEY_ID": "AKIDSTATIC", "AWS_SECRET_ACCESS_KEY": SECRETS["static"]}
    web = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(web_token), "AWS_ROLE_ARN": ROLE_ARN, "AWS_ROLE_SESSION_NAME": "karpenter"}
    pod = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": metadata + "/v1/credentials",
           "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(pod_token)}
    machine = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true"}
    here = {"AWS_REGION": REGION}
    # Name, environment, arguments, and the signature of its calls to EC2: key and region.
    table = [
        ("keys in the environment", {**static, **here, **nowhere}, [], "AKIDSTATIC", REGION),
        ("keys of a session", {**static, **here, **nowhere, "AWS_SESSION_TOKEN": SECRETS["session"]}, [],
         "AKIDSTATIC", REGION),
        ("--region over the environment", {**static, **here, **nowhere}, ["--region", "eu-central-1"], "AKIDSTATIC",
         "eu-central-1"),
        ("a role for the service account", {**web, **here, **nowhere}, [], "ASIA", REGION),
        ("a pod identity", {**pod, **here, **nowhere}, [], "AKIDPODIDENTITY", REGION),
        ("the machine's profile and region", machine, [], "AKIDMACHINE", REGION),
        ("keys before the instance profile", {**static, **machine}, [], "AKIDSTATIC", REGION),
    ]
    for what, environment, arguments, key, region in table:
        before = stage.faults("callers")
        stage.account = {**common, **environment}
        # Not the AWS configuration of the user who runs this.
        stage.start_controller(*arguments, DISABLE_LEADER_ELECTION="true", AWS_CONFIG_FILE="/dev/null",
                               AWS_SHARED_CREDENTIALS_FILE="/dev/null", LOG_LEVEL="debug")

        def new_callers():
            callers = stage.faults("callers")
            return {who.split(" ", 2)[0] + " " + who.split(" ", 2)[1]
                    for who, count in callers.items() if count > before.get(who, 0) and who.endswith(" ec2")}

        # Also waits for the log.
        stage.until(f"AWS is called with {what}", 120, lambda: new_callers() and
                    "discovered cluster" in stage.logs(f"karpenter-{stage.controllers:03d}"))
        found = new_callers()
        assert all(who.startswith(key) and who.endswith(" " + region) for who in found), (what, found)
        stage.kill_controller()

    # No credentials: logged, and the process continues.
    stage.account = {**common, **here, **nowhere}
    stage.start_controller(DISABLE_LEADER_ELECTION="true", AWS_CONFIG_FILE="/dev/null",
                           AWS_SHARED_CREDENTIALS_FILE="/dev/null")
    last = f"karpenter-{stage.controllers:03d}"
    stage.until("missing credentials are logged", 60, lambda: "no usable credentials" in stage.logs(last))
    stage.kill_controller()
    # No region: the process cannot start.
    stage.account = {**common, **static, **nowhere}
    stage.start_controller(DISABLE_LEADER_ELECTION="true", AWS_CONFIG_FILE="/dev/null",
                           AWS_SHARED_CREDENTIALS_FILE="/dev/null")
    last = f"karpenter-{stage.controllers:03d}"
    stage.until("a missing region is logged", 60, lambda: "set --region or AWS_REGION" in stage.logs(last)
                and stage.controller.poll() not in (None, 0))

    assert not Metadata.refused, Metadata.refused
    written = stage.logs("karpenter")
    assert len(written) > 1000, "nothing was logged"
    leaked = [name for name, secret in SECRETS.items() if secret in written]
    assert not leaked, f"secrets in the log: {leaked}"
    print(f"{len(table)} sources of credentials; none of {len(SECRETS)} secrets in {len(written)} bytes of log")
