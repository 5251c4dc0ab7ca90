//! Tests that programs which parse upstream's log can parse this log.

mod format;
mod kept;
mod parsed;
mod patterns;
