//! What several test modules share.

pub(crate) mod builders;
pub(crate) mod cases;
pub(crate) mod naive;
pub(crate) mod outcomes;
pub(crate) mod recipes;
