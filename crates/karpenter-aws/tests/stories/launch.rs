//! Tests of launches and instances with the AWS fake, from a NodeClaim to the EC2 calls. There is no cluster; an API
//! server is used only for events.

mod conformance;
mod events;
mod fleet_errors;
mod instances;
mod launches;
mod templates;
mod world;
