#!/usr/bin/env python3
"""Compares dumps and recordings of Karpenter's objects before and after a change of the controller.

  check.py unchanged BEFORE AFTER [--without-pool NAME]... [--restart-of-upstream]
            Every NodeClaim, Node, NodePool and node class of BEFORE is in AFTER and equal, except for what the API server and kubelets
            write. With --restart-of-upstream also except for what upstream writes at every start: the time of the last pod event, and
            the transition time of Consolidatable.

  check.py stamps BEFORE AFTER
      NodeClaims and Nodes that are in both have the same hashes, finalizers, labels and spec.

  check.py watched RECORDING [--reasons A,B] [--explained FILE]... [--at-least N]
            RECORDING is the output of `kubectl get nodeclaims --watch --output-watch-events -o json`. No claim drifted, no hash or label
            of a claim changed after launch, and a claim was deleted only because it expired, because its static NodePool was scaled in,
            or for one of the REASONS; then its name must be in one of the FILEs. At least N claims must have been deleted for REASONS.

Prints one line per difference, and figures at the end; the status is 1 if there is a difference.
"""

import argparse
import datetime
import json
import sys

HASHES = (
    "karpenter.sh/nodepool-hash",
    "karpenter.sh/nodepool-hash-version",
    "karpenter.kwok.sh/kwoknodeclass-hash",
    "karpenter.kwok.sh/kwoknodeclass-hash-version",
)
POOL_LABEL = "karpenter.sh/nodepool"


def documents(path):
    """All JSON documents of a file; the last one may be truncated."""
    decoder = json.JSONDecoder()
    with open(path, encoding="utf-8") as file:
        text = file.read()
    position, found = 0, []
    while position < len(text):
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            break
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            # The recorder was stopped within a document, or the file is not a recording.
            if text[position] != "{":
                sys.exit(f"{path}: not a recording: {error}")
            break
        found.append(value)
    return found


def key_of(item):
    return f"{item['kind']}/{item['metadata']['name']}"


def pool_of(item):
    if item["kind"] == "NodePool":
        return item["metadata"]["name"]
    return item["metadata"].get("labels", {}).get(POOL_LABEL)


def listed(path, without_pools=()):
    """Objects of a dump by kind and name, without nodes that have no NodePool."""
    with open(path, encoding="utf-8") as file:
        items = json.load(file)["items"]
    return {
        key_of(item): item
        for item in items
        if pool_of(item) not in without_pools and (item["kind"] != "Node" or pool_of(item))
    }


def normalized(item, restart_of_upstream):
    item = json.loads(json.dumps(item))
    for field in ("resourceVersion", "managedFields"):
        item["metadata"].pop(field, None)
    if item["kind"] == "Node":
        for entry in item.get("status", {}).get("conditions", []):
            entry.pop("lastHeartbeatTime", None)
    if item["kind"] == "NodeClaim":
        # Set by a later pass over a claim, after ten minutes or a restart, if the first one ran before its node existed.
        conditions = item.get("status", {}).get("conditions", [])
        item.get("status", {})["conditions"] = [
            entry for entry in conditions if (entry["type"], entry["status"]) != ("ConsistentStateFound", "True")
        ]
    if item["kind"] == "NodeClaim" and restart_of_upstream:
        item.get("status", {}).pop("lastPodEventTime", None)
        condition(item, "Consolidatable").pop("lastTransitionTime", None)
    return item


def differences(before, after, path=""):
    """Paths at which two values differ, with both values. Conditions are matched by type."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(before.get(name), after.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and path.endswith(".conditions"):
        by_type = [{entry["type"]: entry for entry in entries} for entries in (before, after)]
        yield from differences(*by_type, f"{path} ")
    elif before != after:
        yield f"{path.lstrip('.')}: {json.dumps(before)} -> {json.dumps(after)}"


def compare(before, after, view):
    found = []
    for key, item in sorted(before.items()):
        other = after.get(key)
        if other is None or other["metadata"]["uid"] != item["metadata"]["uid"]:
            found.append(f"{key}: gone")
            continue
        found += [f"{key}: {difference}" for difference in differences(view(item), view(other))]
    return found


def unchanged(arguments):
    before = listed(arguments.before, arguments.without_pool)
    after = listed(arguments.after, arguments.without_pool)
    found = compare(before, after, lambda item: normalized(item, arguments.restart_of_upstream))
    found += [f"{key}: new" for key in sorted(after.keys() - before.keys())]
    kinds = [key.split("/")[0] for key in before]
    summary = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    return found, f"{summary} compared"


def stamps_of(item):
    metadata = item["metadata"]
    return {
        "annotations": {name: value for name, value in metadata.get("annotations", {}).items() if name in HASHES},
        "labels": metadata.get("labels", {}),
        "finalizers": sorted(metadata.get("finalizers", [])),
        "ownerReferences": metadata.get("ownerReferences", []),
        "spec": item["spec"] if item["kind"] == "NodeClaim" else None,
        "providerID": item["spec"].get("providerID") or item.get("status", {}).get("providerID"),
    }


def stamps(arguments):
    before, after = (
        {key: item for key, item in listed(path).items() if item["kind"] in ("NodeClaim", "Node")}
        for path in (arguments.before, arguments.after)
    )
    both = {
        key: item
        for key, item in before.items()
        if key in after
        and after[key]["metadata"]["uid"] == item["metadata"]["uid"]
        and not after[key]["metadata"].get("deletionTimestamp")
        and not item["metadata"].get("deletionTimestamp")
    }
    return compare(both, after, stamps_of), f"{len(both)} of {len(before)} claims and nodes are in both"


def condition(item, kind):
    for entry in item.get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry
    return {}


def seconds(duration):
    """A Go duration such as 1h30m as seconds; None for Never."""
    if not duration or duration == "Never":
        return None
    units = {"h": 3600, "m": 60, "s": 1}
    total, number = 0, ""
    for character in duration:
        if character in units:
            total += int(number) * units[character]
            number = ""
        else:
            number += character
    return total


def time_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def reason_of(claim):
    """The reason of a claim's deletion, as far as the object shows it."""
    reason = condition(claim, "DisruptionReason").get("reason")
    if reason:
        return reason
    if condition(claim, "Launched").get("status") != "True":
        return "NotLaunched"
    limit = seconds(claim["spec"].get("expireAfter"))
    created, deleted = (time_of(claim["metadata"][name]) for name in ("creationTimestamp", "deletionTimestamp"))
    if limit is not None and (deleted - created).total_seconds() >= limit:
        return "Expired"
    return "Unexplained"


def watched(arguments):
    explained = ""
    for path in arguments.explained:
        with open(path, encoding="utf-8") as file:
            explained += file.read()
    found, first, last, reasons = [], {}, {}, {}
    for event in documents(arguments.recording):
        claim = event["object"]
        if claim.get("kind") != "NodeClaim":
            continue
        name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
        last[uid] = claim
        drifted = condition(claim, "Drifted")
        if drifted.get("status") == "True":
            found.append(f"NodeClaim/{name}: drifted: {drifted.get('reason')} {drifted.get('message')}")
        if claim["metadata"].get("deletionTimestamp") and uid not in reasons:
            reason = reasons[uid] = reason_of(claim)
            if reason in ("Expired", "NotLaunched"):
                continue
            if reason not in arguments.reasons:
                found.append(f"NodeClaim/{name}: deleted: {reason}")
            elif arguments.explained and name not in explained:
                found.append(f"NodeClaim/{name}: deleted: {reason}, without an explanation")
        elif condition(claim, "Registered").get("status") == "True" and not claim["metadata"].get("deletionTimestamp"):
            stamp = stamps_of(claim)
            if uid in first:
                found += [f"NodeClaim/{name}: {entry}" for entry in differences(first[uid], stamp)]
            else:
                first[uid] = stamp
    counts = ", ".join(f"{list(reasons.values()).count(reason)} {reason}" for reason in sorted(set(reasons.values())))
    count = sum(reason in arguments.reasons for reason in reasons.values())
    if count < arguments.at_least:
        found.append(f"{count} claims were deleted for {' or '.join(arguments.reasons)}, not {arguments.at_least}")
    if not last:
        found.append("the recording contains no claim")
    return sorted(set(found)), f"{len(last)} claims seen, deleted: {counts or 'none'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("unchanged")
    command.add_argument("before")
    command.add_argument("after")
    command.add_argument("--without-pool", action="append", default=[])
    command.add_argument("--restart-of-upstream", action="store_true")
    command.set_defaults(run=unchanged)
    command = commands.add_parser("stamps")
    command.add_argument("before")
    command.add_argument("after")
    command.set_defaults(run=stamps)
    command = commands.add_parser("watched")
    command.add_argument("recording")
    command.add_argument("--reasons", type=lambda text: text.split(","), default=[])
    command.add_argument("--explained", action="append", default=[])
    command.add_argument("--at-least", type=int, default=0)
    command.set_defaults(run=watched)
    arguments = parser.parse_args()
    found, summary = arguments.run(arguments)
    for line in found:
        print(line)
    print(f"{summary}, {len(found)} differences")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
