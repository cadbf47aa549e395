variable "project" {
  description = "Project of the bucket, the role and the service account."
  type        = string
}

variable "workload_identity_pool" {
  description = "Workload identity pool of the cluster. Default: `PROJECT.svc.id.goog`, if the cluster is in that project."
  type        = string
  default     = null
}

variable "bucket" {
  description = "Name of the bucket that is created for the lake."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][-._a-z0-9]{1,61}[a-z0-9]$", var.bucket))
    error_message = "The bucket has 3 to 63 lower-case letters, digits, hyphens, underscores and dots."
  }
}

variable "location" {
  description = "Region of the bucket, best that of the cluster, like `EUROPE-WEST3`."
  type        = string
}

variable "path" {
  description = "Folder of the lake, within its bucket or container."
  type        = string
  default     = "lake"

  validation {
    condition     = can(regex("^[-._a-zA-Z0-9]+(/[-._a-zA-Z0-9]+)*$", var.path))
    error_message = "The path has letters, digits, and -._/ between them."
  }
}

variable "release" {
  description = "Name of the Helm release, and of the service account of its pods."
  type        = string
  default     = "zync"

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$", var.release))
    error_message = "The release has at most 40 lower-case letters, digits and hyphens."
  }
}

variable "namespace" {
  description = "Namespace of the release."
  type        = string
  default     = "zync"

  validation {
    condition     = can(regex("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", var.namespace))
    error_message = "The namespace has at most 63 lower-case letters, digits and hyphens."
  }
}

variable "create_namespace" {
  description = "Whether the namespace is created. With `false` it has to be there."
  type        = bool
  default     = true
}

variable "chart" {
  description = "Folder or address of the chart, like `oci://registry.example/charts/zync`. Default: `deploy/chart` beside these modules."
  type        = string
  default     = null
}

variable "chart_version" {
  description = "Version of the chart, where `chart` is an address."
  type        = string
  default     = null
}

variable "values" {
  description = "Values of the chart, as texts in YAML: the image, the config, the Secret. A later one goes before an earlier one, and what the module sets before all: the service account, and `ZYNC_LAKE`."
  type        = list(string)

  validation {
    condition     = alltrue([for text in var.values : can(keys(yamldecode(text)))])
    error_message = "Each of the values is a mapping in YAML."
  }
}

variable "timeout" {
  description = "Seconds that Helm waits for the pods to be ready."
  type        = number
  default     = 600

  validation {
    condition     = var.timeout > 0
    error_message = "The timeout is more than 0 seconds."
  }
}

variable "service_account_id" {
  description = "Id of Google's service account, of 6 to 30 characters. Default: the namespace and the release, with a hyphen between."
  type        = string
  default     = null
}

variable "role_id" {
  description = "Id of the custom role. Default: `zync_` and the bucket's name."
  type        = string
  default     = null
}

variable "versioning" {
  description = "Whether the bucket keeps what is overwritten and deleted, for `noncurrent_days`. Delta has versions of its own, and a vacuum shall free what it deletes, so it does not by default."
  type        = bool
  default     = false
}

variable "noncurrent_days" {
  description = "Days after which the bucket deletes what was overwritten or deleted, if there is versioning."
  type        = number
  default     = 7

  validation {
    condition     = var.noncurrent_days >= 1
    error_message = "It is a day at least."
  }
}

variable "soft_delete_days" {
  description = "Days for which the store can restore what was deleted, and charges for it: 0, or 7 to 90."
  type        = number
  default     = 7

  validation {
    condition     = var.soft_delete_days == 0 || (var.soft_delete_days >= 7 && var.soft_delete_days <= 90)
    error_message = "The days are 0, or 7 to 90."
  }
}

variable "force_destroy" {
  description = "Whether `destroy` deletes a bucket that is not empty: the lake."
  type        = bool
  default     = false
}

variable "labels" {
  description = "Labels of the bucket."
  type        = map(string)
  default     = {}
}
