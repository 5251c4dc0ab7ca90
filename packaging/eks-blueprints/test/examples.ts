/** Prints the objects or chart values that the add-on creates, for checks by an API server or Helm: `pools`, or `values VERSION`. */
import { utils } from "@aws-quickstart/eks-blueprints";
import { KarpenterAddOn, type KarpenterAddOnProps } from "../src";
import { poolOf } from "../src/pool";
import type { Manifest } from "../src/pools/objects";
import { shapeOf } from "../src/shape";
import { chartValues } from "../src/values";
import { COMPAT_VERSION } from "../src/versions";
import { documentProps } from "./document";
import { type Json, synth, vpcCni } from "./support";

const TERMS = {
    subnetSelectorTerms: [{ tags: { "karpenter.sh/discovery": "demo" } }],
    securityGroupSelectorTerms: [{ tags: { "karpenter.sh/discovery": "demo" } }],
};
const SELECTORS = { subnetSelector: { a: "b,c" }, securityGroupSelector: { "aws-ids": "sg-1,sg-2" } };
const V1_PROPS: KarpenterAddOnProps = {
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
};
const EXAMPLES: KarpenterAddOnProps[] = [
    documentProps,
    { ...documentProps, api: "v1alpha5" },
    { ...documentProps, amiFamily: "Ubuntu", amiSelector: { "aws::name": "ubuntu-*" }, tags: { team: "a" } },
    { nodePoolSpec: { ttlSecondsAfterEmpty: 30 }, ec2NodeClassSpec: SELECTORS, compatVersion: "0.31.0" },
    {
        nodePoolSpec: { limits: { cpu: 100 }, disruption: { consolidationPolicy: "WhenUnderutilized" } },
        ec2NodeClassSpec: { ...TERMS, amiFamily: "Bottlerocket", instanceStorePolicy: "RAID0", tags: { team: "a" } },
    },
    V1_PROPS,
];
/** Of these a whole stack is made: flat as in the guide, and nested. */
const STACKS = [documentProps, V1_PROPS];

/** All examples are applied to the same cluster, so their names must differ. */
function renamed(manifests: Json[], prefix: string): Json[] {
    return JSON.parse(JSON.stringify(manifests).replaceAll('"name":"default', `"name":"${prefix}-default`));
}

/** Resources in the template of a whole stack, after CDK has processed it. */
async function synthesised(props: KarpenterAddOnProps, index: number): Promise<Json[]> {
    // The library prints notices to standard output.
    utils.userLog.settings.type = "hidden";
    const made = await synth([vpcCni(), new KarpenterAddOn(props)], { version: "auto" });
    const kinds = ["EC2NodeClass", "NodePool"];
    const found = made.manifests().filter((manifest) => kinds.includes(manifest.kind));
    if (found.length !== kinds.length) {
        throw new Error(`a stack with ${found.length} of ${kinds.join(" and ")}`);
    }
    return renamed(found, `stack${index}`);
}

function pools(): Manifest[] {
    return EXAMPLES.flatMap((props, index) => {
        const made = poolOf(props, shapeOf(props), props.compatVersion ?? COMPAT_VERSION, {
            defaultInstanceProfile: "profile",
            nodeRoleName: "role",
            ipv6: false,
            kubernetes: "1.32",
        });
        const manifests = [made?.nodeClass, made?.pool].filter((one) => one !== undefined);
        return renamed(manifests, `x${index}`);
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
function print(printed: Json[]): void {
    console.log(printed.map((one) => JSON.stringify(one)).join("\n"));
}
if (what === "values") {
    print([chartValues({}, facts, version)]);
} else {
    Promise.all(STACKS.map(synthesised)).then((stacks) => print([...pools(), ...stacks.flat()]));
}
