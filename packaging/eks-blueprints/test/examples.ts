/** Prints what the add-on gives to others, so that those can say whether they take it: `pools`, or `values VERSION`. */
import type { KarpenterAddOnProps } from "../src";
import { poolOf } from "../src/pool";
import type { Manifest } from "../src/pools/objects";
import { shapeOf } from "../src/shape";
import { chartValues } from "../src/values";
import { COMPAT_VERSION } from "../src/versions";
import { documentProps } from "./document";

const TERMS = {
    subnetSelectorTerms: [{ tags: { "karpenter.sh/discovery": "demo" } }],
    securityGroupSelectorTerms: [{ tags: { "karpenter.sh/discovery": "demo" } }],
};
const SELECTORS = { subnetSelector: { a: "b,c" }, securityGroupSelector: { "aws-ids": "sg-1,sg-2" } };
const EXAMPLES: KarpenterAddOnProps[] = [
    documentProps,
    { ...documentProps, api: "v1alpha5" },
    { ...documentProps, amiFamily: "Ubuntu", amiSelector: { "aws::name": "ubuntu-*" }, tags: { team: "a" } },
    { nodePoolSpec: { ttlSecondsAfterEmpty: 30 }, ec2NodeClassSpec: SELECTORS, compatVersion: "0.31.0" },
    {
        nodePoolSpec: { limits: { cpu: 100 }, disruption: { consolidationPolicy: "WhenUnderutilized" } },
        ec2NodeClassSpec: { ...TERMS, amiFamily: "Bottlerocket", instanceStorePolicy: "RAID0", tags: { team: "a" } },
    },
    {
        nodePoolSpec: {
            expireAfter: "24h",
            disruption: { consolidateAfter: "1m", budgets: [{ nodes: "5" }] },
            weight: 5,
        },
        ec2NodeClassSpec: {
            ...TERMS,
            amiSelectorTerms: [{ alias: "al2023@latest" }],
            blockDeviceMappings: [{ deviceName: "/dev/xvda", ebs: { volumeSize: "50Gi", volumeType: "gp3" } }],
        },
    },
];

/** Every example under names of its own, because they go into one cluster. */
function pools(): Manifest[] {
    return EXAMPLES.flatMap((props, index) => {
        const made = poolOf(props, shapeOf(props), props.compatVersion ?? COMPAT_VERSION, {
            defaultInstanceProfile: "profile",
            nodeRoleName: "role",
            ipv6: false,
            kubernetes: "1.32",
        });
        const manifests = [made?.nodeClass, made?.pool].filter((one) => one !== undefined);
        const renamed = JSON.stringify(manifests).replaceAll('"name":"default', `"name":"x${index}-default`);
        return JSON.parse(renamed);
    });
}

const [what, version = COMPAT_VERSION] = process.argv.slice(2);
const facts = {
    clusterName: "demo",
    clusterEndpoint: "https://demo.example.com",
    queueName: "demo-queue",
    profileName: "profile",
    roleArn: "arn:aws:iam::111122223333:role/controller",
    legacyApi: false,
};
const printed = what === "values" ? [chartValues({}, facts, version)] : pools();
console.log(printed.map((one) => JSON.stringify(one)).join("\n"));
