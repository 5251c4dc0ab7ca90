/** The add-on: checks, then roles, queue, releases and pool, each of which has a file of its own. */
import { type ClusterInfo, HelmAddOn, utils } from "@aws-quickstart/eks-blueprints";
import { Duration } from "aws-cdk-lib";
import type { Construct, IConstruct } from "constructs";
import { addRelease } from "./charts";
import { checkFlat, checkNested, checkV1 } from "./checks";
import { checkNoTerminationHandler, checkNotImported, requiredVpcCni } from "./conflicts";
import { makeIdentity } from "./identity";
import { isIpv6, makeNodeRole, type Nodes } from "./node-role";
import { addPool, poolOf } from "./pool";
import type { CommonProps, FlatProps, KarpenterAddOnProps, KarpenterV1AddOnProps, NestedProps } from "./props";
import { makeQueue } from "./queue";
import { type Shape, shapeOf } from "./shape";
import { chartValues, type Facts, reserved } from "./values";
import { COMPAT_VERSION, isAtLeast } from "./versions";
import { warn } from "./warnings";

const KARPENTER = "karpenter";
/** Of the charts in this package; a repository may have others. */
const CHART_VERSION = "0.1.0";

/**
 * Karpenter for a cluster of EKS Blueprints. Takes the properties of every generation of the original add-on; which one
 * it is shows in the properties themselves.
 */
@utils.supportsALL
export class KarpenterAddOn extends HelmAddOn {
    /** Other add-ons know Karpenter by this, whatever its class is called. */
    readonly id = "KarpenterAddOn";
    protected readonly given: KarpenterAddOnProps;
    protected readonly shape: Shape;

    constructor(props: KarpenterAddOnProps = {}, shape: Shape = shapeOf(props)) {
        super({
            name: KARPENTER,
            namespace: shape === "flat" ? KARPENTER : "kube-system",
            chart: KARPENTER,
            version: CHART_VERSION,
            release: KARPENTER,
            // There is nowhere to look for newer versions of a chart in this package.
            skipVersionValidation: props.repository === undefined,
            ...props,
        });
        this.given = props;
        this.shape = shape;
    }

    @utils.conflictsWith("ClusterAutoScalerAddOn")
    @utils.conflictsWithAutoMode(utils.AutoModeConflictType.ALREADY_INSTALLED)
    override deploy(clusterInfo: ClusterInfo): Promise<Construct> {
        const { cluster } = clusterInfo;
        const given: CommonProps = this.given;
        const version = given.compatVersion ?? COMPAT_VERSION;
        const vpcCni = (given.requireVpcCni ?? this.shape === "flat") ? requiredVpcCni(clusterInfo) : undefined;
        checkNotImported(clusterInfo);
        this.check(clusterInfo, version);
        this.checkValues(cluster);

        const nodes = makeNodeRole(clusterInfo);
        const queue = given.interruptionHandling ? makeQueue(cluster.stack) : undefined;
        const namespace = this.props.namespace ?? KARPENTER;
        const namespaceConstruct = makeNamespace(clusterInfo, namespace);
        const identity = makeIdentity(clusterInfo, namespace, given.podIdentity ?? false, {
            cluster: cluster.clusterName,
            clusterArn: cluster.clusterArn,
            partition: cluster.stack.partition,
            region: cluster.stack.region,
            account: cluster.stack.account,
            nodeRoleArn: nodes.role.roleArn,
            queueArn: queue?.queueArn,
        });
        identity.construct.node.addDependency(namespaceConstruct);

        const release = this.addReleases(clusterInfo, namespace, version, {
            clusterName: cluster.clusterName,
            clusterEndpoint: cluster.clusterEndpoint,
            queueName: queue?.queueName,
            profileName: nodes.profileName,
            roleArn: identity.roleArn,
            legacyApi: given.api === "v1alpha5",
        });
        // On deletion of the stack the controller is deleted before these, because it needs them to terminate instances.
        release.node.addDependency(identity.construct, nodes.role, ...(clusterInfo.nodeGroups ?? []));
        if (queue !== undefined) {
            release.node.addDependency(queue);
        }
        this.addPool(clusterInfo, version, nodes, release);
        if (vpcCni === undefined) {
            return Promise.resolve(release);
        }
        return vpcCni.then((network) => {
            release.node.addDependency(network);
            return release;
        });
    }

    private check(clusterInfo: ClusterInfo, version: string): void {
        const kubernetes = clusterInfo.version.version;
        if (this.shape === "flat") {
            checkFlat(this.given as FlatProps, version);
        } else if (this.shape === "nested") {
            for (const [index, text] of checkNested(this.given as NestedProps, version, kubernetes).entries()) {
                warn(clusterInfo.cluster, `compatibility-${index}`, text);
            }
        } else {
            checkV1(this.given as NestedProps, version, kubernetes);
        }
        if (this.shape !== "flat" || isAtLeast(version, "0.19.0")) {
            checkNoTerminationHandler(clusterInfo);
        }
    }

    private checkValues(scope: IConstruct): void {
        const given: CommonProps = this.given;
        const values = given.values ?? {};
        const found = reserved(values, given.interruptionHandling ?? false);
        if (given.strictValues && found.length > 0) {
            throw new Error(found.join("\n"));
        }
        for (const text of found) {
            warn(scope, text.split(" ")[0] ?? "values", text);
        }
        if (given.repository === undefined && given.version !== undefined) {
            warn(
                scope,
                "version",
                `version ${given.version} is not used: without a repository, the chart of this package is installed. ` +
                    "compatVersion is the version of the original add-on for which the properties were written.",
            );
        }
        if (given.repository === undefined && values.controller?.image?.repository === undefined) {
            warn(
                scope,
                "image",
                "values.controller.image.repository is not set, and no image of the controller is published: " +
                    "build one, push it to a registry of your own and name it here.",
            );
        }
    }

    private addReleases(clusterInfo: ClusterInfo, namespace: string, version: string, facts: Facts): Construct {
        const given: CommonProps = this.given;
        const timeout = given.helmChartTimeout ?? Duration.minutes(5);
        const values = chartValues(given.values ?? {}, facts, version);
        const release =
            this.props.repository === undefined
                ? addRelease(clusterInfo, {
                      id: this.props.name,
                      chart: this.props.chart,
                      release: this.props.release,
                      namespace,
                      values,
                      timeout,
                  })
                : // The library's own way, which GitOps add-ons take over.
                  this.addHelmChart(clusterInfo, values, false, true, timeout);
        if (given.installCRDs ?? (this.shape === "v1" || facts.legacyApi)) {
            const definitions = addRelease(clusterInfo, {
                id: "karpenter-crd",
                chart: "karpenter-crd",
                release: "karpenter-crd",
                namespace,
                repository: given.crdRepository,
                version: given.version,
                values: { legacy: facts.legacyApi },
                timeout,
            });
            release.node.addDependency(definitions);
        }
        return release;
    }

    private addPool(clusterInfo: ClusterInfo, version: string, nodes: Nodes, release: Construct): void {
        const made = poolOf(this.given, this.shape, version, {
            defaultInstanceProfile: nodes.profileName,
            nodeRoleName: nodes.role.roleName,
            ipv6: isIpv6(clusterInfo),
            kubernetes: clusterInfo.version.version,
        });
        if (made !== undefined) {
            addPool(clusterInfo, made, release);
        }
    }
}

/** The same for the properties of v1 alone. */
@utils.supportsALL
export class KarpenterV1AddOn extends KarpenterAddOn {
    constructor(props: KarpenterV1AddOnProps = {}) {
        super(props, "v1");
    }
}

function makeNamespace(clusterInfo: ClusterInfo, name: string): IConstruct {
    const { cluster, clusterv2 } = clusterInfo;
    if (clusterv2 === undefined || name === "kube-system") {
        return utils.createNamespace(name, cluster, true, true);
    }
    return clusterv2.addManifest(`${name}-namespace-struct`, {
        apiVersion: "v1",
        kind: "Namespace",
        metadata: { name },
    });
}
