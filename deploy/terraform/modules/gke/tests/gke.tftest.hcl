# Against mocks: `tofu test` needs no account.

mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/shop-project/serviceAccounts/data-shop@shop-project.iam.gserviceaccount.com"
      email  = "data-shop@shop-project.iam.gserviceaccount.com"
      member = "serviceAccount:data-shop@shop-project.iam.gserviceaccount.com"
    }
  }
  mock_resource "google_project_iam_custom_role" {
    defaults = { id = "projects/shop-project/roles/zync_shop_lake" }
  }
}
mock_provider "helm" {}
mock_provider "kubernetes" {}

variables {
  project   = "shop-project"
  bucket    = "shop-lake"
  location  = "EUROPE-WEST3"
  path      = "shop"
  release   = "shop"
  namespace = "data"
  values    = ["config: {files: {zync.yaml: 'topics: {}'}}"]
}

run "least" {}

run "most" {
  variables {
    create_namespace       = false
    workload_identity_pool = "fleet-project.svc.id.goog"
    versioning             = true
    noncurrent_days        = 3
    soft_delete_days       = 0
  }
}

run "wrong" {
  command = plan

  variables {
    bucket           = "Shop"
    path             = "/shop/"
    release          = "Shop"
    namespace        = "data_"
    noncurrent_days  = 0
    soft_delete_days = 3
    timeout          = 0
    values           = ["- a list"]
  }

  expect_failures = [
    var.bucket, var.path, var.release, var.namespace, var.noncurrent_days, var.soft_delete_days, var.timeout, var.values,
  ]
}
