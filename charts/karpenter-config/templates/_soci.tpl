{{/*
User data of a node template: the parts that configure the SOCI snapshotter of containerd, then the user data of the values.
The configuration depends on the AMI family; the scripts are in files/soci, with their settings prepended.
The context is (dict "root" $ "values" a template's values "key" its path "family" f "isGpu" bool).
*/}}

{{/* "true" or empty. */}}
{{- define "karpenter-config.hasSoci" -}}
{{- if kindIs "invalid" .values.enableSoci | ternary .root.Values.soci.enabled .values.enableSoci -}}true{{- end -}}
{{- end -}}

{{/* The user data of the values; "default" means none, as in the current chart of TrueFoundry. Scripts for GPUs do not apply to Bottlerocket. */}}
{{- define "karpenter-config.ownUserData" -}}
{{- if not (or (eq (.values.userData | default "") "default") (and .isGpu (eq .family "bottlerocket") (hasPrefix "#!" (.values.userData | default "" | trim)))) -}}
{{- .values.userData | default "" -}}
{{- end -}}
{{- end -}}

{{- define "karpenter-config.userData" -}}
{{- $own := include "karpenter-config.ownUserData" . -}}
{{- if not (include "karpenter-config.hasSoci" .) -}}
{{- $own -}}
{{- else if eq .family "al2" -}}
{{- include "karpenter-config.sociChecksums" . -}}
{{- $script := printf "%s\n%s" (include "karpenter-config.sociSettings" .) (.root.Files.Get "files/soci/al2.sh") -}}
{{- include "karpenter-config.mime" (dict "parts" (list (dict "type" "text/x-shellscript" "text" $script)) "own" $own "key" .key) -}}
{{- else if eq .family "al2023" -}}
{{- if eq .root.Values.soci.mode "parallel" -}}
{{- include "karpenter-config.mime" (dict "parts" (list (dict "type" "application/node.eks.aws" "text" (.root.Files.Get "files/soci/al2023-parallel.yaml"))) "own" $own "key" .key) -}}
{{- else -}}
{{- include "karpenter-config.sociChecksums" . -}}
{{- $script := printf "%s\n%s" (include "karpenter-config.sociSettings" .) (.root.Files.Get "files/soci/al2023.sh") -}}
{{- $config := .root.Files.Get "files/soci/al2023-lazy.yaml" -}}
{{- if not .root.Values.soci.privateRegistries -}}
{{- $config = regexReplaceAll "(?m)^  kubelet:\n    config:\n      imageServiceEndpoint: .*\n" $config "" -}}
{{- end -}}
{{- include "karpenter-config.mime" (dict "parts" (list (dict "type" "application/node.eks.aws" "text" $config) (dict "type" "text/x-shellscript" "text" $script)) "own" $own "key" .key) -}}
{{- end -}}
{{- else if eq .family "bottlerocket" -}}
{{- if ne .root.Values.soci.mode "parallel" -}}
{{- fail (printf "%s: Bottlerocket has no lazy mode; set soci.mode=parallel, or enableSoci: false for this template" .key) -}}
{{- end -}}
{{- $settings := include "karpenter-config.sociBottlerocket" .root.Values.soci.parallel | fromToml -}}
{{- $given := $own | default "" | fromToml -}}
{{- if $given.Error -}}
{{- fail (printf "%s.userData: Bottlerocket needs TOML: %s" .key $given.Error) -}}
{{- end -}}
{{- merge $given $settings | toToml -}}
{{- else -}}
{{- fail (printf "%s: SOCI is for AL2, AL2023 and Bottlerocket, not for %s; set enableSoci: false for this template" .key .family) -}}
{{- end -}}
{{- end -}}

{{- define "karpenter-config.sociChecksums" -}}
{{- $soci := .root.Values.soci -}}
{{- if ne $soci.install "ami" -}}
{{- range $arch := list "amd64" "arm64" -}}
{{- if not (index $soci.sha256 $arch) -}}
{{- fail (printf "soci.sha256.%s must be set: the checksum of soci-snapshotter-%s-linux-%s.tar.gz (or soci.install=ami, if the AMI has the snapshotter)" $arch $soci.version $arch) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The beginning of both scripts. */}}
{{- define "karpenter-config.sociSettings" -}}
{{- $soci := .root.Values.soci -}}
#!/bin/bash
set -euo pipefail
version={{ $soci.version | toString | squote }}
base_url={{ $soci.baseUrl | squote }}
sha256_amd64={{ $soci.sha256.amd64 | default "" | squote }}
sha256_arm64={{ $soci.sha256.arm64 | default "" | squote }}
install={{ $soci.install | squote }}
{{- if eq .family "al2" }}
runtime={{ .isGpu | ternary "nvidia" "runc" | squote }}
private_registries={{ $soci.privateRegistries }}
{{- end }}
snapshotter_config() {
  cat <<'TOML'
{{ include "karpenter-config.sociConfig" $soci }}
TOML
}
{{- end -}}

{{/* /etc/soci-snapshotter-grpc/config.toml */}}
{{- define "karpenter-config.sociConfig" -}}
{{- $isLazy := ne .mode "parallel" -}}
{{- if .privateRegistries -}}
[cri_keychain]
enable_keychain = true
image_service_path = "/run/containerd/containerd.sock"

{{ end -}}
{{- if ne .mode "lazy" -}}
[content_store]
type = "containerd"

{{ end -}}
[pull_modes.soci_v1]
enable = {{ and $isLazy .v1Indexes | ternary true false }}

[pull_modes.soci_v2]
enable = {{ $isLazy }}

[pull_modes.parallel_pull_unpack]
enable = {{ eq .mode "parallel" }}
{{- if ne .mode "lazy" }}
experimental_parallel_pull_as_fallback = {{ eq .mode "parallelFallback" }}
max_concurrent_downloads = {{ int .parallel.maxConcurrentDownloads }}
max_concurrent_downloads_per_image = {{ int .parallel.maxConcurrentDownloadsPerImage }}
concurrent_download_chunk_size = {{ .parallel.concurrentDownloadChunkSize | toString | quote }}
max_concurrent_unpacks = {{ int .parallel.maxConcurrentUnpacks }}
max_concurrent_unpacks_per_image = {{ int .parallel.maxConcurrentUnpacksPerImage }}
discard_unpacked_layers = {{ .parallel.discardUnpackedLayers }}
{{- end }}
{{- end -}}

{{/* Bottlerocket's settings, as TOML; negative numbers mean "no limit" and are omitted. */}}
{{- define "karpenter-config.sociBottlerocket" -}}
[settings.container-runtime]
snapshotter = "soci"

[settings.container-runtime-plugins.soci-snapshotter]
pull-mode = "parallel-pull-unpack"

[settings.container-runtime-plugins.soci-snapshotter.parallel-pull-unpack]
max-concurrent-downloads-per-image = {{ int .maxConcurrentDownloadsPerImage }}
concurrent-download-chunk-size = {{ .concurrentDownloadChunkSize | toString | quote }}
max-concurrent-unpacks-per-image = {{ int .maxConcurrentUnpacksPerImage }}
discard-unpacked-layers = {{ .discardUnpackedLayers }}
{{- if ge (int .maxConcurrentDownloads) 0 }}
max-concurrent-downloads = {{ int .maxConcurrentDownloads }}
{{- end }}
{{- if ge (int .maxConcurrentUnpacks) 0 }}
max-concurrent-unpacks = {{ int .maxConcurrentUnpacks }}
{{- end }}
{{- end -}}

{{/*
The chart's parts, then the user data of the values. A single script is not wrapped in a MIME archive. If the user data is
a MIME archive already, the chart's parts are prepended to its parts.
*/}}
{{- define "karpenter-config.mime" -}}
{{- $parts := .parts -}}
{{- $own := .own | trim -}}
{{- if and (not $own) (eq (len $parts) 1) -}}
{{- (index $parts 0).text -}}
{{- else if regexMatch "(?i)^(mime-version|content-type: *multipart)" $own -}}
{{- $boundary := regexFind "(?i)boundary=\"?[^\"\\s;]+" $own | trimPrefix "boundary=" | trimPrefix "BOUNDARY=" | trimAll "\"" -}}
{{- if not $boundary -}}
{{- fail (printf "%s.userData: a MIME message without a boundary" .key) -}}
{{- end -}}
{{- $split := splitn (printf "--%s\n" $boundary) 2 $own -}}
{{- $split._0 -}}
{{- range $part := $parts }}{{ include "karpenter-config.mimePart" (dict "boundary" $boundary "part" $part) }}{{ end -}}
--{{ $boundary }}
{{ $split._1 }}
{{ else -}}
{{- if $own -}}
{{- $type := "text/x-shellscript" -}}
{{- if and (not (hasPrefix "#!" $own)) (contains "node.eks.aws/" $own) }}{{ $type = "application/node.eks.aws" }}{{ end -}}
{{- $parts = append $parts (dict "type" $type "text" $own) -}}
{{- end -}}
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

{{ range $part := $parts }}{{ include "karpenter-config.mimePart" (dict "boundary" "//" "part" $part) }}{{ end -}}
--//--
{{ end -}}
{{- end -}}

{{- define "karpenter-config.mimePart" -}}
--{{ .boundary }}
Content-Type: {{ .part.type }}{{ if hasPrefix "text/" .part.type }}; charset="us-ascii"{{ end }}

{{ .part.text | trim }}

{{ end -}}
