# zync on a GKE that is there, with workload identity. The project is in shop/; values.yaml says the rest.

terraform {
  required_version = ">= 1.6"

  required_providers {
    google     = { source = "hashicorp/google", version = ">= 6.0, < 8.0" }
    helm       = { source = "hashicorp/helm", version = ">= 3.0, < 4.0" }
    kubernetes = { source = "hashicorp/kubernetes", version = ">= 2.35, < 4.0" }
  }
}

variable "project" {
  description = "Project of the cluster and of the bucket."
  type        = string
}

variable "cluster" {
  description = "Name of the cluster, which is there."
  type        = string
}

variable "region" {
  description = "Region of the cluster and of the bucket, like `europe-west3`."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket that is created."
  type        = string
}

provider "google" {
  project = var.project
  region  = var.region
}

data "google_client_config" "this" {}

data "google_container_cluster" "this" {
  project  = var.project
  name     = var.cluster
  location = var.region
}

locals {
  host        = "https://${data.google_container_cluster.this.endpoint}"
  certificate = base64decode(data.google_container_cluster.this.master_auth[0].cluster_ca_certificate)
}

provider "kubernetes" {
  host                   = local.host
  cluster_ca_certificate = local.certificate
  token                  = data.google_client_config.this.access_token
}

provider "helm" {
  kubernetes = {
    host                   = local.host
    cluster_ca_certificate = local.certificate
    token                  = data.google_client_config.this.access_token
  }
}

module "zync" {
  source = "../../modules/gke"

  project   = var.project
  bucket    = var.bucket
  location  = var.region
  release   = "shop"
  namespace = "data"

  values = [
    file("${path.module}/../values.yaml"),
    yamlencode({ config = { files = { for name in fileset("${path.module}/../shop", "**") : name => file("${path.module}/../shop/${name}") } } }),
  ]
}

output "lake" {
  description = "Address of the lake."
  value       = module.zync.lake
}
