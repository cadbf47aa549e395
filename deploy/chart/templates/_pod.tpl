{{/*
The pod of a part: its metadata and spec.

root: the chart's context. name: the part's name. values: the part's values. containers: each with name, args, and where
it differs from the part, resources; env is beside that of `pod`. serves: whether they answer /metrics, /healthz and /readyz. replicas: how many pods there are.
restartPolicy: Kubernetes' word. hasExecutors: whether the pod makes executors.
*/}}
{{- define "zync.pod" -}}
{{- $root := .root -}}
{{- $part := . -}}
{{- $pod := mergeOverwrite (deepCopy $root.Values.pod) (deepCopy .values.pod) -}}
{{- $secret := $root.Values.existingSecret -}}
{{- $hasSecretFiles := and $secret.name $secret.asFiles -}}
metadata:
  labels:
    {{- include "zync.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ (first .containers).name }}
    {{- if not $root.Values.config.existingConfigMap }}
    checksum/config: {{ $root.Values.config.files | toJson | sha256sum }}
    {{- end }}
    {{- if .hasExecutors }}
    checksum/executors: {{ include "zync.executorPod" $root | sha256sum }}
    {{- end }}
    {{- with $pod.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "zync.serviceAccountName" $root }}
  automountServiceAccountToken: {{ .hasExecutors | default false }}
  enableServiceLinks: false
  restartPolicy: {{ .restartPolicy }}
  terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $pod.podSecurityContext | nindent 4 }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    {{- range .containers }}
    - name: {{ .name }}
      image: {{ include "zync.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      workingDir: /tmp
      env:
        - name: ZYNC_CONFIG
          value: /etc/zync/zync.yaml
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $pod.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if and $secret.name $secret.asEnvironment }}
      envFrom:
        - secretRef:
            name: {{ $secret.name }}
      {{- end }}
      resources:
        {{- toYaml (.resources | default $part.values.resources) | nindent 8 }}
      securityContext:
        {{- toYaml $pod.securityContext | nindent 8 }}
      {{- if $part.serves }}
      ports:
        - name: metrics
          containerPort: {{ $root.Values.metrics.port }}
      startupProbe:
        httpGet: {path: /healthz, port: metrics}
        {{- toYaml $root.Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
        {{- toYaml $root.Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        {{- toYaml $root.Values.probes.readiness | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        - name: config
          mountPath: /etc/zync
          readOnly: true
        {{- if $part.hasExecutors }}
        - name: executors
          mountPath: /etc/zync-executors
          readOnly: true
        {{- end }}
        {{- if $hasSecretFiles }}
        - name: secrets
          mountPath: /etc/zync-secrets
          readOnly: true
        {{- end }}
        {{- with $pod.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
  volumes:
    - name: tmp
      {{- if $pod.tmpSize }}
      emptyDir:
        sizeLimit: {{ $pod.tmpSize }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    - name: config
      configMap:
        name: {{ include "zync.configMapName" $root }}
        {{- if not $root.Values.config.existingConfigMap }}
        items:
          {{- range $path, $_ := $root.Values.config.files }}
          - key: {{ include "zync.fileKey" $path }}
            path: {{ $path }}
          {{- end }}
        {{- end }}
    {{- if .hasExecutors }}
    - name: executors
      configMap:
        name: {{ include "zync.fullname" $root }}-executors
    {{- end }}
    {{- if $hasSecretFiles }}
    - name: secrets
      secret:
        secretName: {{ $secret.name }}
    {{- end }}
    {{- with $pod.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if gt (int .replicas) 1 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "zync.selectorLabels" $root | nindent 10 }}
          app.kubernetes.io/component: {{ .name }}
  {{- end }}
  {{- with include "zync.scheduling" $pod | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Where a pod may run, as its values say. */}}
{{- define "zync.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
