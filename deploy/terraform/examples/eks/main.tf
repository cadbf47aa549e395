# zync on an EKS that is there. The project is in shop/, as for `zync check`; values.yaml says the rest.

terraform {
  required_version = ">= 1.6"

  required_providers {
    aws        = { source = "hashicorp/aws", version = ">= 5.60, < 7.0" }
    helm       = { source = "hashicorp/helm", version = ">= 3.0, < 4.0" }
    kubernetes = { source = "hashicorp/kubernetes", version = ">= 2.35, < 4.0" }
  }
}

variable "cluster" {
  description = "Name of the cluster, which is there."
  type        = string
}

variable "region" {
  description = "Region of the cluster and of the bucket."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket that is created."
  type        = string
}

provider "aws" {
  region = var.region
}

data "aws_eks_cluster" "this" {
  name = var.cluster
}

data "aws_iam_openid_connect_provider" "this" {
  url = data.aws_eks_cluster.this.identity[0].oidc[0].issuer
}

locals {
  host        = data.aws_eks_cluster.this.endpoint
  certificate = base64decode(data.aws_eks_cluster.this.certificate_authority[0].data)
  token = {
    api_version = "client.authentication.k8s.io/v1beta1"
    command     = "aws"
    args        = ["eks", "get-token", "--cluster-name", var.cluster, "--region", var.region]
  }
}

provider "kubernetes" {
  host                   = local.host
  cluster_ca_certificate = local.certificate

  exec {
    api_version = local.token.api_version
    command     = local.token.command
    args        = local.token.args
  }
}

provider "helm" {
  kubernetes = {
    host                   = local.host
    cluster_ca_certificate = local.certificate
    exec                   = local.token
  }
}

module "zync" {
  source = "../../modules/eks"

  bucket            = var.bucket
  oidc_provider_arn = data.aws_iam_openid_connect_provider.this.arn
  release           = "shop"
  namespace         = "data"

  values = [
    file("${path.module}/../values.yaml"),
    yamlencode({ config = { files = { for name in fileset("${path.module}/../shop", "**") : name => file("${path.module}/../shop/${name}") } } }),
  ]
}

output "lake" {
  description = "Address of the lake."
  value       = module.zync.lake
}
