"""Converts requests to comparable values: ids, names and tokens that differ between runs become placeholders, lists whose order
has no meaning are sorted, and user data is decoded and parsed."""

import base64
import email
import gzip
import json
import re
import tomllib

import yaml

ABSENT = "<absent>"
CLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"


def tags_of(parameters):
    found = [tag for one in parameters.get("TagSpecifications", []) for tag in one.get("Tags", [])]
    return {tag["Key"]: tag.get("Value", "") for tag in found}


def launches(read_requests):
    """By class, the last launch: the CreateFleet request, with each template's request in place of its name."""
    templates, fleets = {}, {}
    for operation, parameters in read_requests:
        if operation == "CreateLaunchTemplate":
            templates[parameters["LaunchTemplateName"]] = parameters
        elif operation == "CreateFleet" and not parameters.get("DryRun"):
            fleets[tags_of(parameters).get(CLASS_TAG)] = parameters
    launched = {}
    for name, fleet in fleets.items():
        configs = [{**config, "LaunchTemplateSpecification": {
            **config["LaunchTemplateSpecification"],
            "Template": templates.get(config["LaunchTemplateSpecification"].get("LaunchTemplateName")),
        }} for config in fleet["LaunchTemplateConfigs"]]
        launched[name] = {**fleet, "LaunchTemplateConfigs": configs}
    return launched


def dry_runs(read_requests):
    """The dry run requests by class."""
    asked = {}
    for operation, parameters in read_requests:
        if parameters.get("DryRun") and tags_of(parameters).get(CLASS_TAG):
            asked.setdefault(tags_of(parameters)[CLASS_TAG], {})[operation] = in_any_subnet(parameters)
    return asked


def in_any_subnet(parameters):
    """The dry run may use any subnet."""
    if "NetworkInterfaces" not in parameters:
        return parameters
    interfaces = [{**one, "SubnetId": "<any>"} if "SubnetId" in one else one for one in parameters["NetworkInterfaces"]]
    return {**parameters, "NetworkInterfaces": interfaces}


def normal(value, names):
    """`names` maps the ids of this run to placeholders that are equal in every run."""
    if isinstance(value, dict):
        if set(value) == {"Key", "Value"} and value["Key"] in ("karpenter.sh/nodeclaim", "Name"):
            return {"Key": value["Key"], "Value": re.sub(r"-[a-z0-9]{5,}$", "-<suffix>", value["Value"])}
        return {key: normal_member(key, part, names) for key, part in value.items()}
    if isinstance(value, list):
        parts = [normal(part, names) for part in value]
        return parts if parts and "DeviceIndex" in parts[0] else sorted(parts, key=json.dumps)
    return names.get(value, value) if isinstance(value, str) else value


def normal_member(key, value, names):
    if key == "UserData":
        return user_data(value)
    if key == "LaunchTemplateName":
        return re.sub(r"/[0-9a-z]+$", "/<hash>", value)
    if key == "ClientToken":
        return "<token>"
    if key == "IamInstanceProfile":
        return {part: re.sub(r"^(\w+)_\d+$", r"\1_<hash>", text) for part, text in value.items()}
    return normal(value, names)


def user_data(text):
    """User data as a value, independent of its spelling: a TOML document, the parts of a MIME archive, or text."""
    raw = base64.b64decode(text)
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    if text.startswith("MIME-Version:"):
        parts = email.message_from_string(text).get_payload()
        return [{"type": part.get_content_type(), "content": content(part)} for part in parts]
    try:
        return tomllib.loads(text) if text.startswith("[") else with_sorted_lists(text)
    except tomllib.TOMLDecodeError:
        return text


def with_sorted_lists(text):
    """Sorts lists in kubelet arguments, which upstream prints in the order of a Go map."""
    return re.sub(r'="([^"]*)"', lambda found: '="' + ",".join(sorted(found.group(1).split(","))) + '"', text)


def content(part):
    text = part.get_payload()
    is_node_config = part.get_content_type() == "application/node.eks.aws"
    return yaml.safe_load(text) if is_node_config else with_sorted_lists(text)


def leaves(value, path=""):
    """All scalars by path."""
    if isinstance(value, dict) and value:
        return {leaf: scalar for key, part in value.items() for leaf, scalar in leaves(part, f"{path}.{key}").items()}
    if isinstance(value, list) and value:
        return {leaf: scalar for at, part in enumerate(value) for leaf, scalar in leaves(part, f"{path}[{at}]").items()}
    return {path.lstrip("."): value}


def compact(launched):
    """For a file: the leaves of one case, and for the others the differences from it."""
    flat = {name: leaves(without_name(one, name)) for name, one in launched.items()}
    base = flat["custom"]
    others = {name: {path: one.get(path, ABSENT) for path in sorted(one.keys() | base.keys())
                     if one.get(path, ABSENT) != base.get(path, ABSENT)} for name, one in flat.items()}
    return {"base": base, "cases": others}


def expanded(kept):
    """The leaves of every case, from the result of compact()."""
    every = {name: {**kept["base"], **other} for name, other in kept["cases"].items()}
    return {name: {path: value for path, value in one.items() if value != ABSENT} for name, one in every.items()}


def without_name(value, name):
    """Replaces the name of the case, which its class and its NodePool have."""
    return json.loads(json.dumps(value).replace(f"case-{name}", "<case>"))


def differences(expected, found):
    """Compares the leaves of two values: one line for each missing, additional or different one."""
    said = []
    for path in sorted(expected.keys() | found.keys()):
        if path not in found:
            said.append(f"{path} is missing, {expected[path]!r} is expected")
        elif path not in expected:
            said.append(f"{path} is {found[path]!r}, nothing is expected")
        elif expected[path] != found[path]:
            said.append(f"{path} is {found[path]!r}, {expected[path]!r} is expected")
    return said
