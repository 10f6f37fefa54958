{{- define "scheduler.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{/* labels of everything; called with the root and the name of the part */}}
{{- define "scheduler.labels" -}}
{{ include "scheduler.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "scheduler.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "scheduler.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}scheduler-{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* the environment of a process: what is no secret, then the secret */}}
{{- define "scheduler.environment" -}}
env:
{{- range $name, $value := merge (dict) (.own | default dict) .root.Values.config }}
  - {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- range $name, $value := .more }}
  - {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
  - name: GOMEMLIMIT
    valueFrom: {resourceFieldRef: {resource: limits.memory}}
envFrom:
  - secretRef: {name: {{ .secret }}}
{{- end -}}

{{/* the command that runs a task of migrate once; called with the root and the args */}}
{{- define "scheduler.once" -}}
{{- $image := include "scheduler.image" (dict "root" .root "image" "migrate") -}}
{{- $environment := include "scheduler.environment" (dict "root" .root "own" .root.Values.api.config "secret" .root.Values.secrets.processes) | fromYaml -}}
{{- $container := merge (dict "name" "scheduler-admin" "image" $image "args" .args) $environment -}}
kubectl -n {{ .root.Release.Namespace }} run scheduler-admin --rm -it --restart=Never --image={{ $image }} \
    --overrides='{{ dict "spec" (dict "containers" (list $container)) | toJson }}'
{{- end -}}

{{- define "scheduler.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "scheduler.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* what pods of all processes have; called with root, part, own (its values) */}}
{{- define "scheduler.pod" -}}
serviceAccountName: {{ include "scheduler.name" .root }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .own.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "scheduler.selector" . | fromYaml | toJson }}}
securityContext: {{ include "scheduler.podSecurity" . | nindent 2 }}
{{- end -}}

{{/* probes on the port of metrics, which every process has */}}
{{- define "scheduler.probes" -}}
startupProbe: {httpGet: {path: /health/live, port: {{ . }}}, periodSeconds: 2, failureThreshold: 60}
livenessProbe: {httpGet: {path: /health/live, port: {{ . }}}, periodSeconds: 10, timeoutSeconds: 4, failureThreshold: 6}
readinessProbe: {httpGet: {path: /health/ready, port: {{ . }}}, periodSeconds: 5, timeoutSeconds: 4}
{{- end -}}
