/** What else must be, and must not be, in the cluster. The cluster autoscaler and Auto Mode are decorators of deploy(). */
import { strict as assert } from "node:assert";
import type { ClusterInfo } from "@aws-quickstart/eks-blueprints";
import * as eks from "aws-cdk-lib/aws-eks";
import * as eksv2 from "aws-cdk-lib/aws-eks-v2";
import type { Construct } from "constructs";

const VPC_CNI = "VpcCniAddOn";
const TERMINATION_HANDLER = "AwsNodeTerminationHandlerAddOn";
/** That add-on returns nothing that could be looked up by its name, so its chart is looked for. */
const TERMINATION_HANDLER_CHART = "chart-aws-node-termination-handler";

export function checkNotImported(clusterInfo: ClusterInfo): void {
    assert(
        clusterInfo.cluster instanceof eks.Cluster || clusterInfo.clusterv2 instanceof eksv2.Cluster,
        "KarpenterAddOn cannot be used with imported clusters as it requires changes to the cluster authentication.",
    );
}

export function checkNoTerminationHandler(clusterInfo: ClusterInfo): void {
    assert(
        clusterInfo.getProvisionedAddOn(TERMINATION_HANDLER) === undefined &&
            clusterInfo.getScheduledAddOn(TERMINATION_HANDLER) === undefined &&
            clusterInfo.cluster.node.tryFindChild(TERMINATION_HANDLER_CHART) === undefined,
        "Karpenter supports native interruption handling, so Node Termination Handler will not be necessary.",
    );
}

/** The network add-on, which must come before this one. Undefined where Auto Mode brings it. */
export function requiredVpcCni(clusterInfo: ClusterInfo): Promise<Construct> | undefined {
    if (clusterInfo.autoMode) {
        return undefined;
    }
    const scheduled = clusterInfo.getScheduledAddOn(VPC_CNI);
    assert(scheduled, `Missing a dependency for ${VPC_CNI} for ${clusterInfo.cluster.stack.stackName}`);
    return scheduled;
}
