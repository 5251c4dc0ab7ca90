//! Sends the accept/reject cases of this crate's tests to real API servers. The command `ask` records the results of
//! one server; `compare` reports differences between servers with different CRDs and this crate. `e2e/validation`
//! starts the servers.

mod ask;
mod compare;
// The results that the table expects are used by the tests; this program records actual results.
#[allow(dead_code)]
#[path = "../../tests/cases/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::Value;

const USAGE: &str = "\
Usage: validation_cases ask KUBECONFIG
       validation_cases compare CORE_ANSWERS AWS_ANSWERS OUR_ANSWERS DIFFERENCES

  ask      sends every case as a dry run and prints the answers, one JSON document per line
  compare  compares the answers with each other and with what this crate says: of servers with the original CRDs of
           the core with kwok, with those of the AWS provider, and with ours
";

type Error = Box<dyn std::error::Error>;

/// The result of one case, as recorded in a file.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// The table and name of the case.
    case: String,
    verdict: Verdict,
}

#[derive(Clone, Serialize, Deserialize)]
enum Verdict {
    /// The object was accepted; these are the stored `spec` and `status`, if the response contains them.
    Accepted { spec: Value, status: Value },
    /// The object was rejected; these are the error message and the fields that it names.
    Refused { message: String, fields: BTreeSet<String> },
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ask", kubeconfig] => ask::ask(kubeconfig).await.map(|()| true),
        ["compare", core, aws, ours, differences] => compare::compare(core, aws, ours, differences),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
