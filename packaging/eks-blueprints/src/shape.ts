/** Which generation a set of properties belongs to. */
import type { FlatProps, KarpenterAddOnProps, NestedProps } from "./props";

export type Shape = "flat" | "nested" | "v1";

const FLAT: (keyof FlatProps)[] = [
    "requirements",
    "provisionerSpecs",
    "taints",
    "startupTaints",
    "labels",
    "annotations",
    "limits",
    "subnetTags",
    "securityGroupTags",
    "amiFamily",
    "amiSelector",
    "tags",
    "blockDeviceMappings",
    "consolidation",
    "ttlSecondsUntilExpired",
    "ttlSecondsAfterEmpty",
    "weight",
];
const NESTED: (keyof NestedProps)[] = ["nodePoolSpec", "ec2NodeClassSpec"];

/** The generation, or an error that names the properties that do not go together. */
export function shapeOf(props: KarpenterAddOnProps): Shape {
    const flat = FLAT.filter((key) => (props as FlatProps)[key] !== undefined);
    const nested = NESTED.filter((key) => (props as NestedProps)[key] !== undefined);
    if (flat.length > 0 && nested.length > 0) {
        throw new Error(
            `Properties of two generations are mixed: ${flat.join(", ")} (flat) and ${nested.join(", ")} (nested). ` +
                "Move the flat ones into nodePoolSpec and ec2NodeClassSpec.",
        );
    }
    if (nested.length === 0) {
        return "flat";
    }
    const old = beforeV1(props as NestedProps);
    const current = onlyV1(props as NestedProps);
    if (old.length > 0 && current.length > 0) {
        throw new Error(
            `Properties of two generations are mixed: ${old.join(", ")} (before v1) and ${current.join(", ")} (v1).`,
        );
    }
    return current.length > 0 ? "v1" : "nested";
}

function beforeV1({ nodePoolSpec: pool, ec2NodeClassSpec: nodeClass }: NestedProps): string[] {
    return named({
        "nodePoolSpec.consolidation": pool?.consolidation,
        "nodePoolSpec.ttlSecondsUntilExpired": pool?.ttlSecondsUntilExpired,
        "nodePoolSpec.ttlSecondsAfterEmpty": pool?.ttlSecondsAfterEmpty,
        "nodePoolSpec.disruption.expireAfter": pool?.disruption?.expireAfter,
        "ec2NodeClassSpec.subnetSelector": nodeClass?.subnetSelector,
        "ec2NodeClassSpec.securityGroupSelector": nodeClass?.securityGroupSelector,
        "ec2NodeClassSpec.amiSelector": nodeClass?.amiSelector,
    });
}

function onlyV1({ nodePoolSpec: pool, ec2NodeClassSpec: nodeClass }: NestedProps): string[] {
    const policy = pool?.disruption?.consolidationPolicy;
    return named({
        "nodePoolSpec.expireAfter": pool?.expireAfter,
        "nodePoolSpec.replicas": pool?.replicas,
        "nodePoolSpec.disruption.consolidationPolicy": policy === "WhenEmptyOrUnderutilized" ? policy : undefined,
        "ec2NodeClassSpec.amiSelectorTerms": nodeClass?.amiSelectorTerms?.find((term) => term.alias !== undefined),
    });
}

function named(fields: Record<string, unknown>): string[] {
    return Object.keys(fields).filter((key) => fields[key] !== undefined);
}
