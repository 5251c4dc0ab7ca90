/**
 * The errors of the original add-on, in its words, because users search for them. Which cluster it is matters elsewhere (conflicts.ts);
 * here it is properties and versions only.
 */
import { strict as assert } from "node:assert";
import type { FlatProps, NestedProps } from "./props";
import { isAtLeast, minimumFor } from "./versions";

export function checkFlat(props: FlatProps, version: string): void {
    assert(
        props.consolidation === undefined || isAtLeast(version, "0.15.0"),
        "The prop consolidation is only supported on versions v0.15.0 and later.",
    );
    checkExclusive(props);
    assert(
        props.weight === undefined || isAtLeast(version, "0.16.0"),
        "The prop weight is only supported on versions v0.16.0 and later.",
    );
    if (props.repository !== undefined) {
        // Any registry is valid, not only that of the original add-on.
        const isOci = props.repository.startsWith("oci://");
        assert(isOci || !isAtLeast(version, "0.17.0"), "Please provide the OCI repository.");
        assert(!isOci || isAtLeast(version, "0.17.0"), "Please provide the older Karpenter repository url.");
    }
    assert(
        !props.interruptionHandling || isAtLeast(version, "0.19.0"),
        "Interruption handling is only supported on versions v0.19.0 and later.",
    );
}

/** Returns warnings. */
export function checkNested(props: NestedProps, version: string, kubernetes: string): string[] {
    const minimum = minimumFor(kubernetes);
    assert(minimum !== undefined, "Please upgrade your EKS Kubernetes version to start using Karpenter.");
    assert(isAtLeast(version, "0.21.0"), "Please use Karpenter version 0.21.0 or above.");
    const { nodePoolSpec: pool = {}, ec2NodeClassSpec: nodeClass } = props;
    assert(
        nodeClass?.detailedMonitoring === undefined || isAtLeast(version, "0.23.0"),
        "Detailed Monitoring is not available in this version of Karpenter. Please upgrade to at least 0.23.0.",
    );
    assert(
        pool.disruption?.budgets === undefined || isAtLeast(version, "0.34.0"),
        "You cannot set disruption budgets for this version of Karpenter. Please upgrade to 0.34.0 or higher.",
    );
    if (isAtLeast(version, "0.32.0")) {
        checkBeta(props);
    } else {
        checkExclusive(pool);
        assert(
            pool.disruption === undefined,
            "Disruption configuration is only supported on versions v0.32.0 and later.",
        );
        assert(
            nodeClass === undefined || nodeClass.securityGroupSelector !== undefined,
            "Please provide SecurityGroupTerm for your AWSNodeTemplate.",
        );
        assert(
            nodeClass === undefined || nodeClass.subnetSelector !== undefined,
            "Please provide subnetGroupTerm for your AWSNodeTemplate.",
        );
    }
    return isAtLeast(version, minimum)
        ? []
        : [
              `Please use minimum Karpenter version for this Kubernetes Version: ${minimum}, ` +
                  "otherwise you will run into compatibility issues.",
          ];
}

function checkBeta({ nodePoolSpec: pool = {}, ec2NodeClassSpec: nodeClass }: NestedProps): void {
    assert(
        !pool.consolidation && !pool.ttlSecondsAfterEmpty && !pool.ttlSecondsUntilExpired,
        "Consolidation features are only available for previous versions of Karpenter.",
    );
    assert(
        pool.disruption?.consolidationPolicy !== "WhenUnderutilized" || pool.disruption.consolidateAfter === undefined,
        "You cannot set consolidateAfter value if the consolidation policy is set to Underutilized.",
    );
    if (nodeClass !== undefined) {
        assert(nodeClass.amiFamily !== undefined, "Please provide the AMI Family for your EC2NodeClass.");
        assert(
            nodeClass.securityGroupSelectorTerms !== undefined,
            "Please provide SecurityGroupTerm for your EC2NodeClass.",
        );
        assert(nodeClass.subnetSelectorTerms !== undefined, "Please provide subnetGroupTerm for your EC2NodeClass.");
    }
}

export function checkV1(props: NestedProps, version: string, kubernetes: string): void {
    // The message is about interruption handling, but the original add-on always checks.
    assert(
        isAtLeast(version, "0.32.0"),
        `Karpenter interruption handling requires version >= 0.32.0. Current version: ${version}`,
    );
    assert(
        isAtLeast(kubernetes, "1.29.0"),
        `Cluster version must be >= 1.29 for Karpenter interruption handling. Current version: ${kubernetes}`,
    );
    const nodeClass = props.ec2NodeClassSpec;
    if (nodeClass !== undefined) {
        // Ours, from here: the API server would refuse the class minutes later.
        assert(
            (nodeClass.amiSelectorTerms ?? []).length > 0 || nodeClass.amiFamily !== undefined,
            "Please provide amiSelectorTerms for your EC2NodeClass.",
        );
        assert(
            nodeClass.securityGroupSelectorTerms !== undefined,
            "Please provide SecurityGroupTerm for your EC2NodeClass.",
        );
        assert(nodeClass.subnetSelectorTerms !== undefined, "Please provide subnetGroupTerm for your EC2NodeClass.");
    }
}

/** False with a time is fine: it says in which of two ways nodes go. */
function checkExclusive(pool: Pick<FlatProps, "consolidation" | "ttlSecondsAfterEmpty">): void {
    assert(
        !(pool.consolidation?.enabled && pool.ttlSecondsAfterEmpty !== undefined),
        "Consolidation and ttlSecondsAfterEmpty must be mutually exclusive.",
    );
}
