/** Kubernetes objects as the API server gets them. */

// biome-ignore lint/suspicious/noExplicitAny: manifests are JSON
export type Fields = Record<string, any>;

export interface Manifest {
    readonly apiVersion: string;
    readonly kind: string;
    readonly metadata: { readonly name: string };
    readonly spec: Fields;
}

/** A node class and the pool that uses it. A pool may refer to an existing node class, or contain its settings. */
export interface Pool {
    readonly pool: Manifest;
    readonly nodeClass?: Manifest;
    readonly warnings: string[];
}

export function nodePool(name: string, spec: Fields): Manifest {
    return { apiVersion: "karpenter.sh/v1", kind: "NodePool", metadata: { name }, spec };
}

export function ec2NodeClass(name: string, spec: Fields): Manifest {
    return { apiVersion: "karpenter.k8s.aws/v1", kind: "EC2NodeClass", metadata: { name }, spec };
}

/** Removes null, undefined, "", {} and []: they have no meaning, and admission rejects some of them. */
export function present(fields: Fields): Fields {
    return Object.fromEntries(Object.entries(fields).filter(([, value]) => !isEmpty(value)));
}

function isEmpty(value: unknown): boolean {
    if (value === null || value === undefined || value === "") {
        return true;
    }
    return typeof value === "object" && Object.keys(value).length === 0;
}

/** Written out, because v1 has a hop limit of 1 by default and pods on such nodes do not reach the metadata service. */
export function metadataOptions(
    given: Fields | undefined,
    ipv6: boolean,
    gaps = { hops: 2, tokens: "required" },
): Fields {
    return {
        httpEndpoint: given?.httpEndpoint ?? "enabled",
        httpProtocolIPv6: given?.httpProtocolIPv6 ?? (ipv6 ? "enabled" : "disabled"),
        httpPutResponseHopLimit: given?.httpPutResponseHopLimit ?? gaps.hops,
        httpTokens: given?.httpTokens ?? gaps.tokens,
    };
}

/** The add-on's properties spell two fields as CloudFormation does, and the API server would drop them. */
export function devices(mappings: Fields[] | undefined): Fields[] {
    return (mappings ?? []).map(({ deviceName, ebs = {}, rootVolume }) => {
        const { snapshotId, kmsKeyId, ...rest } = ebs;
        return present({
            deviceName,
            rootVolume,
            ebs: present({ ...rest, snapshotID: ebs.snapshotID ?? snapshotId, kmsKeyID: ebs.kmsKeyID ?? kmsKeyId }),
        });
    });
}
