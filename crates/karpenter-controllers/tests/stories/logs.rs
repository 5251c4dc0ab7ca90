//! The log as programs read it that were written for upstream's.

mod format;
mod kept;
mod parsed;
mod patterns;
