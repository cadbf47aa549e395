output "namespace" {
  description = "Namespace of the release, known as soon as it is there: before the pods are."
  value       = var.create_namespace ? kubernetes_namespace_v1.zync[0].metadata[0].name : var.namespace
}

output "release" {
  description = "Name of the Helm release."
  value       = helm_release.zync.name
}
