/** Which default pool the properties ask for, if any, and its manifests in the cluster. */
import type { ClusterInfo } from "@aws-quickstart/eks-blueprints";
import type { Construct } from "constructs";
import { converted } from "./pools/convert";
import { betaPool, v1Pool } from "./pools/current";
import type { Pool } from "./pools/objects";
import { flatProvisioner, type Legacy, nestedProvisioner } from "./pools/provisioner";
import type { FlatProps, KarpenterAddOnProps, NestedProps } from "./props";
import type { Shape } from "./shape";
import { isAtLeast } from "./versions";
import { warn } from "./warnings";

export interface PoolOptions {
    readonly defaultInstanceProfile: string;
    readonly nodeRoleName: string;
    readonly ipv6: boolean;
    readonly kubernetes: string;
}

export function poolOf(
    props: KarpenterAddOnProps,
    shape: Shape,
    version: string,
    options: PoolOptions,
): Pool | undefined {
    const legacy = legacyOf(props, shape, version);
    if (legacy !== undefined && props.api === "v1alpha5") {
        const { provisioner, template } = legacy;
        return { pool: provisioner, ...(template === undefined ? {} : { nodeClass: template }), warnings: [] };
    }
    const pool = legacy === undefined ? currentOf(props as NestedProps, shape, options) : converted(legacy, options);
    return pool === undefined ? undefined : { ...pool, warnings: [...pool.warnings, ...aboutImages(pool, options)] };
}

function legacyOf(props: KarpenterAddOnProps, shape: Shape, version: string): Legacy | undefined {
    if (shape === "flat") {
        return flatProvisioner(props as FlatProps);
    }
    const { nodePoolSpec, ec2NodeClassSpec } = props as NestedProps;
    const isLegacy = shape === "nested" && !isAtLeast(version, "0.32.0");
    if (props.api === "v1alpha5" && nodePoolSpec !== undefined && !isLegacy) {
        throw new Error(
            'api "v1alpha5" is for flat properties, and for nested ones with a compatVersion below 0.32.0.',
        );
    }
    return isLegacy && nodePoolSpec !== undefined ? nestedProvisioner(nodePoolSpec, ec2NodeClassSpec) : undefined;
}

function currentOf(props: NestedProps, shape: Shape, options: PoolOptions): Pool | undefined {
    const { nodePoolSpec, ec2NodeClassSpec } = props;
    if (shape === "flat" || nodePoolSpec === undefined) {
        return undefined;
    }
    return shape === "v1"
        ? v1Pool(nodePoolSpec, ec2NodeClassSpec, options)
        : betaPool(nodePoolSpec, ec2NodeClassSpec, options);
}

function aboutImages({ nodeClass }: Pool, { kubernetes }: PoolOptions): string[] {
    const terms: { alias?: string }[] = nodeClass?.spec.amiSelectorTerms ?? [];
    const isAl2 = terms.some((term) => term.alias?.startsWith("al2@"));
    return isAl2 && isAtLeast(kubernetes, "1.33.0")
        ? [`There are no images of Amazon Linux 2 for Kubernetes ${kubernetes}: give amiFamily AL2023 or Bottlerocket.`]
        : [];
}

/**
 * Both depend on the release, and the pool on its node class. So when the stack is deleted, the pool is deleted first, then
 * the node class after its last instance is terminated, and then the controller, which terminates the instances.
 */
export function addPool({ cluster }: ClusterInfo, { pool, nodeClass, warnings }: Pool, release: Construct): void {
    for (const [index, text] of warnings.entries()) {
        warn(cluster, `pool-${index}`, text);
    }
    const poolManifest = cluster.addManifest("default-pool", { ...pool });
    poolManifest.node.addDependency(release);
    if (nodeClass !== undefined) {
        const classManifest = cluster.addManifest("default-node-template", { ...nodeClass });
        classManifest.node.addDependency(release);
        poolManifest.node.addDependency(classManifest);
    }
}
