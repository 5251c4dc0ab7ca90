//! All integration tests of this crate. They are one binary, because linking is a large part of the time of a test run.

mod bad_input;
mod bootstrap;
mod consolidate;
mod controller;
mod demo;
mod explain;
mod fuzz_smoke;
mod legacy;
mod network;
mod node_prices;
mod other_commands;
mod plan;
mod up;
