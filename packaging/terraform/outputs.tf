output "controller_role_arn" {
  description = "role of the controller"
  value       = aws_iam_role.controller.arn
}

output "node_role_name" {
  description = "role of machines, for spec.role of an EC2NodeClass"
  value       = aws_iam_role.node.name
}

output "node_role_arn" {
  description = "ARN of that role"
  value       = aws_iam_role.node.arn
}

output "node_instance_profile" {
  description = "profile of machines, for spec.instanceProfile"
  value       = aws_iam_instance_profile.node.name
}

output "queue_name" {
  description = "queue of interruption messages; empty without"
  value       = var.interruption ? local.queue_name : ""
}

output "release_name" {
  description = "Helm release of the controller"
  value       = helm_release.karpenter.name
}

output "release_version" {
  description = "version of its chart"
  value       = helm_release.karpenter.version
}
