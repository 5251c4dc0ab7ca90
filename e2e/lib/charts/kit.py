"""Shared by the checks of charts: rendered objects by kind and name, and a list of findings, so that a check does not stop at
the first one."""

import pathlib
import sys

import yaml

findings = []


class Loader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys, as the API server does and PyYAML does not."""


def _unique(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
    doubled = {key for key in keys if keys.count(key) > 1}
    if doubled:
        raise yaml.YAMLError(f"line {node.start_mark.line + 1}: duplicate keys: {sorted(doubled)}")
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique)


class Rendered:
    """The objects of one rendering."""

    def __init__(self, name, path):
        self.name = name
        self.objects = [each for each in yaml.load_all(path.read_text(), Loader) if each]

    def all(self, kind):
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind, name=None):
        found = [each for each in self.all(kind) if name is None or each["metadata"]["name"] == name]
        if len(found) != 1:
            self.fail(f"{len(found)} objects {kind} {name or ''} instead of one; found "
                      f"{[each['metadata']['name'] for each in self.all(kind)]}")
            raise LookupError(kind)
        return found[0]

    def names(self, kind):
        return sorted(each["metadata"]["name"] for each in self.all(kind))

    def fail(self, text):
        findings.append(f"{self.name}: {text}")

    def equal(self, what, found, expected):
        if found != expected:
            self.fail(f"{what}\n  found    {found}\n  expected {expected}")

    def true(self, what, condition):
        if not condition:
            self.fail(what)


def load(folder, chart):
    """Renderings of a chart with Helm 4 by values file; those of Helm 3 must be equal."""
    by_name = {}
    for path in sorted(pathlib.Path(folder, "helm4", chart).glob("*.yaml")):
        rendered = Rendered(f"{chart}/{path.stem}", path)
        other = Rendered(rendered.name, pathlib.Path(folder, "helm3", chart, path.name))
        key = lambda each: (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        rendered.equal("Helm 3 and 4 render different objects", sorted(other.objects, key=key),
                       sorted(rendered.objects, key=key))
        keys = [key(each) for each in rendered.objects]
        rendered.equal("duplicate objects", sorted({each for each in keys if keys.count(each) > 1}), [])
        by_name[path.stem] = rendered
    return by_name


def finish(count):
    for each in findings:
        print(f"error: {each}", file=sys.stderr)
    print(f"{count} renderings, {len(findings)} findings")
    sys.exit(1 if findings else 0)
