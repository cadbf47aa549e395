# Against mocks: `tofu test` needs no account.

mock_provider "aws" {
  mock_resource "aws_s3_bucket" {
    defaults = {
      arn    = "arn:aws:s3:::shop-lake"
      region = "eu-central-1"
    }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/data-shop" }
  }
}
mock_provider "helm" {}
mock_provider "kubernetes" {}

variables {
  bucket            = "shop-lake"
  oidc_provider_arn = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE"
  path              = "shop"
  release           = "shop"
  namespace         = "data"
  values            = ["config: {files: {zync.yaml: 'topics: {}'}}"]
}

run "least" {}

run "most" {
  variables {
    create_namespace = false
    kms_key_arn      = "arn:aws:kms:eu-central-1:123456789012:key/lake"
    versioning       = true
    noncurrent_days  = 3
    values = [
      "pod: {env: [{name: LOST, value: x}]}",
      "pod: {env: [{name: AWS_REGION, value: eu-west-1}, {name: OTHER, valueFrom: {secretKeyRef: {name: keys, key: other}}}]}",
      "config: {files: {zync.yaml: 'topics: {}'}}",
    ]
  }
}

run "wrong" {
  command = plan

  variables {
    bucket            = "Shop_Lake"
    oidc_provider_arn = "https://oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE"
    path              = "/shop/"
    release           = "Shop"
    namespace         = "data_"
    noncurrent_days   = 0
    timeout           = 0
    values            = ["- a list"]
  }

  expect_failures = [
    var.bucket, var.oidc_provider_arn, var.path, var.release, var.namespace, var.noncurrent_days, var.timeout, var.values,
  ]
}
