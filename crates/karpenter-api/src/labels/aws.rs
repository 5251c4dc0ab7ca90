//! Keys of labels and annotations of the AWS provider.
//!
//! Upstream: karpenter-provider-aws `pkg/apis/v1/labels.go`.

/// The API group of EC2NodeClass, which is also the domain of the AWS provider's labels.
pub const AWS_GROUP: &str = "karpenter.k8s.aws";
pub const AWS_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
pub const AWS_ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// The zone label that the EBS CSI driver sets on nodes.
pub const AWS_EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

pub const AWS_INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
pub const AWS_INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
pub const AWS_INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
pub const AWS_INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
pub const AWS_INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
pub const AWS_INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
pub const AWS_NITRO_SANDBOX: &str = "karpenter.k8s.aws/nitro-sandbox";
pub const AWS_INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
pub const AWS_INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
pub const AWS_INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
pub const AWS_INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const AWS_INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
pub const AWS_INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
pub const AWS_INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
pub const AWS_INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
pub const AWS_INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
pub const AWS_INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
pub const AWS_INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
pub const AWS_INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
pub const AWS_INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const AWS_INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
pub const AWS_INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
pub const AWS_INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
pub const AWS_CAPACITY_RESERVATION_ID: &str = karpenter_model::labels::AWS_CAPACITY_RESERVATION_ID;
pub const AWS_CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
pub const AWS_CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
    "karpenter.k8s.aws/capacity-reservation-interruptible";
pub const AWS_PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
pub const AWS_PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";

pub const AWS_ANNOTATION_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
pub const AWS_ANNOTATION_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
pub const AWS_ANNOTATION_INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
pub const AWS_FINALIZER_TERMINATION: &str = "karpenter.k8s.aws/termination";

/// The well-known label keys of the AWS provider. Every instance type has a value for each of them or states that the
/// label does not exist.
pub(super) const AWS_WELL_KNOWN: [&str; 29] = [
    AWS_ZONE_ID,
    AWS_INSTANCE_CPU,
    AWS_INSTANCE_CPU_MANUFACTURER,
    AWS_INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    AWS_INSTANCE_MEMORY,
    AWS_INSTANCE_HYPERVISOR,
    AWS_INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    AWS_NITRO_SANDBOX,
    AWS_INSTANCE_CATEGORY,
    AWS_INSTANCE_GENERATION,
    AWS_INSTANCE_FAMILY,
    AWS_INSTANCE_SIZE,
    AWS_INSTANCE_CAPABILITY_FLEX,
    AWS_INSTANCE_LOCAL_NVME,
    AWS_INSTANCE_EBS_BANDWIDTH,
    AWS_INSTANCE_NETWORK_BANDWIDTH,
    AWS_INSTANCE_GPU_NAME,
    AWS_INSTANCE_GPU_MANUFACTURER,
    AWS_INSTANCE_GPU_COUNT,
    AWS_INSTANCE_GPU_MEMORY,
    AWS_INSTANCE_ACCELERATOR_NAME,
    AWS_INSTANCE_ACCELERATOR_MANUFACTURER,
    AWS_INSTANCE_ACCELERATOR_COUNT,
    AWS_INSTANCE_TENANCY,
    AWS_CAPACITY_RESERVATION_ID,
    AWS_CAPACITY_RESERVATION_TYPE,
    AWS_CAPACITY_RESERVATION_INTERRUPTIBLE,
    AWS_PLACEMENT_GROUP_ID,
    AWS_PLACEMENT_GROUP_PARTITION,
];
