{{- define "xdsrelay.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "xdsrelay.peers" -}}
{{ include "xdsrelay.fullname" . }}-peers
{{- end }}

{{- define "xdsrelay.selector" -}}
app.kubernetes.io/name: xdsrelay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "xdsrelay.labels" -}}
{{ include "xdsrelay.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "xdsrelay.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "xdsrelay.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Name of the Secret of a certificate, empty without one. The argument is (list ROOT TLS SUFFIX). */}}
{{- define "xdsrelay.tlsSecret" -}}
{{- $root := index . 0 }}{{ $tls := index . 1 }}
{{- if $tls.secretName }}{{ $tls.secretName }}
{{- else if $tls.issuerRef }}{{ include "xdsrelay.fullname" $root }}-{{ index . 2 }}-tls
{{- end }}
{{- end }}

{{- define "xdsrelay.clientsSecret" }}{{ include "xdsrelay.tlsSecret" (list . .Values.tls "clients") }}{{ end }}
{{- define "xdsrelay.membersSecret" }}{{ include "xdsrelay.tlsSecret" (list . .Values.cluster.tls "members") }}{{ end }}
{{- define "xdsrelay.adminSecret" }}{{ include "xdsrelay.tlsSecret" (list . .Values.admin.tls "admin") }}{{ end }}

{{- /* Nine tenths of the memory limit, for GOMEMLIMIT. */}}
{{- define "xdsrelay.gomemlimit" -}}
{{- $mib := regexFind "[0-9]+" . | int }}
{{- if hasSuffix "Gi" . }}{{ $mib = mul $mib 1024 }}{{ end }}
{{- div (mul $mib 9) 10 }}MiB
{{- end }}

{{- /* The keys of the relay's configuration that the chart sets. */}}
{{- define "xdsrelay.chartConfig" -}}
downstream:
  address: 0.0.0.0:15010
  drain: {{ .Values.drainSeconds }}s
  {{- if include "xdsrelay.clientsSecret" . }}
  tls:
    cert_file: /run/relay/clients/tls.crt
    key_file: /run/relay/clients/tls.key
    {{- if .Values.tls.mtls }}
    client_ca_file: /run/relay/clients/ca.crt
    {{- end }}
  {{- end }}
{{- with .Values.cluster }}
{{- if .enabled }}
cluster:
  name: {{ $.Release.Namespace }}/{{ include "xdsrelay.fullname" $ }}
  join: ["{{ include "xdsrelay.peers" $ }}.{{ $.Release.Namespace }}.svc:7946"]
  tls:
    cert_file: /run/relay/members/tls.crt
    key_file: /run/relay/members/tls.key
    ca_file: /run/relay/members/ca.crt
  identity: {{ .identity | default (printf `"%s.%s.svc" in peer.dns_sans` (include "xdsrelay.peers" $) $.Release.Namespace) | quote }}
  gossip_key_file: /run/relay/gossip/gossip.key
{{- end }}
{{- end }}
{{- if .Values.store.enabled }}
store:
  path: /var/lib/relay/store
{{- end }}
admin:
  address: 0.0.0.0:19000
  token_file: /run/relay/admin/token
  {{- if include "xdsrelay.adminSecret" . }}
  tls:
    cert_file: /run/relay/admin-tls/tls.crt
    key_file: /run/relay/admin-tls/tls.key
  {{- end }}
{{- end }}
