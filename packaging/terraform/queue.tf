locals {
  # SQS takes 80 characters of a small alphabet.
  queue_name = substr(replace(local.eks_cluster_name, "/[^A-Za-z0-9_-]/", "-"), 0, 80)
  queue_arn  = "arn:${local.partition}:sqs:${data.aws_region.this.name}:${local.account}:${local.queue_name}"

  events = {
    health               = { source = "aws.health", type = "AWS Health Event" }
    spot                 = { source = "aws.ec2", type = "EC2 Spot Instance Interruption Warning" }
    rebalance            = { source = "aws.ec2", type = "EC2 Instance Rebalance Recommendation" }
    state                = { source = "aws.ec2", type = "EC2 Instance State-change Notification" }
    capacity-reservation = { source = "aws.ec2", type = "EC2 Capacity Reservation Instance Interruption Warning" }
  }
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
  for_each = { for key, event in local.events : key => event if var.interruption }

  name          = substr("${local.eks_cluster_name}-karpenter-${each.key}", 0, 64)
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.type] })
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = aws_cloudwatch_event_rule.interruption

  rule      = each.value.name
  target_id = "KarpenterInterruptionQueue"
  arn       = aws_sqs_queue.interruption[0].arn
}
