/** Pools of the nested properties from 0.32 on. Both become v1 objects, because v1beta1 is no longer served. */
import type { ClassSpec, Disruption, PoolSpec } from "../props";
import { aliasOf, ubuntu } from "./convert";
import {
    devices,
    ec2NodeClass,
    type Fields,
    type Manifest,
    metadataOptions,
    nodePool,
    type Pool,
    present,
} from "./objects";

const POOL = "default-nodepool";
const CLASS = "default-ec2nodeclass";

export interface ClassOptions {
    readonly nodeRoleName: string;
    readonly ipv6: boolean;
}

export function betaPool(pool: PoolSpec, nodeClass: ClassSpec | undefined, options: ClassOptions): Pool {
    const given = pool.disruption ?? {};
    return made(pool, nodeClass, options, given.expireAfter ?? "720h", {
        ...mappedPolicy({ consolidationPolicy: "WhenUnderutilized", ...given }),
        budgets: given.budgets ?? [{ nodes: "10%" }],
    });
}

export function v1Pool(pool: PoolSpec, nodeClass: ClassSpec | undefined, options: ClassOptions): Pool {
    return made(pool, nodeClass, options, pool.expireAfter, v1Disruption(pool.disruption));
}

/** Programs still use WhenUnderutilized, because the types of the original add-on have no other name. */
function v1Disruption(given: Disruption | undefined): Fields | undefined {
    if (given === undefined) {
        return undefined;
    }
    const isOld = given.consolidationPolicy === "WhenUnderutilized";
    return present({ ...given, consolidationPolicy: isOld ? "WhenEmptyOrUnderutilized" : given.consolidationPolicy });
}

function mappedPolicy(given: Disruption): Fields {
    return given.consolidationPolicy === "WhenEmpty"
        ? { consolidationPolicy: "WhenEmpty", consolidateAfter: given.consolidateAfter ?? "Never" }
        : { consolidationPolicy: "WhenEmptyOrUnderutilized", consolidateAfter: given.consolidateAfter ?? "0s" };
}

function made(
    pool: PoolSpec,
    nodeClass: ClassSpec | undefined,
    options: ClassOptions,
    expireAfter: string | undefined,
    disruption: Fields | undefined,
): Pool {
    const spec = present({
        template: present({
            metadata: present({ labels: pool.labels, annotations: pool.annotations }),
            spec: {
                ...present({
                    nodeClassRef: { group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: CLASS },
                    taints: pool.taints,
                    startupTaints: pool.startupTaints,
                    expireAfter,
                }),
                // The one field of v1 that has to be there even if it is empty.
                requirements: pool.requirements ?? [],
            },
        }),
        disruption,
        limits: pool.limits,
        weight: pool.weight,
        replicas: pool.replicas,
    });
    return {
        pool: nodePool(POOL, spec),
        ...(nodeClass === undefined ? {} : { nodeClass: classOf(nodeClass, options) }),
        warnings: [],
    };
}

function classOf(given: ClassSpec, { nodeRoleName, ipv6 }: ClassOptions): Manifest {
    const identity = given.instanceProfile ? { instanceProfile: given.instanceProfile } : { role: nodeRoleName };
    return ec2NodeClass(
        CLASS,
        present({
            ...images(given),
            ...identity,
            subnetSelectorTerms: given.subnetSelectorTerms,
            securityGroupSelectorTerms: given.securityGroupSelectorTerms,
            instanceStorePolicy: given.instanceStorePolicy,
            userData: given.userData,
            tags: given.tags,
            metadataOptions: metadataOptions(given.metadataOptions, ipv6),
            detailedMonitoring: given.detailedMonitoring,
        }),
    );
}

function images(given: ClassSpec): Fields {
    const { amiFamily = "", amiSelectorTerms = [] } = given;
    const blockDeviceMappings = devices(given.blockDeviceMappings);
    if (amiSelectorTerms.length === 0) {
        return { amiSelectorTerms: [aliasOf(amiFamily)], blockDeviceMappings };
    }
    if (amiFamily === "Ubuntu") {
        return ubuntu(present({ amiSelectorTerms, blockDeviceMappings }));
    }
    return { amiFamily, amiSelectorTerms, blockDeviceMappings };
}
