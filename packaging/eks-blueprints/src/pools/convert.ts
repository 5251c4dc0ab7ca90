/**
 * Converts the v1alpha5 API to v1 by the rules of `karpenter convert`: both are tested with the same files. Defaults of the
 * v1alpha5 API are explicit, because those of v1 differ.
 */
import { isGone, normalized } from "./labels";
import { ec2NodeClass, type Fields, type Manifest, metadataOptions, nodePool, type Pool, present } from "./objects";
import type { Legacy } from "./provisioner";
import { imageTerms, resourceTerms } from "./selectors";

const CATEGORY = "karpenter.k8s.aws/instance-category";
const GENERATION = "karpenter.k8s.aws/instance-generation";
const SHAPES = ["node.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family", CATEGORY, GENERATION];
const RESERVED_TAGS = [
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
];

export interface ConvertOptions {
    /** Default instance profile of nodes; v1 has no such default. */
    readonly defaultInstanceProfile: string;
    readonly ipv6: boolean;
}

export function converted({ provisioner, template }: Legacy, options: ConvertOptions): Pool {
    const warnings: string[] = [];
    const { spec } = provisioner;
    const name = spec.providerRef?.name ?? provisioner.metadata.name;
    const settings = template?.spec ?? spec.provider;
    return {
        pool: nodePool(provisioner.metadata.name, poolSpec(spec, name, warnings)),
        ...(settings === undefined ? {} : { nodeClass: convertedTemplate(name, settings, options, warnings) }),
        warnings,
    };
}

function poolSpec(spec: Fields, className: string, warnings: string[]): Fields {
    const kept = (key: string) => {
        if (isGone(key)) {
            warnings.push(`Nodes no longer carry the label ${key}; it is left out of the pool.`);
        }
        return !isGone(key);
    };
    const labels = Object.entries(spec.labels ?? {})
        .map(([key, value]) => [normalized(key), value] as const)
        .filter(([key]) => kept(key));
    const requirements: Fields[] = (spec.requirements ?? [])
        .map((one: Fields) => ({ ...one, key: normalized(one.key) }))
        .filter((one: Fields) => kept(one.key));
    const metadata = present({ labels: Object.fromEntries(labels), annotations: annotations(spec.annotations) });
    return present({
        template: present({
            metadata,
            spec: present({
                nodeClassRef: { group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: className },
                expireAfter: expireAfter(spec, warnings),
                taints: withoutEmptyValues(spec.taints),
                startupTaints: withoutEmptyValues(spec.startupTaints),
                requirements: [
                    ...requirements,
                    ...missing([...labels.map(([key]) => key), ...requirements.map((one) => one.key)]),
                ],
            }),
        }),
        disruption: disruption(spec),
        limits: spec.limits?.resources,
        weight: spec.weight,
    });
}

/** A value of "" is no value, and v1's pattern refuses it. */
function withoutEmptyValues(taints: Fields[] = []): Fields[] {
    return taints.map(({ value, ...taint }) => (value ? { ...taint, value } : taint));
}

/** The defaults of the v1alpha5 webhook. A label with the same key counts as a requirement. */
function missing(said: string[]): Fields[] {
    const defaults = [
        ["kubernetes.io/os", "linux"],
        ["kubernetes.io/arch", "amd64"],
        ["karpenter.sh/capacity-type", "on-demand"],
    ] as const;
    const found: Fields[] = defaults
        .filter(([key]) => !said.includes(key))
        .map(([key, value]) => ({ key, operator: "In", values: [value] }));
    if (!SHAPES.some((key) => said.includes(key))) {
        found.push({ key: CATEGORY, operator: "In", values: ["c", "m", "r"] });
        found.push({ key: GENERATION, operator: "Gt", values: ["2"] });
    }
    return found;
}

function annotations(given: Record<string, string> = {}): Record<string, string> {
    const { "karpenter.sh/do-not-consolidate": held, ...rest } = given;
    // Any other value never protected a node.
    return held === "true" ? { ...rest, "karpenter.sh/do-not-disrupt": "true" } : rest;
}

function expireAfter(spec: Fields, warnings: string[]): string {
    const seconds: number | undefined = spec.ttlSecondsUntilExpired;
    if (seconds === undefined) {
        return "Never";
    }
    warnings.push(
        "ttlSecondsUntilExpired becomes expireAfter, which drains without waiting for a replacement, and which every " +
            "node keeps as it was when the node was launched.",
    );
    return duration(seconds);
}

function disruption(spec: Fields): Fields {
    const [consolidationPolicy, consolidateAfter] = spec.consolidation?.enabled
        ? ["WhenEmptyOrUnderutilized", "0s"]
        : // Consolidation was not enabled, but it is the default in v1.
          ["WhenEmpty", spec.ttlSecondsAfterEmpty === undefined ? "Never" : duration(spec.ttlSecondsAfterEmpty)];
    // There were no budgets, and drift was off.
    const budgets = [
        { nodes: "100%", reasons: ["Empty", "Underutilized"] },
        { nodes: "0", reasons: ["Drifted"] },
    ];
    return { consolidationPolicy, consolidateAfter, budgets };
}

/** Whole hours, else whole minutes, else seconds. */
function duration(seconds: number): string {
    const [size, unit] = [[3600, "h"] as const, [60, "m"] as const].find(
        ([size]) => seconds !== 0 && seconds % size === 0,
    ) ?? [1, "s"];
    return `${seconds / size}${unit}`;
}

function convertedTemplate(name: string, settings: Fields, options: ConvertOptions, warnings: string[]): Manifest {
    const tags = Object.entries(settings.tags ?? {}).filter(([key]) => {
        const isReserved = key.startsWith("kubernetes.io/cluster") || RESERVED_TAGS.includes(key);
        if (isReserved) {
            warnings.push(`Karpenter sets the tag ${key} itself; it is left out.`);
        }
        return !isReserved;
    });
    const spec = present({
        ...images(settings),
        // Over those that come with a family.
        ...present({ blockDeviceMappings: settings.blockDeviceMappings }),
        instanceProfile: settings.instanceProfile || options.defaultInstanceProfile,
        subnetSelectorTerms: resourceTerms(settings.subnetSelector ?? {}, "subnetSelector"),
        securityGroupSelectorTerms: resourceTerms(settings.securityGroupSelector ?? {}, "securityGroupSelector"),
        tags: Object.fromEntries(tags),
        metadataOptions: legacyMetadataOptions(settings.metadataOptions, options.ipv6),
        userData: settings.userData,
        detailedMonitoring: settings.detailedMonitoring,
    });
    return ec2NodeClass(name, spec);
}

/** Where the object was there, EC2's own defaults filled its gaps. */
function legacyMetadataOptions(given: Fields | undefined, ipv6: boolean): Fields {
    return given === undefined
        ? metadataOptions(given, ipv6)
        : metadataOptions(given, false, { hops: 1, tokens: "optional" });
}

function images(settings: Fields): Fields {
    const family: string = settings.amiFamily ?? "AL2";
    if (Object.keys(settings.amiSelector ?? {}).length === 0) {
        return { amiSelectorTerms: [aliasOf(family)] };
    }
    const amiSelectorTerms = imageTerms(settings.amiSelector, "amiSelector");
    return family === "Ubuntu" ? ubuntu({ amiSelectorTerms }) : { amiFamily: family, amiSelectorTerms };
}

/** An alias selects the published AMIs of a family and determines the AMI family. */
export function aliasOf(family: string): Fields {
    if (family === "Ubuntu" || family === "Custom") {
        throw new Error(`v1 finds no ${family} images by itself: select the images by id, name or tags.`);
    }
    return { alias: `${family.toLowerCase()}@latest` };
}

/** Ubuntu boots as AL2 does, and has its root on another device. */
export function ubuntu(spec: Fields): Fields {
    const ebs = { volumeSize: "20Gi", volumeType: "gp3", encrypted: true };
    return {
        blockDeviceMappings: [{ deviceName: "/dev/sda1", rootVolume: true, ebs }],
        ...spec,
        amiFamily: "AL2",
    };
}
