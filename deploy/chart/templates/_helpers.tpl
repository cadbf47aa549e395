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

{{/* The processes that run for ever and have a Deployment, as a JSON list of name, values and arguments. */}}
{{- define "zync.deployments" -}}
{{- $parts := list
  (dict "name" "sync" "values" .Values.sync "args" (list "sync" "raw" "staging" "--follow"))
  (dict "name" "sync-to-kafka" "values" .Values.syncToKafka "args" (list "sync-to" "kafka" "staging"))
  (dict "name" "sync-to-tables" "values" .Values.syncToTables "args" (list "sync-to" "tables" "staging"))
-}}
{{- $enabled := list -}}
{{- range $parts }}{{ if .values.enabled }}{{ $enabled = append $enabled . }}{{ end }}{{ end -}}
{{- $enabled | toJson -}}
{{- end -}}

{{/* Options of the processes that run for ever, as a JSON list. */}}
{{- define "zync.serveArgs" -}}
{{- list "--metrics" (printf "%s:%d" .Values.metrics.host (int .Values.metrics.port)) "--log-format" .Values.logFormat | toJson -}}
{{- end -}}
