{{- define "cdc-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "cdc-relay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "cdc-relay.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "cdc-relay.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "cdc-relay.selector" -}}
app.kubernetes.io/name: {{ include "cdc-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cdc-relay.labels" -}}
{{ include "cdc-relay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "cdc-relay.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "cdc-relay.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "cdc-relay.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "cdc-relay.config" -}}
{{ toYaml .Values.config }}
{{- end -}}

{{- /* The port of config.http.listen. */ -}}
{{- define "cdc-relay.port" -}}
{{- regexFind "[0-9]+$" .Values.config.http.listen -}}
{{- end -}}

{{- /* A pod that is killed while it drains sends again what was in flight. Behind the
       drain, brokers and a server that do not answer take 5 s each. A reference to the
       environment has no length here. */ -}}
{{- define "cdc-relay.grace" -}}
{{- $drain := default "30s" (.Values.config.relay).drain_timeout -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 "µs" 0.000001 "ns" 0.000000001 -}}
{{- $seconds := 10.0 -}}
{{- range regexFindAll "[0-9.]+(ns|us|µs|ms|s|m|h)" $drain -1 -}}
{{- $unit := regexFind "[^0-9.]+" . -}}
{{- $seconds = addf $seconds (mulf (trimSuffix $unit .) (get $units $unit)) -}}
{{- end -}}
{{- $grace := int .Values.terminationGracePeriodSeconds -}}
{{- if lt (float64 $grace) $seconds -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, and has to be 10 s more than relay.drain_timeout, which is %s: at least %.0f" $grace $drain (ceil $seconds)) -}}
{{- end -}}
{{- $grace -}}
{{- end -}}

{{- /* A secret's file is named by the variable that the relay reads. */ -}}
{{- define "cdc-relay.secretEnv" -}}
{{- if .Values.postgres.existingSecret.name }}
- {name: CDC_RELAY_POSTGRES_PASSWORD_FILE, value: /etc/cdc-relay/secrets/postgres/password}
{{- end }}
{{- include "cdc-relay.otherEnv" . }}
{{- end -}}

{{- /* setup may come with a role of its own. */ -}}
{{- define "cdc-relay.setupEnv" -}}
{{- if and .Values.postgres.existingSecret.name (not .Values.setup.existingSecret.name) }}
- {name: CDC_RELAY_POSTGRES_PASSWORD_FILE, value: /etc/cdc-relay/secrets/postgres/password}
{{- end }}
{{- include "cdc-relay.otherEnv" . }}
{{- end -}}

{{- /* What the process that streams has beside. */ -}}
{{- define "cdc-relay.runEnv" -}}
{{- include "cdc-relay.secretEnv" . }}
{{- if and .Values.maintenance.cronJob.enabled (not (hasKey (default dict .Values.config.maintenance) "in_run")) }}
- {name: CDC_RELAY_MAINTENANCE_IN_RUN, value: "false"}
{{- end }}
{{- end -}}

{{- define "cdc-relay.otherEnv" -}}
{{- if .Values.shards }}
- {name: CDC_RELAY_POSTGRES_SHARDS, value: {{ .Values.shards | quote }}}
{{- end }}
{{- if .Values.kafka.existingSecret.name }}
- {name: CDC_RELAY_KAFKA_SASL_PASSWORD_FILE, value: /etc/cdc-relay/secrets/kafka/password}
{{- end }}
{{- if .Values.kafka.existingOAuthSecret.name }}
- {name: CDC_RELAY_KAFKA_OAUTH_CLIENT_SECRET_FILE, value: /etc/cdc-relay/secrets/kafka-oauth/client-secret}
{{- end }}
{{- if .Values.maintenance.existingSecret.name }}
- {name: CDC_RELAY_MAINTENANCE_PASSWORD_FILE, value: /etc/cdc-relay/secrets/maintenance/password}
{{- end }}
{{- if .Values.http.existingSecret.name }}
- {name: CDC_RELAY_HTTP_TOKEN_FILE, value: /etc/cdc-relay/secrets/http/token}
{{- end }}
{{- end -}}

{{- define "cdc-relay.mounts" -}}
- {name: config, mountPath: /etc/cdc-relay/config.yaml, subPath: config.yaml, readOnly: true}
{{- if .Values.postgres.existingSecret.name }}
- {name: postgres, mountPath: /etc/cdc-relay/secrets/postgres, readOnly: true}
{{- end }}
{{- if .Values.kafka.existingSecret.name }}
- {name: kafka, mountPath: /etc/cdc-relay/secrets/kafka, readOnly: true}
{{- end }}
{{- if .Values.kafka.existingOAuthSecret.name }}
- {name: kafka-oauth, mountPath: /etc/cdc-relay/secrets/kafka-oauth, readOnly: true}
{{- end }}
{{- if .Values.kafka.existingTLSSecret }}
- {name: kafka-tls, mountPath: /etc/cdc-relay/kafka-tls, readOnly: true}
{{- end }}
{{- if .Values.maintenance.existingSecret.name }}
- {name: maintenance, mountPath: /etc/cdc-relay/secrets/maintenance, readOnly: true}
{{- end }}
{{- if .Values.http.existingSecret.name }}
- {name: http, mountPath: /etc/cdc-relay/secrets/http, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "cdc-relay.secretVolumes" -}}
{{- with .Values.postgres.existingSecret }}{{- if .name }}
- {name: postgres, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: password}]}}
{{- end }}{{- end }}
{{- with .Values.kafka.existingSecret }}{{- if .name }}
- {name: kafka, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: password}]}}
{{- end }}{{- end }}
{{- with .Values.kafka.existingOAuthSecret }}{{- if .name }}
- {name: kafka-oauth, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: client-secret}]}}
{{- end }}{{- end }}
{{- with .Values.kafka.existingTLSSecret }}
- {name: kafka-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.maintenance.existingSecret }}{{- if .name }}
- {name: maintenance, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: password}]}}
{{- end }}{{- end }}
{{- with .Values.http.existingSecret }}{{- if .name }}
- {name: http, secret: {secretName: {{ .name }}, defaultMode: 0440, items: [{key: {{ .key }}, path: token}]}}
{{- end }}{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "cdc-relay.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "cdc-relay.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
