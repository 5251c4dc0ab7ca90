//! Adds the subcommand `controller` if the arguments have no subcommand and the process runs in a pod, because
//! upstream's image has no subcommands. This module also detects whether the binary was started as a plug-in of
//! kubectl.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::Path;

use super::go_flags::CONTROLLER;

/// The path of the token that is mounted into pods that may use the Kubernetes API.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// Upstream's chart sets at least one of these variables.
const CHART_VARIABLES: [&str; 2] = ["CLUSTER_NAME", "KARPENTER_SERVICE"];

/// The name of the binary, or of a link to it, as a plug-in of kubectl.
const KUBECTL_PLUGIN: &str = "kubectl-karpenter";

/// How the user calls the program, for usage messages: `kubectl karpenter` if the binary was started as a plug-in.
pub(crate) fn program(arguments: &[OsString]) -> &'static str {
    let name = arguments.first().and_then(|first| Path::new(first).file_stem()).and_then(OsStr::to_str);
    if name == Some(KUBECTL_PLUGIN) { "kubectl karpenter" } else { "karpenter" }
}

/// The properties of the process that decide whether `controller` is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProcessEnvironment {
    pub(crate) has_service_account_token: bool,
    pub(crate) has_chart_variable: bool,
    pub(crate) is_terminal: bool,
}

impl ProcessEnvironment {
    pub(crate) fn of_process() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            has_service_account_token: Path::new(SERVICE_ACCOUNT_TOKEN).exists(),
            has_chart_variable: CHART_VARIABLES.into_iter().any(is_set),
            is_terminal: std::io::stdout().is_terminal(),
        }
    }

    /// Whether `controller` is added. A shell may have `CLUSTER_NAME` set, so `controller` is not added if the output
    /// is a terminal: the user then gets the help.
    fn is_controller(self) -> bool {
        self.has_service_account_token || (self.has_chart_variable && !self.is_terminal)
    }
}

/// The arguments of the process, with `controller` inserted if it is implied.
pub(crate) fn with_subcommand(
    arguments: impl IntoIterator<Item = OsString>,
    environment: ProcessEnvironment,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if program(&arguments) == "karpenter"
        && environment.is_controller()
        && arguments.get(1).is_none_or(is_flag_of_controller)
    {
        arguments.insert(1.min(arguments.len()), CONTROLLER.into());
    }
    arguments
}

/// Whether an argument is a flag other than those of the program itself, such as --help.
fn is_flag_of_controller(argument: &OsString) -> bool {
    let own = ["-h", "--help", "-V", "--version"];
    argument.to_str().is_some_and(|text| text.starts_with('-') && !own.contains(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: ProcessEnvironment =
        ProcessEnvironment { has_service_account_token: true, has_chart_variable: false, is_terminal: false };
    const CHART: ProcessEnvironment =
        ProcessEnvironment { has_service_account_token: false, has_chart_variable: true, is_terminal: false };

    fn completed(arguments: &[&str], environment: ProcessEnvironment) -> Vec<String> {
        let all = ["karpenter"].iter().chain(arguments).map(OsString::from);
        let all = with_subcommand(all, environment);
        all.into_iter().skip(1).map(|one| one.into_string().expect("text")).collect()
    }

    #[test]
    fn without_subcommand_in_a_pod_controller_is_implied() {
        for environment in [POD, CHART, ProcessEnvironment { is_terminal: true, ..POD }] {
            assert_eq!(completed(&[], environment), ["controller"], "{environment:?}");
            let flags = ["--log-level", "debug", "-metrics-port=0"];
            assert_eq!(completed(&flags, environment)[0], "controller", "{environment:?}");
            assert_eq!(completed(&flags, environment)[1..], flags, "{environment:?}");
        }
    }

    #[test]
    fn without_subcommand_elsewhere_nothing_is_implied() {
        for environment in [ProcessEnvironment::default(), ProcessEnvironment { is_terminal: true, ..CHART }]
        {
            assert_eq!(completed(&[], environment), [""; 0], "{environment:?}");
            assert_eq!(completed(&["--log-level=debug"], environment), ["--log-level=debug"]);
        }
    }

    #[test]
    fn plugin_of_kubectl_is_never_the_controller() {
        let arguments = |path: &str| with_subcommand([OsString::from(path)], POD);
        assert_eq!(arguments("kubectl-karpenter").len(), 1);
        assert_eq!(arguments("/usr/local/bin/kubectl-karpenter").len(), 1);
        assert_eq!(arguments("/usr/local/bin/karpenter").len(), 2);
        assert_eq!(program(&["/usr/local/bin/kubectl-karpenter".into()]), "kubectl karpenter");
        assert_eq!(program(&["kubectl-karpenter.exe".into()]), "kubectl karpenter");
        assert_eq!(program(&["karpenter".into()]), "karpenter");
        assert_eq!(program(&[]), "karpenter");
    }

    #[test]
    fn subcommands_help_and_version_are_unchanged() {
        for given in [["plan", "-f"], ["controller", "--provider=kwok"], ["--help", "x"], ["-V", "x"]] {
            assert_eq!(completed(&given, POD), given);
        }
    }
}
