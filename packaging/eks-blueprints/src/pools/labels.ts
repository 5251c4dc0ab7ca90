/** Older spellings of label keys, and keys that nodes no longer carry. */

const RENAMED: Record<string, string> = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
};
const DOTTED = /^karpenter\.k8s\.aws\/instance\.(family|size|cpu|memory|gpu\.(name|manufacturer|count|memory))$/;
const GONE = ["instance-pods", "instance-accelerator-memory", "instance-ami-id"];

export function normalized(key: string): string {
    if (DOTTED.test(key)) {
        const [domain, name = ""] = key.split("/");
        return `${domain}/${name.replaceAll(".", "-")}`;
    }
    return RENAMED[key] ?? key;
}

export function isGone(key: string): boolean {
    return GONE.some((name) => key === `karpenter.k8s.aws/${name}`);
}
