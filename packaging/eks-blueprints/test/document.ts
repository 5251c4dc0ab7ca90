/** The example of the add-on's guide, as it is printed there. Its types are those of a constant, so it must compile. */
export const documentProps = {
    requirements: [
        { key: "node.kubernetes.io/instance-type", op: "In", vals: ["m5.2xlarge"] },
        { key: "topology.kubernetes.io/zone", op: "NotIn", vals: ["us-west-2c"] },
        { key: "kubernetes.io/arch", op: "In", vals: ["amd64", "arm64"] },
        { key: "karpenter.sh/capacity-type", op: "In", vals: ["spot", "on-demand"] },
    ],
    subnetTags: {
        Name: "blueprint-construct-dev/blueprint-construct-dev-vpc/PrivateSubnet1",
    },
    securityGroupTags: {
        "kubernetes.io/cluster/blueprint-construct-dev": "owned",
    },
    taints: [
        {
            key: "workload",
            value: "test",
            effect: "NoSchedule",
        },
    ],
    amiFamily: "AL2",
    consolidation: { enabled: true },
    ttlSecondsUntilExpired: 2592000,
    weight: 20,
    interruptionHandling: true,
};
