{{- /* The pod of the relay; with `own` the one of a StatefulSet that has a shard to itself, the
       one of its ordinal. */ -}}
{{- define "cdc-relay.pod" -}}
{{- $own := .own -}}
{{- with .root -}}
metadata:
  labels:
    {{- include "cdc-relay.labels" . | nindent 4 }}
    {{- if $own }}
    app.kubernetes.io/component: shard
    {{- end }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "cdc-relay.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "cdc-relay.serviceAccount" . }}
  automountServiceAccountToken: {{ .Values.serviceAccount.automount }}
  # Kubernetes would otherwise set CDC_RELAY_… variables for a service of this name.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "cdc-relay.grace" . }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    {{- include "cdc-relay.podSecurity" . | nindent 4 }}
  containers:
    - name: cdc-relay
      image: {{ include "cdc-relay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [run, --config, /etc/cdc-relay/config.yaml]
      {{- if or $own (include "cdc-relay.runEnv" .) .Values.extraEnv }}
      env:
        {{- if $own }}
        - {name: CDC_RELAY_POSTGRES_OWN_SHARDS, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}
        {{- end }}
        {{- with include "cdc-relay.runEnv" . }}
        {{- . | trim | nindent 8 }}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: {{ include "cdc-relay.port" . }}}
      # Not /startupz: a database or broker that is away is no reason for a restart.
      startupProbe:
        httpGet: {path: /livez, port: http}
        periodSeconds: 1
        failureThreshold: 30
      livenessProbe:
        httpGet: {path: /livez, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /readyz, port: http}
        periodSeconds: 5
        timeoutSeconds: 5
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- include "cdc-relay.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "cdc-relay.mounts" . | nindent 8 }}
  volumes:
    - name: config
      configMap: {name: {{ include "cdc-relay.fullname" . }}}
    {{- with include "cdc-relay.secretVolumes" . }}
    {{- . | trim | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "cdc-relay.selector" . | nindent 10 }}
    {{- end }}
{{- end -}}
{{- end -}}
