/**
 * The policies of the controller: the statements that `karpenter bootstrap aws` prints, one policy per concern, because a
 * single one would pass IAM's limit of 6,144 characters with a long cluster name. Data only; see identity.ts.
 */

/** Cluster, account and region. Each may be a token. */
export interface Target {
    readonly cluster: string;
    readonly clusterArn: string;
    readonly partition: string;
    readonly region: string;
    readonly account: string;
    readonly nodeRoleArn: string;
    /** Undefined without interruption handling. */
    readonly queueArn: string | undefined;
}

export type Conditions = Record<string, Record<string, string | string[]>>;

export interface Statement {
    readonly Sid: string;
    readonly Action: string[];
    readonly Resource: string[];
    readonly Condition?: Conditions;
}

const POOL = "karpenter.sh/nodepool";
const CLASS = "karpenter.k8s.aws/ec2nodeclass";
const CLUSTER = "eks:eks-cluster-name";
const REGION = "topology.kubernetes.io/region";

/** Statements by the name of their policy. */
export function policies(target: Target): Record<string, Statement[]> {
    return {
        "node-lifecycle": nodeLifecycle(target),
        "iam-integration": iamIntegration(target),
        "eks-integration": [on("AllowAPIServerEndpointDiscovery", ["eks:DescribeCluster"], [target.clusterArn])],
        "resource-discovery": resourceDiscovery(target),
        "zonal-shift": [
            // The action supports no resource of EKS; the condition limits it to this cluster.
            on("AllowZonalShiftStatusReadOnly", ["arc-zonal-shift:GetManagedResource"], ["*"], {
                StringEquals: { "arc-zonal-shift:ResourceIdentifier": target.clusterArn },
            }),
        ],
        ...(target.queueArn === undefined ? {} : { interruption: interruption(target.queueArn) }),
    };
}

function on(Sid: string, Action: string[], Resource: string[], Condition?: Conditions): Statement {
    return { Sid, Action, Resource, ...(Condition === undefined ? {} : { Condition }) };
}

function nodeLifecycle({ cluster, partition, region }: Target): Statement[] {
    const launches = ["ec2:RunInstances", "ec2:CreateFleet"];
    const ec2 = (account: string, kinds: string[]) =>
        kinds.map((kind) => `arn:${partition}:ec2:${region}:${account}:${kind}/*`);
    const made = ec2("*", [
        "fleet",
        "instance",
        "volume",
        "network-interface",
        "launch-template",
        "spot-instances-request",
    ]);
    const asked = {
        [`aws:RequestTag/kubernetes.io/cluster/${cluster}`]: "owned",
        [`aws:RequestTag/${CLUSTER}`]: cluster,
    };
    const askedPool = { [`aws:RequestTag/${POOL}`]: "*" };
    const own = {
        StringEquals: { [`aws:ResourceTag/kubernetes.io/cluster/${cluster}`]: "owned" },
        StringLike: { [`aws:ResourceTag/${POOL}`]: "*" },
    };
    return [
        on("AllowScopedEC2InstanceAccessActions", launches, [
            // Images and snapshots belong to no account.
            ...ec2("", ["image", "snapshot"]),
            ...ec2("*", ["security-group", "subnet", "capacity-reservation", "placement-group"]),
        ]),
        on("AllowScopedEC2LaunchTemplateAccessActions", launches, ec2("*", ["launch-template"]), own),
        on("AllowScopedEC2InstanceActionsWithTags", [...launches, "ec2:CreateLaunchTemplate"], made, {
            StringEquals: asked,
            StringLike: askedPool,
        }),
        on("AllowScopedResourceCreationTagging", ["ec2:CreateTags"], made, {
            StringEquals: { ...asked, "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"] },
            StringLike: askedPool,
        }),
        on("AllowScopedResourceTagging", ["ec2:CreateTags"], ec2("*", ["instance"]), {
            ...own,
            StringEqualsIfExists: { [`aws:RequestTag/${CLUSTER}`]: cluster },
            "ForAllValues:StringEquals": { "aws:TagKeys": [CLUSTER, "karpenter.sh/nodeclaim", "Name"] },
        }),
        on(
            "AllowScopedDeletion",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            ec2("*", ["instance", "launch-template"]),
            own,
        ),
    ];
}

function iamIntegration({ cluster, partition, region, account, nodeRoleArn }: Target): Statement[] {
    const profiles = [`arn:${partition}:iam::${account}:instance-profile/*`];
    const tagged = (side: string) => ({
        [`aws:${side}/kubernetes.io/cluster/${cluster}`]: "owned",
        [`aws:${side}/${REGION}`]: region,
    });
    const asked = {
        StringEquals: { ...tagged("RequestTag"), [`aws:RequestTag/${CLUSTER}`]: cluster },
        StringLike: { [`aws:RequestTag/${CLASS}`]: "*" },
    };
    const own = { StringEquals: tagged("ResourceTag"), StringLike: { [`aws:ResourceTag/${CLASS}`]: "*" } };
    return [
        on("AllowPassingInstanceRole", ["iam:PassRole"], [nodeRoleArn], {
            StringEquals: { "iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] },
        }),
        on("AllowScopedInstanceProfileCreationActions", ["iam:CreateInstanceProfile"], profiles, asked),
        // Otherwise the controller could take over a foreign instance profile by tagging it.
        on("AllowScopedInstanceProfileTagActions", ["iam:TagInstanceProfile"], profiles, {
            StringEquals: { ...asked.StringEquals, ...own.StringEquals },
            StringLike: { ...asked.StringLike, ...own.StringLike },
        }),
        on(
            "AllowScopedInstanceProfileActions",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            profiles,
            own,
        ),
    ];
}

function resourceDiscovery({ partition, region, account }: Target): Statement[] {
    const described = [
        "CapacityReservations",
        "Images",
        "Instances",
        "InstanceStatus",
        "InstanceTypeOfferings",
        "InstanceTypes",
        "LaunchTemplates",
        "PlacementGroups",
        "SecurityGroups",
        "SpotPriceHistory",
        "Subnets",
    ];
    return [
        on(
            "AllowRegionalReadActions",
            described.map((what) => `ec2:Describe${what}`),
            ["*"],
            {
                StringEquals: { "aws:RequestedRegion": region },
            },
        ),
        on("AllowSSMReadActions", ["ssm:GetParameter"], [`arn:${partition}:ssm:${region}::parameter/aws/service/*`]),
        on("AllowPricingReadActions", ["pricing:GetProducts"], ["*"]),
        on("AllowUnscopedInstanceProfileListAction", ["iam:ListInstanceProfiles"], ["*"]),
        on(
            "AllowInstanceProfileReadActions",
            ["iam:GetInstanceProfile"],
            [`arn:${partition}:iam::${account}:instance-profile/*`],
        ),
    ];
}

function interruption(queueArn: string): Statement[] {
    return [
        on("AllowInterruptionQueueActions", ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"], [queueArn]),
    ];
}
