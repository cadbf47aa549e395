output "bucket" {
  description = "Name of the bucket."
  value       = google_storage_bucket.lake.name
}

output "lake" {
  description = "Address of the lake, which the pods have as `ZYNC_LAKE`."
  value       = "gs://${google_storage_bucket.lake.name}/${var.path}"
}

output "service_account" {
  description = "E-mail of Google's service account of the pods."
  value       = google_service_account.zync.email
}

output "namespace" {
  description = "Namespace of the release, known before the pods are there: put the Secret into it that `existingSecret` names."
  value       = module.release.namespace
}

output "release" {
  description = "Name of the Helm release."
  value       = module.release.release
}
