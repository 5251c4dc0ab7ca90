"""Checks packaging/terraform with the evaluator of e2e/modules/hcl: check.py EVALUATOR [HELM...]"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULE = ROOT / "packaging/terraform"
evaluator, helms = None, []
POLICY_CHARACTERS_MAX = 6144

# What the controller calls, by what it is for.
ACTIONS = {
    "ec2": {"RunInstances", "CreateFleet", "CreateLaunchTemplate", "CreateTags", "TerminateInstances", "DeleteLaunchTemplate",
            "DescribeCapacityReservations", "DescribeImages", "DescribeInstanceStatus", "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes", "DescribeInstances", "DescribeLaunchTemplates", "DescribePlacementGroups",
            "DescribeSecurityGroups", "DescribeSpotPriceHistory", "DescribeSubnets"},
    "iam": {"PassRole", "CreateInstanceProfile", "TagInstanceProfile", "AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile",
            "DeleteInstanceProfile", "GetInstanceProfile", "ListInstanceProfiles"},
    "eks": {"DescribeCluster"},
    "arc-zonal-shift": {"GetManagedResource"},
    "sqs": {"DeleteMessage", "GetQueueUrl", "ReceiveMessage"},
    "ssm": {"GetParameter"},
    "pricing": {"GetProducts"},
}


def run(*files, **variables):
    values = [f"{name}={json.dumps(value)}" for name, value in variables.items()]
    result = subprocess.run([evaluator, MODULE, *files, "--", *values], capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


def evaluated(*files, **variables):
    status, output, errors = run(*files, **({} if files else {"eks_cluster_name": "demo"}) | variables)
    if status != 0:
        raise AssertionError(errors)
    return json.loads(output)


def statements(locals_):
    return [each for policy in locals_["policies"].values() for each in policy]


def actions(locals_):
    found = {}
    for statement in statements(locals_):
        for action in statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]:
            service, name = action.split(":")
            found.setdefault(service, set()).add(name)
    return found


def variables_of_module():
    text = (MODULE / "variables.tf").read_text()
    return re.findall(r'^variable "([a-z0-9_]+)"', text, re.MULTILINE)


class Cluster(unittest.TestCase):
    STATE = {"backend_s3_bucket_name": "states", "eks_s3_key": "eks", "region": "ap-northeast-2"}

    def test_nothing_given(self):
        status, _, errors = run()
        self.assertEqual(status, 1)
        for name in ["eks_cluster_name", "backend_s3_bucket_name", "eks_s3_key", "region"]:
            self.assertIn(name, errors)

    def test_given_before_state_before_aws(self):
        by_aws = evaluated()
        self.assertEqual((by_aws["eks_cluster_name"], by_aws["eks_endpoint_url"], by_aws["eks_oidc_provider_url"]),
                         ("demo", "https://aws.example", "oidc.aws.example/id/AWS"))
        by_state = evaluated(**self.STATE, eks_cluster_name="")
        self.assertEqual((by_state["eks_cluster_name"], by_state["eks_endpoint_url"], by_state["eks_oidc_provider_url"]),
                         ("from-state", "https://state.example", "oidc.state.example/id/STATE"))
        given = evaluated(**self.STATE, eks_cluster_name="given", eks_endpoint_url="https://given.example",
                          eks_oidc_provider_arn="arn:given", eks_auth_token="given", eks_cluster_certificate_authority_data="Z2l2ZW4=")
        self.assertEqual([given[key] for key in ["eks_cluster_name", "eks_endpoint_url", "eks_oidc_provider_arn", "eks_auth_token",
                                                 "eks_cluster_certificate_authority_data"]],
                         ["given", "https://given.example", "arn:given", "given", "Z2l2ZW4="])

    def test_a_bucket_alone_is_no_state(self):
        self.assertEqual(evaluated(backend_s3_bucket_name="states", region="ap-northeast-2")["eks_endpoint_url"], "https://aws.example")

    def test_oidc_with_and_without_scheme(self):
        for url in ["https://oidc.example/id/A", "oidc.example/id/A"]:
            trust = json.loads(evaluated(eks_oidc_provider_url=url)["irsa_trust"])["Statement"][0]
            self.assertEqual(trust["Condition"]["StringEquals"], {
                "oidc.example/id/A:sub": "system:serviceaccount:karpenter:karpenter", "oidc.example/id/A:aud": "sts.amazonaws.com"})
            self.assertEqual(trust["Principal"]["Federated"], "arn:aws:iam::111122223333:oidc-provider/oidc.example/id/A")

    def test_tags(self):
        self.assertEqual(evaluated(project="p", env="")["tags"], {"project": "p"})


class Permissions(unittest.TestCase):
    def test_exactly_what_is_called(self):
        self.assertEqual(actions(evaluated()), ACTIONS)
        self.assertNotIn("sqs", actions(evaluated(interruption=False)))

    def test_nothing_of_others_is_changed(self):
        """Whatever writes is bound to tags of this cluster, to the node role or to the queue."""
        reads = re.compile(r"^(ec2:Describe|ssm:Get|pricing:Get|iam:Get|iam:List|eks:Describe|arc-zonal-shift:Get)")
        for statement in statements(evaluated()):
            listed = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            if all(reads.match(action) for action in listed) or statement["Sid"] in ["LaunchFrom", "Interruption", "PassNodeRole"]:
                continue
            self.assertIn("kubernetes.io/cluster/demo", json.dumps(statement["Condition"]), statement["Sid"])

    def test_pass_role(self):
        statement, = [each for each in statements(evaluated()) if each["Sid"] == "PassNodeRole"]
        self.assertEqual(statement["Resource"], "arn:aws:iam::111122223333:role/KarpenterNodeRole-demo")

    def test_policies_are_small_enough(self):
        for name, policy in evaluated(eks_cluster_name="c" * 100)["policies"].items():
            text = json.dumps({"Version": "2012-10-17", "Statement": policy}, separators=(",", ":"))
            self.assertLess(len(text), POLICY_CHARACTERS_MAX, name)

    def test_events(self):
        self.assertEqual({(each["source"], each["type"]) for each in evaluated()["events"].values()}, {
            ("aws.health", "AWS Health Event"), ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
            ("aws.ec2", "EC2 Instance Rebalance Recommendation"), ("aws.ec2", "EC2 Instance State-change Notification"),
            ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning")})

    def test_queue_name(self):
        found = evaluated(eks_cluster_name="a.b/" + "c" * 100)
        self.assertRegex(found["queue_name"], r"^[A-Za-z0-9_-]{80}$")
        self.assertTrue(found["queue_arn"].endswith(f":{found['queue_name']}"))


class Values(unittest.TestCase):
    OFF_OWN_NODES = {"karpenter.sh/nodepool", "karpenter.sh/provisioner-name"}

    def keys(self, values):
        terms = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [{each["key"] for each in term["matchExpressions"]} for term in terms]

    def test_defaults_leave_placement_to_the_chart(self):
        values = evaluated()["own_values"]
        self.assertEqual({"affinity", "tolerations", "nodeSelector", "controller"} & set(values), set())
        self.assertEqual(values["settings"]["interruptionQueue"], "demo")

    def test_an_affinity_keeps_it_off_its_own_nodes(self):
        term = {"matchExpressions": [{"key": "role", "operator": "In", "values": ["ops"]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}}
        self.assertEqual(self.keys(evaluated(affinity=affinity)["own_values"]),
                         [{"role"} | self.OFF_OWN_NODES, self.OFF_OWN_NODES])
        self.assertEqual(evaluated(affinity=affinity, allow_self_scheduling=True)["own_values"]["affinity"], affinity)
        spread = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}
        found = evaluated(affinity=spread)["own_values"]
        self.assertEqual((self.keys(found), found["affinity"]["podAntiAffinity"]), ([self.OFF_OWN_NODES], spread["podAntiAffinity"]))

    def test_tolerations_as_list_or_map(self):
        mixed = [{"key": "role", "operator": "Equal", "value": "ops", "effect": "NoSchedule"}, {"operator": "Exists"}]
        self.assertEqual(evaluated(tolerations=mixed)["own_values"]["tolerations"], mixed)
        for none in [{}, []]:
            self.assertNotIn("tolerations", evaluated(tolerations=none)["own_values"])

    def test_identity(self):
        self.assertEqual(evaluated()["own_values"]["serviceAccount"]["annotations"],
                         {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/demo-karpenter"})
        self.assertEqual(evaluated(pod_identity=True)["own_values"]["serviceAccount"]["annotations"], {})

    def test_the_chart_takes_them(self):
        locals_ = evaluated(MODULE / "example/example.tfvars")
        for helm in helms:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(json.dumps(locals_["own_values"]))
                file.flush()
                text = subprocess.run([helm, "template", "karpenter", ROOT / "charts/karpenter", "--namespace", "karpenter",
                                       "--values", file.name], check=True, capture_output=True, text=True).stdout
            deployment, = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Deployment"]
            pod = deployment["spec"]["template"]["spec"]
            self.assertEqual(self.keys(pod), [{"role"} | self.OFF_OWN_NODES])
            self.assertEqual(pod["containers"][0]["image"].split(":")[0], "registry.example/karpenter/controller")
            self.assertEqual(pod["nodeSelector"]["role"], "ops")


class Documents(unittest.TestCase):
    def test_both_readmes_list_the_variables(self):
        wanted = variables_of_module()
        for name in ["README.md", "README.ko.md"]:
            listed = re.findall(r"^\| `([a-z0-9_]+)` \|", (MODULE / name).read_text(), re.MULTILINE)
            self.assertEqual(listed, wanted, name)

    def test_table_of_old(self):
        """The variables that users of the module have in their files."""
        old = ("project env region backend_s3_bucket_name eks_s3_key infra_network_s3_key eks_cluster_name eks_endpoint_url "
               "eks_cluster_certificate_authority_data eks_oidc_provider_arn eks_oidc_provider_url eks_auth_token helm_release_name "
               "helm_chart_name helm_chart_version helm_repository_url create_namespace namespace replica_count karpenter_values "
               "node_selector affinity tolerations").split()
        self.assertEqual(variables_of_module()[:len(old)], old)

    def test_destruction_keeps_what_kubelets_live_by_until_the_end(self):
        """The controller depends on roles and entries, and machines on the controller; destruction goes the other way."""
        text = (MODULE / "release.tf").read_text()
        release = text[text.index('resource "helm_release" "karpenter"'):]
        for name in ["aws_eks_access_entry.node", "aws_iam_instance_profile.node", "aws_iam_role_policy_attachment.node",
                     "terraform_data.aws_auth", "helm_release.crds"]:
            self.assertIn(name, release[:release.index("resource \"terraform_data\"")])
        self.assertIn("depends_on = [helm_release.karpenter]", release[release.index('resource "terraform_data" "machines"'):])


if __name__ == "__main__":
    evaluator, helms = sys.argv[1], sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
