/** The interruption queue and its EventBridge rules, as of `karpenter bootstrap aws`. */
import { Duration, type Stack, Token } from "aws-cdk-lib";
import * as events from "aws-cdk-lib/aws-events";
import * as iam from "aws-cdk-lib/aws-iam";
import * as sqs from "aws-cdk-lib/aws-sqs";

const NAME_LENGTH_MAX = 80;

const EC2_EVENTS = {
    "spot-interruption-rule": "EC2 Spot Instance Interruption Warning",
    "rebalance-rule": "EC2 Instance Rebalance Recommendation",
    "inst-state-change-rule": "EC2 Instance State-change Notification",
    "capacity-reservation-rule": "EC2 Capacity Reservation Instance Interruption Warning",
};

export function makeQueue(stack: Stack): sqs.Queue {
    const queue = new sqs.Queue(stack, "karpenter-queue", {
        ...(Token.isUnresolved(stack.stackName) ? {} : { queueName: stack.stackName.slice(0, NAME_LENGTH_MAX) }),
        // Older warnings are of no use to anybody.
        retentionPeriod: Duration.seconds(300),
        encryption: sqs.QueueEncryption.SQS_MANAGED,
        enforceSSL: true,
    });
    queue.addToResourcePolicy(
        new iam.PolicyStatement({
            sid: "EC2InterruptionPolicy",
            principals: [
                new iam.ServicePrincipal("sqs.amazonaws.com"),
                new iam.ServicePrincipal("events.amazonaws.com"),
            ],
            actions: ["sqs:SendMessage"],
            resources: [queue.queueArn],
        }),
    );
    // CDK's own target would add one more statement to the queue's policy for every rule.
    const target: events.IRuleTarget = { bind: () => ({ arn: queue.queueArn }) };
    new events.Rule(stack, "schedule-change-rule", {
        eventPattern: {
            source: ["aws.health"],
            detailType: ["AWS Health Event"],
            detail: { service: ["EC2"], eventTypeCategory: ["scheduledChange"] },
        },
        targets: [target],
    });
    for (const [id, detailType] of Object.entries(EC2_EVENTS)) {
        new events.Rule(stack, id, {
            eventPattern: { source: ["aws.ec2"], detailType: [detailType] },
            targets: [target],
        });
    }
    return queue;
}
