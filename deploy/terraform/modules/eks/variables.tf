variable "bucket" {
  description = "Name of the bucket that is created for the lake."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]$", var.bucket))
    error_message = "The bucket has 3 to 63 lower-case letters, digits, hyphens and dots."
  }
}

variable "oidc_provider_arn" {
  description = "ARN of the IAM OIDC provider of the cluster, which signs the tokens of its service accounts."
  type        = string

  validation {
    condition     = can(regex("^arn:[^:]+:iam::[0-9]{12}:oidc-provider/.+$", var.oidc_provider_arn))
    error_message = "The ARN is like arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/EXAMPLE."
  }
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

variable "role_name" {
  description = "Name of the IAM role. Default: the namespace and the release, with a hyphen between."
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "ARN of a policy that bounds the role."
  type        = string
  default     = null
}

variable "kms_key_arn" {
  description = "ARN of a key of KMS that encrypts the bucket, which the role may use then. Default: the keys of S3 (SSE-S3)."
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

variable "force_destroy" {
  description = "Whether `destroy` deletes a bucket that is not empty: the lake."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of the bucket and the role."
  type        = map(string)
  default     = {}
}
