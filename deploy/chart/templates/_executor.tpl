{{/*
The template by which Spark makes the pods of executors. Spark gives the container its image, its argument and its
resources; a volume whose name begins with spark-local-dir- is where it keeps what does not fit into memory.
*/}}
{{- define "zync.executorPod" -}}
{{- $pod := mergeOverwrite (deepCopy .Values.pod) (deepCopy .Values.executors.pod) -}}
{{- $secret := .Values.existingSecret -}}
{{- $hasSecretFiles := and $secret.name $secret.asFiles -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "zync.labels" . | nindent 4 }}
    app.kubernetes.io/component: executor
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $pod.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml $pod.podSecurityContext | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: executor
      {{- with $pod.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if and $secret.name $secret.asEnvironment }}
      envFrom:
        - secretRef:
            name: {{ $secret.name }}
      {{- end }}
      securityContext:
        {{- toYaml $pod.securityContext | nindent 8 }}
      volumeMounts:
        - name: spark-local-dir-1
          mountPath: /tmp
        {{- if $hasSecretFiles }}
        - name: secrets
          mountPath: /etc/zync-secrets
          readOnly: true
        {{- end }}
        {{- with $pod.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: spark-local-dir-1
      {{- if $pod.tmpSize }}
      emptyDir:
        sizeLimit: {{ $pod.tmpSize }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- if $hasSecretFiles }}
    - name: secrets
      secret:
        secretName: {{ $secret.name }}
    {{- end }}
    {{- with $pod.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "zync.scheduling" $pod | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
