//! Tasks of this repository that cargo has no command for. `cargo run -p xtask -- tidy` checks the repository,
//! `shorten-exceptions` removes exceptions that `tidy` no longer needs, `charts` copies the CustomResourceDefinitions
//! into the charts, `cases` counts the test cases of the AWS provider.

mod cases;
mod charts;
mod rust_text;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- tidy|shorten-exceptions|charts|cases";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match (arguments.next().as_deref(), arguments.next()) {
        (Some("tidy"), None) => tidy::run(),
        (Some("shorten-exceptions"), None) => tidy::shorten_exceptions().map(|()| true),
        (Some("charts"), None) => charts::write(&tidy::root()).map(|()| true),
        (Some("cases"), None) => cases::write(&tidy::root()).map(|()| true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
