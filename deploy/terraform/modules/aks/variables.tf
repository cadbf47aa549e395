variable "resource_group" {
  description = "Name of the resource group, which is there, of the storage account and the identity."
  type        = string
}

variable "oidc_issuer_url" {
  description = "URL of the OIDC issuer of the cluster, which signs the tokens of its service accounts."
  type        = string

  validation {
    condition     = startswith(var.oidc_issuer_url, "https://")
    error_message = "The URL begins with https://."
  }
}

variable "storage_account" {
  description = "Name of the storage account that is created."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]{3,24}$", var.storage_account))
    error_message = "The storage account has 3 to 24 lower-case letters and digits."
  }
}

variable "container" {
  description = "Name of the container that is created for the lake."
  type        = string
  default     = "lake"

  validation {
    condition     = can(regex("^[a-z0-9](-?[a-z0-9]){2,62}$", var.container))
    error_message = "The container has 3 to 63 lower-case letters, digits and single hyphens."
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

variable "identity_name" {
  description = "Name of the managed identity. Default: the namespace and the release, with a hyphen between."
  type        = string
  default     = null
}

variable "replication" {
  description = "Replication of the storage account: `LRS`, `ZRS`, `GRS`, `GZRS`, `RAGRS` or `RAGZRS`."
  type        = string
  default     = "ZRS"

  validation {
    condition     = contains(["LRS", "ZRS", "GRS", "GZRS", "RAGRS", "RAGZRS"], var.replication)
    error_message = "The replication is LRS, ZRS, GRS, GZRS, RAGRS or RAGZRS."
  }
}

variable "hierarchical_namespace" {
  description = "Whether the storage account has a hierarchical namespace (Data Lake Storage Gen2). It cannot be changed later."
  type        = bool
  default     = false
}

variable "container_delete_days" {
  description = "Days for which Azure can restore a container that was deleted."
  type        = number
  default     = 7

  validation {
    condition     = var.container_delete_days >= 1 && var.container_delete_days <= 365
    error_message = "The days are 1 to 365."
  }
}

variable "tags" {
  description = "Tags of the storage account and the identity."
  type        = map(string)
  default     = {}
}
