//! Accepts flags with one dash, as Go's flag package does: `-log-level=debug` is `--log-level=debug`. This applies only
//! to the flags of `karpenter controller`, so that arguments of upstream's controller continue to work.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::CommandFactory;

use super::Cli;

pub(super) const CONTROLLER: &str = "controller";

/// The arguments of the process, with a second dash where one is missing.
pub(crate) fn with_two_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_none_or(|command| command != CONTROLLER) {
        return arguments;
    }
    let cli = Cli::command();
    let Some(controller) = cli.find_subcommand(CONTROLLER) else { return arguments };
    let known: BTreeSet<&str> = controller.get_arguments().filter_map(|one| one.get_long()).collect();
    for argument in arguments.iter_mut().skip(2).take_while(|argument| argument.to_str() != Some("--")) {
        let Some(text) = argument.to_str() else { continue };
        let name = text.strip_prefix('-').map(|rest| rest.split('=').next().unwrap_or_default());
        if name.is_some_and(|name| known.contains(name)) {
            *argument = format!("-{text}").into();
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(arguments: &[&str]) -> Vec<String> {
        let all = ["karpenter"].iter().chain(arguments).map(OsString::from);
        with_two_dashes(all).into_iter().skip(1).map(|one| one.into_string().expect("text")).collect()
    }

    #[test]
    fn controller_flags_with_one_dash_get_a_second() {
        let given =
            ["controller", "-log-level=debug", "-metrics-port", "8080", "--provider=kwok", "-h", "-other=1"];
        let expected = [
            "controller",
            "--log-level=debug",
            "--metrics-port",
            "8080",
            "--provider=kwok",
            "-h",
            "-other=1",
        ];
        assert_eq!(rewritten(&given), expected);
        assert_eq!(
            rewritten(&["controller", "--", "-log-level=debug"]),
            ["controller", "--", "-log-level=debug"]
        );
        assert_eq!(rewritten(&["plan", "-log-level=debug"]), ["plan", "-log-level=debug"]);
    }
}
