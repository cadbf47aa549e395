# zync on an AKS that is there, with OIDC issuer and workload identity. The project is in shop/; values.yaml says the rest.

terraform {
  required_version = ">= 1.6"

  required_providers {
    azurerm    = { source = "hashicorp/azurerm", version = ">= 4.9, < 5.0" }
    helm       = { source = "hashicorp/helm", version = ">= 3.0, < 4.0" }
    kubernetes = { source = "hashicorp/kubernetes", version = ">= 2.35, < 4.0" }
  }
}

variable "subscription_id" {
  description = "Subscription of the cluster and of the storage account."
  type        = string
}

variable "resource_group" {
  description = "Name of the resource group of the cluster and of the storage account."
  type        = string
}

variable "cluster" {
  description = "Name of the cluster, which is there."
  type        = string
}

variable "storage_account" {
  description = "Name of the storage account that is created."
  type        = string
}

# The account has no keys: the provider, too, reaches it by Entra ID.
provider "azurerm" {
  subscription_id     = var.subscription_id
  storage_use_azuread = true

  features {}
}

data "azurerm_kubernetes_cluster" "this" {
  name                = var.cluster
  resource_group_name = var.resource_group
}

# With local accounts. A cluster without them takes `exec` with kubelogin in place of the two certificates.
locals {
  access = data.azurerm_kubernetes_cluster.this.kube_config[0]
}

provider "kubernetes" {
  host                   = local.access.host
  cluster_ca_certificate = base64decode(local.access.cluster_ca_certificate)
  client_certificate     = base64decode(local.access.client_certificate)
  client_key             = base64decode(local.access.client_key)
}

provider "helm" {
  kubernetes = {
    host                   = local.access.host
    cluster_ca_certificate = base64decode(local.access.cluster_ca_certificate)
    client_certificate     = base64decode(local.access.client_certificate)
    client_key             = base64decode(local.access.client_key)
  }
}

module "zync" {
  source = "../../modules/aks"

  resource_group  = var.resource_group
  oidc_issuer_url = data.azurerm_kubernetes_cluster.this.oidc_issuer_url
  storage_account = var.storage_account
  release         = "shop"
  namespace       = "data"

  values = [
    file("${path.module}/../values.yaml"),
    yamlencode({ config = { files = { for name in fileset("${path.module}/../shop", "**") : name => file("${path.module}/../shop/${name}") } } }),
  ]
}

output "lake" {
  description = "Address of the lake."
  value       = module.zync.lake
}
