/**
 * The node role, its instance profile, and the permission to join the cluster.
 *
 * Constructs have the ids of the original add-on, so that a stack that migrates to this add-on is updated in place: names that
 * are unique per account could not be created a second time.
 */
import { createHash } from "node:crypto";
import { type ClusterInfo, utils } from "@aws-quickstart/eks-blueprints";
import { CfnOutput, Names, type Stack, Token } from "aws-cdk-lib";
import * as eks from "aws-cdk-lib/aws-eks";
import * as iam from "aws-cdk-lib/aws-iam";

// The policies of the original add-on. A smaller policy for pulling images exists, but existing workloads may need these permissions.
const POLICIES = [
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonSSMManagedInstanceCore",
];

export interface Nodes {
    readonly role: iam.Role;
    readonly profileName: string;
}

export function makeNodeRole(clusterInfo: ClusterInfo): Nodes {
    const { cluster } = clusterInfo;
    const role = new iam.Role(cluster, "karpenter-node-role", {
        assumedBy: new iam.ServicePrincipal("ec2.amazonaws.com"),
        managedPolicies: POLICIES.map((name) => iam.ManagedPolicy.fromAwsManagedPolicyName(name)),
    });
    if (isIpv6(clusterInfo)) {
        const document = utils.getEKSNodeIpv6PolicyDocument();
        role.attachInlinePolicy(new iam.Policy(cluster, "karpenter-node-Ipv6-Policy", { document }));
    }
    const profileName = instanceProfileName(cluster.stack);
    const profile = new iam.CfnInstanceProfile(cluster, "karpenter-instance-profile", {
        roles: [role.roleName],
        instanceProfileName: profileName,
        path: "/",
    });
    profile.node.addDependency(role);

    const prefix = Names.uniqueId(cluster);
    new CfnOutput(cluster.stack, "Karpenter Instance Node Role", {
        value: role.roleName,
        description: "Role of the nodes that Karpenter launches",
        exportName: `${prefix}KarpenterNodeRoleName`,
    });
    new CfnOutput(cluster.stack, "Karpenter Instance Profile name", {
        value: profileName,
        description: "Instance profile of the nodes that Karpenter launches",
        exportName: `${prefix}KarpenterInstanceProfileName`,
    });
    admit(clusterInfo, role);
    return { role, profileName };
}

export function isIpv6({ cluster }: ClusterInfo): boolean {
    return (cluster as eks.Cluster).ipFamily === eks.IpFamily.IP_V6;
}

/** Profiles are names of an account, not of a region. */
function instanceProfileName({ stackName, region }: Stack): string {
    // The token of an unresolved region differs between runs; its value does not.
    const known = Token.isUnresolved(region) ? "" : region;
    const hash = createHash("md5").update(`${stackName}${known}`).digest("hex");
    return `KarpenterNodeInstanceProfile-${hash}${known === "" ? `-${region}` : ""}`;
}

function admit({ cluster }: ClusterInfo, role: iam.Role): void {
    const readsAwsAuth = cluster instanceof eks.Cluster && cluster.authenticationMode !== eks.AuthenticationMode.API;
    if (readsAwsAuth) {
        cluster.awsAuth.addRoleMapping(role, {
            username: "system:node:{{EC2PrivateDNSName}}",
            groups: ["system:bootstrappers", "system:nodes"],
        });
        return;
    }
    new eks.CfnAccessEntry(cluster, "KarpenterNodeRoleAccess", {
        clusterName: cluster.clusterName,
        principalArn: role.roleArn,
        type: "EC2_LINUX",
    });
}
