locals {
  queue_name = local.eks_cluster_name
  queue_arn  = "arn:${local.partition}:sqs:${local.region}:${local.account}:${local.queue_name}"

  events = {
    # Of the AWS Health events, only scheduled changes of EC2 instances.
    health = {
      source      = ["aws.health"]
      detail-type = ["AWS Health Event"]
      detail      = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
    }
    spot                 = { source = ["aws.ec2"], detail-type = ["EC2 Spot Instance Interruption Warning"] }
    rebalance            = { source = ["aws.ec2"], detail-type = ["EC2 Instance Rebalance Recommendation"] }
    state                = { source = ["aws.ec2"], detail-type = ["EC2 Instance State-change Notification"] }
    capacity-reservation = { source = ["aws.ec2"], detail-type = ["EC2 Capacity Reservation Instance Interruption Warning"] }
  }
  rule_names = { for key in keys(local.events) : key => "${local.eks_cluster_name}-karpenter-${key}" }
}

resource "aws_sqs_queue" "interruption" {
  count = var.interruption ? 1 : 0

  name                      = local.queue_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "interruption" {
  count = var.interruption ? 1 : 0

  queue_url = aws_sqs_queue.interruption[0].url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EC2InterruptionPolicy"
        Effect    = "Allow"
        Principal = { Service = ["events.amazonaws.com", "sqs.amazonaws.com"] }
        Action    = "sqs:SendMessage"
        Resource  = local.queue_arn
      },
      {
        Sid       = "DenyHTTP"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = local.queue_arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each = { for key, name in local.rule_names : key => name if var.interruption }

  # Of 64 characters at most; those that are longer end in something that tells them apart.
  name          = length(each.value) <= 64 ? each.value : "${substr(each.value, 0, 55)}-${substr(sha256(each.value), 0, 8)}"
  event_pattern = jsonencode(local.events[each.key])
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = aws_cloudwatch_event_rule.interruption

  rule      = each.value.name
  target_id = "KarpenterInterruptionQueue"
  arn       = aws_sqs_queue.interruption[0].arn
}
