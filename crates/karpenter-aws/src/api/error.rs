//! How AWS says no. The code decides what kind of no it is; the kind decides what we do.

/// What kind of no an error is. The most telling one: a launch template that is not there is its own kind, because a
/// launch is tried again for it, and [`AwsError::is_not_found`] knows both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    NotFound,
    /// A fleet named a launch template that is gone.
    LaunchTemplateNotFound,
    AlreadyExists,
    /// There is no room for it now: capacity, quota or addresses.
    Unfulfillable,
    /// Spot machines need a role that does not exist and may not be created.
    SpotRoleMissing,
    /// Too many calls.
    Throttled,
    /// The credentials are good, but do not allow it.
    Unauthorized,
    /// The credentials are missing, wrong or too old.
    BadCredentials,
    /// Nothing was done, as asked; it would have been allowed.
    DryRunOk,
    /// AWS is at fault or cannot be reached; the same call may work later.
    Transient,
    /// The request is wrong in itself, or anything unknown.
    Other,
}

/// An error of AWS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", prefix(.code))]
pub struct AwsError {
    /// AWS's own word, such as `InvalidInstanceID.NotFound`; empty when no answer came.
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
        // Also what EC2 says about keys that it does not know.
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
    /// An answer with a code.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        let code = code.into();
        Self { kind: kind_of(&code), code, message: message.into() }
    }

    /// An answer with a code and a status: a server's fault is transient whatever its code, and 429 is throttling.
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

    /// No answer came: a connection that failed, a time that ran out.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self { code: String::new(), message: message.into(), kind: ErrorKind::Transient }
    }

    /// There is nothing to sign calls with.
    pub fn no_credentials(message: impl Into<String>) -> Self {
        Self { code: String::new(), message: message.into(), kind: ErrorKind::BadCredentials }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self.kind, ErrorKind::NotFound | ErrorKind::LaunchTemplateNotFound)
    }

    /// A launch named a template that is not there. A fleet that knew it a moment ago speaks of its id.
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

    /// The permission is missing, or the credentials are no good.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.kind, ErrorKind::Unauthorized | ErrorKind::BadCredentials)
    }

    pub fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Transient
    }

    /// The same call may succeed later without a change of permissions or of the request: AWS is busy, at fault or cannot
    /// be reached, or the credentials are being renewed.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Transient | ErrorKind::BadCredentials)
    }

    pub fn is_insufficient_free_addresses(&self) -> bool {
        self.code == INSUFFICIENT_FREE_ADDRESSES
    }

    pub fn is_reservation_capacity_exceeded(&self) -> bool {
        self.code == RESERVATION_CAPACITY_EXCEEDED
    }

    /// The seven machines per zone of a spread placement group are all there.
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
    fn codes_have_kinds() {
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
    fn a_status_decides_where_a_code_says_nothing() {
        assert_eq!(AwsError::with_status("Odd", "", 503).kind, ErrorKind::Transient);
        assert_eq!(AwsError::with_status("Odd", "", 429).kind, ErrorKind::Throttled);
        assert_eq!(AwsError::with_status("Odd", "", 400).kind, ErrorKind::Other);
        assert_eq!(AwsError::with_status("RequestLimitExceeded", "", 503).kind, ErrorKind::Throttled);
    }

    #[test]
    fn an_error_reads_as_code_and_message() {
        assert_eq!(AwsError::new("Code", "what").to_string(), "Code: what");
        assert_eq!(AwsError::unreachable("what").to_string(), "what");
    }
}
