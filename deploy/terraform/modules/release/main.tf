# The namespace and the chart. The modules of the clouds call this one: it is not meant to be used by itself.

locals {
  # Helm merges no lists: the last one counts. So `pod.env` here has the variables of the last `pod.env` that was given.
  given       = try(reverse([for text in var.values : yamldecode(text).pod.env if can(yamldecode(text).pod.env[0])])[0], [])
  given_names = [for variable in local.given : variable.name]
  environment = [for name, value in var.environment : { name = name, value = value } if !contains(local.given_names, name)]
}

resource "kubernetes_namespace_v1" "zync" {
  count = var.create_namespace ? 1 : 0

  metadata {
    name   = var.namespace
    labels = { "pod-security.kubernetes.io/enforce" = "restricted" }
  }
}

resource "helm_release" "zync" {
  name      = var.release
  namespace = var.create_namespace ? kubernetes_namespace_v1.zync[0].metadata[0].name : var.namespace
  chart     = coalesce(var.chart, "${path.module}/../../../chart")
  version   = var.chart_version
  timeout   = var.timeout

  values = concat(var.values, [yamlencode({
    serviceAccount = {
      create      = true
      name        = var.release
      annotations = var.service_account_annotations
    }
    pod = {
      labels = var.pod_labels
      env    = concat(local.environment, local.given)
    }
  })])
}
