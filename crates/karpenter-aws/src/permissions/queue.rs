//! The interruption queue, and the EventBridge rules that send events to it.

use serde_json::{Value, json};

use super::Target;

/// How long the queue keeps messages, in seconds. Older interruption messages are of no use.
pub(super) const RETENTION_SECS: u32 = 300;

/// An EventBridge rule that sends events to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub name: &'static str,
    pub source: &'static str,
    pub detail_type: &'static str,
    /// Whether the rule is for health events. Its pattern then also restricts service and category, because the parser
    /// ignores other health events.
    pub is_health: bool,
}

const fn of_ec2(name: &'static str, detail_type: &'static str) -> Rule {
    Rule { name, source: "aws.ec2", detail_type, is_health: false }
}

pub const RULES: [Rule; 5] = [
    Rule { name: "ScheduledChange", source: "aws.health", detail_type: "AWS Health Event", is_health: true },
    of_ec2("SpotInterruption", "EC2 Spot Instance Interruption Warning"),
    of_ec2("Rebalance", "EC2 Instance Rebalance Recommendation"),
    of_ec2("InstanceStateChange", "EC2 Instance State-change Notification"),
    of_ec2("CapacityReservationInterruption", "EC2 Capacity Reservation Instance Interruption Warning"),
];

impl Rule {
    pub fn pattern(&self) -> Value {
        let mut pattern = json!({"source": [self.source], "detail-type": [self.detail_type]});
        if self.is_health {
            pattern["detail"] = json!({"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]});
        }
        pattern
    }
}

/// The policy of the queue: EventBridge and SQS may send messages to it, and access without TLS is denied.
pub fn queue_policy(target: &Target) -> Value {
    let queue = target.queue_arn();
    json!({
        "Version": "2012-10-17",
        "Id": "EC2InterruptionPolicy",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
                "Action": "sqs:SendMessage",
                "Resource": queue,
            },
            {
                "Sid": "DenyHTTP",
                "Effect": "Deny",
                "Action": "sqs:*",
                "Resource": queue,
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                "Principal": "*",
            },
        ],
    })
}
