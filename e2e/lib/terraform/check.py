"""Checks packaging/terraform with OpenTofu and the stand-in of e2e/modules/standin: check.py TOFU STANDIN [HELM...]"""

import http.server
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULE = ROOT / "packaging/terraform"
SCHEMAS = pathlib.Path(__file__).parent / "schemas"
# The module supports two major versions of the AWS provider.
PROVIDERS = [("aws-5.99.1", "helm-2.17.0"), ("aws-6.25.0", "helm-2.17.0")]
tofu, standin, helms = None, None, []

# Programs that the module's scripts call; the stand-ins only log their arguments.
STUBS = {
    "aws": 'exit 0',
    "kubectl": """case "$*" in
  "get nodeclaims.karpenter.sh"*) printf '%s' "$CLAIMS" ;;
  *"get configmap aws-auth"*) printf -- '- rolearn: arn:of-another-role' ;;
  *"patch configmap aws-auth"*) cp "${@: -1}" "$STANDIN_LOG.patch" ;;
esac""",
}


class Folder:
    """A writable copy of the module, with providers as local files."""

    def __init__(self, providers=PROVIDERS[0]):
        self.path = pathlib.Path(tempfile.mkdtemp())
        self.module = self.path / "module"
        shutil.copytree(MODULE, self.module)
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        for each in providers:
            name, version = each.split("-")
            place = self.path / f"mirror/registry.opentofu.org/hashicorp/{name}/{version}/linux_{machine}"
            place.mkdir(parents=True)
            os.link(standin, place / f"terraform-provider-{name}_v{version}")
            shutil.copy(SCHEMAS / f"{each}.json", place / "schema.json")
        (self.path / "config").write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{self.path}/mirror"\n  }}\n}}\n')
        programs = self.path / "programs"
        programs.mkdir()
        for name, text in STUBS.items():
            (programs / name).write_text(
                f'#!/usr/bin/env bash\nprintf \'{{"verb": "run", "what": "%s"}}\\n\' "{name} $*" >>"$STANDIN_LOG"\n{text}\n')
            (programs / name).chmod(0o755)
        self.log = self.path / "log"
        self.environment = os.environ | {
            "TF_CLI_CONFIG_FILE": str(self.path / "config"), "TF_IN_AUTOMATION": "1", "STANDIN_LOG": str(self.log), "CLAIMS": "",
            "CHECKPOINT_DISABLE": "1", "PATH": f"{programs}:{os.environ['PATH']}"}

    def run(self, *arguments, **environment):
        return subprocess.run([tofu, *arguments, "-no-color"], cwd=self.module, env=self.environment | environment,
                              capture_output=True, text=True)

    def must(self, *arguments, **environment):
        result = self.run(*arguments, **environment)
        if result.returncode != 0:
            raise AssertionError(f"tofu {' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    def apply(self, *variables):
        self.must("init")
        self.must("apply", "-auto-approve", "-input=false", "-var-file=example/example.tfvars", *(f"-var={each}" for each in variables))
        return self.events()

    def destroy(self, **environment):
        """The events of a destroy, and whether it succeeded."""
        self.log.write_text("")
        arguments = ["destroy", "-auto-approve", "-input=false", "-var-file=example/example.tfvars"]
        result = self.run(*arguments, **environment)
        return [" ".join([each["verb"], each["what"], each.get("values", {}).get("name", "")]).strip()
                for each in self.events() if each["verb"] != "configure"], result

    def events(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Schemas(unittest.TestCase):
    """`fmt`, `validate` and `test`, against the schemas of both versions."""

    def test_module(self):
        for providers in PROVIDERS:
            with self.subTest(providers):
                folder = Folder(providers)
                folder.must("fmt", "-check", "-recursive", "-diff")
                folder.must("init")
                self.assertNotIn("Warning", folder.must("validate"))
                passed = re.search(r"Success! (\d+) passed, 0 failed", folder.must("test"))
                self.assertIsNotNone(passed)
                print(f"{' '.join(providers)}: {passed[1]} runs of tofu test passed")

    def test_errors_are_detected(self):
        """Shows that the checks above can fail."""
        mistakes = [
            ("iam.tf", "  role = aws_iam_role.node.name\n", "  rolle = aws_iam_role.node.name\n", "Unsupported argument"),
            ("iam.tf", "  principal_arn = aws_iam_role.node.arn\n", "", "Missing required argument"),
            ("queue.tf", "message_retention_seconds = 300", 'message_retention_seconds = "300s"', "Incorrect attribute value type"),
            ("queue.tf", "aws_sqs_queue.interruption[0].url", "aws_sqs_queue.interruption[0].address", "Unsupported attribute"),
            ("versions.tf", "    host  ", "    hosts ", "Unsupported argument"),
            ("versions.tf", "  default_tags {", "  all_tags {", "Unsupported block type"),
            ("cluster.tf", 'data "aws_caller_identity"', 'data "aws_caller_identities"', "Invalid data source"),
        ]
        folder = Folder()
        folder.must("init")
        for name, right, wrong, message in mistakes:
            with self.subTest(wrong):
                text = (MODULE / name).read_text()
                self.assertIn(right, text)
                (folder.module / name).write_text(text.replace(right, wrong, 1))
                result = folder.run("validate")
                (folder.module / name).write_text(text)
                self.assertEqual(result.returncode, 1)
                self.assertIn(message, result.stderr)


class Life(unittest.TestCase):
    """Resources are not real, but OpenTofu determines the order and the values for providers and scripts."""

    NEEDED_BY_NODES = ["end aws_iam_role KarpenterNodeRole-demo-dev", "end aws_iam_instance_profile KarpenterNodeInstanceProfile-demo-dev",
                        "end aws_eks_access_entry", "end aws_iam_role_policy_attachment"]

    def test_configuration_of_providers(self):
        configured = {each["what"]: each["values"] for each in Folder().apply("region=us-west-2") if each["verb"] == "configure"}
        self.assertEqual(configured["aws"]["region"], "us-west-2")
        self.assertEqual(configured["aws"]["default_tags"][0]["tags"], {"project": "demo", "env": "dev"})
        self.assertEqual({key: configured["helm"]["kubernetes"][0][key] for key in ["host", "cluster_ca_certificate", "token"]},
                         {"host": "https://aws.example", "cluster_ca_certificate": "aws", "token": "token-of-aws"})

    def test_destroy_drains_first_and_deletes_roles_last(self):
        folder = Folder()
        folder.apply()
        happened, result = folder.destroy(CLAIMS="nodeclaim.karpenter.sh/default-1")
        self.assertEqual(result.returncode, 0, result.stderr)
        kinds = ["provisioners.karpenter.sh", "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws",
                 "ec2nodeclasses.karpenter.k8s.aws"]
        deleted = [each for each in happened if each.startswith("run kubectl delete")]
        self.assertEqual(deleted, [f"run kubectl delete {kind} --all --timeout 1800s" for kind in kinds])
        controller = happened.index("end helm_release karpenter")
        self.assertLess(happened.index(deleted[-1]), controller)
        for each in ["end helm_release karpenter-crd", *self.NEEDED_BY_NODES]:
            self.assertLess(controller, happened.index(each), each)

    def test_fail_stops_while_nodes_exist(self):
        folder = Folder()
        folder.apply("on_destroy=fail")
        happened, result = folder.destroy(CLAIMS="nodeclaim.karpenter.sh/default-1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nodeclaim.karpenter.sh/default-1", result.stdout + result.stderr)
        self.assertEqual([each for each in happened if each.startswith("end ")], [])
        happened, result = folder.destroy()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("end helm_release karpenter", happened)

    def test_keep_deletes_no_node(self):
        folder = Folder()
        folder.apply("on_destroy=keep")
        # As in the README, so that nodes keep the resources that they need.
        kept = re.search(r"`terraform state rm ([^`]*)`", (MODULE / "README.md").read_text())[1].split()
        folder.must("state", "rm", *kept)
        happened, result = folder.destroy(CLAIMS="nodeclaim.karpenter.sh/default-1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([each for each in happened if each.startswith("run ")], [])
        self.assertIn("end aws_iam_role demo-dev-karpenter", happened)
        self.assertEqual(set(happened) & set(self.NEEDED_BY_NODES[:-1]), set())

    def test_aws_auth(self):
        folder = Folder()
        folder.apply("node_auth=aws_auth")
        patch = yaml.safe_load(pathlib.Path(f"{folder.log}.patch").read_text())
        roles = yaml.safe_load(patch["data"]["mapRoles"])
        self.assertEqual([each["rolearn"].split("/")[-1] for each in roles], ["arn:of-another-role", "KarpenterNodeRole-demo-dev"])
        self.assertEqual(roles[1]["groups"], ["system:bootstrappers", "system:nodes"])

    def test_chart_accepts_the_values(self):
        folder = Folder()
        releases = {each["values"]["name"]: each["values"] for each in folder.apply() if each["what"] == "helm_release"}
        for helm in helms:
            for name, chart in [("karpenter", "karpenter"), ("karpenter-crd", "karpenter-crd")]:
                arguments = []
                for number, text in enumerate(releases[name]["values"]):
                    (folder.path / f"{number}.yaml").write_text(text)
                    arguments += ["--values", folder.path / f"{number}.yaml"]
                self.assertTrue(releases[name]["chart"].endswith(f"/charts/{chart}"))
                text = subprocess.run([helm, "template", name, ROOT / "charts" / chart, "--namespace", releases[name]["namespace"], *arguments],
                                      check=True, capture_output=True, text=True).stdout
                if name != "karpenter":
                    continue
                deployment, = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment"]
                pod = deployment["spec"]["template"]["spec"]
                terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                self.assertEqual([{each["key"] for each in term["matchExpressions"]} for term in terms],
                                 [{"role", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}])
                self.assertEqual(pod["containers"][0]["image"].split(":")[0], "registry.example/karpenter/controller")
                self.assertEqual(pod["nodeSelector"]["role"], "ops")


class States(unittest.TestCase):
    """The states of other stacks, which OpenTofu reads from a stand-in of S3."""

    IDENTITY = ("<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><GetCallerIdentityResult>"
                "<Arn>arn:aws:iam::111122223333:user/demo</Arn><UserId>demo</UserId><Account>111122223333</Account>"
                "</GetCallerIdentityResult></GetCallerIdentityResponse>")

    @staticmethod
    def state(**outputs):
        kinds = {str: "string", list: ["list", "string"]}
        return json.dumps({"version": 4, "terraform_version": "1.9.0", "serial": 1, "lineage": "demo", "resources": [],
                           "outputs": {name: {"value": value, "type": kinds[type(value)]} for name, value in outputs.items()}})

    def test_both_stacks(self):
        objects = {
            "/states/eks.tfstate": self.state(cluster_name="of-state", cluster_endpoint="https://state.example", oidc_provider="oidc.state.example",
                                              cluster_certificate_authority_data="c3RhdGU=", node_groups=["a", "b"]),
            "/states/network.tfstate": self.state(private_subnets=["subnet-1", "subnet-2"], vpc="vpc-1"),
        }

        class Answers(http.server.BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_list = "list-type=2" in self.path
                text = States.IDENTITY if self.command == "POST" else "<ListBucketResult/>" if is_list else objects.get(self.path.split("?")[0])
                self.send_response(200 if text else 404)
                self.send_header("Content-Length", str(len(text or "")))
                self.end_headers()
                if text and self.command != "HEAD":
                    self.wfile.write(text.encode())

            do_GET = do_HEAD = do_POST = answer

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            folder = Folder()
            folder.environment |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "demo",
                                   "AWS_SECRET_ACCESS_KEY": "demo", "AWS_EC2_METADATA_DISABLED": "true"}
            events = folder.apply("backend_s3_bucket_name=states", "eks_s3_key=eks.tfstate", "infra_network_s3_key=network.tfstate",
                                  "eks_cluster_name=", "tag_subnets=true")
            server.shutdown()
        made = [each for each in events if each["verb"] == "make"]
        self.assertEqual(sorted((each["values"]["resource_id"], each["values"]["value"]) for each in made if each["what"] == "aws_ec2_tag"),
                         [("subnet-1", "of-state"), ("subnet-2", "of-state")])
        release, = [each["values"] for each in made if each["values"].get("name") == "karpenter"]
        settings = yaml.safe_load(release["values"][0])["settings"]
        self.assertEqual((settings["clusterName"], settings["clusterEndpoint"]), ("of-state", "https://state.example"))


class Bootstrap(unittest.TestCase):
    def test_bootstrap_output(self):
        """`karpenter bootstrap aws -o terraform` is an alternative to this module for the AWS resources only."""
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
        known = [pathlib.Path(path) for path in [os.environ.get("KARPENTER_BINARY")] if path] + sorted(target.glob("*/karpenter"))
        built = [path for path in known if subprocess.run([path, "bootstrap", "aws", "--help"], capture_output=True).returncode == 0]
        if not built:
            self.skipTest("karpenter with the feature aws is not in target, and KARPENTER_BINARY is not set")
        text = subprocess.run([built[0], "bootstrap", "aws", "--cluster", "demo", "-o", "terraform"], check=True, capture_output=True).stdout
        for providers in PROVIDERS:
            with self.subTest(providers):
                folder = Folder(providers)
                shutil.rmtree(folder.module)
                folder.module.mkdir()
                (folder.module / "karpenter.tf.json").write_bytes(text)
                folder.must("init")
                self.assertNotIn("Warning", folder.must("validate"))
                folder.must("apply", "-auto-approve", "-input=false")
                made = [each["what"] for each in folder.events() if each["verb"] == "make"]
                self.assertEqual((made.count("aws_iam_policy"), made.count("aws_cloudwatch_event_rule"), made.count("aws_sqs_queue")), (6, 5, 1))
                self.assertNotIn("aws_iam_service_linked_role", made)
                folder.must("apply", "-auto-approve", "-input=false", "-var=create_spot_slr=true")
                self.assertEqual([each["what"] for each in folder.events() if each["verb"] == "make"][len(made):], ["aws_iam_service_linked_role"])


class Documents(unittest.TestCase):
    VARIABLES = re.findall(r'^variable "([a-z0-9_]+)"', (MODULE / "variables.tf").read_text(), re.MULTILINE)

    def test_both_readmes_list_the_variables(self):
        for name in ["README.md", "README.ko.md"]:
            listed = re.findall(r"^\| `([a-z0-9_]+)` \|", (MODULE / name).read_text(), re.MULTILINE)
            self.assertEqual(listed, self.VARIABLES, name)

    def test_every_variable_is_tested(self):
        tests = "".join(path.read_text() for path in MODULE.glob("tests/*.tftest.hcl"))
        untried = [name for name in self.VARIABLES if not re.search(rf"\b{name}\b", tests)]
        self.assertEqual(untried, [])

    def test_variables_of_earlier_module(self):
        """The variables that users of the earlier module set."""
        old = ("project env region backend_s3_bucket_name eks_s3_key infra_network_s3_key eks_cluster_name eks_endpoint_url "
               "eks_cluster_certificate_authority_data eks_oidc_provider_arn eks_oidc_provider_url eks_auth_token helm_release_name "
               "helm_chart_name helm_chart_version helm_repository_url create_namespace namespace replica_count karpenter_values "
               "node_selector affinity tolerations").split()
        self.assertEqual(self.VARIABLES[:len(old)], old)


if __name__ == "__main__":
    tofu, standin, helms = sys.argv[1], sys.argv[2], sys.argv[3:]
    unittest.main(argv=sys.argv[:1])
