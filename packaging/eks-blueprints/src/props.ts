/**
 * The properties of the add-on, in three generations. Enumerations are typed as string, because a program that declares its
 * properties as a constant first would not compile otherwise.
 */
import type { HelmAddOnUserProps, Values } from "@aws-quickstart/eks-blueprints";
import type { Duration } from "aws-cdk-lib";

export interface Taint {
    readonly key: string;
    readonly value?: string;
    readonly effect: string;
}

export interface Requirement {
    readonly key: string;
    readonly operator: string;
    readonly values?: string[];
}

/** Properties of all generations. */
export interface CommonProps extends HelmAddOnUserProps {
    /** Creates the interruption queue and its EventBridge rules. */
    interruptionHandling?: boolean;
    /** Installs the chart karpenter-crd first, so that CRDs are upgraded. @default true for v1 and for the v1alpha5 API */
    installCRDs?: boolean;
    /** Repository of the chart karpenter-crd. @default the package's own chart */
    crdRepository?: string;
    /** @default 5 minutes */
    helmChartTimeout?: Duration;
    /** EKS Pod Identity instead of IAM roles for service accounts. */
    podIdentity?: boolean;
    /** The version of the original add-on whose rules apply to these properties. @default the version that this build matches */
    compatVersion?: string;
    /** Rejects chart values that the add-on sets itself, instead of printing a warning. */
    strictValues?: boolean;
    /** @default true for flat properties */
    requireVpcCni?: boolean;
    /** The API version of the created pool. v1alpha5 needs its CRDs, which installCRDs installs. @default v1 */
    api?: "v1" | "v1alpha5";
}

/** Up to version 1.13 of the original add-on. */
export interface FlatProps extends CommonProps {
    requirements?: { readonly key: string; readonly op: string; readonly vals?: string[] }[];
    /** Before `requirements`: every entry is an In. */
    provisionerSpecs?: Record<string, string[]>;
    taints?: Taint[];
    startupTaints?: Taint[];
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    limits?: { readonly resources?: Values };
    subnetTags?: Record<string, string>;
    securityGroupTags?: Record<string, string>;
    amiFamily?: string;
    amiSelector?: Record<string, string>;
    tags?: Record<string, string>;
    blockDeviceMappings?: Values[];
    consolidation?: { readonly enabled: boolean };
    ttlSecondsUntilExpired?: number;
    ttlSecondsAfterEmpty?: number;
    weight?: number;
}

export interface PoolSpec {
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    taints?: Taint[];
    startupTaints?: Taint[];
    requirements?: Requirement[];
    limits?: Values;
    weight?: number;
    disruption?: Disruption;
    /** Before 0.32. */
    consolidation?: { readonly enabled: boolean };
    ttlSecondsUntilExpired?: number;
    ttlSecondsAfterEmpty?: number;
    /** V1 only; 0.32 to 0.37 have it in `disruption`. */
    expireAfter?: string;
    replicas?: number;
}

export interface Disruption {
    readonly consolidationPolicy?: string;
    readonly consolidateAfter?: string;
    readonly expireAfter?: string;
    readonly budgets?: Values[];
}

export interface ClassSpec {
    /** Before 0.32, as are the other two selectors. */
    subnetSelector?: Record<string, string>;
    securityGroupSelector?: Record<string, string>;
    amiSelector?: Record<string, string>;
    subnetSelectorTerms?: Values[];
    securityGroupSelectorTerms?: Values[];
    amiSelectorTerms?: Values[];
    amiFamily?: string;
    instanceStorePolicy?: string;
    userData?: string;
    instanceProfile?: string;
    tags?: Record<string, string>;
    metadataOptions?: Values;
    blockDeviceMappings?: Values[];
    detailedMonitoring?: boolean;
}

/** From version 1.14 of the original add-on. The fields that are set determine whether they are V1 properties. */
export interface NestedProps extends CommonProps {
    nodePoolSpec?: PoolSpec;
    ec2NodeClassSpec?: ClassSpec;
}

export type KarpenterV1AddOnProps = NestedProps;
export type KarpenterAddOnProps = FlatProps | NestedProps;
