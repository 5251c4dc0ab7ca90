# The resources in the account: roles, policies, the queue with its rules, tags.

mock_provider "aws" {
  mock_data "aws_partition" {
    defaults = { partition = "aws", dns_suffix = "amazonaws.com" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_data "aws_region" {
    defaults = { id = "ap-northeast-2" }
  }
  mock_data "aws_eks_cluster" {
    defaults = {
      endpoint              = "https://aws.example"
      certificate_authority = [{ data = "YXdz" }]
      identity              = [{ oidc = [{ issuer = "https://oidc.aws.example/id/AWS" }] }]
    }
  }
  mock_data "aws_eks_cluster_auth" {
    defaults = { token = "token-of-aws" }
  }
}

mock_provider "helm" {}

variables {
  eks_cluster_name = "demo"
}

run "roles" {
  command = plan
  assert {
    condition     = [aws_iam_role.node.name, aws_iam_instance_profile.node.name, aws_iam_role.controller.name] == ["KarpenterNodeRole-demo", "KarpenterNodeInstanceProfile-demo", "demo-karpenter"]
    error_message = "Names are made of the cluster's."
  }
  assert {
    condition     = jsondecode(aws_iam_role.node.assume_role_policy).Statement[0].Principal.Service == "ec2.amazonaws.com"
    error_message = "Instances use the node role."
  }
  assert {
    condition = toset([for each in aws_iam_role_policy_attachment.node : each.policy_arn]) == toset([
      for name in ["AmazonEKS_CNI_Policy", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore"] :
      "arn:aws:iam::aws:policy/${name}"
    ])
    error_message = "Nodes can join, pull images and be reached."
  }
  assert {
    condition = jsondecode(aws_iam_role.controller.assume_role_policy).Statement == [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = "arn:aws:iam::111122223333:oidc-provider/oidc.aws.example/id/AWS" }
      Condition = { StringEquals = {
        "oidc.aws.example/id/AWS:sub" = "system:serviceaccount:karpenter:karpenter"
        "oidc.aws.example/id/AWS:aud" = "sts.amazonaws.com"
      } }
    }]
    error_message = "Only the service account of the controller may assume the controller role."
  }
  assert {
    condition     = length(aws_eks_pod_identity_association.controller) == 0
    error_message = "There is one way to the role."
  }
  assert {
    condition     = length(aws_iam_service_linked_role.spot) == 0
    error_message = "The role for spot is there in most accounts."
  }
}

run "pod_identity" {
  command = plan
  variables {
    pod_identity         = true
    namespace            = "ops"
    service_account_name = "scaler"
  }
  assert {
    condition     = jsondecode(aws_iam_role.controller.assume_role_policy).Statement[0].Principal.Service == "pods.eks.amazonaws.com"
    error_message = "Pods take the role through EKS."
  }
  assert {
    condition     = [for each in aws_eks_pod_identity_association.controller : [each.cluster_name, each.namespace, each.service_account]] == [["demo", "ops", "scaler"]]
    error_message = "Only the controller's service account does."
  }
}

run "permissions" {
  command = plan
  assert {
    condition     = length(aws_iam_policy.controller) == 6 && length(aws_iam_role_policy_attachment.controller) == 6
    error_message = "Every policy is attached."
  }
  assert {
    condition     = aws_iam_policy.controller["KarpenterControllerNodeLifecyclePolicy"].name == "KarpenterControllerNodeLifecyclePolicy-demo"
    error_message = "Policies are named by the cluster."
  }
  assert {
    condition     = alltrue([for each in aws_iam_policy.controller : !strcontains(each.policy, "$${")])
    error_message = "Everything is filled in."
  }
  assert {
    condition = [
      for each in jsondecode(aws_iam_policy.controller["KarpenterControllerIAMIntegrationPolicy"].policy).Statement : each.Resource if each.Action == ["iam:PassRole"]
    ] == [["arn:aws:iam::111122223333:role/${aws_iam_role.node.name}"]]
    error_message = "The controller gives machines the role that was made for them."
  }
  assert {
    condition     = jsondecode(aws_iam_policy.controller["KarpenterControllerInterruptionPolicy"].policy).Statement[0].Resource == ["arn:aws:sqs:ap-northeast-2:111122223333:${aws_sqs_queue.interruption[0].name}"]
    error_message = "The controller reads the queue that was made for it."
  }
}

run "names_as_long_as_they_may_be" {
  command = plan
  variables {
    eks_cluster_name = "a-name-of-forty-six-characters-is-just-allowed"
  }
  assert {
    condition     = length(aws_iam_role.node.name) == 64 && max([for each in aws_cloudwatch_event_rule.interruption : length(each.name)]...) == 64
    error_message = "AWS takes 64 characters."
  }
  assert {
    condition     = length(distinct([for each in aws_cloudwatch_event_rule.interruption : each.name])) == 5
    error_message = "Rules that are shortened stay apart."
  }
  assert {
    condition     = max([for each in aws_iam_policy.controller : length(each.policy)]...) <= 6144
    error_message = "IAM takes 6,144 characters."
  }
}

run "queue_and_rules" {
  command = plan
  assert {
    condition     = [aws_sqs_queue.interruption[0].name, aws_sqs_queue.interruption[0].message_retention_seconds, aws_sqs_queue.interruption[0].sqs_managed_sse_enabled] == ["demo", 300, true]
    error_message = "The queue has the cluster's name, forgets soon and is encrypted."
  }
  assert {
    condition     = [for each in jsondecode(aws_sqs_queue_policy.interruption[0].policy).Statement : [each.Effect, each.Action]] == [["Allow", "sqs:SendMessage"], ["Deny", "sqs:*"]]
    error_message = "Events come in, and nothing in the clear."
  }
  assert {
    condition = { for key, each in aws_cloudwatch_event_rule.interruption : key => jsondecode(each.event_pattern) } == {
      health = {
        source = ["aws.health"], detail-type = ["AWS Health Event"], detail = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
      }
      spot                 = { source = ["aws.ec2"], detail-type = ["EC2 Spot Instance Interruption Warning"] }
      rebalance            = { source = ["aws.ec2"], detail-type = ["EC2 Instance Rebalance Recommendation"] }
      state                = { source = ["aws.ec2"], detail-type = ["EC2 Instance State-change Notification"] }
      capacity-reservation = { source = ["aws.ec2"], detail-type = ["EC2 Capacity Reservation Instance Interruption Warning"] }
    }
    error_message = "Five kinds of events are let through."
  }
  assert {
    condition     = toset([for each in aws_cloudwatch_event_target.interruption : each.rule]) == toset([for each in aws_cloudwatch_event_rule.interruption : each.name])
    error_message = "Every rule leads to the queue."
  }
}

run "without_interruption" {
  command = plan
  variables {
    interruption = false
  }
  assert {
    condition     = length(aws_sqs_queue.interruption) + length(aws_sqs_queue_policy.interruption) + length(aws_cloudwatch_event_rule.interruption) + length(aws_cloudwatch_event_target.interruption) == 0
    error_message = "There is no queue."
  }
  assert {
    condition     = length(aws_iam_policy.controller) == 5 && !contains(keys(aws_iam_policy.controller), "KarpenterControllerInterruptionPolicy")
    error_message = "There are no permissions for missing resources."
  }
  assert {
    condition     = output.queue_name == "" && local.own_values.settings.interruptionQueue == ""
    error_message = "The controller looks for none."
  }
}

run "nodes_by_access_entry" {
  command = plan
  assert {
    condition     = [for each in aws_eks_access_entry.node : [each.cluster_name, each.type]] == [["demo", "EC2_LINUX"]] && length(terraform_data.aws_auth) == 0
    error_message = "An access entry lets nodes in."
  }
}

run "nodes_by_aws_auth" {
  command = plan
  variables {
    node_auth = "aws_auth"
  }
  assert {
    condition     = length(aws_eks_access_entry.node) == 0 && length(terraform_data.aws_auth) == 1
    error_message = "The ConfigMap lets nodes in."
  }
}

run "nodes_let_in_by_somebody_else" {
  command = plan
  variables {
    node_auth = "none"
  }
  assert {
    condition     = length(aws_eks_access_entry.node) + length(terraform_data.aws_auth) == 0
    error_message = "Nothing is done."
  }
}

run "node_auth_that_is_not_known" {
  command         = plan
  expect_failures = [var.node_auth]
  variables {
    node_auth = "iam"
  }
}

run "role_for_spot" {
  command = plan
  variables {
    create_spot_slr = true
  }
  assert {
    condition     = aws_iam_service_linked_role.spot[0].aws_service_name == "spot.amazonaws.com"
    error_message = "The role for spot is made."
  }
}

run "tags" {
  command = plan
  variables {
    project = "shop"
    env     = "dev"
  }
  assert {
    condition     = local.tags == { project = "shop", env = "dev" }
    error_message = "Both are tags."
  }
}

run "a_tag_that_is_not_given" {
  command = plan
  variables {
    project = "shop"
  }
  assert {
    condition     = keys(local.tags) == ["project"]
    error_message = "Empty tags are left out."
  }
}
