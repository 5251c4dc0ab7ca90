/** The service account of the controller, and the controller role with the policies of policies.ts. */
import { type ClusterInfo, utils } from "@aws-quickstart/eks-blueprints";
import { CfnJson, Token } from "aws-cdk-lib";
import * as iam from "aws-cdk-lib/aws-iam";
import { Construct, type IConstruct } from "constructs";
import { type Conditions, policies, type Statement, type Target } from "./policies";

/** The name of the service account in the original add-on. */
export const SERVICE_ACCOUNT = "blueprints-addon-karpenter";

export interface Identity {
    /** The resources that the Helm release depends on. */
    readonly construct: IConstruct;
    /** For the chart's service account. Undefined with Pod Identity, which finds the role by the account's name. */
    readonly roleArn: string | undefined;
}

export function makeIdentity(
    { cluster }: ClusterInfo,
    namespace: string,
    podIdentity: boolean,
    target: Target,
): Identity {
    const conditions = new LateConditions(cluster, "karpenter-conditions");
    const managed = Object.entries(policies(target)).map(
        ([name, statements]) =>
            new iam.ManagedPolicy(cluster, `${SERVICE_ACCOUNT}-${name}-policy`, {
                document: new iam.PolicyDocument({
                    statements: statements.map((statement) => conditions.statement(statement)),
                }),
            }),
    );
    if (podIdentity) {
        const construct = utils.podIdentityAssociationWithPolicies(cluster, SERVICE_ACCOUNT, namespace, ...managed);
        return { construct, roleArn: undefined };
    }
    const account = cluster.addServiceAccount(`${SERVICE_ACCOUNT}-sa`, { name: SERVICE_ACCOUNT, namespace });
    for (const policy of managed) {
        account.role.addManagedPolicy(policy);
    }
    return { construct: account, roleArn: account.role.roleArn };
}

/**
 * Names of tags contain the cluster's name, which is only known when the cluster has been made, and CloudFormation fills
 * in values, not keys. So such conditions are put together during the deployment, each once.
 */
class LateConditions extends Construct {
    private readonly made = new Map<string, CfnJson>();

    statement({ Sid: sid, Action: actions, Resource: resources, Condition }: Statement): iam.PolicyStatement {
        const statement = new iam.PolicyStatement({ sid, actions, resources });
        for (const [operator, wanted] of Object.entries(Condition ?? {})) {
            const isLate = Object.keys(wanted).some((key) => Token.isUnresolved(key));
            statement.addCondition(operator, isLate ? this.late(wanted) : wanted);
        }
        return statement;
    }

    private late(wanted: Conditions[string]): CfnJson {
        const text = JSON.stringify(wanted);
        const json = this.made.get(text) ?? new CfnJson(this, `${this.made.size}`, { value: wanted });
        this.made.set(text, json);
        return json;
    }
}
