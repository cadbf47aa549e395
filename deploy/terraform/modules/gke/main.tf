# A lake in Google Cloud Storage, and zync on a GKE that is there: bucket, service account with the least rights,
# namespace and chart.

locals {
  pool               = coalesce(var.workload_identity_pool, "${var.project}.svc.id.goog")
  service_account_id = coalesce(var.service_account_id, "${var.namespace}-${var.release}")
  role_id            = coalesce(var.role_id, substr("zync_${replace(var.bucket, "/[-.]/", "_")}", 0, 64))
}

# Google deletes no bucket that has objects, unless `force_destroy` is set. It encrypts each by itself.
resource "google_storage_bucket" "lake" {
  project                     = var.project
  name                        = var.bucket
  location                    = var.location
  force_destroy               = var.force_destroy
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = var.versioning
  }

  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }

  # Parts of uploads that were killed are in no listing, and cost.
  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  # Also without versioning: where it was switched off again, older versions are still there.
  lifecycle_rule {
    condition {
      days_since_noncurrent_time = var.noncurrent_days
    }
    action {
      type = "Delete"
    }
  }
}

# The rights of docs/how-to/gcs.md.
resource "google_project_iam_custom_role" "lake" {
  project     = var.project
  role_id     = local.role_id
  title       = "zync, in the bucket ${var.bucket}"
  description = "The least rights that zync needs on the bucket of its lake."
  permissions = ["storage.objects.list", "storage.objects.get", "storage.objects.create", "storage.objects.delete"]
}

resource "google_service_account" "zync" {
  project      = var.project
  account_id   = local.service_account_id
  display_name = "zync, release ${var.release} in the namespace ${var.namespace}"
}

resource "google_storage_bucket_iam_member" "lake" {
  bucket = google_storage_bucket.lake.name
  role   = google_project_iam_custom_role.lake.id
  member = google_service_account.zync.member
}

resource "google_service_account_iam_member" "pods" {
  service_account_id = google_service_account.zync.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${local.pool}[${var.namespace}/${var.release}]"
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

  service_account_annotations = { "iam.gke.io/gcp-service-account" = google_service_account.zync.email }
  environment                 = { ZYNC_LAKE = "gs://${google_storage_bucket.lake.name}/${var.path}" }

  # The pods start with all that they need, and are gone before the rights are.
  depends_on = [google_storage_bucket_iam_member.lake, google_service_account_iam_member.pods]
}
