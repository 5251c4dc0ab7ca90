//! `create`.
//!
//! Upstream: k8s.io/apiserver/pkg/endpoints/handlers/create.go

use super::Call;
use super::pipeline::Ownership;
use crate::encode::Reply;
use crate::options::WriteOptions;
use crate::status::ApiResult;

const ENDPOINTS_WARNING: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

impl Call<'_> {
    pub(crate) fn create(&self) -> ApiResult<Reply> {
        let options = WriteOptions::parse(&self.incoming.query, "CreateOptions", false)?;
        if let Some(reply) = self.review()? {
            return Ok(reply);
        }
        if self.resource.is("", "Binding") {
            return self.bind_by_collection(&options);
        }
        let (object, mut warnings) = self.body_object(options.field_validation)?;
        if self.served.is("", "Endpoints") {
            warnings.push(ENDPOINTS_WARNING.to_string());
        }
        let manager = self.incoming.field_manager();
        let written = self.store_new(object, Ownership::Manager(&manager), options.dry_run)?;
        Ok(self.reply_written(201, &written).with_warnings(warnings))
    }
}
