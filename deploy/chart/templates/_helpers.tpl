{{- define "zync.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 34 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "zync.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "zync.labels" -}}
{{ include "zync.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "zync.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "zync.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "zync.configMapName" -}}
{{- .Values.config.existingConfigMap | default (printf "%s-config" (include "zync.fullname" .)) -}}
{{- end -}}

{{/* The key in the ConfigMap of a file of the config: a key has no slash. */}}
{{- define "zync.fileKey" -}}
{{- . | replace "/" "__" -}}
{{- end -}}

{{- define "zync.image" -}}
{{- with .Values.image -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The processes that run for ever and have a Deployment, as a JSON list of name, values, arguments, and whether they have a Spark. */}}
{{- define "zync.deployments" -}}
{{- $parts := list
  (dict "name" "sync" "values" .Values.sync "args" (list "sync" "raw" "staging" "--follow") "hasSpark" true)
  (dict "name" "sync-to-kafka" "values" .Values.syncToKafka "args" (list "sync-to" "kafka" "staging") "hasSpark" false)
  (dict "name" "sync-to-tables" "values" .Values.syncToTables "args" (list "sync-to" "tables" "staging") "hasSpark" true)
-}}
{{- $enabled := list -}}
{{- range $parts }}{{ if .values.enabled }}{{ $enabled = append $enabled . }}{{ end }}{{ end -}}
{{- $enabled | toJson -}}
{{- end -}}

{{/* Options of the processes that run for ever, as a JSON list. */}}
{{- define "zync.serveArgs" -}}
{{- list "--metrics" (printf "%s:%d" .Values.metrics.host (int .Values.metrics.port)) "--log-format" .Values.logFormat | toJson -}}
{{- end -}}

{{/*
Variables of the pod of a part whose Spark has executors, as a JSON list. PySpark gives PYSPARK_SUBMIT_ARGS to
spark-submit. The Role permits no more than pods: properties keep Spark from ConfigMaps, Services and volume claims.
*/}}
{{- define "zync.driverEnv" -}}
{{- $properties := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.blockManager.port" "7079"
  "spark.executor.instances" (toString .Values.executors.instances)
  "spark.executor.cores" (toString .Values.executors.cores)
  "spark.executor.memory" .Values.executors.memory
  "spark.executor.memoryOverhead" .Values.executors.memoryOverhead
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" (include "zync.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.executor.podTemplateFile" "/etc/zync-executors/executor.yaml"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (include "zync.serviceAccountName" .)
  "spark.kubernetes.executor.disableConfigMap" "true"
  "spark.kubernetes.driver.service.deleteOnTermination" "false"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.reusePersistentVolumeClaim" "false"
-}}
{{- $words := list -}}
{{- range $name, $value := merge (deepCopy (.Values.executors.conf | default dict)) $properties -}}
{{- $words = append $words (printf "--conf '%s=%s'" $name (toString $value | replace "'" "'\\''")) -}}
{{- end -}}
{{- list
  (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name")))
  (dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP")))
  (dict "name" "PYSPARK_SUBMIT_ARGS" "value" (printf "%s pyspark-shell" (join " " $words)))
  | toJson -}}
{{- end -}}

{{/*
The tables that have a CronJob, with it, as JSON. The delivered ones have it where they are delivered to.
*/}}
{{- define "zync.maintained" -}}
{{- $tables := dict }}
{{- range $table, $job := .Values.maintenance.tables }}
{{- if and $job (or (ne $table "tables") $.Values.syncToTables.enabled) }}
{{- $_ := set $tables $table $job }}
{{- end }}
{{- end }}
{{- toJson $tables }}
{{- end }}
