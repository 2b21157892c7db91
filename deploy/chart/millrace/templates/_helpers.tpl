{{- define "millrace.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "millrace.labels" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "millrace.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* The addresses of all NATS servers on a port. */ -}}
{{- define "millrace.servers" -}}
{{- $name := include "millrace.name" .root -}}
{{- range $i := until (int .root.Values.nats.replicas) -}}
{{- if $i }},{{ end }}nats://{{ $name }}-nats-{{ $i }}.{{ $name }}-nats:{{ $.port }}
{{- end -}}
{{- end -}}

{{- /* What every service that connects to NATS needs. */ -}}
{{- define "millrace.env" -}}
- name: MILLRACE_NATS
  value: {{ include "millrace.servers" (dict "root" . "port" 4222) | quote }}
- name: MILLRACE_NATS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.existingSecret }}, key: nats-token}}
- name: MILLRACE_REPLICAS
  value: {{ .Values.nats.replicas | quote }}
- name: MILLRACE_SHARDS
  value: {{ .Values.streams.shards | quote }}
- name: MILLRACE_RETENTION
  value: {{ .Values.streams.retention | quote }}
- name: MILLRACE_MASTER_KEY
  value: /run/millrace/master-key
{{- end -}}

{{- define "millrace.masterKeyMount" -}}
- {name: master-key, mountPath: /run/millrace, readOnly: true}
{{- end -}}

{{- define "millrace.masterKeyVolume" -}}
- name: master-key
  secret:
    secretName: {{ .Values.existingSecret }}
    defaultMode: 0400
    items: [{key: master-key, path: master-key}]
{{- end -}}
