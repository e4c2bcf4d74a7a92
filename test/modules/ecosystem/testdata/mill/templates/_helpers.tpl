{{- define "mill.labels" -}}
app.kubernetes.io/name: mill
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
