//! The fields of pods that are read, and of the messages in them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, ContainerStatus, EphemeralVolumeSource, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate,
    PersistentVolumeClaimVolumeSource, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodCondition,
    PodOS, PodResourceClaim, PodSchedulingGate, PodSpec, PodStatus, PreferredSchedulingTerm, ResourceClaim,
    ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, VolumeResourceRequirements,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
};
use karpenter_runtime::protobuf::field::{Field, Kind, Message};

use super::{Kept, KeptMessage, Whole, all_fields, field_of, is_pointer, is_whole, some_fields};

some_fields! {
    Pod {
        1 value metadata: ObjectMeta = "metadata",
        2 value spec: Option<PodSpec> = "spec",
        3 value status: Option<PodStatus> = "status",
    } not read {}

    ObjectMeta {
        1 value name: Option<String> = "name",
        3 value namespace: Option<String> = "namespace",
        5 value uid: Option<String> = "uid",
        6 value resource_version: Option<String> = "resourceVersion",
        7 value generation: Option<i64> = "generation",
        8 value creation_timestamp: Option<Time> = "creationTimestamp",
        9 pointer deletion_timestamp: Option<Time> = "deletionTimestamp",
        10 pointer deletion_grace_period_seconds: Option<i64> = "deletionGracePeriodSeconds",
        11 value labels: Option<BTreeMap<String, String>> = "labels",
        12 value annotations: Option<BTreeMap<String, String>> = "annotations",
        13 value owner_references: Option<Vec<OwnerReference>> = "ownerReferences",
        14 value finalizers: Option<Vec<String>> = "finalizers",
    } not read {
        "the name is already generated": generate_name;
        "always empty": self_link;
        "often half of an object, and no controller reads it": managed_fields;
    }

    PodSpec {
        1 value volumes: Option<Vec<Volume>> = "volumes",
        2 value containers: Vec<Container> = "containers",
        3 value restart_policy: Option<String> = "restartPolicy",
        4 pointer termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        5 pointer active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        7 value node_selector: Option<BTreeMap<String, String>> = "nodeSelector",
        10 value node_name: Option<String> = "nodeName",
        11 value host_network: Option<bool> = "hostNetwork",
        18 pointer affinity: Option<Affinity> = "affinity",
        19 value scheduler_name: Option<String> = "schedulerName",
        20 value init_containers: Option<Vec<Container>> = "initContainers",
        22 value tolerations: Option<Vec<Toleration>> = "tolerations",
        24 value priority_class_name: Option<String> = "priorityClassName",
        25 pointer priority: Option<i32> = "priority",
        29 pointer runtime_class_name: Option<String> = "runtimeClassName",
        31 pointer preemption_policy: Option<String> = "preemptionPolicy",
        32 value overhead: Option<BTreeMap<String, Quantity>> = "overhead",
        33 value topology_spread_constraints: Option<Vec<TopologySpreadConstraint>> = "topologySpreadConstraints",
        36 pointer os: Option<PodOS> = "os",
        38 value scheduling_gates: Option<Vec<PodSchedulingGate>> = "schedulingGates",
        39 value resource_claims: Option<Vec<PodResourceClaim>> = "resourceClaims",
        40 pointer resources: Option<ResourceRequirements> = "resources",
    } not read {
        "network of a running pod":
            dns_config dns_policy enable_service_links host_aliases hostname hostname_override
            set_hostname_as_fqdn subdomain;
        "how containers are run":
            host_ipc host_pid host_users image_pull_secrets security_context share_process_namespace;
        "credentials": automount_service_account_token service_account service_account_name;
        "no requests of their own": ephemeral_containers;
        "the server computes the condition Ready with them": readiness_gates;
        "gang scheduling is not supported": workload_ref;
    }

    Container {
        1 value name: String = "name",
        6 value ports: Option<Vec<ContainerPort>> = "ports",
        8 value resources: Option<ResourceRequirements> = "resources",
        24 pointer restart_policy: Option<String> = "restartPolicy",
    } not read {
        "how the container is run":
            args command env env_from image image_pull_policy lifecycle resize_policy restart_policy_rules
            security_context stdin stdin_once termination_message_path termination_message_policy tty
            volume_devices volume_mounts working_dir;
        "probes": liveness_probe readiness_probe startup_probe;
    }

    Volume {
        1 value name: String = "name",
        inlined 2 {
            10 pointer persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource> = "persistentVolumeClaim",
            29 pointer ephemeral: Option<EphemeralVolumeSource> = "ephemeral",
        }
    } not read {
        "sources without a claim do not decide where a pod can run":
            aws_elastic_block_store azure_disk azure_file cephfs cinder config_map csi downward_api empty_dir fc
            flex_volume flocker gce_persistent_disk git_repo glusterfs host_path image iscsi nfs
            photon_persistent_disk portworx_volume projected quobyte rbd scale_io secret storageos
            vsphere_volume;
    }

    EphemeralVolumeSource {
        1 pointer volume_claim_template: Option<PersistentVolumeClaimTemplate> = "volumeClaimTemplate",
    } not read {}

    PersistentVolumeClaimTemplate {
        1 value metadata: Option<ObjectMeta> = "metadata",
        2 value spec: PersistentVolumeClaimSpec = "spec",
    } not read {}

    PersistentVolumeClaimSpec {
        1 value access_modes: Option<Vec<String>> = "accessModes",
        2 value resources: Option<VolumeResourceRequirements> = "resources",
        3 value volume_name: Option<String> = "volumeName",
        4 pointer selector: Option<LabelSelector> = "selector",
        5 pointer storage_class_name: Option<String> = "storageClassName",
        6 pointer volume_mode: Option<String> = "volumeMode",
        9 pointer volume_attributes_class_name: Option<String> = "volumeAttributesClassName",
    } not read {
        "the content of the volume": data_source data_source_ref;
    }

    PodStatus {
        1 value phase: Option<String> = "phase",
        2 value conditions: Option<Vec<PodCondition>> = "conditions",
        7 pointer start_time: Option<Time> = "startTime",
        8 value container_statuses: Option<Vec<ContainerStatus>> = "containerStatuses",
        10 value init_container_statuses: Option<Vec<ContainerStatus>> = "initContainerStatuses",
        11 value nominated_node_name: Option<String> = "nominatedNodeName",
    } not read {
        "addresses": host_ip host_ips pod_ip pod_ips;
        "messages": message reason;
        "resources are read from the containers": allocated_resources resources;
        "replaced by conditions": resize;
        "no part of scheduling":
            ephemeral_container_statuses extended_resource_claim_status observed_generation qos_class
            resource_claim_statuses;
    }

    PodCondition {
        1 value type_: String = "type",
        2 value status: String = "status",
        4 value last_transition_time: Option<Time> = "lastTransitionTime",
        5 value reason: Option<String> = "reason",
    } not read {
        "no controller reads them": last_probe_time message observed_generation;
    }

    ContainerStatus {
        1 value name: String = "name",
        10 value allocated_resources: Option<BTreeMap<String, Quantity>> = "allocatedResources",
        11 pointer resources: Option<ResourceRequirements> = "resources",
    } not read {
        "the process of the container":
            allocated_resources_status container_id image image_id last_state ready restart_count started state
            stop_signal user volume_mounts;
    }
}

all_fields! {
    OwnerReference {
        1 value kind: String = "kind",
        3 value name: String = "name",
        4 value uid: String = "uid",
        5 value api_version: String = "apiVersion",
        6 pointer controller: Option<bool> = "controller",
        7 pointer block_owner_deletion: Option<bool> = "blockOwnerDeletion",
    }

    PodOS {
        1 value name: String = "name",
    }

    PodSchedulingGate {
        1 value name: String = "name",
    }

    PodResourceClaim {
        1 value name: String = "name",
        3 pointer resource_claim_name: Option<String> = "resourceClaimName",
        4 pointer resource_claim_template_name: Option<String> = "resourceClaimTemplateName",
    }

    PersistentVolumeClaimVolumeSource {
        1 value claim_name: String = "claimName",
        2 value read_only: Option<bool> = "readOnly",
    }

    VolumeResourceRequirements {
        1 value limits: Option<BTreeMap<String, Quantity>> = "limits",
        2 value requests: Option<BTreeMap<String, Quantity>> = "requests",
    }

    ContainerPort {
        1 value name: Option<String> = "name",
        2 value host_port: Option<i32> = "hostPort",
        3 value container_port: i32 = "containerPort",
        4 value protocol: Option<String> = "protocol",
        5 value host_ip: Option<String> = "hostIP",
    }

    ResourceRequirements {
        1 value limits: Option<BTreeMap<String, Quantity>> = "limits",
        2 value requests: Option<BTreeMap<String, Quantity>> = "requests",
        3 value claims: Option<Vec<ResourceClaim>> = "claims",
    }

    ResourceClaim {
        1 value name: String = "name",
        2 value request: Option<String> = "request",
    }

    Toleration {
        1 value key: Option<String> = "key",
        2 value operator: Option<String> = "operator",
        3 value value: Option<String> = "value",
        4 value effect: Option<String> = "effect",
        5 pointer toleration_seconds: Option<i64> = "tolerationSeconds",
    }

    TopologySpreadConstraint {
        1 value max_skew: i32 = "maxSkew",
        2 value topology_key: String = "topologyKey",
        3 value when_unsatisfiable: String = "whenUnsatisfiable",
        4 pointer label_selector: Option<LabelSelector> = "labelSelector",
        5 pointer min_domains: Option<i32> = "minDomains",
        6 pointer node_affinity_policy: Option<String> = "nodeAffinityPolicy",
        7 pointer node_taints_policy: Option<String> = "nodeTaintsPolicy",
        8 value match_label_keys: Option<Vec<String>> = "matchLabelKeys",
    }

    LabelSelector {
        1 value match_labels: Option<BTreeMap<String, String>> = "matchLabels",
        2 value match_expressions: Option<Vec<LabelSelectorRequirement>> = "matchExpressions",
    }

    LabelSelectorRequirement {
        1 value key: String = "key",
        2 value operator: String = "operator",
        3 value values: Option<Vec<String>> = "values",
    }

    Affinity {
        1 pointer node_affinity: Option<NodeAffinity> = "nodeAffinity",
        2 pointer pod_affinity: Option<PodAffinity> = "podAffinity",
        3 pointer pod_anti_affinity: Option<PodAntiAffinity> = "podAntiAffinity",
    }

    NodeAffinity {
        1 pointer required_during_scheduling_ignored_during_execution: Option<NodeSelector> = "requiredDuringSchedulingIgnoredDuringExecution",
        2 value preferred_during_scheduling_ignored_during_execution: Option<Vec<PreferredSchedulingTerm>> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    NodeSelector {
        1 value node_selector_terms: Vec<NodeSelectorTerm> = "nodeSelectorTerms",
    }

    NodeSelectorTerm {
        1 value match_expressions: Option<Vec<NodeSelectorRequirement>> = "matchExpressions",
        2 value match_fields: Option<Vec<NodeSelectorRequirement>> = "matchFields",
    }

    NodeSelectorRequirement {
        1 value key: String = "key",
        2 value operator: String = "operator",
        3 value values: Option<Vec<String>> = "values",
    }

    PreferredSchedulingTerm {
        1 value weight: i32 = "weight",
        2 value preference: NodeSelectorTerm = "preference",
    }

    PodAffinity {
        1 value required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>> = "requiredDuringSchedulingIgnoredDuringExecution",
        2 value preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    PodAntiAffinity {
        1 value required_during_scheduling_ignored_during_execution: Option<Vec<PodAffinityTerm>> = "requiredDuringSchedulingIgnoredDuringExecution",
        2 value preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedPodAffinityTerm>> = "preferredDuringSchedulingIgnoredDuringExecution",
    }

    PodAffinityTerm {
        1 pointer label_selector: Option<LabelSelector> = "labelSelector",
        2 value namespaces: Option<Vec<String>> = "namespaces",
        3 value topology_key: String = "topologyKey",
        4 pointer namespace_selector: Option<LabelSelector> = "namespaceSelector",
        5 value match_label_keys: Option<Vec<String>> = "matchLabelKeys",
        6 value mismatch_label_keys: Option<Vec<String>> = "mismatchLabelKeys",
    }

    WeightedPodAffinityTerm {
        1 value weight: i32 = "weight",
        2 value pod_affinity_term: PodAffinityTerm = "podAffinityTerm",
    }
}
