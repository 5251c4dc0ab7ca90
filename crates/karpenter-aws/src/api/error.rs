//! Errors of AWS calls. Each error code belongs to a kind of error, and callers decide by the kind.

/// The kind of an error. A missing launch template has its own kind, because the launch is then retried with a new
/// template; [`AwsError::is_not_found`] is true for this kind and for `NotFound`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    NotFound,
    /// `CreateFleet` named a launch template that does not exist.
    LaunchTemplateNotFound,
    AlreadyExists,
    /// EC2 cannot launch the instance at present, for lack of capacity, quota or free addresses.
    Unfulfillable,
    /// Spot instances need a service-linked role. The role does not exist, and the caller may not create it.
    SpotRoleMissing,
    /// Too many requests.
    Throttled,
    /// The credentials are valid, but do not allow the call.
    Unauthorized,
    /// The credentials are missing, invalid or expired.
    BadCredentials,
    /// The call was a dry run, and the request is authorized.
    DryRunOk,
    /// A server error, or AWS is unreachable. The same call may succeed later.
    Transient,
    /// The request is invalid, or the error code is unknown.
    Other,
}

/// An error of an AWS call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", prefix(.code))]
pub struct AwsError {
    /// AWS's error code, such as `InvalidInstanceID.NotFound`; empty if there was no response.
    pub code: String,
    pub message: String,
    pub kind: ErrorKind,
}

fn prefix(code: &str) -> String {
    if code.is_empty() { String::new() } else { format!("{code}: ") }
}

pub(crate) const LAUNCH_TEMPLATE_NAME_NOT_FOUND: &str = "InvalidLaunchTemplateName.NotFoundException";
const LAUNCH_TEMPLATE_ID_NOT_FOUND: &str = "InvalidLaunchTemplateId.NotFound";
pub(crate) const INSUFFICIENT_FREE_ADDRESSES: &str = "InsufficientFreeAddressesInSubnet";
pub(crate) const RESERVATION_CAPACITY_EXCEEDED: &str = "ReservationCapacityExceeded";
pub(crate) const SPOT_ROLE_MISSING: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";

const NOT_FOUND: [&str; 12] = [
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    LAUNCH_TEMPLATE_ID_NOT_FOUND,
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchEntity",
    "NoSuchEntityException",
    "ParameterNotFound",
    "InvalidPlacementGroup.Unknown",
    "InvalidPlacementGroupId.NotFound",
    "ResourceNotFoundException",
    "ParameterVersionNotFound",
];

const UNFULFILLABLE: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    INSUFFICIENT_FREE_ADDRESSES,
    "MaxFleetCountExceeded",
    RESERVATION_CAPACITY_EXCEEDED,
];

const THROTTLED: [&str; 11] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "SlowDown",
];

const BAD_CREDENTIALS: [&str; 11] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "MissingAuthenticationToken",
    "InvalidIdentityToken",
];

const TRANSIENT: [&str; 8] = [
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "InternalServerException",
    "ServiceUnavailable",
    "Unavailable",
    "RequestTimeout",
    "RequestTimeoutException",
];

fn kind_of(code: &str) -> ErrorKind {
    match code {
        LAUNCH_TEMPLATE_NAME_NOT_FOUND => ErrorKind::LaunchTemplateNotFound,
        SPOT_ROLE_MISSING => ErrorKind::SpotRoleMissing,
        "DryRunOperation" => ErrorKind::DryRunOk,
        "EntityAlreadyExists" | "EntityAlreadyExistsException" => ErrorKind::AlreadyExists,
        "InvalidLaunchTemplateName.AlreadyExistsException" => ErrorKind::AlreadyExists,
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => ErrorKind::Unauthorized,
        // EC2 returns this code for missing permissions, but also for unknown access keys.
        "AuthFailure" => ErrorKind::Unauthorized,
        code if NOT_FOUND.contains(&code) => ErrorKind::NotFound,
        code if UNFULFILLABLE.contains(&code) => ErrorKind::Unfulfillable,
        code if THROTTLED.contains(&code) => ErrorKind::Throttled,
        code if BAD_CREDENTIALS.contains(&code) => ErrorKind::BadCredentials,
        code if TRANSIENT.contains(&code) => ErrorKind::Transient,
        _ => ErrorKind::Other,
    }
}

impl AwsError {
    /// An error response with an error code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        Self { kind: kind_of(&code), code, message: message.into() }
    }

    /// An error response with an error code and an HTTP status. For an unknown code, status 5xx counts as transient and
    /// 429 as throttled.
    pub fn with_status(code: impl Into<String>, message: impl Into<String>, status: u16) -> Self {
        let mut error = Self::new(code, message);
        if error.kind == ErrorKind::Other {
            error.kind = match status {
                429 => ErrorKind::Throttled,
                500.. => ErrorKind::Transient,
                _ => ErrorKind::Other,
            };
        }
        error
    }

    /// The error of a call without a response: the connection failed or the call timed out.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self { code: String::new(), message: message.into(), kind: ErrorKind::Transient }
    }

    /// The error of a call that could not be signed, because there are no credentials.
    pub fn no_credentials(message: impl Into<String>) -> Self {
        Self { code: String::new(), message: message.into(), kind: ErrorKind::BadCredentials }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, ErrorKind::NotFound | ErrorKind::LaunchTemplateNotFound)
    }

    /// Whether the error states that the launch template does not exist. If the template was deleted a moment ago,
    /// `CreateFleet` reports its id instead of its name.
    pub fn is_launch_template_gone(&self) -> bool {
        self.kind == ErrorKind::LaunchTemplateNotFound || self.code == LAUNCH_TEMPLATE_ID_NOT_FOUND
    }

    pub fn is_already_exists(&self) -> bool {
        self.kind == ErrorKind::AlreadyExists
    }

    pub fn is_unfulfillable(&self) -> bool {
        self.kind == ErrorKind::Unfulfillable
    }

    pub fn is_spot_role_missing(&self) -> bool {
        self.kind == ErrorKind::SpotRoleMissing
    }

    pub fn is_throttled(&self) -> bool {
        self.kind == ErrorKind::Throttled
    }

    /// Whether a permission is missing or the credentials are invalid.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.kind, ErrorKind::Unauthorized | ErrorKind::BadCredentials)
    }

    pub fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Transient
    }

    /// Whether the same call may succeed later, without a change of permissions or of the request: after throttling, a
    /// server error, AWS being unreachable, or credentials that are being renewed.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Transient | ErrorKind::BadCredentials)
    }

    pub fn is_insufficient_free_addresses(&self) -> bool {
        self.code == INSUFFICIENT_FREE_ADDRESSES
    }

    pub fn is_reservation_capacity_exceeded(&self) -> bool {
        self.code == RESERVATION_CAPACITY_EXCEEDED
    }

    /// Whether a spread placement group already has its maximum of seven running instances in the zone.
    pub fn is_spread_placement_group_full(&self) -> bool {
        self.message.contains("limit of instances in this spread placement group")
    }

    pub fn is_instance_profile_not_found(&self) -> bool {
        self.code == "InvalidParameterValue" && self.message.contains("Invalid IAM Instance Profile name")
    }

    pub fn is_user_data_too_large(&self) -> bool {
        self.code == "InvalidUserData.Malformed" && self.message.contains("User data is limited to")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_determines_kind() {
        let cases = [
            ("InvalidInstanceID.NotFound", ErrorKind::NotFound),
            ("QueueDoesNotExist", ErrorKind::NotFound),
            ("NoSuchEntity", ErrorKind::NotFound),
            ("ParameterNotFound", ErrorKind::NotFound),
            ("InvalidLaunchTemplateId.NotFound", ErrorKind::NotFound),
            ("InvalidLaunchTemplateName.NotFoundException", ErrorKind::LaunchTemplateNotFound),
            ("EntityAlreadyExists", ErrorKind::AlreadyExists),
            ("InvalidCapacityReservationId.NotFound", ErrorKind::NotFound),
            ("InsufficientInstanceCapacity", ErrorKind::Unfulfillable),
            ("MaxSpotInstanceCountExceeded", ErrorKind::Unfulfillable),
            ("VcpuLimitExceeded", ErrorKind::Unfulfillable),
            ("UnfulfillableCapacity", ErrorKind::Unfulfillable),
            ("InsufficientFreeAddressesInSubnet", ErrorKind::Unfulfillable),
            ("Unsupported", ErrorKind::Unfulfillable),
            ("MaxFleetCountExceeded", ErrorKind::Unfulfillable),
            ("ReservationCapacityExceeded", ErrorKind::Unfulfillable),
            ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", ErrorKind::SpotRoleMissing),
            ("RequestLimitExceeded", ErrorKind::Throttled),
            ("UnauthorizedOperation", ErrorKind::Unauthorized),
            ("AccessDenied", ErrorKind::Unauthorized),
            ("ExpiredToken", ErrorKind::BadCredentials),
            ("DryRunOperation", ErrorKind::DryRunOk),
            ("InternalError", ErrorKind::Transient),
            ("InvalidParameterValue", ErrorKind::Other),
            ("", ErrorKind::Other),
        ];
        for (code, kind) in cases {
            assert_eq!(AwsError::new(code, "").kind, kind, "{code}");
        }
    }

    #[test]
    fn http_status_determines_kind_of_unknown_code() {
        assert_eq!(AwsError::with_status("Odd", "", 503).kind, ErrorKind::Transient);
        assert_eq!(AwsError::with_status("Odd", "", 429).kind, ErrorKind::Throttled);
        assert_eq!(AwsError::with_status("Odd", "", 400).kind, ErrorKind::Other);
        assert_eq!(AwsError::with_status("RequestLimitExceeded", "", 503).kind, ErrorKind::Throttled);
    }

    #[test]
    fn error_displays_code_and_message() {
        assert_eq!(AwsError::new("Code", "what").to_string(), "Code: what");
        assert_eq!(AwsError::unreachable("what").to_string(), "what");
    }
}
