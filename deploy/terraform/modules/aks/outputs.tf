output "storage_account" {
  description = "Name of the storage account."
  value       = azurerm_storage_account.lake.name
}

output "container" {
  description = "Name of the container."
  value       = azurerm_storage_container.lake.name
}

output "lake" {
  description = "Address of the lake, which the pods have as `ZYNC_LAKE`."
  value       = local.lake
}

output "client_id" {
  description = "Client id of the managed identity of the pods."
  value       = azurerm_user_assigned_identity.zync.client_id
}

output "namespace" {
  description = "Namespace of the release, known before the pods are there: put the Secret into it that `existingSecret` names."
  value       = module.release.namespace
}

output "release" {
  description = "Name of the Helm release."
  value       = module.release.release
}
