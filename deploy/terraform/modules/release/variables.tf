variable "release" {
  description = "Name of the Helm release, and of the service account of its pods."
  type        = string
}

variable "namespace" {
  description = "Namespace of the release."
  type        = string
}

variable "create_namespace" {
  description = "Whether the namespace is created."
  type        = bool
}

variable "chart" {
  description = "Folder or address of the chart. Default: `deploy/chart` beside these modules."
  type        = string
  default     = null
}

variable "chart_version" {
  description = "Version of the chart, where `chart` is an address."
  type        = string
  default     = null
}

variable "values" {
  description = "Values of the chart, as texts in YAML. A later one goes before an earlier one."
  type        = list(string)
}

variable "timeout" {
  description = "Seconds that Helm waits for the pods to be ready."
  type        = number
}

variable "environment" {
  description = "Variables of all pods. One that `pod.env` in `values` has goes before it."
  type        = map(string)
}

variable "service_account_annotations" {
  description = "Annotations of the service account, by which the cloud knows it."
  type        = map(string)
  default     = {}
}

variable "pod_labels" {
  description = "Labels of all pods."
  type        = map(string)
  default     = {}
}
