{{- define "promptools.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains .Chart.Name $name) -}}{{- $name = printf "%s-%s" $name .Chart.Name -}}{{- end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "promptools.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end -}}

{{- define "promptools.redisSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: redis
{{- end -}}

{{- define "promptools.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* The config; with the chart's own Redis, its address is in a [proxy] table at the end. */ -}}
{{- define "promptools.config" -}}
{{ .Values.config | trim }}
{{- if .Values.redis.enabled }}
{{- if regexMatch "(?m)^\\[proxy\\]" .Values.config }}
{{- fail "redis.enabled and a [proxy] table in config exclude each other: put redis_url into the table" }}
{{- end }}

[proxy]
redis_url = "redis://{{ include "promptools.name" . }}-redis:6379/0"
{{- end }}
{{ end -}}
