"""Checks the chart karpenter-crd: it renders the CRDs of the crate karpenter-api and adds labels and annotations only."""

import yaml


def check(cases, root):
    shipped = {}
    for path in sorted((root / "crates/karpenter-api/crds").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        shipped[definition["metadata"]["name"]] = definition
    left_out = {
        "without-buffers": {"capacitybuffers.autoscaling.x-k8s.io"},
        "aws-only": {"kwoknodeclasses.karpenter.kwok.sh"},
        "kwok-only": {"ec2nodeclasses.karpenter.k8s.aws"},
        "least": {"kwoknodeclasses.karpenter.kwok.sh", "nodeoverlays.karpenter.sh", "capacitybuffers.autoscaling.x-k8s.io"},
    }
    old = {}
    for path in sorted((root / "crates/karpenter-api/crds/legacy").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        old[definition["metadata"]["name"]] = definition
    for name, case in cases.items():
        wanted = set(shipped) - left_out.get(name, set()) | (set(old) if name == "legacy" else set())
        case.equal("definitions", set(case.names("CustomResourceDefinition")), wanted)
        for definition in case.all("CustomResourceDefinition"):
            original = (shipped | old)[definition["metadata"]["name"]]
            case.equal(f"{definition['metadata']['name']}: spec", definition["spec"], original["spec"])
            case.true("labels", definition["metadata"]["labels"]["app.kubernetes.io/instance"] == "release")
            annotations = definition["metadata"].get("annotations", {})
            case.equal("kept", annotations.get("helm.sh/resource-policy"), "keep" if name == "kept" else None)
    cases["legacy"].equal("v1alpha5 CRDs", sorted(old), ["awsnodetemplates.karpenter.k8s.aws", "provisioners.karpenter.sh"])
    for definition in cases["annotated"].all("CustomResourceDefinition"):
        cases["annotated"].equal("annotation", definition["metadata"]["annotations"]["argocd.argoproj.io/sync-options"],
                                 "ServerSideApply=true")
    for definition in cases["labelled"].all("CustomResourceDefinition"):
        cases["labelled"].equal("label", definition["metadata"]["labels"]["team"], "platform")
