# Against mocks: `tofu test` needs no account.

mock_provider "azurerm" {
  mock_data "azurerm_resource_group" {
    defaults = {
      id       = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop"
      location = "westeurope"
    }
  }
  mock_resource "azurerm_storage_account" {
    defaults = {
      id = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.Storage/storageAccounts/shoplake"
    }
  }
  mock_resource "azurerm_user_assigned_identity" {
    defaults = { client_id = "11111111-1111-1111-1111-111111111111" }
  }
}
mock_provider "helm" {}
mock_provider "kubernetes" {}

variables {
  resource_group  = "shop"
  oidc_issuer_url = "https://westeurope.oic.prod-aks.azure.com/tenant/cluster/"
  storage_account = "shoplake"
  path            = "shop"
  release         = "shop"
  namespace       = "data"
  values          = ["config: {files: {zync.yaml: 'topics: {}'}}"]
}

run "least" {}

run "most" {
  variables {
    create_namespace       = false
    hierarchical_namespace = true
    replication            = "GZRS"
    values                 = ["pod: {labels: {team: shop}}", "config: {files: {zync.yaml: 'topics: {}'}}"]
  }
}

run "wrong" {
  command = plan

  variables {
    oidc_issuer_url       = "westeurope.oic.prod-aks.azure.com"
    storage_account       = "shop-lake"
    container             = "shop--lake"
    path                  = "/shop/"
    release               = "Shop"
    namespace             = "data_"
    replication           = "RAID"
    container_delete_days = 0
    timeout               = 0
    values                = ["- a list"]
  }

  expect_failures = [
    var.oidc_issuer_url, var.storage_account, var.container, var.path, var.release, var.namespace, var.replication,
    var.container_delete_days, var.timeout, var.values,
  ]
}
