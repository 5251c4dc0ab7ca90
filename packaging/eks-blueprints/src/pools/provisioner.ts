/** Provisioners from the flat properties and from those before 0.32. Unset fields are absent, never null. */
import type { ClassSpec, FlatProps, PoolSpec, Requirement } from "../props";
import { devices, type Fields, type Manifest, present } from "./objects";

export interface Legacy {
    readonly provisioner: Manifest;
    readonly template?: Manifest;
}

/** Undefined unless both tag sets are given: without them there would be nothing to launch in. */
export function flatProvisioner(props: FlatProps): Legacy | undefined {
    const { subnetTags = {}, securityGroupTags = {} } = props;
    if (Object.keys(subnetTags).length === 0 || Object.keys(securityGroupTags).length === 0) {
        return undefined;
    }
    const provider = present({
        amiFamily: props.amiFamily,
        subnetSelector: subnetTags,
        securityGroupSelector: securityGroupTags,
        amiSelector: props.amiSelector,
        tags: props.tags,
        blockDeviceMappings: devices(props.blockDeviceMappings),
    });
    const spec = provisionerSpec(
        {
            ...props,
            requirements: flatRequirements(props),
            consolidation: props.consolidation ?? { enabled: false },
        },
        props.limits,
    );
    // Images can be selected by a template only.
    return provider.amiSelector === undefined
        ? { provisioner: provisioner("default", { ...spec, provider }) }
        : {
              provisioner: provisioner("default", { ...spec, providerRef: { name: "default" } }),
              template: awsNodeTemplate("default", provider),
          };
}

export function nestedProvisioner(pool: PoolSpec, nodeClass: ClassSpec | undefined): Legacy {
    const spec = provisionerSpec(pool, pool.limits === undefined ? undefined : { resources: pool.limits });
    const reference = { providerRef: { name: "default-nodetemplate" } };
    const made = provisioner("default-provisioner", { ...spec, ...reference });
    if (nodeClass === undefined) {
        return { provisioner: made };
    }
    const template = present({
        subnetSelector: nodeClass.subnetSelector,
        securityGroupSelector: nodeClass.securityGroupSelector,
        instanceProfile: nodeClass.instanceProfile,
        amiFamily: nodeClass.amiFamily ?? "AL2",
        amiSelector: nodeClass.amiSelector,
        tags: nodeClass.tags,
        metadataOptions: nodeClass.metadataOptions,
        blockDeviceMappings: devices(nodeClass.blockDeviceMappings),
        userData: nodeClass.userData,
        detailedMonitoring: nodeClass.detailedMonitoring,
    });
    return { provisioner: made, template: awsNodeTemplate("default-nodetemplate", template) };
}

function flatRequirements(props: FlatProps): Requirement[] {
    const earlier = Object.entries(props.provisionerSpecs ?? {}).map(([key, values]) => ({
        key,
        operator: "In",
        values,
    }));
    const given = (props.requirements ?? []).map(({ key, op, vals }) => ({
        key,
        operator: op,
        ...(vals === undefined ? {} : { values: vals }),
    }));
    return [...earlier, ...given];
}

type Shared = Omit<PoolSpec, "limits" | "disruption">;

function provisionerSpec(pool: Shared, limits: Fields | undefined): Fields {
    return {
        ...present({
            labels: pool.labels,
            annotations: pool.annotations,
            taints: pool.taints,
            startupTaints: pool.startupTaints,
            requirements: pool.requirements,
            limits,
            consolidation: pool.consolidation,
            ttlSecondsUntilExpired: pool.ttlSecondsUntilExpired,
            ttlSecondsAfterEmpty: pool.ttlSecondsAfterEmpty,
            weight: pool.weight,
        }),
    };
}

function provisioner(name: string, spec: Fields): Manifest {
    return { apiVersion: "karpenter.sh/v1alpha5", kind: "Provisioner", metadata: { name }, spec };
}

function awsNodeTemplate(name: string, spec: Fields): Manifest {
    return { apiVersion: "karpenter.k8s.aws/v1alpha1", kind: "AWSNodeTemplate", metadata: { name }, spec };
}
