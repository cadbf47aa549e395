output "bucket" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.lake.bucket
}

output "lake" {
  description = "Address of the lake, which the pods have as `ZYNC_LAKE`."
  value       = "s3://${aws_s3_bucket.lake.bucket}/${var.path}"
}

output "role_arn" {
  description = "ARN of the IAM role of the pods."
  value       = aws_iam_role.zync.arn
}

output "namespace" {
  description = "Namespace of the release, known before the pods are there: put the Secret into it that `existingSecret` names."
  value       = module.release.namespace
}

output "release" {
  description = "Name of the Helm release."
  value       = module.release.release
}
