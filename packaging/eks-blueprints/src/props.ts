/**
 * The properties that programs in the wild pass, in three generations. Texts where one of a few words is meant are typed
 * as string: a program that builds its properties as a constant first would not compile otherwise.
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

/** What every generation takes. */
export interface CommonProps extends HelmAddOnUserProps {
    /** Makes a queue and rules for warnings about machines that are about to go. */
    interruptionHandling?: boolean;
    /** Installs the chart karpenter-crd first, so that definitions are upgraded. @default true for V1 and for the old API */
    installCRDs?: boolean;
    /** Where the chart karpenter-crd comes from. @default the package's own chart */
    crdRepository?: string;
    /** @default 5 minutes */
    helmChartTimeout?: Duration;
    /** EKS Pod Identity instead of IAM roles for service accounts. */
    podIdentity?: boolean;
    /** The version of the original whose rules apply to these properties. @default the one this build matches */
    compatVersion?: string;
    /** Refuses chart values that the add-on sets itself, instead of warning. */
    strictValues?: boolean;
    /** @default true for flat properties */
    requireVpcCni?: boolean;
    /** The API of the pool that is made. v1alpha5 needs the old definitions, which installCRDs brings. @default v1 */
    api?: "v1" | "v1alpha5";
}

/** Up to 1.13 of the original. */
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

/** From 1.14 of the original. Whether it is the V1 generation shows in the fields used. */
export interface NestedProps extends CommonProps {
    nodePoolSpec?: PoolSpec;
    ec2NodeClassSpec?: ClassSpec;
}

export type KarpenterV1AddOnProps = NestedProps;
export type KarpenterAddOnProps = FlatProps | NestedProps;
