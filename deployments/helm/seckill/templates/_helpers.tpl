{{- define "seckill.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "seckill.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "seckill.labels" -}}
{{ include "seckill.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The account of a component: empty is the namespace's default one. The migration runs before the chart's is there. */}}
{{- define "seckill.account" -}}
{{- with .root.Values.serviceAccount -}}
{{- if not .create }}{{ .name }}{{ else if ne $.component "migrate" }}{{ .name | default (include "seckill.name" $.root) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "seckill.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The secret settings of a component, variable to key. */}}
{{- define "seckill.files" -}}
{{- $files := deepCopy .root.Values.secrets.files -}}
{{- if eq .component "migrate" -}}
{{- $files = pick $files "SECKILL_DATABASE_DSN" -}}
{{- else if eq .root.Values.orderMode "async" -}}
{{- $files = merge (deepCopy (index .root.Values.secrets.async .component)) $files -}}
{{- if eq .component "worker" -}}{{/* it verifies no token */}}
{{- $files = omit $files "SECKILL_JWT_SECRET" -}}
{{- end -}}
{{- end -}}
{{ toYaml $files }}
{{- end }}

{{- define "seckill.env" -}}
{{- $v := .root.Values -}}
- {name: SECKILL_LOG_FORMAT, value: json}
{{- if ne .component "migrate" }}
- {name: SECKILL_HTTP_ADDR, value: ":8080"}
- {name: SECKILL_OPS_ADDR, value: ":8081"}
- {name: SECKILL_DRAIN_GRACE, value: {{ ternary "0s" (printf "%ds" (int $v.drainGraceSeconds)) (eq .component "worker") }}}
- {name: SECKILL_ORDER_MODE, value: {{ $v.orderMode }}}
- {name: SECKILL_ROLE, value: {{ ternary .component "all" (eq $v.orderMode "async") }}}
- {name: SECKILL_MIGRATE, value: {{ ternary "off" "on" (eq $v.migration.by "job") | quote }}}
{{- end }}
{{- range $variable, $key := include "seckill.files" . | fromYaml }}
- {name: {{ $variable }}_FILE, value: /run/secrets/{{ $key }}}
{{- end }}
{{- range $variable, $value := $v.settings }}
{{- if or (ne $.component "migrate") (hasPrefix "SECKILL_DATABASE_" $variable) }}
- {name: {{ $variable }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
{{- if and $v.tracing.endpoint (ne .component "migrate") }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ $v.tracing.endpoint | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ $v.tracing.ratio | toString | quote }}}
{{- with $v.tracing.headersSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom: {secretKeyRef: {name: {{ . }}, key: headers}}
{{- end }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What the pods of all components have in common. */}}
{{- define "seckill.pod" -}}
{{- $v := .root.Values -}}
automountServiceAccountToken: false
{{- with include "seckill.account" . }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# Kubernetes would set variables for a Service of the name seckill, which are no settings and stop the start.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with $v.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: data
    emptyDir: {medium: Memory, sizeLimit: 16Mi}
  - name: secrets
    secret:
      secretName: {{ required "secrets.existingSecret is required: the name of the Secret with the settings that are secret" $v.secrets.existingSecret }}
      defaultMode: 0440
      items:
        {{- range $key := include "seckill.files" . | fromYaml | values | uniq | sortAlpha }}
        - {key: {{ $key }}, path: {{ $key }}}
        {{- end }}
  {{- with $v.secrets.certificates }}
  - name: certificates
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
{{- end }}

{{- define "seckill.container" -}}
{{- $v := .root.Values -}}
image: {{ include "seckill.image" .root }}
imagePullPolicy: {{ $v.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env: {{ include "seckill.env" . | nindent 2 }}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: secrets, mountPath: /run/secrets, readOnly: true}
  {{- if $v.secrets.certificates }}
  - {name: certificates, mountPath: /run/certificates, readOnly: true}
  {{- end }}
{{- end }}

{{/* A Deployment of one component, and the budget of its disruptions. */}}
{{- define "seckill.deployment" -}}
{{- $v := .root.Values -}}
{{- $own := index $v .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "seckill.name" .root }}-{{ .component }}
  labels: {{ include "seckill.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  {{- if not .scaled }}
  replicas: {{ $own.replicas }}
  {{- end }}
  # A new instance takes over before an old one goes.
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector:
    matchLabels: {{ include "seckill.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  template:
    metadata:
      labels: {{ include "seckill.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
      {{- with .root.Values.podAnnotations }}
      annotations: {{ toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "seckill.pod" . | nindent 6 }}
      # The grace, the 10 s that a stop takes at most behind it, and some more.
      terminationGracePeriodSeconds: {{ add $v.drainGraceSeconds 15 }}
      topologySpreadConstraints:
        {{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{ include "seckill.selector" $.root | nindent 14 }}
              app.kubernetes.io/component: {{ $.component }}
          # Of the version that is rolled out, not of the one that goes.
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      containers:
        - name: seckill
          {{- include "seckill.container" . | nindent 10 }}
          args: [serve]
          ports:
            - {name: http, containerPort: 8080}
            - {name: ops, containerPort: 8081}
          resources: {{ toYaml $own.resources | nindent 12 }}
          # Ready says whether it can sell. The start waits for a migration that another instance runs.
          startupProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 2, failureThreshold: 150}
          livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 3}
          readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 3, timeoutSeconds: 3, failureThreshold: 2}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "seckill.name" .root }}-{{ .component }}
  labels: {{ include "seckill.labels" .root | nindent 4 }}
spec:
  maxUnavailable: 1
  # One that is not ready sells nothing: it may always go.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{ include "seckill.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end }}
