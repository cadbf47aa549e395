# A lake in Azure, and zync on an AKS that is there: storage account, identity with the least rights, namespace and chart.

locals {
  identity_name = coalesce(var.identity_name, "${var.namespace}-${var.release}")
  blobs         = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
  lake          = "abfss://${azurerm_storage_container.lake.name}@${azurerm_storage_account.lake.name}.dfs.core.windows.net/${var.path}"
}

data "azurerm_resource_group" "zync" {
  name = var.resource_group
}

# Azure encrypts all by itself, and forgets the parts of uploads that were killed after a week. Versions are off: Delta
# has versions of its own, and a vacuum shall free what it deletes.
resource "azurerm_storage_account" "lake" {
  name                            = var.storage_account
  resource_group_name             = data.azurerm_resource_group.zync.name
  location                        = data.azurerm_resource_group.zync.location
  account_tier                    = "Standard"
  account_replication_type        = var.replication
  account_kind                    = "StorageV2"
  is_hns_enabled                  = var.hierarchical_namespace
  min_tls_version                 = "TLS1_2"
  https_traffic_only_enabled      = true
  allow_nested_items_to_be_public = false
  shared_access_key_enabled       = false
  default_to_oauth_authentication = true
  tags                            = var.tags

  blob_properties {
    container_delete_retention_policy {
      days = var.container_delete_days
    }
  }

  # Azure deletes an account and a container with all that is in them.
  lifecycle {
    prevent_destroy = true
  }
}

resource "azurerm_storage_container" "lake" {
  name                  = var.container
  storage_account_id    = azurerm_storage_account.lake.id
  container_access_type = "private"

  lifecycle {
    prevent_destroy = true
  }
}

# The rights of docs/how-to/azure.md.
resource "azurerm_role_definition" "lake" {
  name        = "zync, in the storage account ${var.storage_account}"
  description = "The least rights that zync needs on the container of its lake."
  scope       = data.azurerm_resource_group.zync.id

  permissions {
    data_actions = concat(
      ["${local.blobs}/read", "${local.blobs}/write", "${local.blobs}/delete"],
      var.hierarchical_namespace ? ["${local.blobs}/move/action"] : [],
    )
  }
}

resource "azurerm_user_assigned_identity" "zync" {
  name                = local.identity_name
  resource_group_name = data.azurerm_resource_group.zync.name
  location            = data.azurerm_resource_group.zync.location
  tags                = var.tags
}

resource "azurerm_role_assignment" "lake" {
  scope              = "${azurerm_storage_account.lake.id}/blobServices/default/containers/${azurerm_storage_container.lake.name}"
  role_definition_id = azurerm_role_definition.lake.role_definition_resource_id
  principal_id       = azurerm_user_assigned_identity.zync.principal_id
  principal_type     = "ServicePrincipal"
}

resource "azurerm_federated_identity_credential" "pods" {
  name                = local.identity_name
  resource_group_name = data.azurerm_resource_group.zync.name
  parent_id           = azurerm_user_assigned_identity.zync.id
  issuer              = var.oidc_issuer_url
  subject             = "system:serviceaccount:${var.namespace}:${var.release}"
  audience            = ["api://AzureADTokenExchange"]
}

module "release" {
  source = "../release"

  release          = var.release
  namespace        = var.namespace
  create_namespace = var.create_namespace
  chart            = var.chart
  chart_version    = var.chart_version
  values           = var.values
  timeout          = var.timeout

  service_account_annotations = { "azure.workload.identity/client-id" = azurerm_user_assigned_identity.zync.client_id }
  pod_labels                  = { "azure.workload.identity/use" = "true" }
  environment                 = { ZYNC_LAKE = local.lake }

  # The pods start with all that they need, and are gone before the rights are.
  depends_on = [azurerm_role_assignment.lake, azurerm_federated_identity_credential.pods]
}
