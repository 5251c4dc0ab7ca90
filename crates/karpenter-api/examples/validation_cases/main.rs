//! The accept/reject cases of this crate's tests, put to real API servers: `ask` writes down what one server says to
//! every case, `compare` says where servers with different CRDs, and this crate, do not agree. `e2e/validation` starts
//! the servers.

mod ask;
mod compare;
// Expected verdicts are for the tests; here everybody is asked.
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

/// What somebody says to a case.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// The table and the name of the case.
    case: String,
    verdict: Verdict,
}

#[derive(Clone, Serialize, Deserialize)]
enum Verdict {
    /// What would be stored, as far as the answer shows it.
    Accepted { spec: Value, status: Value },
    /// Why not, and which fields are named.
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
