"""Writes upstream's IAM policies as a table, with which tests compare our policies.

    python3 tools/policies/generate.py TEMPLATE            # writes crates/karpenter-aws/testdata/upstream-policies.json
    python3 tools/policies/generate.py TEMPLATE --check    # fails if the checked-in table differs

TEMPLATE is the CloudFormation template of upstream's getting-started guide, in its repository:
website/content/en/preview/getting-started/getting-started-with-karpenter/cloudformation.yaml. Needs PyYAML.

The table maps the Sid of each statement to its effect, actions, resources and conditions. Lists are sorted; a single value
is a list of one. Account, region, partition and cluster are placeholders as in packaging/terraform/policies.json.
"""

import json
import pathlib
import sys

import yaml

TABLE = pathlib.Path(__file__).parents[2] / "crates/karpenter-aws/testdata/upstream-policies.json"

# Placeholders of the template, and references to resources by name.
NAMES = {
    "${AWS::Partition}": "${partition}",
    "${AWS::Region}": "${region}",
    "${AWS::AccountId}": "${account}",
    "${ClusterName}": "${cluster}",
    "${KarpenterNodeRole.Arn}": "arn:${partition}:iam::${account}:role/KarpenterNodeRole-${cluster}",
    "${KarpenterInterruptionQueue.Arn}": "arn:${partition}:sqs:${region}:${account}:${cluster}",
}


class Loader(yaml.SafeLoader):
    """Reads !Sub, !Ref and !GetAtt as their plain values."""


Loader.add_multi_constructor("!", lambda loader, _, node: loader.construct_scalar(node))


def values(value):
    return sorted(value) if isinstance(value, list) else [value]


def table(template):
    found = {}
    for resource in yaml.load(template, Loader)["Resources"].values():
        if resource["Type"] != "AWS::IAM::ManagedPolicy":
            continue
        text = resource["Properties"]["PolicyDocument"]
        for theirs, ours in NAMES.items():
            text = text.replace(theirs, ours)
        for statement in json.loads(text)["Statement"]:
            conditions = {
                operator: {key: values(value) for key, value in keys.items()}
                for operator, keys in statement.get("Condition", {}).items()
            }
            assert statement["Sid"] not in found, statement["Sid"]
            found[statement["Sid"]] = {
                "effect": statement["Effect"],
                "actions": values(statement["Action"]),
                "resources": values(statement["Resource"]),
                "conditions": conditions,
            }
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def main():
    made = table(pathlib.Path(sys.argv[1]).read_text())
    if sys.argv[2:] == ["--check"]:
        sys.exit(f"{TABLE} differs from the template" if TABLE.read_text() != made else 0)
    TABLE.write_text(made)


main()
