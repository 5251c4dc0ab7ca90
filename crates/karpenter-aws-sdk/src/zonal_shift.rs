//! Implements the ARC zonal shift calls.

use aws_sdk_arczonalshift::Client;
use aws_sdk_arczonalshift::types::AppliedStatus;
use karpenter_aws::api::AwsFuture;
use karpenter_aws::api::zonal_shift::{Shift, ZonalShift};

use crate::convert::timestamp;
use crate::error::aws_error;

pub(crate) struct SdkZonalShift(pub(crate) Client);

impl ZonalShift for SdkZonalShift {
    fn get_managed_resource<'a>(&'a self, resource_arn: &'a str) -> AwsFuture<'a, Vec<Shift>> {
        Box::pin(async move {
            let call = self.0.get_managed_resource().resource_identifier(resource_arn);
            let answer = call.send().await.map_err(aws_error)?;
            let shifts = answer.zonal_shifts.into_iter().map(|shift| Shift {
                away_from_zone_id: shift.away_from,
                is_applied: shift.applied_status == AppliedStatus::Applied,
                started_at: timestamp(Some(shift.start_time)),
                expires_at: timestamp(Some(shift.expiry_time)),
            });
            Ok(shifts.collect())
        })
    }
}
